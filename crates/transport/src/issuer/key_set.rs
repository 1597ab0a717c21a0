//! The key set of any issuer: at a configured address (RFC 7517 §5), at the address that its discovery
//! document names (`jwks_uri` of OpenID Connect Discovery and RFC 8414), or in a file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::tls::peer::PeerFiles;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use postern_http::host::host_port::is_url;
use postern_http::host::server_url::ServerUrl;
use postern_process::clock::instant;
use postern_process::command_line::name;
use postern_process::files::bounded_read;
use postern_process::files::file_watch::run_blocking;
use postern_token::keys::{Algorithm, KeySet};
use zeroize::Zeroizing;

use super::document::{DocumentError, IssuerUrl};
use super::known_set::KnownSet;
use super::{KeySetError, Purpose, Unexpected};
use crate::http_client::proxy::KeysProxy;
use crate::http_client::{ClientSettings, HttpClient, HttpRequest, MAX_BODY_BYTES, Trust};

/// Max. freshness: a longer promise of the issuer would keep a revoked key trusted.
const MAX_FRESHNESS: Duration = Duration::from_secs(300);
/// Interval of reads of the discovery document; issuers announce new addresses days ahead.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(3600);
/// Interval of reads after a failed one, while the known address still responds.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(300);

/// The place of a key set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// The set is at this address.
    Address(ServerUrl),
    /// The set is at the address in the issuer's document, on its host or on one of these.
    Issuer(IssuerUrl, Vec<String>),
    /// A file with a JWK Set or PEM, which is read again at every tick, so that a new file changes the key.
    File(PathBuf),
}

impl Location {
    /// Returns the address of the first request.
    #[must_use]
    pub const fn first(&self) -> Option<&ServerUrl> {
        match self {
            Self::Address(address) => Some(address),
            Self::Issuer(issuer, _) => Some(issuer.document()),
            Self::File(_) => None,
        }
    }

    /// Returns true if the first request is for https.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.first().is_some_and(ServerUrl::is_https)
    }
}

/// Parses an address, or the name of a file.
impl FromStr for Location {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = name(text)?;
        if !is_url(&text) {
            return Ok(Self::File(text.into()));
        }
        match ServerUrl::from_http(&text) {
            Ok(address) => Ok(Self::Address(address)),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Issuer(issuer, _) => issuer.as_str().fmt(f),
            Self::File(file) => file.display().fmt(f),
        }
    }
}

/// The settings of one key set.
#[derive(Debug, Clone)]
pub struct KeySetSettings {
    /// The location of the key set.
    pub location: Location,
    /// The setting of a location that is a file, for errors.
    pub setting: &'static str,
    /// Certificates for the server of the set.
    pub tls: PeerFiles,
    /// The proxy to the server of the set.
    pub proxy: Option<KeysProxy>,
    /// A file with a token for the key server, read at each fetch.
    pub bearer_file: Option<PathBuf>,
    /// The algorithms with which the keys may be used.
    pub algorithms: Vec<Algorithm>,
    /// The age after which keys are not trusted (`--max-key-age`): they are fetched well before that age,
    /// however fresh they are.
    pub max_key_age: Option<Duration>,
}

/// The key set, and the state of its last response.
#[derive(Debug)]
pub struct KeySetSource {
    settings: KeySetSettings,
    client: HttpClient,
    /// The address of the set; `None` before the first document.
    address: Option<ServerUrl>,
    /// The time of the next read of the document; `None` for now.
    next_read: Option<Instant>,
    known: KnownSet,
    fresh_until: Option<Instant>,
}

impl KeySetSource {
    /// Makes a source, without a request. Trust and proxy of the `client` come from the settings.
    #[must_use]
    pub fn new(settings: KeySetSettings, client: ClientSettings) -> Self {
        let (address, uses_tls) = match &settings.location {
            Location::Address(address) => (Some(address.clone()), address.is_https()),
            // A document over plain HTTP may name an address with TLS.
            Location::Issuer(..) => (None, true),
            Location::File(_) => (None, false),
        };
        let client = ClientSettings {
            trust: Trust::for_https(uses_tls),
            proxy: settings.proxy.clone(),
            ..client
        };
        Self {
            client: HttpClient::new(client, settings.tls.clone()),
            settings,
            address,
            next_read: None,
            known: KnownSet::default(),
            fresh_until: None,
        }
    }

