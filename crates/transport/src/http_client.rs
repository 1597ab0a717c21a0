//! The HTTP client of every request that a program makes by itself, except the export of spans: bounded in
//! time and size, to the configured server and nowhere else, with the present certificates of its files.
//!
//! Queries may hold a secret, so no error text here ever holds a URL.

mod client_builder;
pub mod proxy;
mod request;
mod response;
mod settings;
#[cfg(feature = "simulation")]
pub mod simulated;
mod transport_error;

use std::fmt;
use std::sync::Arc;

use crate::tls::followed::Followed;
use crate::tls::peer::{PeerCertificates, PeerFiles};
use crate::traces::{self, Span};
use http::{HeaderValue, StatusCode, Uri};
use postern_process::clock::unix_now;
use postern_process::files::file_watch::run_blocking;
use postern_process::logs::sanitize::LogText;
pub use reqwest::Url;
use reqwest::{Client, RequestBuilder, Response};
use zeroize::Zeroizing;

use self::client_builder::Addresses;
pub use self::request::{Body, HttpRequest, MAX_BODY_BYTES, MaxLength};
pub use self::response::{HttpResponse, Unexpected};
use self::response::{begins_as_text, date, encoding};
pub use self::settings::{ClientSettings, Trust};
pub use self::transport_error::TransportError;

/// The client of the library, with the certificates that it was built from.
type FollowedClient = Followed<Arc<PeerCertificates>, Client>;

/// The HTTP client. There is one request at a time.
pub struct HttpClient {
    settings: ClientSettings,
    addresses: Arc<Addresses>,
    files: PeerFiles,
    /// The client of the library; `None` until the files could be used.
    client: Option<FollowedClient>,
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
        let client = self
            .present_client()
            .await
            .map_err(TransportError::NoClient)?;
        let span = if self.settings.is_traced {
            begin_span(request)
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
    async fn present_client(&mut self) -> Result<Client, String> {
        let files = self.files.clone();
        let read = move || files.read().map(Arc::new);
        let Some(followed) = &self.client else {
            let followed = self.followed_from(run_blocking(read).await?)?;
            return Ok(self.client.insert(followed).load().value.clone());
        };
        if !self.files.is_empty() {
            let build = |material: &Arc<PeerCertificates>| {
                client_builder::build(&self.settings, &self.addresses, material)
            };
            followed.follow(read, build).await;
        }
        Ok(followed.load().value.clone())
    }

    fn followed_from(&self, material: Arc<PeerCertificates>) -> Result<FollowedClient, String> {
        let client = client_builder::build(&self.settings, &self.addresses, &material)?;
        Ok(Followed::new(self.settings.files, material, client))
    }

    async fn exchange(
        &mut self,
        client: &Client,
        request: HttpRequest<'_>,
        traceparent: Option<&HeaderValue>,
    ) -> Result<HttpResponse, TransportError> {
        self.addresses.chosen.store(request.address.map(Arc::new));
        let mut response = send(request.build(client, traceparent))
            .await
            .map_err(|error| self.failure(error))?;
        self.clock_ahead = date(response.headers()).map(|date| date - unix_now());
        let status = response.status();
        let headers = std::mem::take(response.headers_mut());
        let body = self.bounded_body(response, request.max_length).await?;
        // Some servers name an encoding that they do not use.
        if request.accept.is_some()
            && status == StatusCode::OK
            && let Some(encoding) = encoding(&headers)
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
        TransportError::from_library(error, &self.settings.named)
    }
}

async fn send(request: RequestBuilder) -> reqwest::Result<Response> {
    #[cfg(feature = "simulation")]
    return simulated::send(request).await;
    #[cfg(not(feature = "simulation"))]
    request.send().await
}

/// Begins a trace for a request; `None` without tracing.
fn begin_span(request: HttpRequest<'_>) -> Option<Span> {
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
