//! TLS towards clients: the handshake, and the connection after it as Pingora sees it.
//!
//! Pingora's own listener would shake hands before a connection has a place and without a deadline
//! of ours, and could not exchange the authorities of the clients.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    Stream, TimingDigest, UniqueID, UniqueIDType,
};
use process::exit::Failure;
use process::tls::{ServerCertificate, read_bounded};
use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// What the flags about TLS say.
#[derive(Debug, Clone)]
pub(crate) struct ClientTlsSettings {
    pub(crate) certificate: Arc<ServerCertificate>,
    /// PEM with the authorities that have to vouch for a client.
    pub(crate) client_ca: Option<PathBuf>,
}

/// The authorities of clients, as they stand in their file.
type Authorities = Vec<CertificateDer<'static>>;

/// Shakes hands with clients.
pub(crate) struct ClientTls {
    /// Looks after its own files.
    certificate: Arc<ServerCertificate>,
    current: ArcSwap<Current>,
}

/// What the next handshake goes by.
struct Current {
    acceptor: TlsAcceptor,
    clients: Option<Authorities>,
}

/// What clients are to be held to, once it is taken over.
pub(crate) struct NextClients(Current);

impl ClientTls {
    /// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1.
    ///
    /// # Errors
    /// [`Failure::Config`] for a file of authorities that holds none.
    pub(crate) fn new(settings: &ClientTlsSettings) -> Result<Self, Failure> {
        let clients = authorities(settings.client_ca.as_deref())?;
        let current = Current::new(&settings.certificate, clients)?;
        Ok(Self {
            certificate: Arc::clone(&settings.certificate),
            current: ArcSwap::from_pointee(current),
        })
    }

    /// Reads the authorities of clients again; `None` where they are those of before. Nothing has changed
    /// when this returns.
    ///
    /// # Errors
    /// As [`ClientTls::new`].
    pub(crate) fn judged(&self, client_ca: Option<&Path>) -> Result<Option<NextClients>, Failure> {
        let clients = authorities(client_ca)?;
        if clients == self.current.load().clients {
            return Ok(None);
        }
        // With fresh keys for tickets: with an old ticket a client would resume what it is to prove anew.
        let current = Current::new(&self.certificate, clients)?;
        Ok(Some(NextClients(current)))
    }

    /// They count from the next handshake on. Whoever is connected stays so.
    pub(crate) fn now_trusts(&self, next: NextClients) {
        self.current.store(Arc::new(next.0));
    }

    /// The connection after its handshake.
    ///
    /// # Errors
    /// When the two do not agree, or not in time.
    pub(crate) async fn accept(&self, transport: Stream, limit: Duration) -> io::Result<Stream> {
        let acceptor = self.current.load().acceptor.clone();
        let stream = tokio::time::timeout(limit, acceptor.accept(transport))
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        Ok(Box::new(TlsTransport::new(stream)))
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTls")
    }
}

impl Current {
    fn new(
        certificate: &Arc<ServerCertificate>,
        clients: Option<Authorities>,
    ) -> Result<Self, Failure> {
        let refused = |error| Failure::Software(format!("TLS cannot be set up: {error}"));
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(refused)?;
        let builder = match &clients {
            None => builder.with_no_client_auth(),
            Some(clients) => builder.with_client_cert_verifier(vouched_for_by(clients)?),
        };
        let mut config = builder.with_cert_resolver(Arc::clone(certificate) as _);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.ticketer = Ticketer::new().map_err(refused)?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            clients,
        })
    }
}

/// At least one, each of them one that a client can be held to.
fn authorities(file: Option<&Path>) -> Result<Option<Authorities>, Failure> {
    let Some(file) = file else {
        return Ok(None);
    };
    let refused = |why: Failure| Failure::Config(format!("--client-ca {}: {why}", file.display()));
    let pem = read_bounded(file).map_err(|why| refused(Failure::Config(why)))?;
    let authorities = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Authorities, _>>()
        .map_err(|error| refused(Failure::Config(error.to_string())))?;
    vouched_for_by(&authorities).map_err(refused)?;
    Ok(Some(authorities))
}

fn vouched_for_by(authorities: &Authorities) -> Result<Arc<dyn ClientCertVerifier>, Failure> {
    let refused = |why: &dyn fmt::Display| Failure::Config(why.to_string());
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        let added = roots.add(authority.clone());
        added.map_err(|error| refused(&error))?;
    }
    if roots.is_empty() {
        return Err(refused(&"holds no certificate"));
    }
    let provider = Arc::new(default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| refused(&error))
}

/// What a connection is to Pingora once it is encrypted.
#[derive(Debug)]
struct TlsTransport {
    stream: TlsStream<Stream>,
    /// Pingora does not look for the preface of HTTP/2 without TLS where there is one of these.
    digest: Arc<SslDigest>,
}

impl TlsTransport {
    fn new(stream: TlsStream<Stream>) -> Self {
        let session = stream.get_ref().1;
        let version = match session.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLSv1.3",
        };
        Self {
            digest: Arc::new(SslDigest::new("", version, None, None, Vec::new())),
            stream,
        }
    }

    fn transport(&self) -> &Stream {
        self.stream.get_ref().0
    }
}

impl AsyncRead for TlsTransport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for TlsTransport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[async_trait]
impl Shutdown for TlsTransport {
    async fn shutdown(&mut self) {
        // Tells the client that nothing was cut off; who is gone is not told.
        let _ = AsyncWriteExt::shutdown(&mut self.stream).await;
    }
}

impl UniqueID for TlsTransport {
    fn id(&self) -> UniqueIDType {
        self.transport().id()
    }
}

impl Ssl for TlsTransport {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        Some(Arc::clone(&self.digest))
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        match self.stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Some(ALPN::H2),
            Some(_) => Some(ALPN::H1),
            None => None,
        }
    }
}

impl Peek for TlsTransport {}

impl GetTimingDigest for TlsTransport {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.transport().get_timing_digest()
    }
}

impl GetProxyDigest for TlsTransport {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.transport().get_proxy_digest()
    }
}

impl GetSocketDigest for TlsTransport {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.transport().get_socket_digest()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A self-signed certificate and its key, as PEM.
    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["a.test".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn other_authorities_are_judged_before_anybody_is_held_to_them() {
        let home = tempfile::tempdir().unwrap();
        let [cert, key, ca] = ["tls.crt", "tls.key", "ca.crt"].map(|name| home.path().join(name));
        let (certificate, private) = pair();
        write(&cert, certificate).unwrap();
        write(&key, private).unwrap();
        set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        write(&ca, pair().0).unwrap();
        let tls = ClientTls::new(&ClientTlsSettings {
            certificate: Arc::new(ServerCertificate::open(cert, key).unwrap()),
            client_ca: Some(ca.clone()),
        })
        .unwrap();
        assert!(tls.judged(Some(&ca)).unwrap().is_none(), "the same");

        let before = tls.current.load_full();
        write(&ca, pair().0).unwrap();
        let next = tls.judged(Some(&ca)).unwrap().unwrap();
        assert!(tls.judged(None).unwrap().is_some());
        write(&ca, "none").unwrap();
        assert!(tls.judged(Some(&ca)).is_err());
        assert!(Arc::ptr_eq(&before, &tls.current.load()), "judged only");

        tls.now_trusts(next);
        assert!(tls.current.load().clients != before.clients);
    }
}