    /// Reads TLS files, or the file of keys.
    ///
    /// # Errors
    /// The setting, the file, and what is wrong with it.
    pub fn open(&mut self) -> Result<Option<String>, String> {
        match &self.settings.location {
            Location::File(file) => match keys_in(file, &self.settings.algorithms) {
                Ok(_) => Ok(None),
                Err(error) => Err(format!("{}: {error}", self.settings.setting)),
            },
            _ => self.client.open(),
        }
    }

    /// Returns true for keys of a file.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        matches!(self.settings.location, Location::File(_))
    }

    /// Returns the seconds by which the clock of the last server is ahead of this machine's.
    #[must_use]
    pub const fn clock_ahead(&self) -> Option<i64> {
        self.client.clock_ahead()
    }

    /// Returns the address of the key set, or of the document before its first read.
    #[must_use]
    pub fn last_endpoint(&self) -> String {
        let location = &self.settings.location;
        match self.address.as_ref().or(location.first()) {
            Some(address) => address.to_string(),
            None => location.to_string(),
        }
    }

    /// Reads the document if that is due, and fetches the set; `None` if the last response is still fresh and
    /// no token names an unknown key.
    ///
    /// # Errors
    /// [`KeySetError`]
    pub async fn fetch(&mut self, purpose: Purpose) -> Result<Option<KeySet>, KeySetError> {
        if let Location::File(file) = self.settings.location.clone() {
            let algorithms = self.settings.algorithms.clone();
            let keys = run_blocking(move || keys_in(&file, &algorithms)).await;
            return keys.map(Some).map_err(KeySetError::File);
        }
        if let Location::Issuer(issuer, hosts) = self.settings.location.clone()
            && self.next_read.is_none_or(|next| next <= instant())
        {
            let read = self.read_document(&issuer, &hosts).await;
            if self.address.is_none() {
                read?;
            } else if let Err(error) = read {
                // The known address of the set may still respond.
                self.next_read = instant().checked_add(TRY_AGAIN_AFTER);
                tracing::warn!(issuer = issuer.as_str(), %error, "discovery document not read");
            }
        }
        let fetched = self.fetch_set(purpose).await;
        // The issuer may have moved its key set: the next fetch reads the document again.
        if fetched.is_err() {
            self.next_read = None;
        }
        fetched
    }

    async fn read_document(
        &mut self,
        issuer: &IssuerUrl,
        hosts: &[String],
    ) -> Result<(), KeySetError> {
        let [document, oauth_document] = issuer.documents();
        let mut address = self.address_in(document, issuer, hosts).await;
        // An issuer publishes the document at one of two addresses.
        if has_no_document(&address) {
            use DocumentError::{NotADocument, Status};
            let other = self.address_in(oauth_document, issuer, hosts).await;
            let is_unread = matches!(
                other,
                Err(KeySetError::Transport(_) | KeySetError::Document(Status(_) | NotADocument(_)))
            );
            // Without either, the error tells of the usual one.
            if !is_unread {
                address = other;
            }
        }
        let address = address?;
        self.next_read = instant().checked_add(READ_AGAIN_AFTER);
        if self.address.as_ref() != Some(&address) {
            // Another address may hold another set: the known set and its freshness say nothing about it.
            self.known = KnownSet::default();
            self.fresh_until = None;
            self.address = Some(address);
        }
        Ok(())
    }

    /// Returns the address of the key set in the document at this address.
    async fn address_in(
        &mut self,
        document: &ServerUrl,
        issuer: &IssuerUrl,
        hosts: &[String],
    ) -> Result<ServerUrl, KeySetError> {
        let url = document.with_query();
        let response = self.client.send(HttpRequest::get_json(&url)).await?;
        if response.status != StatusCode::OK {
            return Err(DocumentError::Status(response.status).into());
        }
        Ok(issuer.address_in(&response.body, hosts)?)
    }

    async fn fetch_set(&mut self, purpose: Purpose) -> Result<Option<KeySet>, KeySetError> {
        let is_fresh = self.fresh_until.is_some_and(|end| instant() < end);
        // Only a token with an unknown key fetches a set that is still fresh.
        if is_fresh && purpose == Purpose::Tick {
            return Ok(None);
        }
        let address = self
            .address
            .as_ref()
            .ok_or(DocumentError::NoText("jwks_uri"))?;
        let url = address.with_query();
        // The token is sent over TLS alone.
        let bearer = if address.is_https() {
            self.bearer().await?
        } else {
            None
        };
        // Freshness counts from the request, because the set may be as old as that.
        let requested_at = instant();
        self.fresh_until = None;
        let request = HttpRequest {
            bearer: bearer.as_deref().map(String::as_str),
            ..HttpRequest::get_json(&url)
        };
        let allowed = &self.settings.algorithms;
        let (keys, headers) = self.known.fetch(&mut self.client, request, allowed).await?;
        let mut fresh = freshness(&headers);
        if let Some(age) = self.settings.max_key_age {
            // Half of the age leaves time for retries before the keys are not trusted any more.
            fresh = fresh.min(age / 2);
        }
        self.fresh_until = requested_at.checked_add(fresh);
        Ok(Some(keys))
    }

    /// Reads the token for the key server.
    async fn bearer(&self) -> Result<Option<Zeroizing<String>>, KeySetError> {
        let Some(file) = self.settings.bearer_file.clone() else {
            return Ok(None);
        };
        let read = run_blocking(move || bearer_token(&file)).await;
        read.map(Some).map_err(KeySetError::File)
    }
}

