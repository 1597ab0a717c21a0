//! TLS of a listening port: its files, which are followed, and its handshakes.
//!
//! Pingora's own listener would shake hands before a connection has a permit and without our
//! timeout, and could not reload the authorities of client certificates.

use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::certificate::{CertificateFiles, authorities, expired, roots};
use super::failure::in_words;
use super::metrics::CertificateMetrics;
use super::peer::PeerSettings;
use postern_process::clock::unix_now;
use postern_process::exit::ExitError;
use postern_process::files::file_watch::{self, PolledFiles};

const CERTIFICATE: &str = "--tls-cert";
/// The settings that failed handshakes with clients name.
const SETTINGS: PeerSettings = PeerSettings::without_key("--client-ca", CERTIFICATE);

/// HTTP/2 and HTTP/1.1, as ALPN names them.
pub const HTTP_2_OR_1: &[&str] = &["h2", "http/1.1"];
/// HTTP/1.1 alone.
pub const HTTP_1: &[&str] = &["http/1.1"];

/// The files of a listening port with TLS.
#[derive(Debug)]
pub(super) struct ServerFiles {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
    /// The authorities that must have issued the certificates of clients.
    pub(super) client_ca: Option<PathBuf>,
}

/// The certificates of a port. They change together, and only for valid ones; handshakes and
/// connections under way keep those that they began with.
pub struct ServerTls {
    files: ServerFiles,
    protocols: &'static [&'static str],
    current: ArcSwap<Current>,
}

/// Prints neither key nor chain.
impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

/// The content of the files, for the next handshake.
struct Current {
    acceptor: TlsAcceptor,
    contents: Arc<Contents>,
}

#[derive(PartialEq)]
struct Contents {
    certificate: CertificateFiles,
    clients: Option<Vec<CertificateDer<'static>>>,
}

impl ServerTls {
    /// Reads the files.
    pub(super) fn open(
        files: ServerFiles,
        protocols: &'static [&'static str],
    ) -> Result<Self, ExitError> {
        let current = Current::from_contents(Arc::new(files.read()?), protocols)?;
        Ok(Self {
            files,
            protocols,
            current: ArcSwap::from_pointee(current),
        })
    }

    /// Returns the end of the presented certificate, in seconds since 1970.
    fn not_after(&self) -> i64 {
        self.current.load().contents.certificate.not_after
    }

    /// Returns the warning of a presented certificate that has expired at `now`, in seconds since
    /// 1970. It is not a failure.
    #[must_use]
    pub fn expired(&self, now: i64) -> Option<String> {
        expired(CERTIFICATE, &self.files.cert, self.not_after(), now)
    }

    /// Uses what the files hold and returns true if that is another content; a new certificate that
    /// has expired is an error.
    fn replace(&self, read: Arc<Contents>, now: i64) -> Result<bool, ExitError> {
        let current = self.current.load();
        if read == current.contents {
            return Ok(false);
        }
        let former = &current.contents.certificate;
        if !read.certificate.may_replace(Some(former), now) {
            let file = self.files.cert.display();
            let why = format!("{CERTIFICATE}: {file}: the certificate has expired");
            return Err(ExitError::Config(why));
        }
        // With new ticket keys: an old ticket would resume a session without a certificate check.
        let next = Current::from_contents(read, self.protocols)?;
        self.current.store(Arc::new(next));
        Ok(true)
    }

    /// Follows the files for as long as the process lives.
    ///
    /// # Errors
    /// If the handler of SIGHUP cannot be installed.
    pub fn follow(
        self: Arc<Self>,
        metrics: CertificateMetrics,
    ) -> io::Result<impl Future<Output = ()> + Send> {
        let mut files = PolledFiles::start(Ok(Arc::clone(&self.current.load().contents)))?;
        metrics.report(self.not_after(), None);
        Ok(async move {
            loop {
                let tls = Arc::clone(&self);
                let read = move || tls.files.read().map(Arc::new);
                let Some(read) = files.poll(read).await else {
                    continue;
                };
                let replaced = read.clone().and_then(|it| self.replace(it, unix_now()));
                let replaced = replaced.map_err(|error| error.to_string());
                file_watch::log("TLS files", &replaced);
                metrics.report(self.not_after(), Some(&replaced));
            }
        })
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
        let accepted = tokio::time::timeout(limit, acceptor.accept(socket)).await;
        let accepted = accepted.map_err(|_| io::ErrorKind::TimedOut)?;
        let in_words = |error: &io::Error| in_words(&error.to_string(), &SETTINGS);
        accepted.map_err(|error| in_words(&error).map_or(error, io::Error::other))
    }
}

