//! TLS of a listening port: its files, which are followed, and its handshakes.
//!
//! Pingora's own listener would shake hands before a connection has a permit and without our
//! timeout, and could not reload the authorities of client certificates.

use std::fmt::{self, Display};
use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::client_certificates::{self, ClientCert};
use super::failure::in_words;
use super::followed::Followed;
use super::metrics::CertificateMetrics;
use super::peer::{PeerCertificates, PeerFiles};
use super::peer_settings::PeerSettings;
use postern_process::clock::unix_now;
use postern_process::exit::ExitError;
use postern_process::files::file_watch::PolledFiles;

/// The authorities are those of clients' certificates.
pub(super) const SETTINGS: PeerSettings = PeerSettings {
    ca: "--client-ca",
    certificate: "--tls-cert",
    key: "--tls-key",
};
const FILES: &str = "TLS files";

/// HTTP/2 and HTTP/1.1, as ALPN names them.
pub const HTTP_2_OR_1: &[&str] = &["h2", "http/1.1"];
/// HTTP/1.1 alone.
pub const HTTP_1: &[&str] = &["http/1.1"];

/// The certificates of a port. They change together, and only for valid ones; handshakes and
/// connections under way keep those that they began with.
pub struct ServerTls {
    files: PeerFiles,
    client_cert: Option<ClientCert>,
    protocols: &'static [&'static str],
    /// For the next handshake.
    followed: Followed<Arc<PeerCertificates>, TlsAcceptor>,
}

/// Prints neither key nor chain.
impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

impl ServerTls {
    /// Reads the files.
    pub(super) fn open(
        files: PeerFiles,
        client_cert: Option<ClientCert>,
        protocols: &'static [&'static str],
    ) -> Result<Self, ExitError> {
        let content = Arc::new(files.read()?);
        let acceptor = acceptor(&content, client_cert, protocols).map_err(ExitError::Software)?;
        Ok(Self {
            files,
            client_cert,
            protocols,
            followed: Followed::new(FILES, content, acceptor),
        })
    }

    /// Returns the warning of a certificate that has expired at `now`, in seconds since 1970, or will
    /// soon. It is not a failure.
    #[must_use]
    pub fn ending(&self, now: i64) -> Option<String> {
        self.followed.load().content.ending(now)
    }

    fn replace(&self, read: Arc<PeerCertificates>) -> Result<bool, String> {
        // With new ticket keys: an old ticket would resume a session without a certificate check.
        let make = |read: &Arc<PeerCertificates>| acceptor(read, self.client_cert, self.protocols);
        self.followed.replace(read, unix_now(), make)
    }

    /// Follows the files for as long as the process lives. `reloaded` gets the end of each reload: the
    /// cause, if the previous content stays in use.
    ///
    /// # Errors
    /// If the handler of SIGHUP cannot be installed.
    pub fn follow(
        self: Arc<Self>,
        metrics: CertificateMetrics,
        reloaded: impl Fn(Option<&str>) + Send + Sync + 'static,
    ) -> io::Result<impl Future<Output = ()> + Send> {
        let in_force = self.followed.load();
        metrics.report(in_force.content.not_after(), None);
        let mut files = PolledFiles::start(Ok(Arc::clone(&in_force.content)))?;
        Ok(async move {
            loop {
                let tls = Arc::clone(&self);
                let read = move || tls.files.read().map(Arc::new);
                let Some(read) = files.poll(read).await else {
                    continue;
                };
                let replaced = match read {
                    Ok(content) => self.replace(Arc::clone(content)),
                    Err(error) => Err(error.to_string()),
                };
                self.followed.log(&replaced);
                match &replaced {
                    Ok(_) => reloaded(None),
                    Err(cause) => reloaded(Some(cause)),
                }
                metrics.report(self.followed.load().content.not_after(), Some(&replaced));
            }
        })
    }

    /// Completes the handshake.
    pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        socket: S,
    ) -> io::Result<TlsStream<S>> {
        // A handshake ends with the certificate that it began with.
        let acceptor = self.followed.load().value.clone();
        match acceptor.accept(socket).await {
            Ok(stream) => Ok(stream),
            Err(error) => Err(match in_words(&error.to_string(), &SETTINGS) {
                Some(words) => io::Error::other(words),
                None => error,
            }),
        }
    }
}

