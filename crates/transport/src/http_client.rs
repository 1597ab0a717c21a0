//! The HTTP client of every request that a program makes by itself, except the export of spans: bounded in
//! time and size, to the configured server and nowhere else, with the present certificates of its files.
//!
//! Queries may hold a secret, so no error text here ever holds a URL.

pub mod proxy;
mod request;
mod settings;
#[cfg(feature = "simulation")]
pub mod simulated;

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::tls::failure::with_causes;
use crate::tls::followed::Followed;
use crate::tls::peer::{PeerCertificates, PeerFiles};
use crate::traces::{self, Span};
use arc_swap::ArcSwapOption;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use postern_http::trace::TRACEPARENT;
use postern_process::clock::unix_now;
use postern_process::files::file_watch::run_blocking;
use postern_process::logs::sanitize::LogText;
pub use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{
    Certificate, Client, ClientBuilder, Identity, RequestBuilder, Response, redirect, tls,
};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::net::lookup_host;
use zeroize::Zeroizing;

pub use self::request::{Body, HttpRequest, MAX_BODY_BYTES, MaxLength};
pub use self::settings::{ClientSettings, Trust};

/// The reason why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// No whole response.
    #[error("{why}")]
    Http {
        /// The causes, in words.
        why: String,
        /// True for a failure of TLS.
        is_of_tls: bool,
    },
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

impl TransportError {
    /// Returns true where the server may respond later without a change of the configuration.
    #[must_use]
    pub const fn is_away(&self) -> bool {
        match self {
            // An untrusted certificate, or a port without TLS, does not change by waiting.
            Self::Http { is_of_tls, .. } => !*is_of_tls,
            Self::TooLong(_) | Self::Encoded(_) | Self::NoClient(_) => false,
        }
    }
}

/// The whole response.
pub struct HttpResponse {
    /// As received.
    pub status: StatusCode,
    /// As received.
    pub headers: HeaderMap,
    /// Zeroized, because in hmac mode the key is the secret.
    pub body: Zeroizing<Vec<u8>>,
}

/// The status of a response without keys, for the log.
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
        if self.0 == StatusCode::BAD_REQUEST {
            f.write_str("; a port of TLS, https://, responds so to http://")?;
        }
        Ok(())
    }
}

/// The HTTP client. There is one request at a time.
pub struct HttpClient {
    settings: ClientSettings,
    addresses: Arc<Addresses>,
    files: PeerFiles,
    /// The client of the library; `None` until the files could be used.
    client: Option<Followed<Arc<PeerCertificates>, Client>>,
    /// Seconds by which the clock of the last server is ahead of this machine's.
    clock_ahead: Option<i64>,
}

/// Prints neither certificates nor key.
impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient")
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

impl HttpClient {
    /// Makes a client, without reading a file.
    #[must_use]
    pub fn new(settings: ClientSettings, files: PeerFiles) -> Self {
        Self {
            settings,
            addresses: Arc::default(),
            files,
            client: None,
            clock_ahead: None,
        }
    }