impl ServerFiles {
    fn read(&self) -> Result<Contents, ExitError> {
        let certificate = CertificateFiles::read(&self.cert, &self.key).map_err(|error| {
            let flag = error.setting(CERTIFICATE, "--tls-key");
            ExitError::Config(format!("{flag}: {error}"))
        })?;
        let clients = self.client_ca.as_deref().map(authorities).transpose();
        let clients =
            clients.map_err(|error| ExitError::Config(format!("--client-ca: {error}")))?;
        Ok(Contents {
            certificate,
            clients,
        })
    }
}

impl Current {
    /// Configures TLS 1.2 and 1.3 for every server name, with sessions that clients resume without
    /// state in the server.
    fn from_contents(contents: Arc<Contents>, protocols: &[&str]) -> Result<Self, ExitError> {
        let failed =
            |error: &dyn Display| ExitError::Software(format!("TLS cannot be set up: {error}"));
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| failed(&error))?;
        let builder = match &contents.clients {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                let roots = Arc::new(roots(authorities).map_err(|error| failed(&error))?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| failed(&error))?)
            }
        };
        let certified = Arc::clone(&contents.certificate.certified);
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        config.ticketer = Ticketer::new().map_err(|error| failed(&error))?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            contents,
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::path::Path;

    use super::super::certificate::tests::{Files, pair};
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn open(files: &Files, client_ca: Option<&Path>) -> ServerTls {
        let files = ServerFiles {
            cert: files.cert(),
            key: files.key(),
            client_ca: client_ca.map(Path::to_owned),
        };
        ServerTls::open(files, HTTP_1).unwrap()
    }

    fn reload(tls: &ServerTls) -> Result<bool, ExitError> {
        tls.replace(Arc::new(tls.files.read()?), NOW)
    }

    #[test]
    fn one_that_has_ended_is_read_and_spoken_of() {
        let (cert, key) = pair(2020);
        let files = Files::with(&cert, &key);
        let tls = open(&files, None);
        assert_eq!(tls.expired(tls.not_after()), None);
        let line = tls.expired(NOW).unwrap();
        let start = format!("--tls-cert {}: the certificate has", files.cert().display());
        assert!(line.starts_with(&start), "{line}");
    }

    #[test]
    fn another_pair_replaces_it_and_a_bad_one_does_not() {
        let (cert, key) = pair(2100);
        let files = Files::with(&cert, &key);
        let tls = open(&files, None);
        assert!(!reload(&tls).unwrap(), "nothing changed");

        let (cert, key) = pair(2099);
        files.write(&cert, "half");
        assert!(reload(&tls).is_err());
        assert_eq!(tls.not_after(), 4_102_444_800);

        files.write(&cert, &key);
        assert!(reload(&tls).unwrap());
        assert_eq!(tls.not_after(), 4_070_908_800);

        let (expired, key) = pair(2020);
        files.write(&expired, &key);
        let line = reload(&tls).unwrap_err().to_string();
        assert!(line.contains("has expired"), "{line}");
        assert_eq!(tls.not_after(), 4_070_908_800);
    }

    #[test]
    fn authorities_of_clients_are_checked_before_they_are_used() {
        let (cert, key) = pair(2100);
        let (files, ca) = (Files::with(&cert, &key), Files::with(&pair(2100).0, ""));
        let tls = open(&files, Some(&ca.cert()));
        assert!(!reload(&tls).unwrap(), "nothing changed");
        let before = tls.current.load_full();
        ca.write("none", "");
        assert!(reload(&tls).is_err());
        assert!(Arc::ptr_eq(&before, &tls.current.load()));
        ca.write(&pair(2100).0, "");
        assert!(reload(&tls).unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_chain_is_not_presented() {
        let (cert, key) = pair(2100);
        let files = Files::with(&cert, &key);
        let tls = Arc::new(open(&files, None));
        let following = Arc::clone(&tls).follow(CertificateMetrics::default());
        tokio::spawn(following.unwrap());
        let (cert, key) = pair(2099);
        files.write(&cert, &key);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(tls.not_after(), 4_102_444_800, "one poll has read it");
        files.write(&format!("{cert}{}", pair(2100).0), &key);
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(tls.not_after(), 4_070_908_800);
        let chain = tls.current.load().contents.certificate.certified.cert.len();
        assert_eq!(chain, 2);
    }
}
