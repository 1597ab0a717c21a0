//! `check --online`: fetches keys and revocations, compares the clock of their server, connects to
//! the service, and probes it on the pod's address.

use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::time::Duration;

use pingora::ErrorType;
use pingora::connectors::TransportConnector;
use pingora::protocols::Stream;
use postern_process::clock::unix_now;
use postern_process::exit::ExitError;
use postern_token::keys::KeySet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::Source;
use crate::config::Config;
use crate::downstream::HTTP_2_PREFACE;
use crate::issuers::IssuerSettings;
use crate::issuers::fingerprint::KeySetFingerprint;
use crate::issuers::revocations::fetched_list::{FetchedList, verify_fetched};
use crate::issuers::source::KeySource;
use crate::upstream::errors::log_cause;
use crate::upstream::{Protocol, Upstream, UpstreamSettings, exposure_check};
use postern_transport::issuer::Purpose;

/// For the first bytes of the service's response.
const RESPONSE_WITHIN: Duration = Duration::from_secs(2);
const OPTIONS: &[u8] = b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
/// The frame after the preface of HTTP/2 (RFC 9113 §3.4).
const EMPTY_SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
/// The type of a TLS record (RFC 8446 §5.1).
const TLS_ALERT: u8 = 21;

/// One line for each check.
#[derive(Debug, Default)]
pub(super) struct Findings {
    lines: Vec<String>,
    pub(super) warnings: Vec<String>,
    failures: Vec<ExitError>,
}

/// Runs all checks, whichever fails.
///
/// # Errors
/// Without a runtime.
pub(super) fn run_checks(
    config: &Config,
    sources: &mut [Source<'_>],
) -> Result<Findings, ExitError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ExitError::Software(format!("no runtime: {error}")))?;
    let mut findings = Findings::default();
    runtime.block_on(async {
        for (issuer, source) in sources {
            findings.keys(config, issuer, source).await;
        }
        findings.service(config.upstream.clone()).await;
        if let Some((target, is_rejected)) = config.exposure {
            findings.exposure(target, is_rejected).await;
        }
    });
    Ok(findings)
}