/// Returns true where an address has no document: some servers respond with a login, or with a page.
fn has_no_document(address: &Result<ServerUrl, KeySetError>) -> bool {
    match address {
        Err(KeySetError::Document(DocumentError::Status(status))) => {
            let is_elsewhere = status.is_client_error() || status.is_redirection();
            is_elsewhere && !Unexpected(*status).is_for_now()
        }
        Err(KeySetError::Document(DocumentError::NotADocument(_))) => true,
        _ => false,
    }
}

/// Reads the keys of a file.
fn keys_in(file: &Path, allowed: &[Algorithm]) -> Result<KeySet, String> {
    let name = file.display();
    let bytes = bounded_read::read(file, MAX_BODY_BYTES as u64)
        .map_err(|error| format!("{name}: {error}"))?
        .bytes;
    KeySet::from_file(&bytes, allowed).map_err(|error| format!("{name} cannot be used: {error}"))
}

/// Reads a token from a file, such as the one that Kubernetes gives a pod.
///
/// # Errors
/// The file and what is wrong with it.
pub fn bearer_token(file: &Path) -> Result<Zeroizing<String>, String> {
    let text = bounded_read::read_text(file, MAX_BODY_BYTES as u64)
        .map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(Zeroizing::new(text.trim().to_owned()))
}

/// Returns the freshness of the response (RFC 9111 §4.2, §5.2.2).
fn freshness(headers: &HeaderMap) -> Duration {
    let mut max_age = 0;
    for field in headers.get_all(header::CACHE_CONTROL) {
        // A field that cannot be read may forbid storage, so it counts as `no-store`.
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
    // A cache on the way has used up a part of the freshness.
    let age: u64 = match headers.get(header::AGE).map(HeaderValue::to_str) {
        Some(Ok(age)) => age.trim().parse().unwrap_or_default(),
        _ => 0,
    };
    Duration::from_secs(max_age)
        .saturating_sub(Duration::from_secs(age))
        .min(MAX_FRESHNESS)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn an_unusable_file_is_an_error_that_names_its_setting() {
        let settings = KeySetSettings {
            location: "/nowhere".parse().unwrap(),
            setting: "jwks",
            tls: PeerFiles::default(),
            proxy: None,
            bearer_file: None,
            algorithms: Vec::new(),
            max_key_age: None,
        };
        let mut source = KeySetSource::new(settings, ClientSettings::default());
        let error = source.open().unwrap_err();
        assert!(error.starts_with("jwks: /nowhere: "), "{error}");
    }

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
