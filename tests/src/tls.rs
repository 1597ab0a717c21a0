//! A certificate authority, what it issues, and a client that trusts nobody else.

use std::fs::{Permissions, set_permissions, write};
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use tempfile::TempDir;

use crate::message::Message;
use crate::wait::PATIENCE;

/// An authority of its own; its certificate and what it issues lie in a directory that goes with it.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

/// A certificate and its key in two files.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The chain.
    pub cert: PathBuf,
    /// The key, readable by its owner only.
    pub key: PathBuf,
}

impl Certificate {
    /// The two flags of a server.
    pub fn flags(&self) -> [String; 4] {
        let path = |path: &Path| path.display().to_string();
        [
            "--tls-cert".to_owned(),
            path(&self.cert),
            "--tls-key".to_owned(),
            path(&self.key),
        ]
    }
}

impl Authority {
    /// A fresh one.
    ///
    /// # Panics
    /// When no key can be made or written.
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = named("an authority of the tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"))
            .expect("a certificate");
        let directory = tempfile::tempdir().expect("a temporary directory");
        write(directory.path().join("ca.crt"), issuer.pem()).expect("a written file");
        Self { issuer, directory }
    }

    /// Its certificate, as `--auth-ca` and `--store-ca` want it.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("ca.crt")
    }

    /// Issues a certificate for 127.0.0.1 and `localhost`, for servers and clients; a second one of
    /// the same name replaces the files of the first.
    ///
    /// # Panics
    /// When it cannot be issued or written.
    pub fn issue(&self, name: &str) -> Certificate {
        let certificate = Certificate {
            cert: self.directory.path().join(format!("{name}.crt")),
            key: self.directory.path().join(format!("{name}.key")),
        };
        let (cert, key) = self.pem(name);
        write(&certificate.cert, cert).expect("a written file");
        write(&certificate.key, key).expect("a written file");
        set_permissions(&certificate.key, Permissions::from_mode(0o600)).expect("a private file");
        certificate
    }

    fn pem(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut params = CertificateParams::new(names).expect("names");
        // Another one than the authority's: who issues and is issued under one name has signed itself.
        params.distinguished_name = named(name);
        params.use_authority_key_identifier_extension = true;
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        (cert.pem(), key.serialize_pem())
    }

    /// What a client that trusts this authority alone connects with.
    ///
    /// # Panics
    /// Never: the authority's certificate is one.
    pub fn client(&self) -> Trust {
        Trust::new(&self.issuer.pem(), rustls::DEFAULT_VERSIONS, &[])
    }

    /// As `client`, with these versions and application protocols only.
    pub fn client_with(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        alpn: &[&str],
    ) -> Trust {
        Trust::new(&self.issuer.pem(), versions, alpn)
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    named.push(DnType::CommonName, name);
    named
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

/// The client's side of TLS.
#[derive(Debug, Clone)]
pub struct Trust(Arc<ClientConfig>, RootCertStore);

impl Trust {
    fn new(ca: &str, versions: &[&'static SupportedProtocolVersion], alpn: &[&str]) -> Self {
        let mut roots = RootCertStore::empty();
        let der = CertificateDer::from_pem_slice(ca.as_bytes()).expect("a certificate");
        roots.add(der).expect("an authority");
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions)
            .expect("versions that the library knows")
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Self(Arc::new(config), roots)
    }

    /// As this one, and showing this certificate where it is asked for one.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn with_identity(&self, certificate: &Certificate) -> Self {
        let chain = vec![CertificateDer::from_pem_file(&certificate.cert).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_file(&certificate.key).expect("a key");
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the usual versions")
            .with_root_certificates(self.1.clone())
            .with_client_auth_cert(chain, key)
            .expect("a pair");
        Self(Arc::new(config), self.1.clone())
    }

    /// Connects and shakes hands.
    ///
    /// # Errors
    /// When nobody listens, or the two do not agree.
    pub fn connect(&self, address: SocketAddr) -> std::io::Result<TlsClient> {
        let mut socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let name = ServerName::IpAddress(address.ip().into());
        let mut connection =
            ClientConnection::new(Arc::clone(&self.0), name).map_err(std::io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(TlsClient(BufReader::new(StreamOwned::new(
            connection, socket,
        ))))
    }
}

/// One connection.
#[derive(Debug)]
pub struct TlsClient(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl TlsClient {
    /// The certificate that the server showed.
    ///
    /// # Panics
    /// Never after a handshake.
    pub fn shown(&self) -> Vec<u8> {
        let chain = self.0.get_ref().conn.peer_certificates();
        chain.expect("a certificate").first().expect("one").to_vec()
    }

    /// The application protocol that was agreed on.
    pub fn protocol(&self) -> Option<String> {
        let name = self.0.get_ref().conn.alpn_protocol()?;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// Writes bytes; a failed write is no failure yet, the answer is what counts.
    pub fn send(&mut self, bytes: &[u8]) {
        let stream = self.0.get_mut();
        let _ = stream.write_all(bytes).and_then(|()| stream.flush());
    }

    /// Reads the answer to a request with `method`.
    ///
    /// # Panics
    /// When there is none.
    pub fn answer(&mut self, method: &str) -> Message {
        Message::read_answer(&mut self.0, method)
            .unwrap_or_else(|error| panic!("no answer to {method}: {error}"))
            .unwrap_or_else(|| panic!("closed without an answer to {method}"))
    }

    /// Reads to the end, which has to be told by TLS itself.
    ///
    /// # Errors
    /// When the connection breaks off.
    pub fn rest(&mut self) -> std::io::Result<Vec<u8>> {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest)?;
        Ok(rest)
    }
}
