//! A certificate chain and its private key, from two files: always a pair that belongs together.

use std::fmt;
use std::mem::take;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::parse_x509_certificate;
use zeroize::Zeroizing;

use crate::files::bounded_read;
use crate::files::secret_file::{self, SecretFileError};

/// A company's bundle has a handful of certificates, the Internet's about 150 (200 KiB). A wrong
/// path must not fill the memory.
const MAX_CERTIFICATE_BYTES: u64 = 1024 * 1024;

/// Error of two files that are not a certificate to serve with. Each text names its file and none
/// quotes a key.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file of the chain.
    #[error("{}: {problem}", path.display())]
    Certificate {
        /// The file as configured.
        path: PathBuf,
        /// The problem in words.
        problem: String,
    },
    /// The file of the key cannot be read, or others can read it too.
    #[error(transparent)]
    KeyFile(#[from] SecretFileError),
    /// The file of the key holds no key for this certificate.
    #[error("{}: {problem}", path.display())]
    Key {
        /// The file as configured.
        path: PathBuf,
        /// The problem in words.
        problem: String,
    },
}

impl CertificateError {
    /// Returns the faulty file.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Certificate { path, .. } | Self::Key { path, .. } => path,
            Self::KeyFile(error) => error.path(),
        }
    }

    /// Returns the setting of the faulty file: of `certificate` and `key` one.
    #[must_use]
    pub const fn setting<'s>(&self, certificate: &'s str, key: &'s str) -> &'s str {
        match self {
            Self::Certificate { .. } => certificate,
            Self::Key { .. } | Self::KeyFile(_) => key,
        }
    }
}

/// The certificate of a server, presented at each handshake. It changes as a whole, and only for a
/// valid one; handshakes and connections under way keep the one they began with.
pub struct ServerCertificate {
    cert: PathBuf,
    key: PathBuf,
    presented: ArcSwap<PresentedCertificate>,
}

/// Prints neither key nor chain.
impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificate")
            .field("cert", &self.cert)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

struct PresentedCertificate {
    certified: Arc<CertifiedKey>,
    not_after: i64,
}

impl ServerCertificate {
    /// Reads both files.
    ///
    /// # Errors
    /// [`CertificateError`] for files that are not a chain and its key.
    pub fn open(cert: PathBuf, key: PathBuf) -> Result<Self, CertificateError> {
        let presented = ArcSwap::from_pointee(PresentedCertificate::read(&cert, &key)?);
        Ok(Self {
            cert,
            key,
            presented,
        })
    }

    /// Returns the end of the presented certificate, in seconds since 1970.
    #[must_use]
    pub fn not_after(&self) -> i64 {
        self.presented.load().not_after
    }

    /// Reads both files again and returns true if another certificate is presented from then on.
    /// `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`CertificateError`] for files that are not a chain and its key, and for a new certificate
    /// that has expired. The previous one stays.
    pub fn reload(&self, now: i64) -> Result<bool, CertificateError> {
        let read = PresentedCertificate::read(&self.cert, &self.key)?;
        // The key belongs to the chain: a new key means a new chain.
        if read.certified.cert == self.presented.load().certified.cert {
            return Ok(false);
        }
        if read.not_after < now {
            let problem = "the certificate has expired".to_owned();
            return Err(of_certificate(&self.cert)(problem));
        }
        self.presented.store(Arc::new(read));
        Ok(true)
    }

    /// Returns the warning of [`expired`] for `--tls-cert`.
    #[must_use]
    pub fn expired(&self, now: i64) -> Option<String> {
        expired("--tls-cert", &self.cert, self.not_after(), now)
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.presented.load().certified))
    }
}

/// A chain and its key as they stand in their files, checked to belong together; never printed.
#[derive(PartialEq, Eq)]
pub struct CertificateFiles {
    /// PEM, the certificate itself first.
    pub chain: Vec<u8>,
    /// PEM.
    pub key: Zeroizing<String>,
    /// The end of the certificate, in seconds since 1970.
    pub not_after: i64,
}

impl CertificateFiles {
    /// Reads both files, for a client that presents the certificate.
    ///
    /// # Errors
    /// Those of [`ServerCertificate::open`].
    pub fn read(cert: &Path, key: &Path) -> Result<Self, CertificateError> {
        let (files, _) = Self::parsed(cert, key)?;
        Ok(files)
    }

