//! One request, as its sender describes it.

use std::fmt;
use std::net::SocketAddr;

use http::{HeaderMap, HeaderValue, Method, header};
use postern_http::trace::TRACEPARENT;
use reqwest::{Client, RequestBuilder};

/// Max length of a response with keys; the largest RSA key takes 2 KB in an envelope, and less in a key
/// set.
pub const MAX_BODY_BYTES: usize = 64 * 1024;

/// One request.
#[derive(Clone, Copy)]
pub struct HttpRequest<'a> {
    /// The method, mostly GET.
    pub method: &'a Method,
    /// The URL, whose query is no secret.
    pub url: &'a str,
    /// The address to connect to in place of those of the URL's host.
    pub address: Option<SocketAddr>,
    /// Parameters that are added to the query of the URL.
    pub query: &'a [(&'a str, &'a str)],
    /// Fields beside those of the following members.
    pub headers: Option<&'a HeaderMap>,
    /// A token for the server.
    pub bearer: Option<&'a str>,
    /// Media types of the response, without any encoding; `None` accepts any response.
    pub accept: Option<&'static str>,
    /// The `ETag` of the version that is known already.
    pub known: Option<&'a HeaderValue>,
    /// The body after the head.
    pub body: Body<'a>,
    /// True if no further request follows: the connection ends with the response.
    pub is_last: bool,
    /// The max length of the response.
    pub max_length: MaxLength,
}

/// The body of a request.
#[derive(Clone, Copy)]
pub enum Body<'a> {
    /// No body.
    None,
    /// A form, encoded as browsers do.
    Form(&'a [(&'a str, &'a str)]),
    /// JSON.
    Json(&'a [u8]),
}

/// Prints neither query nor token nor body, which hold secrets.
impl fmt::Debug for HttpRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpRequest")
            .field("method", self.method)
            .finish_non_exhaustive()
    }
}

/// The length of the longest body of a response.
#[derive(Debug, Clone, Copy)]
pub enum MaxLength {
    /// A longer body is an error.
    Rejected(usize),
    /// The rest of a longer body is not read.
    Cut(usize),
}

impl<'a> HttpRequest<'a> {
    /// Returns a GET of a short response.
    #[must_use]
    pub const fn get(url: &'a str) -> Self {
        Self {
            method: &Method::GET,
            url,
            address: None,
            query: &[],
            headers: None,
            bearer: None,
            accept: None,
            known: None,
            body: Body::None,
            is_last: false,
            max_length: MaxLength::Rejected(MAX_BODY_BYTES),
        }
    }

    /// Returns the last request of a fetch, for a short response in JSON.
    #[must_use]
    pub const fn get_json(url: &'a str) -> Self {
        Self {
            accept: Some("application/json"),
            is_last: true,
            ..Self::get(url)
        }
    }

    /// Returns the request as the library sends it.
    pub(super) fn build(
        self,
        client: &Client,
        traceparent: Option<&HeaderValue>,
    ) -> RequestBuilder {
        let mut built = client.request(self.method.clone(), self.url);
        if let Some(headers) = self.headers {
            built = built.headers(headers.clone());
        }
        if let Some(accept) = self.accept {
            built = built
                .header(header::ACCEPT, accept)
                .header(header::ACCEPT_ENCODING, "identity");
        }
        if !self.query.is_empty() {
            built = built.query(self.query);
        }
        if let Some(traceparent) = traceparent {
            built = built.header(TRACEPARENT, traceparent);
        }
        if let Some(token) = self.bearer {
            // The library marks this field as sensitive.
            built = built.bearer_auth(token);
        }
        if let Some(known) = self.known {
            built = built.header(header::IF_NONE_MATCH, known);
        }
        if self.is_last {
            built = built.header(header::CONNECTION, "close");
        }
        match self.body {
            Body::None => built,
            Body::Form(form) => built.form(form),
            Body::Json(json) => built
                .header(header::CONTENT_TYPE, "application/json")
                .body(json.to_vec()),
        }
    }
}
