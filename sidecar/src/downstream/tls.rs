//! TLS towards clients: the handshake.
//!
//! Pingora's own listener would shake hands before a connection has a place and without a deadline
//! of ours, and could not exchange the authorities of the clients.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use runtime::exit::Failure;
use runtime::tls::{ServerCertificate, read_bounded};
use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::downstream::transport::Socket;

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
    pub(crate) fn set_client_roots(&self, next: NextClients) {
        self.current.store(Arc::new(next.0));
    }

    /// The connection after its handshake.
    ///
    /// # Errors
    /// When the two do not agree, or not in time.
    pub(crate) async fn accept(
        &self,
        socket: Socket,
        limit: Duration,
    ) -> io::Result<TlsStream<Socket>> {
        let acceptor = self.current.load().acceptor.clone();
        tokio::time::timeout(limit, acceptor.accept(socket))
            .await
            .map_err(|_| io::ErrorKind::TimedOut)?
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

        tls.set_client_roots(next);
        assert!(tls.current.load().clients != before.clients);
    }
}