    /// Reads the TLS files; if this fails, each fetch reads them again. Returns a warning about an expired
    /// certificate.
    ///
    /// # Errors
    /// The setting, the file, and what is wrong with it.
    pub fn open(&mut self) -> Result<Option<String>, String> {
        let material = self.files.read().map_err(|error| error.to_string())?;
        let expired = material.ending(unix_now());
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
    pub async fn send(&mut self, request: HttpRequest<'_>) -> Result<HttpResponse, TransportError> {
        let client = self.followed().await.map_err(TransportError::NoClient)?;
        let span = if self.settings.is_traced {
            begun_span(request)
        } else {
            None
        };
        let traceparent = span.as_ref().and_then(Span::traceparent);
        let response = self.exchange(&client, request, traceparent).await;
        if let Some(span) = span {
            end_span(span, response.as_ref().ok().map(|response| response.status));
        }
        // The system's authorities, which no configured file names, are read again by a new client.
        if let Err(TransportError::Http {
            is_of_tls: true, ..
        }) = &response
            && self.files.is_empty()
        {
            self.client = None;
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
        Ok(Followed::new(self.settings.files, material, client))
    }

    async fn exchange(
        &mut self,
        client: &Client,
        request: HttpRequest<'_>,
        traceparent: Option<&HeaderValue>,
    ) -> Result<HttpResponse, TransportError> {
        self.addresses.chosen.store(request.address.map(Arc::new));
        let mut response = send(built(client, request, traceparent))
            .await
            .map_err(|error| self.failure(error))?;
        self.clock_ahead = date(response.headers()).map(|date| date - unix_now());
        let status = response.status();
        let headers = std::mem::take(response.headers_mut());
        let body = self.bounded_body(response, request.max_length).await?;
        // Some servers name an encoding that they do not use.
        if let (Some(_), StatusCode::OK, Some(encoding)) =
            (request.accept, status, encoding(&headers))
            && !begins_as_text(&body)
        {
            return Err(TransportError::Encoded(LogText(&encoding).to_string()));
        }
        Ok(HttpResponse {
            status,
            headers,
            body,
        })
    }

    async fn bounded_body(
        &self,
        mut response: Response,
        max: MaxLength,
    ) -> Result<Zeroizing<Vec<u8>>, TransportError> {
        let mut body = Zeroizing::new(Vec::new());
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.failure(error))?
        {
            match max {
                MaxLength::Rejected(bytes) if body.len() + chunk.len() > bytes => {
                    return Err(TransportError::TooLong(bytes));
                }
                _ => body.extend_from_slice(&chunk),
            }
            if matches!(max, MaxLength::Cut(bytes) if body.len() >= bytes) {
                break;
            }
        }
        Ok(body)
    }

    fn failure(&self, error: reqwest::Error) -> TransportError {
        let error = error.without_url();
        TransportError::Http {
            why: with_causes(&error, &self.settings.named),
            is_of_tls: causes(&error).any(is_of_tls),
        }
    }

    fn client_with(&self, material: &PeerCertificates) -> Result<Client, String> {
        let built = self.builder(material).and_then(ClientBuilder::build);
        built.map_err(|error| {
            let causes = with_causes(&error, &self.settings.named);
            format!("the HTTP client cannot be built: {causes}")
        })
    }

    fn builder(&self, material: &PeerCertificates) -> reqwest::Result<ClientBuilder> {
        let settings = &self.settings;
        let mut client = Client::builder()
            .timeout(settings.timeout)
            // No redirect is followed: it could replace a key, or carry a password to another server.
            .redirect(redirect::Policy::none())
            // The library would read the environment in another way than curl, and for every request.
            .no_proxy()
            .pool_max_idle_per_host(usize::from(!settings.kept.is_zero()))
            .pool_idle_timeout(settings.kept)
            .dns_resolver(Arc::clone(&self.addresses));
        if let Some(timeout) = settings.connect_timeout {
            client = client.connect_timeout(timeout);
        }
        if let Some(program) = settings.user_agent {
            client = client.user_agent(program);
        }
        if let Some(socket) = &settings.socket {
            client = client.unix_socket(socket.clone());
        }
        if let Some(proxy) = &settings.proxy {
            client = proxy.apply_to(client)?;
        }
        match settings.trust {
            Trust::NoTls => return Ok(client.tls_certs_only([])),
            Trust::Anyone => {
                return Ok(client
                    .tls_certs_only([])
                    .tls_danger_accept_invalid_certs(true));
            }
            Trust::Authorities => client = client.tls_version_min(tls::Version::TLS_1_2),
        }
        if let Some(trusted) = &material.authorities {
            let trusted = trusted.iter().map(|one| Certificate::from_der(one));
            client = client.tls_certs_only(trusted.collect::<reqwest::Result<Vec<_>>>()?);
        }
        match &material.identity {
            Some(identity) => Ok(client.identity(Identity::from_pem(&identity.pem())?)),
            None => Ok(client),
        }
    }
}

async fn send(request: RequestBuilder) -> reqwest::Result<Response> {
    #[cfg(feature = "simulation")]
    return simulated::send(request).await;
    #[cfg(not(feature = "simulation"))]
    request.send().await
}

/// Returns the request as the library sends it.
fn built(
    client: &Client,
    request: HttpRequest<'_>,
    traceparent: Option<&HeaderValue>,
) -> RequestBuilder {
    let mut built = client.request(request.method.clone(), request.url);
    if let Some(headers) = request.headers {
        built = built.headers(headers.clone());
    }
    if let Some(accept) = request.accept {
        built = built
            .header(header::ACCEPT, accept)
            .header(header::ACCEPT_ENCODING, "identity");
    }
    if !request.query.is_empty() {
        built = built.query(request.query);
    }
    if let Some(traceparent) = traceparent {
        built = built.header(TRACEPARENT, traceparent);
    }
    if let Some(token) = request.bearer {
        // The library marks this field as sensitive.
        built = built.bearer_auth(token);
    }
    if let Some(known) = request.known {
        built = built.header(header::IF_NONE_MATCH, known);
    }
    if request.is_last {
        built = built.header(header::CONNECTION, "close");
    }
    match request.body {
        Body::None => built,
        Body::Form(form) => built.form(form),
        Body::Json(json) => built
            .header(header::CONTENT_TYPE, "application/json")
            .body(json.to_vec()),
    }
}

/// Returns the content codings of a response (RFC 9110 §8.4.1); `None` for `identity` alone.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let all = headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .map(|field| String::from_utf8_lossy(field.as_bytes()))
        .collect::<Vec<_>>()
        .join(", ");
    let mut names = all.split(',').map(str::trim);
    names
        .any(|it| !it.is_empty() && !it.eq_ignore_ascii_case("identity"))
        .then_some(all)
}

