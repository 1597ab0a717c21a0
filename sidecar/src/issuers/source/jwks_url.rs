//! The key set of any issuer, at an address of its own (RFC 7517 §5; `jwks_uri` of OpenID Connect
//! Discovery and RFC 8414).

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http::{HeaderMap, header};
use runtime::files::bounded_read;
use runtime::files::file_watch::run_blocking;
use runtime::process::exit::ExitError;
use runtime::tls::peer::PeerFiles;
use wire::keys::algorithms::AsymmetricAlgorithm;
use zeroize::Zeroizing;

use crate::issuers::fetch::{FetchError, Fetched, Purpose};
use crate::issuers::http_client::{KeyRequest, MAX_BODY_BYTES, Transport};
use crate::issuers::jwks::{self, CachedJwks, jws};
use crate::issuers::jwks_address::JwksAddress;
use crate::issuers::proxy::KeysProxy;

/// Max. freshness: a longer promise of the issuer would keep a revoked key trusted.
const MAX_FRESHNESS: Duration = Duration::from_secs(300);

#[derive(Debug, Clone)]
pub(crate) struct JwksUrlSettings {
    pub(crate) url: JwksAddress,
    pub(crate) tls: PeerFiles,
    pub(crate) proxy: Option<KeysProxy>,
    /// A file with a token for the key server, read at each fetch.
    pub(crate) bearer_file: Option<PathBuf>,
    pub(crate) algorithms: Vec<AsymmetricAlgorithm>,
    /// The age after which keys are not trusted (`--max-key-age`): they are fetched well before
    /// that, whatever their freshness.
    pub(crate) max_key_age: Option<Duration>,
}

/// The address, and the state of its last response.
#[derive(Debug)]
pub(crate) struct JwksUrl {
    transport: Transport,
    url: JwksAddress,
    bearer_file: Option<PathBuf>,
    algorithms: Vec<AsymmetricAlgorithm>,
    max_freshness: Duration,
    /// The set of the last fetch; a failure clears it.
    known: Option<CachedJwks>,
    fresh_until: Option<Instant>,
}

impl JwksUrl {
    /// Prepares the client.
    ///
    /// # Errors
    /// [`ExitError::Config`] for TLS files that cannot be used.
    pub(crate) fn new(settings: JwksUrlSettings) -> Result<Self, ExitError> {
        Ok(Self {
            transport: Transport::new(settings.url.scheme().clone(), settings.tls, settings.proxy)?,
            url: settings.url,
            bearer_file: settings.bearer_file,
            algorithms: settings.algorithms,
            max_freshness: settings
                .max_key_age
                .map_or(MAX_FRESHNESS, |age| MAX_FRESHNESS.min(age / 2)),
            known: None,
            fresh_until: None,
        })
    }

    /// Returns the HTTP client.
    pub(crate) const fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Fetches, unless the last response is still fresh and no token named an unknown key.
    pub(crate) async fn fetch(&mut self, purpose: Purpose) -> Result<Fetched, FetchError> {
        let is_fresh = self.fresh_until.is_some_and(|end| Instant::now() < end);
        if is_fresh && purpose == Purpose::Tick {
            return Ok(Fetched::StillFresh);
        }
        self.transport.follow_files().await;
        let bearer = self.bearer().await?;
        let (known, requested_at) = (self.known.take(), Instant::now());
        self.fresh_until = None;
        let instance = self.url.instance();
        let question = KeyRequest {
            target: self.url.target(),
            credentials: &[],
            bearer: bearer.as_deref().map(String::as_str),
            accept: "application/jwk-set+json, application/json",
            known: known.as_ref().map(CachedJwks::version),
            is_last: true,
            max_bytes: MAX_BODY_BYTES,
        };
        let response = self.transport.get(&instance, question).await?;
        let allowed = jws(&self.algorithms);
        let (keys, known) = jwks::parse_response(&response, known.as_ref(), &allowed)?;
        self.known = known;
        self.fresh_until =
            requested_at.checked_add(freshness(&response.headers).min(self.max_freshness));
        Ok(Fetched::Keys(keys))
    }

    /// Reads the token for the key server.
    async fn bearer(&self) -> Result<Option<Zeroizing<String>>, FetchError> {
        let Some(file) = self.bearer_file.clone() else {
            return Ok(None);
        };
        let read = run_blocking(move || bearer_token(&file)).await;
        read.map(Some).map_err(FetchError::File)
    }
}

/// Reads a token from a file, such as the one that Kubernetes gives a pod.
pub(crate) fn bearer_token(file: &Path) -> Result<Zeroizing<String>, String> {
    let text = bounded_read::read_text(file, MAX_BODY_BYTES as u64)
        .map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(Zeroizing::new(text.trim().to_owned()))
}

impl fmt::Display for JwksUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

/// Returns the freshness of the response (RFC 9111 §4.2, §5.2.2).
fn freshness(headers: &HeaderMap) -> Duration {
    let mut max_age = 0;
    for field in headers.get_all(header::CACHE_CONTROL) {
        for directive in field.to_str().unwrap_or("no-store").split(',') {
            let directive = directive.trim().to_ascii_lowercase();
            match directive.split_once('=') {
                Some(("max-age", seconds)) => {
                    max_age = seconds.trim_matches('"').parse().unwrap_or_default();
                }
                _ if directive.starts_with("no-cache") || directive == "no-store" => {
                    return Duration::ZERO;
                }
                _ => {}
            }
        }
    }
    let age = headers.get(header::AGE);
    let age = age.and_then(|age| age.to_str().ok()?.trim().parse::<u64>().ok());
    Duration::from_secs(max_age)
        .saturating_sub(Duration::from_secs(age.unwrap_or_default()))
        .min(MAX_FRESHNESS)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn rfc_9111_freshness_is_capped_at_five_minutes() {
        for (fields, seconds) in [
            (&[][..], 0),
            (&[("cache-control", "max-age=60")], 60),
            (
                &[("cache-control", "public, Max-Age=\"60\", immutable")],
                60,
            ),
            (&[("cache-control", "max-age=60"), ("age", "45")], 15),
            (&[("cache-control", "max-age=60"), ("age", "61")], 0),
            (&[("cache-control", "max-age=86400")], 300),
            (&[("cache-control", "max-age=99999999999999999999999")], 0),
            (&[("cache-control", "max-age=-1")], 0),
            (&[("cache-control", "s-maxage=60")], 0),
            (&[("cache-control", "no-cache")], 0),
            (&[("cache-control", "max-age=60, no-store")], 0),
            (
                &[
                    ("cache-control", "max-age=60"),
                    ("cache-control", "no-cache"),
                ],
                0,
            ),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(*name, value.parse().unwrap());
            }
            assert_eq!(freshness(&headers).as_secs(), seconds, "{fields:?}");
        }
    }
}
