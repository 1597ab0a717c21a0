//! TLS towards the key server: its trusted authorities, and our client certificate. The files are
//! read again at each fetch.

use std::path::{Path, PathBuf};

use reqwest::{Certificate, ClientBuilder, Identity, tls};
use runtime::tls::{CertificateError, CertificateFiles, expired, read_bounded};
use zeroize::Zeroizing;

/// The paths of the certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// PEM bundle; trusted in place of the system's.
    pub(crate) ca: Option<PathBuf>,
    /// True for the bundle of an `[[issuer]]`, which errors name otherwise.
    pub(crate) is_of_table: bool,
    /// Certificate chain and private key, for a server that requires them.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

/// The reason why files cannot be used. The text names the setting and the file.
#[derive(Debug, thiserror::Error)]
#[error("{setting} '{}': {why}", path.display())]
pub(crate) struct TlsFileError {
    setting: &'static str,
    path: PathBuf,
    why: String,
}

/// The contents of the files, compared to notice a change; never printed.
#[derive(PartialEq, Eq)]
pub(crate) struct TlsMaterial {
    ca: Option<Vec<u8>>,
    identity: Option<ClientIdentity>,
}

impl TlsMaterial {
    /// Returns true if both present the same certificate, or neither presents one.
    pub(crate) fn presents_same_as(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

/// A chain and its key.
#[derive(PartialEq, Eq)]
struct ClientIdentity {
    pem: Zeroizing<Vec<u8>>,
    /// In seconds since 1970.
    not_after: i64,
}

const CERTIFICATE: &str = "--auth-client-cert";
const KEY: &str = "--auth-client-key";

impl TlsFiles {
    pub(crate) fn is_empty(&self) -> bool {
        self.ca.is_none() && self.identity.is_none()
    }

    const fn ca_setting(&self) -> &'static str {
        if self.is_of_table { "ca" } else { "--auth-ca" }
    }

    pub(crate) fn read(&self) -> Result<TlsMaterial, TlsFileError> {
        let ca = self.ca.as_deref();
        let identity = self.identity.as_ref();
        Ok(TlsMaterial {
            ca: ca.map(|path| read(self.ca_setting(), path)).transpose()?,
            identity: identity
                .map(|(certificate, key)| read_identity(certificate, key))
                .transpose()?,
        })
    }

    /// Returns a warning about a certificate that has expired at `now`, in seconds since 1970.
    pub(crate) fn expired(&self, material: &TlsMaterial, now: i64) -> Option<String> {
        let (certificate, _) = self.identity.as_ref()?;
        let identity = material.identity.as_ref()?;
        expired(CERTIFICATE, certificate, identity.not_after, now)
    }

    /// Builds a client with the authorities and certificate of `material`.
    pub(crate) fn configure(
        &self,
        material: &TlsMaterial,
        client: ClientBuilder,
    ) -> Result<ClientBuilder, TlsFileError> {
        let mut client = client.tls_version_min(tls::Version::TLS_1_2);
        if let (Some(path), Some(pem)) = (&self.ca, &material.ca) {
            let unusable = |why: &str| rejected(self.ca_setting(), path, why);
            let certificates = Certificate::from_pem_bundle(pem)
                .map_err(|_| unusable("is not a bundle of certificates in PEM"))?;
            if certificates.is_empty() {
                return Err(unusable("holds no certificate in PEM"));
            }
            client = client.tls_certs_only(certificates);
        }
        if let (Some((certificate, _)), Some(identity)) = (&self.identity, &material.identity) {
            let identity = Identity::from_pem(&identity.pem).map_err(|_| {
                let why = "holds no certificate, or the key file no private key, in PEM";
                rejected(CERTIFICATE, certificate, why)
            })?;
            client = client.identity(identity);
        }
        Ok(client)
    }
}

/// Reads a valid pair of certificate and key.
fn read_identity(certificate: &Path, key: &Path) -> Result<ClientIdentity, TlsFileError> {
    let files = CertificateFiles::read(certificate, key).map_err(|error| match error {
        CertificateError::Certificate { problem, .. } => {
            rejected(CERTIFICATE, certificate, problem)
        }
        CertificateError::Key { problem, .. } => rejected(KEY, key, problem),
        CertificateError::KeyFile(error) => rejected(KEY, key, error),
    })?;
    let mut pem = Zeroizing::new(files.chain);
    // Reserved at once: growing would leave a copy of the key that is not cleared.
    pem.reserve_exact(files.key.len() + 1);
    pem.push(b'\n');
    pem.extend_from_slice(files.key.as_bytes());
    Ok(ClientIdentity {
        pem,
        not_after: files.not_after,
    })
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, TlsFileError> {
    read_bounded(path).map_err(|error| rejected(setting, path, error))
}

fn rejected(setting: &'static str, path: &Path, why: impl ToString) -> TlsFileError {
    TlsFileError {
        setting,
        path: path.to_owned(),
        why: why.to_string(),
    }
}
