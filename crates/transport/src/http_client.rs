//! One GET to a key server, bounded in time and size.
//!
//! Queries hold a secret, so no error text here ever holds a URL.

pub mod proxy;

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::tls::failure::with_causes;
use crate::tls::followed::Followed;
use crate::tls::peer::{PeerCertificates, PeerFiles, PeerSettings};
use crate::traces::{self, Span};
use arc_swap::ArcSwapOption;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use postern_http::trace::TRACEPARENT;
use postern_process::clock::unix_now;
use postern_process::files::file_watch::run_blocking;
use postern_process::logs::sanitize::LogText;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Certificate, Client, ClientBuilder, Identity, Response, redirect, tls};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::net::lookup_host;
use zeroize::Zeroizing;

use self::proxy::KeysProxy;

/// Max length of a response; the largest RSA key takes 2 KB in an envelope, and less in a key set.
pub const MAX_BODY_BYTES: usize = 64 * 1024;
/// Timeout from connecting to the last byte; two requests fit into the minute between ticks.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which a connection is kept for another request of the same fetch, which follows at
/// once: ten thousand sidecars that wait for their tick hold no connection.
const KEPT: Duration = Duration::from_millis(100);

/// The settings that errors name: those of flags and tables.
const SETTINGS: PeerSettings = PeerSettings::without_key(
    "--auth-ca, or `ca` of the [[issuer]],",
    "--auth-client-cert",
);

/// The reason why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    #[error("{}", with_causes(.0, &SETTINGS))]
    /// No whole response.
    Http(reqwest::Error),
    /// A response longer than this.
    #[error("the response is longer than {0} bytes")]
    TooLong(usize),
    /// A response with this content coding.
    #[error(
        "the response is encoded (Content-Encoding: {0}), although the request accepts no encoding"
    )]
    Encoded(String),
    /// TLS files that cannot be used yet.
    #[error("{0}")]
    NoClient(String),
}

impl From<reqwest::Error> for TransportError {
    fn from(error: reqwest::Error) -> Self {
        Self::Http(error.without_url())
    }
}

impl TransportError {
    /// Returns true where the server may respond later without a change of the configuration.
    pub fn is_away(&self) -> bool {
        match self {
            // An untrusted certificate, or a port without TLS, does not change by waiting.
            Self::Http(error) => !causes(error).any(is_of_tls),
            Self::TooLong(_) | Self::Encoded(_) | Self::NoClient(_) => false,
        }
    }
}

/// One GET request.
#[derive(Debug, Clone, Copy)]
pub struct KeyRequest<'a> {
    /// With a query that is no secret.
    pub url: &'a str,
    /// The address to connect to in place of those of the URL's host.
    pub address: Option<SocketAddr>,
    /// Added to the query.
    pub credentials: &'a [(&'a str, &'a str)],
    /// A token for the server; only over TLS.
    pub bearer: Option<&'a str>,
    /// Media types of the response.
    pub accept: &'static str,
    /// The `ETag` of the known version.
    pub known: Option<&'a HeaderValue>,
    /// True without a further request in this fetch: the connection ends with the response.
    pub is_last: bool,
    /// Length of the longest response.
    pub max_bytes: usize,
}

impl<'a> KeyRequest<'a> {
    /// Returns the last request of a fetch, for a short response in JSON.
    pub const fn for_url(url: &'a str) -> Self {
        Self {
            url,
            address: None,
            credentials: &[],
            bearer: None,
            accept: "application/json",
            known: None,
            is_last: true,
            max_bytes: MAX_BODY_BYTES,
        }
    }
}

/// The whole response.
pub struct KeyResponse {
    /// As received.
    pub status: StatusCode,
    /// As received.
    pub headers: HeaderMap,
    /// Zeroized, because in hmac mode the key is the secret.
    pub body: Zeroizing<Vec<u8>>,
}

/// A status without keys, for the log.
#[derive(Debug, Clone, Copy)]
pub struct Unexpected(
    /// Of the response.
    pub StatusCode,
);

impl Unexpected {
    /// Returns true where the server may respond otherwise later without a change of the
    /// configuration.
    pub fn is_for_now(self) -> bool {
        let for_now = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
        self.0.is_server_error() || for_now.contains(&self.0)
    }
}

impl fmt::Display for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        if self.0.is_redirection() && self.0 != StatusCode::NOT_MODIFIED {
            f.write_str("; redirects are not followed")?;
        }
        Ok(())
    }
}