    fn parsed(cert: &Path, key: &Path) -> Result<(Self, PresentedCertificate), CertificateError> {
        let (chain, pem) = (trusted(cert)?, secret_file::read(key)?);
        let presented = PresentedCertificate::of(&chain, &pem, cert, key)?;
        let files = Self {
            chain,
            key: pem,
            not_after: presented.not_after,
        };
        Ok((files, presented))
    }
}

impl PresentedCertificate {
    fn read(cert: &Path, key: &Path) -> Result<Self, CertificateError> {
        let (_, presented) = CertificateFiles::parsed(cert, key)?;
        Ok(presented)
    }

    fn of(chain: &[u8], pem: &str, cert: &Path, key: &Path) -> Result<Self, CertificateError> {
        let (chain, not_after) = parse_chain(chain).map_err(of_certificate(cert))?;
        let problem = |problem: String| CertificateError::Key {
            path: key.to_owned(),
            problem,
        };
        let der = PrivateKeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| problem("holds no private key in PEM without encryption".to_owned()))?;
        let certified = CertifiedKey::from_der(chain, der, &default_provider())
            .map_err(|error| problem(mismatch(&error, cert)))?;
        Ok(Self {
            certified: Arc::new(certified),
            not_after,
        })
    }
}

fn mismatch(error: &rustls::Error, cert: &Path) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => format!(
            "the private key does not belong to the first certificate of {}",
            cert.display()
        ),
        other => format!("no usable private key: {other}"),
    }
}

/// Returns the warning about a certificate that has expired by `now`; both times are in seconds
/// since 1970. It is not a failure, which would keep down a program that is about to get a fresh
/// one.
#[must_use]
pub fn expired(flag: &str, cert: &Path, not_after: i64, now: i64) -> Option<String> {
    (not_after < now).then(|| {
        let file = cert.display();
        format!("{flag} {file}: the certificate has expired: its peers reject it")
    })
}

/// Reads a file of certificates to trust: PEM of at least one certificate.
///
/// # Errors
/// [`CertificateError::Certificate`] for anything else.
pub fn trusted(path: &Path) -> Result<Vec<u8>, CertificateError> {
    read_bounded(path)
        .and_then(|pem| parse_chain(&pem).map(|_| pem))
        .map_err(of_certificate(path))
}

/// Reads a file of authorities to trust: at least one, and all usable.
///
/// # Errors
/// [`CertificateError::Certificate`] for anything else.
pub fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let usable = |pem: Vec<u8>| {
        let (authorities, _) = parse_chain(&pem)?;
        roots(&authorities).map_err(|error| error.to_string())?;
        Ok(authorities)
    };
    read_bounded(path)
        .and_then(usable)
        .map_err(of_certificate(path))
}

pub(super) fn roots(
    authorities: &[CertificateDer<'static>],
) -> Result<RootCertStore, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone())?;
    }
    Ok(roots)
}

fn of_certificate(path: &Path) -> impl Fn(String) -> CertificateError {
    move |problem| CertificateError::Certificate {
        path: path.to_owned(),
        problem,
    }
}

/// Returns the chain, and the end of its first certificate.
fn parse_chain(pem: &[u8]) -> Result<(Vec<CertificateDer<'static>>, i64), String> {
    let chain = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| "is not PEM".to_owned())?;
    let ends = chain
        .iter()
        .map(not_after)
        .collect::<Option<Vec<_>>>()
        .ok_or("holds a certificate that cannot be parsed")?;
    let first = ends.first().ok_or("holds no certificate in PEM")?;
    Ok((chain, *first))
}

fn not_after(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (rest, parsed) = parse_x509_certificate(certificate).ok()?;
    rest.is_empty()
        .then(|| parsed.validity().not_after.timestamp())
}

