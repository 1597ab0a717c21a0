//! TLS handshakes with clients.
//!
//! Pingora's own listener would shake hands before a connection has a permit and without our
//! timeout, and could not reload the authorities of client certificates.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{ServerCertificate, authorities, server};
use crate::files::file_watch::{self, PollTimer, Transition};
use crate::process::exit::ExitError;

/// HTTP/2 and HTTP/1.1, as ALPN names them.
pub const HTTP_2_OR_1: &[&str] = &["h2", "http/1.1"];
/// HTTP/1.1 alone.
pub const HTTP_1: &[&str] = &["http/1.1"];

/// TLS settings of the client port.
#[derive(Debug, Clone)]
pub struct ClientTlsSettings {
    /// The server's own, which reloads its files.
    pub certificate: Arc<ServerCertificate>,
    /// As ALPN names them.
    pub protocols: &'static [&'static str],
    /// PEM file with the authorities that must have issued the client's certificate.
    pub client_ca: Option<PathBuf>,
}

/// Authorities of client certificates, as in their file.
type Authorities = Vec<CertificateDer<'static>>;

/// Acceptor of TLS connections, with certificates that can be replaced.
pub struct ClientTls {
    /// Reloads its own files.
    certificate: Arc<ServerCertificate>,
    protocols: &'static [&'static str],
    current: ArcSwap<Current>,
}

/// Settings of the next handshake.
struct Current {
    acceptor: TlsAcceptor,
    clients: Option<Authorities>,
}

/// Checked authorities that are not in use yet.
pub struct NextClients(Current);

impl ClientTls {
    /// Offers TLS 1.2 and 1.3.
    ///
    /// # Errors
    /// [`ExitError::Config`] for a file without usable authorities.
    pub fn new(settings: &ClientTlsSettings) -> Result<Self, ExitError> {
        let clients = client_authorities(settings.client_ca.as_deref())?;
        let ClientTlsSettings {
            certificate,
            protocols,
            ..
        } = settings;
        let current = Current::new(certificate, protocols, clients)?;
        Ok(Self {
            certificate: Arc::clone(certificate),
            protocols,
            current: ArcSwap::from_pointee(current),
        })
    }

    /// Reads and checks the authorities of clients; `None` if they are unchanged.
    ///
    /// # Errors
    /// As [`ClientTls::new`].
    pub fn read_client_roots(
        &self,
        client_ca: Option<&Path>,
    ) -> Result<Option<NextClients>, ExitError> {
        let clients = client_authorities(client_ca)?;
        if clients == self.current.load().clients {
            return Ok(None);
        }
        // With new ticket keys: an old ticket would resume a session without a certificate check.
        let current = Current::new(&self.certificate, self.protocols, clients)?;
        Ok(Some(NextClients(current)))
    }

    /// Uses `next` from the next handshake on; open connections stay.
    pub fn set_client_roots(&self, next: NextClients) {
        self.current.store(Arc::new(next.0));
    }

    /// Follows the file of the authorities of clients for as long as the process lives. Where new ones
    /// are no authorities, the previous ones stay.
    ///
    /// # Errors
    /// If the handler of SIGHUP cannot be installed.
    pub fn follow_client_roots(
        self: Arc<Self>,
        client_ca: PathBuf,
    ) -> io::Result<impl Future<Output = ()> + Send> {
        let timer = PollTimer::start()?;
        let reload = move || {
            let next = self.read_client_roots(Some(&client_ca))?;
            let is_changed = next.is_some();
            next.into_iter()
                .for_each(|next| self.set_client_roots(next));
            Ok::<_, ExitError>(is_changed)
        };
        let report = |transition: Transition| transition.log("authorities of clients");
        Ok(file_watch::follow(timer, reload, report))
    }

    /// Completes the handshake within `limit`.
    ///
    /// # Errors
    /// A failed handshake, or the timeout.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        socket: S,
        limit: Duration,
    ) -> io::Result<TlsStream<S>> {
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
        protocols: &[&str],
        clients: Option<Authorities>,
    ) -> Result<Self, ExitError> {
        let config = server(Arc::clone(certificate), clients.as_deref(), protocols)?;
        Ok(Self {
            acceptor: TlsAcceptor::from(config),
            clients,
        })
    }
}

fn client_authorities(file: Option<&Path>) -> Result<Option<Authorities>, ExitError> {
    file.map(authorities)
        .transpose()
        .map_err(|error| ExitError::Config(format!("--client-ca {error}")))
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
    fn new_authorities_are_checked_before_they_are_used() {
        let home = tempfile::tempdir().unwrap();
        let [cert, key, ca] = ["tls.crt", "tls.key", "ca.crt"].map(|name| home.path().join(name));
        let (certificate, private) = pair();
        write(&cert, certificate).unwrap();
        write(&key, private).unwrap();
        set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        write(&ca, pair().0).unwrap();
        let tls = ClientTls::new(&ClientTlsSettings {
            certificate: Arc::new(ServerCertificate::open(cert, key).unwrap()),
            protocols: HTTP_2_OR_1,
            client_ca: Some(ca.clone()),
        })
        .unwrap();
        assert!(
            tls.read_client_roots(Some(&ca)).unwrap().is_none(),
            "the same"
        );

        let before = tls.current.load_full();
        write(&ca, pair().0).unwrap();
        let next = tls.read_client_roots(Some(&ca)).unwrap().unwrap();
        assert!(tls.read_client_roots(None).unwrap().is_some());
        write(&ca, "none").unwrap();
        assert!(tls.read_client_roots(Some(&ca)).is_err());
        assert!(Arc::ptr_eq(&before, &tls.current.load()), "not in use yet");

        tls.set_client_roots(next);
        assert!(tls.current.load().clients != before.clients);
    }
}
