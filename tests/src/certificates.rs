//! Certificates of the harness: an authority that nobody's system trusts, and what it signs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Signs certificates.
#[derive(Debug)]
pub struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its private key, both in PEM.
#[derive(Debug)]
pub struct Certified {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl CertificateAuthority {
    /// A fresh one.
    ///
    /// # Panics
    /// When the machine has no randomness.
    pub fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        // Two of one name would be taken for each other, and told apart by the signature only.
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("authority {number} of the tests");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Its own certificate: what clients trust.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A server's certificate for these names, or addresses.
    pub fn server(&self, names: &[&str]) -> Certified {
        self.sign(names, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A client's certificate.
    pub fn client(&self) -> Certified {
        self.sign(&["sidecar"], ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, names: &[&str], usage: ExtendedKeyUsagePurpose) -> Certified {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer);
        Certified {
            certificate: certificate.expect("a certificate").pem(),
            key: key.serialize_pem(),
        }
    }
}

impl Default for CertificateAuthority {
    fn default() -> Self {
        Self::new()
    }
}

impl Certified {
    /// TLS of a server that shows it. `clients` signs the certificates that clients have to show;
    /// without it none is asked for.
    ///
    /// # Panics
    /// When the library refuses what the harness made.
    pub fn tls(&self, clients: Option<&CertificateAuthority>) -> Arc<ServerConfig> {
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("protocol versions");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots
                    .add(certificate(authority.pem()))
                    .expect("a trusted certificate");
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
            }
        };
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a key");
        let config = builder.with_single_cert(vec![certificate(&self.certificate)], key);
        Arc::new(config.expect("a certificate with its key"))
    }

    /// Writes both into `directory`, the key for its owner only; where they are.
    ///
    /// # Panics
    /// When they cannot be written.
    pub fn write(&self, directory: &Path) -> (PathBuf, PathBuf) {
        let (certificate, key) = (directory.join("client.pem"), directory.join("client.key"));
        std::fs::write(&certificate, &self.certificate).expect("a certificate file");
        write_private(&key, &self.key);
        (certificate, key)
    }
}

/// Writes a file that only its owner may read.
///
/// # Panics
/// When it cannot be written.
pub fn write_private(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;

    std::fs::write(path, text).expect("a private file");
    let owner_only = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, owner_only).expect("its mode");
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}