/// Returns true for the beginning of JSON, PEM, base64 of DER or a signed list.
fn begins_as_text(body: &[u8]) -> bool {
    std::str::from_utf8(body)
        .unwrap_or_default()
        .trim_start_matches(|c: char| c == '\u{feff}' || c.is_whitespace())
        .starts_with(['{', '[', '-', 'M', 'e'])
}

/// Begins a trace for a request; `None` without tracing.
fn begun_span(request: HttpRequest<'_>) -> Option<Span> {
    let method = request.method.to_string();
    let mut span = traces::client_span(method.clone())?;
    let url: Uri = request.url.parse().ok()?;
    let host = url.authority().map(ToString::to_string);
    span.set("http.request.method", method);
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

/// Returns seconds since the epoch (RFC 9110 §6.6.1), later by the time in caches (RFC 9111 §5.1).
fn date(headers: &HeaderMap) -> Option<i64> {
    let date = headers.get(header::DATE)?.to_str().ok()?;
    let date = OffsetDateTime::parse(date, &Rfc2822).ok()?.unix_timestamp();
    let age = headers.get(header::AGE).and_then(|age| age.to_str().ok());
    let age = age.and_then(|age| age.trim().parse::<u32>().ok());
    Some(date + i64::from(age.unwrap_or_default()))
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn the_time_in_caches_is_no_difference_of_clocks() {
        let mut headers = HeaderMap::new();
        assert_eq!(date(&headers), None);
        let epoch = "Thu, 01 Jan 1970 00:00:10 GMT";
        headers.insert(header::DATE, epoch.parse().unwrap());
        for (age, seconds) in [(None, 10), (Some("3600"), 3610), (Some("-1"), 10)] {
            if let Some(age) = age {
                headers.insert(header::AGE, age.parse().unwrap());
            }
            assert_eq!(date(&headers), Some(seconds), "{age:?}");
        }
    }
}
