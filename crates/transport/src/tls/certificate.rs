//! A certificate chain and its private key, from two files: always a pair that belongs together.

use std::mem::take;
use std::path::Path;
use std::slice;
use std::sync::Arc;

use postern_token::keys::found_in;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::parse_x509_certificate;
use zeroize::Zeroizing;

use super::expiry::End;
use super::failure::in_words;
use super::peer_settings::PeerSettings;
use postern_process::files::{bounded_read, secret_file};

/// Max length of a file, because a wrong path must not fill the memory. A company's bundle has a handful of
/// certificates, the Internet's about 150 (200 KiB).
const MAX_CERTIFICATE_BYTES: u64 = 1024 * 1024;

/// A chain and its key as they stand in their files, checked to belong together. Neither is ever printed.
pub struct CertificateFiles {
    /// The chain in PEM, the certificate itself first.
    pub chain: Vec<u8>,
    /// The key in PEM.
    pub key: Zeroizing<String>,
    /// Chain and key, parsed.
    pub certified: Arc<CertifiedKey>,
    pub(super) end: End,
}

impl PartialEq for CertificateFiles {
    fn eq(&self, other: &Self) -> bool {
        (&self.chain, &self.key) == (&other.chain, &other.key)
    }
}

impl Eq for CertificateFiles {}

impl CertificateFiles {
    /// Reads both files; an error names the setting and the file.
    pub(super) fn read(settings: &PeerSettings, cert: &Path, key: &Path) -> Result<Self, String> {
        let of_chain =
            |problem: String| format!("{}: {}: {problem}", settings.certificate, cert.display());
        let of_key = |problem: String| format!("{}: {}: {problem}", settings.key, key.display());
        let chain = read_bounded(cert).map_err(of_chain)?;
        let (parsed, validity) = parse_chain(&chain).map_err(of_chain)?;
        let pem = secret_file::read(key).map_err(|error| format!("{}: {error}", settings.key))?;
        let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| {
            let found = found_in(pem.as_bytes());
            of_key(format!(
                "holds no private key in PEM without encryption, but {found}"
            ))
        })?;
        // Checks that chain and key belong together, too: the two files are not written at once.
        let certified = CertifiedKey::from_der(parsed, der, &default_provider()).map_err(
            |error| match &error {
                rustls::Error::InvalidCertificate(_) => {
                    let words = in_words(&error.to_string(), &PeerSettings::default());
                    of_chain(words.unwrap_or_default())
                }
                _ => of_key(mismatch(&error, cert)),
            },
        )?;
        Ok(Self {
            end: End::new(
                format!("{} {}", settings.certificate, cert.display()),
                validity,
            ),
            chain,
            key: pem,
            certified: Arc::new(certified),
        })
    }

    /// Returns the chain and its key in one text.
    #[must_use]
    pub fn pem(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new([&self.chain, b"\n".as_slice(), self.key.as_bytes()].concat())
    }
}

fn mismatch(error: &rustls::Error, cert: &Path) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => format!(
            "the private key does not belong to the first certificate of {}",
            cert.display()
        ),
        _ => "the private key has to be RSA from 2048 bits, ECDSA (P-256, P-384, P-521) or Ed25519"
            .to_owned(),
    }
}

/// Reads a file of certificates to trust: PEM of at least one certificate.
///
/// # Errors
/// The file, and the error in its content.
pub fn trusted(path: &Path) -> Result<Vec<u8>, String> {
    read_bounded(path)
        .and_then(|pem| parse_chain(&pem).map(|_| pem))
        .map_err(|problem| format!("{}: {problem}", path.display()))
}

/// Reads a file of authorities to trust: at least one, and each has to be usable. An error names the file.
pub(super) fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let usable = |pem: Vec<u8>| {
        let (authorities, _) = parse_chain(&pem)?;
        all_usable(&authorities, |authority| {
            roots(slice::from_ref(authority)).ok()
        })?;
        Ok(authorities)
    };
    read_bounded(path)
        .and_then(usable)
        .map_err(|problem| format!("{}: {problem}", path.display()))
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

/// Returns the chain, and the validity of its first certificate.
fn parse_chain(pem: &[u8]) -> Result<(Vec<CertificateDer<'static>>, [i64; 2]), String> {
    let none = || {
        format!(
            "holds no certificate in PEM (CERTIFICATE), but {}",
            found_in(pem)
        )
    };
    let chain = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| none())?;
    let first = *all_usable(&chain, validity)?.first().ok_or_else(none)?;
    Ok((chain, first))
}

