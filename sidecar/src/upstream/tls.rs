//! TLS towards the service: trusted authorities and the client certificate, for Pingora, which panics
//! on a malformed certificate, and verifies nothing if the server name is empty.

use std::fmt;
use std::sync::Arc;

use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::HttpPeer;
use pingora::utils::tls::{CertKey, WrappedX509, parse_x509};
use postern_process::exit::ExitError;
use postern_transport::tls::peer::{PeerCertificates, PeerFiles};
use postern_transport::tls::peer_settings::PeerSettings;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

/// Checked content of the files.
#[derive(Clone)]
pub(crate) struct UpstreamTls {
    /// Name in the service's certificate, never empty.
    server_name: String,
    /// False for a service on this machine's loopback address.
    is_verified: bool,
    read: Arc<PeerCertificates>,
    ca: Option<Arc<CaType>>,
    client: Option<Arc<CertKey>>,
}

impl PartialEq for UpstreamTls {
    fn eq(&self, other: &Self) -> bool {
        (&self.server_name, self.is_verified) == (&other.server_name, other.is_verified)
            && self.read == other.read
    }
}

/// Prints no certificate.
impl fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server_name.fmt(f)
    }
}

impl AsRef<PeerCertificates> for UpstreamTls {
    fn as_ref(&self) -> &PeerCertificates {
        &self.read
    }
}

impl UpstreamTls {
    pub(crate) const SETTINGS: PeerSettings = PeerSettings {
        ca: "--upstream-ca",
        certificate: "--upstream-client-cert",
        key: "--upstream-client-key",
    };

    /// Reads the files.
    ///
    /// # Errors
    /// [`ExitError::Config`] for a file that cannot be used, or a name that no server can have.
    pub(crate) fn read(
        server_name: &str,
        is_verified: bool,
        files: &PeerFiles,
    ) -> Result<Self, ExitError> {
        let invalid = |what: String| ExitError::Config(format!("--upstream: {what}"));
        if ServerName::try_from(server_name).is_err() {
            return Err(invalid(format!(
                "'{server_name}' is not the name of a server"
            )));
        }
        let read = files.read()?;
        let client = match &read.identity {
            Some(identity) => {
                let chain = identity.certified.cert.iter().map(|link| link.to_vec());
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())
                    .map_err(|error| invalid(error.to_string()))?;
                let client = CertKey::new(chain.collect(), key.secret_der().to_vec());
                Some(Arc::new(client))
            }
            None => None,
        };
        let authority = |it: &CertificateDer<'static>| WrappedX509::new(it.to_vec(), parse_x509);
        let authorities = read.authorities.as_ref();
        let ca = authorities.map(|all| all.iter().map(authority).collect::<Vec<_>>().into());
        Ok(Self {
            server_name: server_name.to_owned(),
            is_verified,
            ca,
            client,
            read: Arc::new(read),
        })
    }

    /// Returns the warning about a service whose certificate is not verified.
    pub(crate) fn unverified(&self) -> Option<String> {
        if self.is_verified {
            return None;
        }
        let host = &self.server_name;
        Some(format!(
            "--upstream: the certificate of {host} is not verified, as the connection does not leave this machine; --upstream-ca verifies it"
        ))
    }

    /// Returns the warning of a certificate that has expired at `now`, in seconds since 1970, or will expire
    /// soon.
    pub(crate) fn ending_certificate(&self, now: i64) -> Option<String> {
        self.read.ending(now)
    }

    /// Configures `peer` for TLS.
    pub(crate) fn apply_to(&self, peer: &mut HttpPeer) {
        peer.sni.clone_from(&self.server_name);
        peer.options.ca.clone_from(&self.ca);
        peer.client_cert_key.clone_from(&self.client);
        peer.options.verify_cert = self.is_verified;
        peer.options.verify_hostname = self.is_verified;
    }
}
