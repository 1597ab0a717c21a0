//! Test certificates in files, issued by authorities that no system trusts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postern_token::digest::sha256;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The end of all certificates that have not expired: the library's default, 4096-01-01.
pub const END: i64 = 67_090_118_400;

/// An authority; its files are in a directory that is removed on drop.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

/// A certificate and its key in two files.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate chain.
    pub cert: PathBuf,
    /// The key, readable by its owner only.
    pub key: PathBuf,
}

impl Authority {
    /// Creates an authority.
    ///
    /// # Panics
    /// When no key can be made or written.
    pub fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let mut params = CertificateParams::default();
        // Authorities of one name would differ in the signature only.
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        params.distinguished_name = named(&format!("authority {number} of the tests"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"))
            .expect("a certificate");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let authority = Self { issuer, directory };
        std::fs::write(authority.file(), authority.pem()).expect("a written file");
        authority
    }

    /// Returns the authority's certificate, for `--auth-ca` and `--store-ca`.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("ca.crt")
    }

    /// Returns the authority's certificate as text, even if the file has changed.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Issues a certificate for 127.0.0.1 and `localhost`, for servers and clients; a second one of
    /// the same name replaces the files of the first.
    ///
    /// # Panics
    /// When it cannot be issued or written.
    pub fn issue(&self, name: &str) -> Certificate {
        let usages = [
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        self.sign(name, &["127.0.0.1", "localhost"], usages)
    }

    /// Issues a certificate for a server only, valid for these names or addresses. The first one
    /// names its files.
    pub fn issue_server(&self, names: &[&str]) -> Certificate {
        self.sign(names[0], names, [ExtendedKeyUsagePurpose::ServerAuth])
    }

    /// Issues a certificate for a client only.
    pub fn issue_client(&self) -> Certificate {
        self.sign("client", &[], [ExtendedKeyUsagePurpose::ClientAuth])
    }

    /// Returns the authority's own certificate, for a server.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn as_server(&self) -> Certificate {
        let key = self.directory.path().join("ca.key");
        write_private(&key, &self.issuer.key().serialize_pem());
        Certificate {
            cert: self.file(),
            key,
        }
    }

    /// Issues a server certificate for 127.0.0.1 that has expired.
    ///
    /// # Panics
    /// When it cannot be issued or written.
    pub fn issue_expired_server(&self) -> Certificate {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("names");
        params.not_after = date_time_ymd(2020, 1, 1);
        self.sign_as("expired-server", params)
    }

    /// Issues a client certificate with a URI among its names, which may be any text.
    ///
    /// # Panics
    /// When the text is no ASCII.
    pub fn issue_client_with_uri(&self, uri: &str) -> Certificate {
        let mut params = CertificateParams::default();
        let uri = uri.try_into().expect("ASCII");
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign_as("named", params)
    }

    /// Issues a client certificate with a critical extension that no verifier knows.
    pub fn issue_client_with_extension(&self) -> Certificate {
        let mut params = CertificateParams::default();
        let mut extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 0], vec![5, 0]);
        extension.set_criticality(true);
        params.custom_extensions = vec![extension];
        self.sign_as("extended", params)
    }

    /// Issues a client certificate that has expired.
    pub fn issue_expired_client(&self) -> Certificate {
        let mut params = CertificateParams::default();
        params.not_after = date_time_ymd(2020, 1, 1);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign_as("expired", params)
    }

    fn sign(
        &self,
        name: &str,
        names: &[&str],
        usages: impl Into<Vec<ExtendedKeyUsagePurpose>>,
    ) -> Certificate {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.extended_key_usages = usages.into();
        self.sign_as(name, params)
    }

    fn sign_as(&self, name: &str, mut params: CertificateParams) -> Certificate {
        // A subject equal to the issuer would make the certificate self-signed.
        params.distinguished_name = named(name);
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        let file = |ending: &str| self.directory.path().join(format!("{name}.{ending}"));
        let (cert, key_file) = (file("crt"), file("key"));
        std::fs::write(&cert, signed.pem()).expect("a written file");
        write_private(&key_file, &key.serialize_pem());
        Certificate {
            cert,
            key: key_file,
        }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Certificate {
    /// Returns the paths of the certificate and of the key, for other flags.
    ///
    /// # Panics
    /// When a path is not UTF-8.
    pub fn paths(&self) -> (&str, &str) {
        (
            self.cert.to_str().expect("a path in UTF-8"),
            self.key.to_str().expect("a path in UTF-8"),
        )
    }

    /// Returns the two TLS flags of a server, with their values.
    pub fn flags(&self) -> [String; 4] {
        let path = |path: &Path| path.display().to_string();
        [
            "--tls-cert".to_owned(),
            path(&self.cert),
            "--tls-key".to_owned(),
            path(&self.key),
        ]
    }

    /// Returns TLS settings of a server with this certificate. With `client_ca`, clients need a
    /// certificate of that authority.
    ///
    /// # Panics
    /// When the library rejects a certificate of the harness.
    pub fn serving(&self, client_ca: Option<&Path>) -> Arc<ServerConfig> {
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the usual versions");
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let mut roots = RootCertStore::empty();
                roots.add(certificate(file)).expect("an authority");
                let roots = Arc::new(roots);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
            }
        };
        let (chain, key) = self.parsed();
        Arc::new(builder.with_single_cert(chain, key).expect("a pair"))
    }

    /// Returns the confirmation of tokens that are bound to it (RFC 8705 §3.1).
    pub fn cnf(&self) -> Value {
        let der = certificate(&self.cert);
        json!({"x5t#S256": URL_SAFE_NO_PAD.encode(sha256(&der))})
    }

    /// Returns the certificate and the key as the library's types.
    pub(crate) fn parsed(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = PrivateKeyDer::from_pem_file(&self.key).expect("a key");
        (vec![certificate(&self.cert)], key)
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    named.push(DnType::CommonName, name);
    named
}

fn certificate(file: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(file).expect("a certificate")
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