/// Returns what each certificate is used for, or names the first that is unusable.
fn all_usable<T>(
    chain: &[CertificateDer<'static>],
    used: impl Fn(&CertificateDer<'static>) -> Option<T>,
) -> Result<Vec<T>, String> {
    (1..)
        .zip(chain)
        .map(|(number, certificate)| {
            used(certificate).ok_or_else(|| {
                let of = chain.len();
                format!("its certificate {number} of {of} cannot be parsed")
            })
        })
        .collect()
}

/// Returns true for an X.509 certificate in DER, with nothing after it.
#[must_use]
pub fn is_whole(der: &[u8]) -> bool {
    parse_x509_certificate(der).is_ok_and(|(rest, _)| rest.is_empty())
}

/// Returns the start and the end, in seconds since 1970.
pub(super) fn validity(certificate: &CertificateDer<'_>) -> Option<[i64; 2]> {
    let ([], parsed) = parse_x509_certificate(certificate).ok()? else {
        return None;
    };
    let times = parsed.validity();
    Some([times.not_before.timestamp(), times.not_after.timestamp()])
}

/// Reads a file of certificates without parsing it.
fn read_bounded(path: &Path) -> Result<Vec<u8>, String> {
    let mut read =
        bounded_read::read(path, MAX_CERTIFICATE_BYTES).map_err(|why| why.to_string())?;
    Ok(take(&mut *read.bytes))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(super) mod tests {
    use std::fs::{Permissions, write};
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use rcgen::{CertificateParams, CustomExtension, KeyPair, date_time_ymd};

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

    /// As [`pair`], with an extension that no program knows.
    fn with_critical_extension() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["auth.test".to_owned()]).unwrap();
        let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
        extension.set_criticality(true);
        params.custom_extensions.push(extension);
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

        fn read(&self) -> Result<CertificateFiles, String> {
            let settings = PeerSettings {
                certificate: "cert",
                key: "key",
                ..PeerSettings::default()
            };
            CertificateFiles::read(&settings, &self.cert(), &self.key())
        }
    }

    #[test]
    fn a_pair_is_read_with_its_end_and_both_files_may_be_one() {
        let (cert, key) = pair(2100);
        let files = Files::with(&cert, &key);
        assert_eq!(files.read().unwrap().end.at, 4_102_444_800);
        let both = format!("{cert}{key}");
        let files = Files::with(&both, &both);
        assert!(files.read().is_ok());
    }

    /// RFC 7468 §2, as `openssl x509 -text` and `openssl pkcs12` write it.
    #[test]
    fn text_around_certificate_and_key_counts_for_nothing() {
        let (cert, key) = pair(2100);
        let cert = format!(
            "Certificate:\n    Data:\n{cert}# issuers\n{}the end\n",
            pair(2100).0
        );
        let files = Files::with(&cert, &format!("Bag Attributes\r\n  Key: <None>\n{key}end"));
        assert_eq!(files.read().unwrap().certified.cert.len(), 2);
        assert_eq!(authorities(&files.cert()).unwrap().len(), 2);
    }

    #[test]
    fn what_is_no_pair_is_rejected_with_the_invalid_file() {
        let ((cert, key), (_, other_key)) = (pair(2100), pair(2100));
        let broken = cert.replacen("\nMII", "\nMIJ", 1);
        let (bundle, in_base64) = (format!("{cert}{broken}"), "LS0tLS1CRUdJTiBDRVJU");
        let request = cert.replace("CERTIFICATE", "CERTIFICATE REQUEST");
        let cut_off = &cert[..cert.len() / 2];
        let encrypted = key.replace("PRIVATE", "ENCRYPTED PRIVATE");
        let header = "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n";
        let encrypted_by_header = key.replacen("KEY-----", header, 1);
        let open_ssh = key.replace("PRIVATE", "OPENSSH PRIVATE");
        let unknown = with_critical_extension();
        let unparsed = "its certificate 1 of 1 cannot be parsed";
        let foreign = "does not belong to the first certificate";
        for (cert, key, of_key, problem) in [
            ("", &*key, false, "in PEM (CERTIFICATE), but nothing"),
            ("hello", &key, false, "(CERTIFICATE), but something else"),
            (&*key, &*key, false, "but PEM of PRIVATE KEY"),
            (&request, &key, false, "but PEM of CERTIFICATE REQUEST"),
            (cut_off, &key, false, "but PEM that is cut off"),
            (&broken, &key, false, unparsed),
            (
                &bundle,
                &key,
                false,
                "its certificate 2 of 2 cannot be parsed",
            ),
            (in_base64, &key, false, "but the base64 of PEM"),
            (
                &unknown.0,
                &unknown.1,
                false,
                "a critical extension that is unknown here",
            ),
            (&cert, &other_key, true, foreign),
            (
                &cert,
                &cert,
                true,
                "without encryption, but PEM of CERTIFICATE",
            ),
            (&cert, &encrypted, true, "but PEM of ENCRYPTED PRIVATE KEY"),
            (
                &cert,
                &encrypted_by_header,
                true,
                "without encryption, but PEM of PRIVATE KEY",
            ),
            (&cert, &open_ssh, true, "but PEM of OPENSSH PRIVATE KEY"),
            (&cert, "", true, "is empty"),
        ] {
            let files = Files::with(cert, key);
            let line = files.read().err().unwrap();
            let (setting, file) = if of_key {
                ("key: ", files.key())
            } else {
                ("cert: ", files.cert())
            };
            assert!(line.starts_with(setting), "{line}");
            let file = file.to_str().unwrap();
            assert!(line.contains(file) && line.contains(problem), "{line}");
        }
    }
}
