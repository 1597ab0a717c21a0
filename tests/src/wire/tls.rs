//! The client's side of TLS, with a single trusted authority.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
};

use crate::wait::TIMEOUT;
use crate::wire::certificates::{Authority, Certificate};
use crate::wire::message::Message;

impl Authority {
    /// Returns a client's settings with this authority as the only trusted one.
    ///
    /// # Panics
    /// Never: the authority's certificate is valid.
    pub fn client(&self) -> Trust {
        Trust::new(&self.pem(), rustls::DEFAULT_VERSIONS, &[])
    }

    /// Returns the settings as `client`, with these versions and application protocols only.
    pub fn client_with(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        alpn: &[&str],
    ) -> Trust {
        Trust::new(&self.pem(), versions, alpn)
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

    /// Adds a client certificate for servers that request one.
    ///
    /// # Panics
    /// When the library rejects the key.
    #[must_use]
    pub fn with_identity(&self, certificate: &Certificate) -> Self {
        let (chain, key) = certificate.parsed();
        let key = default_provider().key_provider.load_private_key(key);
        // Unlike `with_client_auth_cert` this takes any certificate.
        let identity = CertifiedKey::new(chain, key.expect("a key"));
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the usual versions")
            .with_root_certificates(self.1.clone())
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)));
        config.alpn_protocols.clone_from(&self.0.alpn_protocols);
        Self(Arc::new(config), self.1.clone())
    }

    /// Connects and completes the handshake.
    ///
    /// # Errors
    /// When the address accepts no connection, or the handshake fails.
    pub fn connect(&self, address: SocketAddr) -> std::io::Result<TlsClient> {
        self.greet(TcpStream::connect(address)?)?.finish()
    }

    /// Begins the handshake on a connection, and waits for the first bytes of the server.
    ///
    /// # Errors
    /// When the server closes without one.
    pub fn greet(&self, mut socket: TcpStream) -> std::io::Result<Handshake> {
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        let name = ServerName::IpAddress(socket.peer_addr()?.ip().into());
        let mut connection =
            ClientConnection::new(Arc::clone(&self.0), name).map_err(std::io::Error::other)?;
        connection.write_tls(&mut socket)?;
        socket.peek(&mut [0])?;
        Ok(Handshake(connection, socket))
    }
}

/// A handshake whose client has to finish it.
#[derive(Debug)]
pub struct Handshake(ClientConnection, TcpStream);

impl Handshake {
    /// Completes the handshake.
    ///
    /// # Errors
    /// When it fails.
    pub fn finish(self) -> std::io::Result<TlsClient> {
        let Self(mut connection, mut socket) = self;
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
    /// Returns the server's certificate.
    ///
    /// # Panics
    /// Never after a handshake.
    pub fn presented(&self) -> Vec<u8> {
        let chain = self.0.get_ref().conn.peer_certificates();
        chain.expect("a certificate").first().expect("one").to_vec()
    }

    /// Returns true if the handshake resumed a former session.
    pub fn is_resumed(&self) -> bool {
        self.0.get_ref().conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Returns the negotiated application protocol.
    pub fn protocol(&self) -> Option<String> {
        let name = self.0.get_ref().conn.alpn_protocol()?;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// Writes bytes and ignores errors: the test checks the response.
    pub fn send(&mut self, bytes: &[u8]) {
        let stream = self.0.get_mut();
        let _ = stream.write_all(bytes).and_then(|()| stream.flush());
    }

    /// Returns a writer, for clients that ignore the result.
    pub fn writer(&mut self) -> &mut impl Write {
        self.0.get_mut()
    }

    /// Returns a reader, whose end requires a close alert of TLS.
    pub fn reader(&mut self) -> &mut impl Read {
        &mut self.0
    }

    /// Returns the connection below TLS.
    pub fn socket(&self) -> &TcpStream {
        &self.0.get_ref().sock
    }

    /// Reads the response to a request with `method`.
    ///
    /// # Errors
    /// When there is no response.
    pub fn try_response(&mut self, method: &str) -> std::io::Result<Message> {
        let response = Message::read_response(&mut self.0, method)?;
        response.ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
    }

    /// Reads a response as `try_response`.
    ///
    /// # Panics
    /// When there is no response.
    pub fn response(&mut self, method: &str) -> Message {
        self.try_response(method)
            .unwrap_or_else(|error| panic!("no response to {method}: {error}"))
    }

    /// Reads to the end, which requires a close alert of TLS.
    ///
    /// # Errors
    /// When the connection ends without it.
    pub fn rest(&mut self) -> std::io::Result<Vec<u8>> {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest)?;
        Ok(rest)
    }
}
