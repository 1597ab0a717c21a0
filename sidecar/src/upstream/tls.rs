//! TLS towards the service: whom to trust, whom to be.
//!
//! Everything is checked here first: Pingora panics on a certificate that it cannot parse, and
//! verifies nothing where the server name is empty.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::HttpPeer;
use pingora::utils::tls::{CertKey, WrappedX509, parse_x509};
use process::file_read;
use process::tls::read_bounded;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// A private key in PEM takes 2 KiB.
const MAX_KEY_BYTES: u64 = 64 * 1024;

/// The files and the name that the flags give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// Whom the service's certificate has to be for. Never empty.
    pub(crate) server_name: String,
    /// PEM with the authorities to trust; `None` for the system's.
    pub(crate) ca: Option<PathBuf>,
    /// PEM files of a certificate chain and its private key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
}

/// What was read from them.
#[derive(Clone)]
pub(crate) struct UpstreamTls {
    server_name: String,
    ca: Option<Arc<CaType>>,
    client: Option<Arc<CertKey>>,
}

/// By name and certificates: a private key belongs to its certificate.
impl PartialEq for UpstreamTls {
    fn eq(&self, other: &Self) -> bool {
        self.server_name == other.server_name
            && self.authorities() == other.authorities()
            && self.chain() == other.chain()
    }
}

fn all_of<'c>(certificates: impl Iterator<Item = &'c WrappedX509>) -> Vec<&'c [u8]> {
    let raw = |certificate: &'c WrappedX509| certificate.borrow_raw_cert().as_slice();
    certificates.map(raw).collect()
}

/// Which file, or name, cannot be used, and why.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsFilesError {
    #[error("'{0}' is not the name of a server")]
    ServerName(String),
    #[error("{}: {why}", path.display())]
    File { path: PathBuf, why: String },
}

impl TlsFilesError {
    fn file(path: &Path, why: impl fmt::Display) -> Self {
        Self::File {
            path: path.to_owned(),
            why: why.to_string(),
        }
    }
}

impl UpstreamTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsFilesError`] for a file that cannot be read, holds no certificate, or a key that does not
    /// belong to its certificate.
    pub(crate) fn load(files: &TlsFiles) -> Result<Self, TlsFilesError> {
        if ServerName::try_from(files.server_name.as_str()).is_err() {
            return Err(TlsFilesError::ServerName(files.server_name.clone()));
        }
        Ok(Self {
            server_name: files.server_name.clone(),
            ca: files.ca.as_deref().map(authorities).transpose()?,
            client: files
                .client
                .as_ref()
                .map(|(certificate, key)| client_identity(certificate, key))
                .transpose()?,
        })
    }

    fn authorities(&self) -> Option<Vec<&[u8]>> {
        Some(all_of(self.ca.as_deref()?.iter()))
    }

    fn chain(&self) -> Option<Vec<&[u8]>> {
        let client = self.client.as_deref()?;
        let intermediates = client.intermediates().into_iter();
        Some(all_of(std::iter::once(client.leaf()).chain(intermediates)))
    }

    /// Has `peer` speak TLS, with everything verified.
    pub(crate) fn apply_to(&self, peer: &mut HttpPeer) {
        peer.sni.clone_from(&self.server_name);
        peer.options.ca.clone_from(&self.ca);
        peer.client_cert_key.clone_from(&self.client);
        peer.options.verify_cert = true;
        peer.options.verify_hostname = true;
    }
}

impl fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamTls")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

fn authorities(path: &Path) -> Result<Arc<CaType>, TlsFilesError> {
    let certificates = certificates(path)?;
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots
            .add(certificate.clone())
            .map_err(|error| TlsFilesError::file(path, error))?;
    }
    let parsed: Vec<WrappedX509> = certificates
        .into_iter()
        .map(|certificate| WrappedX509::new(certificate.to_vec(), parse_x509))
        .collect();
    Ok(parsed.into())
}

fn client_identity(certificate: &Path, key: &Path) -> Result<Arc<CertKey>, TlsFilesError> {
    let chain = certificates(certificate)?;
    let pem = file_read::read(key, MAX_KEY_BYTES).map_err(|why| TlsFilesError::file(key, why))?;
    let private = PrivateKeyDer::from_pem_slice(&pem.bytes)
        .map_err(|error| TlsFilesError::file(key, error))?;
    // Also compares the key with the certificate.
    ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_client_auth_cert(chain.clone(), private.clone_key())
        .map_err(|error| TlsFilesError::file(key, error))?;
    let chain = chain.iter().map(|link| link.to_vec()).collect();
    Ok(Arc::new(CertKey::new(chain, private.secret_der().to_vec())))
}

/// At least one certificate, each of them one that Pingora can parse.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFilesError> {
    let unusable = |why: &dyn fmt::Display| TlsFilesError::file(path, why);
    let pem = read_bounded(path).map_err(|why| unusable(&why))?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(&error))?;
    if certificates.is_empty() {
        return Err(unusable(&"holds no certificate"));
    }
    for certificate in &certificates {
        X509Certificate::from_der(certificate).map_err(|error| unusable(&error))?;
    }
    Ok(certificates)
}