/// Reads a file of certificates without parsing it.
///
/// # Errors
/// The reason, without the name of the file.
pub fn read_bounded(path: &Path) -> Result<Vec<u8>, String> {
    let mut read =
        bounded_read::read(path, MAX_CERTIFICATE_BYTES).map_err(|why| why.to_string())?;
    Ok(take(&mut *read.bytes))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(super) mod tests {
    use std::fs::{Permissions, write};
    use std::os::unix::fs::PermissionsExt;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// Two files in a directory of their own.
    pub(crate) struct Files(tempfile::TempDir);

    /// A self-signed certificate and its key, as PEM.
    pub(crate) fn pair(end: i32) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["auth.test".to_owned()]).unwrap();
        params.not_after = date_time_ymd(end, 1, 1);
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    impl Files {
        pub(crate) fn with(cert: &str, key: &str) -> Self {
            let files = Self(tempfile::tempdir().unwrap());
            files.write(cert, key);
            files
        }

        pub(crate) fn write(&self, cert: &str, key: &str) {
            write(self.cert(), cert).unwrap();
            write(self.key(), key).unwrap();
            std::fs::set_permissions(self.key(), Permissions::from_mode(0o600)).unwrap();
        }

        pub(crate) fn cert(&self) -> PathBuf {
            self.0.path().join("tls.crt")
        }

        pub(crate) fn key(&self) -> PathBuf {
            self.0.path().join("tls.key")
        }

        pub(crate) fn open(&self) -> Result<ServerCertificate, CertificateError> {
            ServerCertificate::open(self.cert(), self.key())
        }
    }

    const NOW: i64 = 1_800_000_000;

    #[test]
    fn a_pair_is_read_with_its_end_and_both_files_may_be_one() {
        let (cert, key) = pair(2100);
        let files = Files::with(&cert, &key);
        assert_eq!(files.open().unwrap().not_after(), 4_102_444_800);
        let both = format!("{cert}{key}");
        let files = Files::with(&both, &both);
        assert!(files.open().is_ok());
    }

    #[test]
    fn what_is_no_pair_is_rejected_with_the_invalid_file() {
        let ((cert, key), (_, other_key)) = (pair(2100), pair(2100));
        let broken = cert.replacen("\nMII", "\nMIJ", 1);
        for (cert, key, of_key, problem) in [
            ("", &*key, false, "holds no certificate in PEM"),
            ("hello", &key, false, "holds no certificate in PEM"),
            (&*key, &*key, false, "holds no certificate in PEM"),
            (
                &broken,
                &key,
                false,
                "holds a certificate that cannot be parsed",
            ),
            (
                &cert,
                &other_key,
                true,
                "does not belong to the first certificate",
            ),
            (&cert, &cert, true, "holds no private key in PEM"),
            (&cert, "", true, "is empty"),
        ] {
            let files = Files::with(cert, key);
            let error = files.open().unwrap_err();
            let named = if of_key { files.key() } else { files.cert() };
            assert_eq!(error.path(), named, "{error}");
            assert!(error.to_string().contains(problem), "{error}");
        }
    }

    #[test]
    fn a_key_that_others_can_read_is_rejected() {
        let (cert, key) = pair(2100);
        let files = Files::with(&cert, &key);
        std::fs::set_permissions(files.key(), Permissions::from_mode(0o644)).unwrap();
        let line = files.open().unwrap_err().to_string();
        assert!(line.contains("is open to others"), "{line}");
    }

    #[test]
    fn one_that_has_ended_is_read_and_spoken_of() {
        let (cert, key) = pair(2020);
        let files = Files::with(&cert, &key);
        let certificate = files.open().unwrap();
        assert_eq!(certificate.expired(certificate.not_after()), None);
        let line = certificate.expired(NOW).unwrap();
        let start = format!("--tls-cert {}: the certificate has", files.cert().display());
        assert!(line.starts_with(&start), "{line}");
    }

    #[test]
    fn another_pair_replaces_it_and_a_bad_one_does_not() {
        let (cert, key) = pair(2100);
        let files = Files::with(&cert, &key);
        let certificate = files.open().unwrap();
        assert!(!certificate.reload(NOW).unwrap(), "nothing changed");

        let (cert, key) = pair(2099);
        files.write(&cert, "half");
        assert!(certificate.reload(NOW).is_err());
        assert_eq!(certificate.not_after(), 4_102_444_800);

        files.write(&cert, &key);
        assert!(certificate.reload(NOW).unwrap());
        assert_eq!(certificate.not_after(), 4_070_908_800);

        let (expired, key) = pair(2020);
        files.write(&expired, &key);
        let line = certificate.reload(NOW).unwrap_err().to_string();
        assert!(line.contains("has expired"), "{line}");
        assert_eq!(certificate.not_after(), 4_070_908_800);
    }
}
