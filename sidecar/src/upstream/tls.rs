//! TLS towards the service: trusted authorities and the client certificate.
//!
//! All files are checked when they are read: Pingora panics on a malformed certificate, and
//! verifies nothing if the server name is empty.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::HttpPeer;
use pingora::utils::tls::{CertKey, WrappedX509, parse_x509};
use runtime::tls::{CertificateFiles, authorities, expired};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

const CA: &str = "--upstream-ca";
const CERTIFICATE: &str = "--upstream-client-cert";
const KEY: &str = "--upstream-client-key";

/// Configured files and server name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// Name in the service's certificate, never empty.
    pub(crate) server_name: String,
    /// PEM file of the trusted authorities; `None` for those of the system.
    pub(crate) ca: Option<PathBuf>,
    /// PEM files of a certificate chain and its private key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
    /// False for a service on this machine's loopback address.
    pub(crate) is_verified: bool,
}

/// Content of [`TlsFiles`].
#[derive(Clone)]
pub(crate) struct UpstreamTls {
    server_name: String,
    ca: Option<Arc<CaType>>,
    client: Option<Identity>,
    is_verified: bool,
}

/// Client certificate for the service.
#[derive(Clone)]
struct Identity {
    pair: Arc<CertKey>,
    file: PathBuf,
    /// In seconds since 1970.
    not_after: i64,
}

/// Compares names and certificates; equal certificates have equal private keys.
impl PartialEq for UpstreamTls {
    fn eq(&self, other: &Self) -> bool {
        (&self.server_name, self.is_verified) == (&other.server_name, other.is_verified)
            && self.authorities() == other.authorities()
            && self.chain() == other.chain()
    }
}

fn raw_certificates<'c>(certificates: impl Iterator<Item = &'c WrappedX509>) -> Vec<&'c [u8]> {
    let raw = |certificate: &'c WrappedX509| certificate.borrow_raw_cert().as_slice();
    certificates.map(raw).collect()
}

/// Error of a file or of the server name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsFilesError {
    #[error("'{0}' is not the name of a server")]
    ServerName(String),
    #[error("{flag}: {why}")]
    File { flag: &'static str, why: String },
}

impl TlsFilesError {
    /// Creates the error of a file; `why` names the file.
    fn file(flag: &'static str, why: impl fmt::Display) -> Self {
        let why = why.to_string();
        Self::File { flag, why }
    }
}

impl UpstreamTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsFilesError`] for an unreadable file, a file without a certificate, or a key that does
    /// not match its certificate or is readable by others.
    pub(crate) fn load(files: &TlsFiles) -> Result<Self, TlsFilesError> {
        if ServerName::try_from(files.server_name.as_str()).is_err() {
            return Err(TlsFilesError::ServerName(files.server_name.clone()));
        }
        Ok(Self {
            server_name: files.server_name.clone(),
            ca: files.ca.as_deref().map(trusted).transpose()?,
            client: files
                .client
                .as_ref()
                .map(|(certificate, key)| client_identity(certificate, key))
                .transpose()?,
            is_verified: files.is_verified,
        })
    }

    /// Returns the warning of a service that any certificate will do for.
    pub(crate) fn unverified(&self) -> Option<String> {
        let host = &self.server_name;
        (!self.is_verified).then(|| {
            format!("--upstream: the certificate of {host} is not verified, as the connection does not leave this machine; --upstream-ca verifies it")
        })
    }

    /// Returns the warning of a client certificate that has expired at `now`, in seconds since
    /// 1970.
    pub(crate) fn expired_certificate(&self, now: i64) -> Option<String> {
        let client = self.client.as_ref()?;
        expired(CERTIFICATE, &client.file, client.not_after, now)
    }

    fn authorities(&self) -> Option<Vec<&[u8]>> {
        Some(raw_certificates(self.ca.as_deref()?.iter()))
    }

    fn chain(&self) -> Option<Vec<&[u8]>> {
        let client = &self.client.as_ref()?.pair;
        let intermediates = client.intermediates().into_iter();
        Some(raw_certificates(
            std::iter::once(client.leaf()).chain(intermediates),
        ))
    }

    /// Configures `peer` for TLS.
    pub(crate) fn apply_to(&self, peer: &mut HttpPeer) {
        peer.sni.clone_from(&self.server_name);
        peer.options.ca.clone_from(&self.ca);
        peer.client_cert_key = self.client.as_ref().map(|client| Arc::clone(&client.pair));
        peer.options.verify_cert = self.is_verified;
        peer.options.verify_hostname = self.is_verified;
    }
}

impl fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamTls")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

fn trusted(path: &Path) -> Result<Arc<CaType>, TlsFilesError> {
    let certificates = authorities(path).map_err(|error| TlsFilesError::file(CA, error))?;
    let parsed: Vec<WrappedX509> = certificates
        .into_iter()
        .map(|certificate| WrappedX509::new(certificate.to_vec(), parse_x509))
        .collect();
    Ok(parsed.into())
}

fn client_identity(file: &Path, key: &Path) -> Result<Identity, TlsFilesError> {
    let files = CertificateFiles::read(file, key)
        .map_err(|error| TlsFilesError::file(error.setting(CERTIFICATE, KEY), error))?;
    let chain = CertificateDer::pem_slice_iter(&files.chain)
        .map(|link| link.map(|link| link.to_vec()))
        .collect::<Result<_, _>>()
        .map_err(|error| TlsFilesError::file(CERTIFICATE, error))?;
    let private = PrivateKeyDer::from_pem_slice(files.key.as_bytes())
        .map_err(|error| TlsFilesError::file(KEY, error))?;
    Ok(Identity {
        pair: Arc::new(CertKey::new(chain, private.secret_der().to_vec())),
        file: file.to_owned(),
        not_after: files.not_after,
    })
}