/// Configures TLS 1.2 and 1.3 for every server name, with sessions that clients resume without
/// state in the server.
fn acceptor(
    contents: &PeerCertificates,
    client_cert: Option<ClientCert>,
    protocols: &[&str],
) -> Result<TlsAcceptor, String> {
    let failed = |error: &dyn Display| format!("TLS cannot be set up: {error}");
    let Some(identity) = &contents.identity else {
        return Err(failed(&"there is no certificate"));
    };
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|error| failed(&error))?;
    let authorities = contents.authorities.as_deref();
    let verifier = client_certificates::verifier(client_cert, authorities, &provider);
    let builder = match verifier.map_err(|error| failed(&error))? {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let certified = SingleCertAndKey::from(Arc::clone(&identity.certified));
    let mut config = builder.with_cert_resolver(Arc::new(certified));
    for name in protocols {
        config.alpn_protocols.push(name.as_bytes().to_vec());
    }
    config.ticketer = Ticketer::new().map_err(|error| failed(&error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::super::certificate::tests::{Files, pair};
    use super::*;

    fn open(files: &Files, client_ca: Option<&Path>) -> ServerTls {
        let files = PeerFiles {
            settings: SETTINGS,
            ca: client_ca.map(Path::to_owned),
            identity: Some((files.cert(), files.key())),
        };
        ServerTls::open(files, None, HTTP_1).unwrap()
    }

    fn reload(tls: &ServerTls) -> Result<bool, String> {
        let read = tls.files.read().map_err(|error| error.to_string())?;
        tls.replace(Arc::new(read))
    }

    #[test]
    fn one_that_has_ended_is_read_and_spoken_of() {
        let (cert, key) = pair(2020);
        let files = Files::with(&cert, &key);
        let tls = open(&files, None);
        let end = tls.followed.load().content.not_after();
        assert_eq!(tls.ending(end - 7 * 86_400), None);
        assert!(tls.ending(end).unwrap().contains("expires in 0 s, at 2020"));
        let line = tls.ending(end + 1).unwrap();
        let start = format!("--tls-cert {}: the certificate has", files.cert().display());
        assert!(line.starts_with(&start), "{line}");
    }

    #[test]
    fn authorities_of_clients_are_checked_before_they_are_used() {
        let (cert, key) = pair(2100);
        let (files, ca) = (Files::with(&cert, &key), Files::with(&pair(2100).0, ""));
        let tls = open(&files, Some(&ca.cert()));
        assert!(!reload(&tls).unwrap(), "nothing changed");
        let before = tls.followed.load();
        ca.write("none", "");
        assert!(reload(&tls).is_err());
        assert!(Arc::ptr_eq(&before, &tls.followed.load()));
        ca.write(&pair(2100).0, "");
        assert!(reload(&tls).unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_chain_is_not_presented() {
        let (cert, key) = pair(2100);
        let files = Files::with(&cert, &key);
        let tls = Arc::new(open(&files, None));
        let following = Arc::clone(&tls).follow(CertificateMetrics::default(), |_| {});
        tokio::spawn(following.unwrap());
        let (cert, key) = pair(2099);
        files.write(&cert, &key);
        let not_after = || tls.followed.load().content.not_after();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(not_after(), 4_102_444_800, "one poll has read it");
        files.write(&format!("{cert}{}", pair(2100).0), &key);
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(not_after(), 4_070_908_800);
        let content = &tls.followed.load().content;
        assert_eq!(content.identity.as_ref().unwrap().certified.cert.len(), 2);
    }
}