/// The HTTP client. There is one request at a time.
pub struct Transport {
    /// False where no request is for https: the system's certificates are then not loaded.
    uses_tls: bool,
    addresses: Arc<Addresses>,
    files: PeerFiles,
    proxy: Option<KeysProxy>,
    /// `None` until the files could be used.
    client: Option<Followed<Arc<PeerCertificates>, Client>>,
    /// Seconds by which the clock of the last server is ahead of this machine's.
    clock_ahead: Option<i64>,
}

/// Neither certificates nor key.
impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

/// A resolver that returns the address that discovery chose; the URL keeps the configured name, for
/// the `Host` field and the certificate.
#[derive(Debug, Default)]
struct Addresses {
    chosen: ArcSwapOption<SocketAddr>,
}

impl Resolve for Addresses {
    fn resolve(&self, name: Name) -> Resolving {
        let chosen = self.chosen.load_full();
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = match chosen {
                Some(address) => vec![*address],
                // Port 0 leaves the port of the URL in effect.
                None => lookup_host((name.as_str(), 0)).await?.collect(),
            };
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

impl Transport {
    /// Makes a client, without reading a file.
    #[must_use]
    pub fn new(uses_tls: bool, files: PeerFiles, proxy: Option<KeysProxy>) -> Self {
        Self {
            uses_tls,
            addresses: Arc::default(),
            files,
            proxy,
            client: None,
            clock_ahead: None,
        }
    }

    /// Reads the TLS files, which each fetch does where this failed. Returns a warning about an
    /// expired certificate.
    ///
    /// # Errors
    /// The setting, the file, and what is wrong with it.
    pub fn open(&mut self) -> Result<Option<String>, String> {
        let material = self.files.read().map_err(|error| error.to_string())?;
        let expired = material.expired(unix_now());
        self.client = Some(self.followed_from(Arc::new(material))?);
        Ok(expired)
    }

    /// Returns the seconds by which the clock of the last server is ahead; `None` without a `Date`.
    pub const fn clock_ahead(&self) -> Option<i64> {
        self.clock_ahead
    }

    /// Sends one request.
    ///
    /// # Errors
    /// [`TransportError`]
    pub async fn get(
        &mut self,
        key_request: KeyRequest<'_>,
    ) -> Result<KeyResponse, TransportError> {
        let client = self.followed().await.map_err(TransportError::NoClient)?;
        let span = begun_span(key_request.url);
        let traceparent = span.as_ref().and_then(Span::traceparent);
        let response = self.send(client, key_request, traceparent).await;
        if let Some(span) = span {
            end_span(span, response.as_ref().ok().map(|response| response.status));
        }
        response
    }

    /// Returns the client with the present certificates. Half-written files change nothing.
    async fn followed(&mut self) -> Result<Client, String> {
        let files = self.files.clone();
        let read = move || files.read().map(Arc::new);
        let Some(followed) = &self.client else {
            let followed = self.followed_from(run_blocking(read).await?)?;
            return Ok(self.client.insert(followed).load().value.clone());
        };
        if !self.files.is_empty() {
            let client = |material: &Arc<PeerCertificates>| self.client_with(material);
            followed.follow(read, client).await;
        }
        Ok(followed.load().value.clone())
    }

    fn followed_from(
        &self,
        material: Arc<PeerCertificates>,
    ) -> Result<Followed<Arc<PeerCertificates>, Client>, String> {
        let client = self.client_with(&material)?;
        let files = "certificates for the auth server";
        Ok(Followed::new(files, material, client))
    }

    async fn send(
        &mut self,
        client: Client,
        key_request: KeyRequest<'_>,
        traceparent: Option<&HeaderValue>,
    ) -> Result<KeyResponse, TransportError> {
        self.addresses
            .chosen
            .store(key_request.address.map(Arc::new));
        let mut request = client
            .get(key_request.url)
            .header(header::ACCEPT, key_request.accept)
            .header(header::ACCEPT_ENCODING, "identity");
        if !key_request.credentials.is_empty() {
            request = request.query(key_request.credentials);
        }
        if let Some(traceparent) = traceparent {
            request = request.header(TRACEPARENT, traceparent);
        }
        if let Some(token) = key_request
            .bearer
            .filter(|_| key_request.url.starts_with("https:"))
        {
            // Marked as sensitive by the library.
            request = request.bearer_auth(token);
        }
        if let Some(known) = key_request.known {
            request = request.header(header::IF_NONE_MATCH, known);
        }
        if key_request.is_last {
            request = request.header(header::CONNECTION, "close");
        }
        let mut response = request.send().await?;
        self.clock_ahead = date(response.headers()).map(|date| date - unix_now());
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let body = bounded_body(response, key_request.max_bytes).await?;
        // Some servers name an encoding that they do not use.
        if let (StatusCode::OK, Some(encoding)) = (status, encoding(&headers))
            && !begins_as_text(&body)
        {
            return Err(TransportError::Encoded(LogText(&encoding).to_string()));
        }
        Ok(KeyResponse {
            status,
            headers,
            body,
        })
    }

    fn client_with(&self, material: &PeerCertificates) -> Result<Client, String> {
        let built = self.builder(material).and_then(ClientBuilder::build);
        built.map_err(|error| {
            let causes = with_causes(&error, &SETTINGS);
            format!("the HTTP client cannot be built: {causes}")
        })
    }

    fn builder(&self, material: &PeerCertificates) -> reqwest::Result<ClientBuilder> {
        let client = Client::builder()
            .timeout(TIMEOUT)
            // A redirect could replace the key.
            .redirect(redirect::Policy::none())
            // The library reads the environment otherwise than curl, and for every request.
            .no_proxy()
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(KEPT)
            .dns_resolver(Arc::clone(&self.addresses))
            .user_agent(concat!("postern-sidecar/", env!("CARGO_PKG_VERSION")));
        let client = match &self.proxy {
            Some(proxy) => proxy.apply_to(client)?,
            None => client,
        };
        if !self.uses_tls {
            return Ok(client.tls_certs_only([]));
        }
        let client = client.tls_version_min(tls::Version::TLS_1_2);
        let client = match &material.authorities {
            Some(trusted) => {
                let trusted = trusted.iter().map(|one| Certificate::from_der(one));
                client.tls_certs_only(trusted.collect::<reqwest::Result<Vec<_>>>()?)
            }
            None => client,
        };
        match &material.identity {
            Some(identity) => Ok(client.identity(Identity::from_pem(&identity.pem())?)),
            None => Ok(client),
        }
    }
}

/// Returns the content codings of a response (RFC 9110 §8.4.1); `None` for `identity` alone.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let fields = headers.get_all(header::CONTENT_ENCODING).iter();
    let fields = fields.map(|field| String::from_utf8_lossy(field.as_bytes()));
    let all = fields.collect::<Vec<_>>().join(", ");
    let mut names = all.split(',').map(str::trim);
    let is_encoded = names.any(|it| !it.is_empty() && !it.eq_ignore_ascii_case("identity"));
    is_encoded.then_some(all)
}

/// Returns true for the beginning of JSON, PEM, base64 of DER or a signed list.
fn begins_as_text(body: &[u8]) -> bool {
    let text = std::str::from_utf8(body).unwrap_or_default();
    let text = text.trim_start_matches(|c: char| c == '\u{feff}' || c.is_whitespace());
    text.starts_with(['{', '[', '-', 'M', 'e'])
}

/// Begins a trace for a request; `None` without tracing.
fn begun_span(url: &str) -> Option<Span> {
    let mut span = traces::client_span("GET")?;
    let url: Uri = url.parse().ok()?;
    let host = url.authority().map(ToString::to_string);
    span.set("http.request.method", "GET");
    span.set("server.address", host.unwrap_or_default());
    span.set("url.path", url.path().to_owned());
    Some(span)
}

/// Ends the span; `None` without a response.
fn end_span(mut span: Span, status: Option<StatusCode>) {
    let Some(status) = status else {
        return span.fail("no_response");
    };
    span.set("http.response.status_code", i64::from(status.as_u16()));
    if status.is_client_error() || status.is_server_error() {
        span.fail("status");
    }
}

/// Returns seconds since the epoch (RFC 9110 §6.6.1).
fn date(headers: &HeaderMap) -> Option<i64> {
    let date = headers.get(header::DATE)?.to_str().ok()?;
    let date = OffsetDateTime::parse(date, &Rfc2822).ok()?;
    Some(date.unix_timestamp())
}

async fn bounded_body(
    mut response: Response,
    max_bytes: usize,
) -> Result<Zeroizing<Vec<u8>>, TransportError> {
    let mut body = Zeroizing::new(Vec::new());
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > max_bytes {
            return Err(TransportError::TooLong(max_bytes));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

/// Returns true for an error of TLS, which is wrapped more than once.
fn is_of_tls(mut cause: &(dyn Error + 'static)) -> bool {
    while let Some(within) = cause.downcast_ref().and_then(io::Error::get_ref) {
        cause = within;
    }
    cause.is::<rustls::Error>()
}