impl Findings {
    /// Returns the first rejection before anything that is unreachable: waiting does not repair it.
    pub(super) fn verdict(self) -> Result<(), ExitError> {
        let mut failures = self.failures;
        // Invalid settings first: they stay wrong when the others are back.
        failures.sort_by_key(|failure| !matches!(failure, ExitError::Config(_)));
        match failures.into_iter().next() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    fn note_failure(&mut self, failure: ExitError) {
        self.lines.push(format!("failed: {failure}"));
        self.failures.push(failure);
    }

    async fn keys(&mut self, config: &Config, issuer: &IssuerSettings, source: &mut KeySource) {
        let fetched = source.fetch(Purpose::Tick, None).await;
        let endpoint = source.last_endpoint();
        if let Some(ahead) = source.clock_ahead() {
            self.clock(&endpoint, ahead, config.args.rules.tokens.leeway.get());
        }
        match fetched {
            Ok(fetched) => {
                if let Some(keys) = fetched.keys {
                    let names = KeySetFingerprint::new(&keys);
                    self.lines.push(format!("keys from {endpoint}: {names}"));
                    for key in keys.skipped() {
                        self.lines.push(format!("not used from {endpoint}: {key}"));
                    }
                    self.revocations(&endpoint, &keys, fetched.list);
                    self.warnings.extend(fetched.warning);
                }
            }
            Err(error) => {
                let setting = match &issuer.name {
                    _ if issuer.source.is_list_alone() => "--revocations-from".to_owned(),
                    Some(name) => format!("[[issuer]] {name}"),
                    None => format!("--{}", issuer.source.flag()),
                };
                let line = format!("{setting}: no key from {endpoint}: {error}");
                self.note_failure(if error.is_away() {
                    ExitError::Unavailable(line)
                } else {
                    ExitError::Config(line)
                });
            }
        }
    }

    fn revocations(&mut self, endpoint: &str, keys: &KeySet, fetched: FetchedList) {
        let list = match fetched {
            FetchedList::NotRequested => return,
            FetchedList::Received(list) => verify_fetched(keys, &list, None, unix_now()),
            FetchedList::Failed(error) => Err(error),
        };
        match list {
            Ok(list) => self
                .lines
                .push(format!("{} revocations from {endpoint}", list.count())),
            Err(error) => self
                .warnings
                .push(format!("no revocation list from {endpoint}: {error}")),
        }
    }

    /// Compares the clocks: fresh tokens of a server ahead are not valid yet, those of one behind
    /// live longer.
    fn clock(&mut self, endpoint: &str, ahead: i64, leeway: u32) {
        let apart = ahead.unsigned_abs();
        let side = if ahead < 0 { "behind" } else { "ahead" };
        self.lines.push(format!(
            "clock of {endpoint}: {apart} s {side} of this machine"
        ));
        if apart > leeway.into() {
            self.warnings.push(format!(
                "the clock of {endpoint} is {apart} s {side}: more than --leeway {leeway} s"
            ));
        }
    }

    async fn service(&mut self, settings: UpstreamSettings) {
        let address = settings.address.to_string();
        match connect(settings).await {
            Ok(()) => self.lines.push(format!("service at {address}: connected")),
            Err(failure) => {
                self.note_failure(failure.reworded(|why| format!("--upstream {address}: {why}")));
            }
        }
    }

    async fn exposure(&mut self, target: SocketAddr, is_rejected: bool) {
        let line =
            format!("the service is reachable on the pod's address {target} without a token");
        match (exposure_check::probe(target).await, is_rejected) {
            (false, _) => {
                self.lines.push(format!(
                    "pod address {target}: the service is not reachable there"
                ));
            }
            (true, false) => self.warnings.push(format!("--pod-ip: {line}")),
            (true, true) => {
                self.note_failure(ExitError::Config(format!("--require-unexposed: {line}")))
            }
        }
    }
}

/// Connects as a request would, TLS included.
async fn connect(settings: UpstreamSettings) -> Result<(), ExitError> {
    let protocol = settings.address.protocol;
    let peer = Upstream::new(settings)
        .map_err(ExitError::Config)?
        .peer()
        .ok_or_else(|| ExitError::Unavailable("its name does not resolve".to_owned()))?;
    let rejected = [ErrorType::TLSHandshakeFailure, ErrorType::InvalidCert];
    match TransportConnector::new(None).new_stream(&peer.any).await {
        Ok(mut stream) => {
            let checking = timeout(RESPONSE_WITHIN, check_version(&mut stream, protocol));
            // A slow response is no failure: the connection was accepted.
            checking.await.unwrap_or(Ok(()))
        }
        Err(error) if rejected.contains(error.etype()) => Err(ExitError::Config(log_cause(&error))),
        Err(error) => Err(ExitError::Unavailable(log_cause(&error))),
    }
}

/// Sends a request that changes nothing, and checks the first bytes of the response. A service that stays
/// silent, or closes the connection, may be of the right version.
async fn check_version(stream: &mut Stream, protocol: Protocol) -> Result<(), ExitError> {
    let sent = match protocol {
        Protocol::Http => OPTIONS.to_vec(),
        Protocol::H2c => [HTTP_2_PREFACE, EMPTY_SETTINGS].concat(),
        // The handshake has chosen the version already.
        Protocol::Https => return Ok(()),
    };
    let mut first = [0; 7];
    let exchanged = async {
        stream.write_all(&sent).await?;
        stream.flush().await?;
        stream.read_exact(&mut first).await
    };
    match (exchanged.await, wrong_version(protocol, first)) {
        (Ok(_), Some(remedy)) => Err(ExitError::Config(remedy.to_owned())),
        _ => Ok(()),
    }
}

/// Returns the remedy for a response of another protocol.
fn wrong_version(protocol: Protocol, first: [u8; 7]) -> Option<&'static str> {
    let is_http_1 = first.starts_with(b"HTTP/1");
    match (protocol, first) {
        (Protocol::H2c, _) if is_http_1 => {
            Some("the service speaks HTTP/1.1 alone: http:// in place of h2c://")
        }
        (Protocol::Http, _) if is_http_1 => None,
        // A frame with settings, or with the end of the connection (RFC 9113 §6).
        (Protocol::Http, [0, _, _, 4 | 7, ..]) => {
            Some("the service speaks HTTP/2 alone: h2c:// in place of http://")
        }
        (Protocol::Http, [TLS_ALERT, 3, ..]) => {
            Some("the service speaks TLS: https:// in place of http://")
        }
        (Protocol::Http, _) => Some("the service's response is not HTTP/1.1"),
        _ => None,
    }
}

/// Renders comments of the printed configuration.
impl Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "# online: {line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_of_another_protocol_names_the_scheme() {
        use Protocol::{H2c, Http};
        for (protocol, first, remedy) in [
            (Http, *b"HTTP/1.", None),
            (Http, [0, 0, 12, 4, 0, 0, 0], Some("h2c://")),
            (Http, [0, 0, 8, 7, 0, 0, 0], Some("h2c://")),
            (Http, [21, 3, 3, 0, 2, 2, 70], Some("https://")),
            (Http, *b"SSH-2.0", Some("not HTTP/1.1")),
            (H2c, *b"HTTP/1.", Some("http://")),
            (H2c, [0, 0, 12, 4, 0, 0, 0], None),
        ] {
            let found = wrong_version(protocol, first);
            let fits = match remedy {
                Some(part) => found.is_some_and(|text| text.contains(part)),
                None => found.is_none(),
            };
            assert!(fits, "{protocol:?} {first:?}: {found:?}");
        }
    }
}
