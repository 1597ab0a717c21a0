//! One GET to one instance of the auth server, bounded in time and size.
//!
//! Queries hold a secret, so no error text here ever holds a URL.

use std::error::Error as _;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use reqwest::{Client, Response, redirect};
use zeroize::Zeroizing;

use crate::discovery::Instance;

/// The largest RSA key takes 2 KB in an envelope, and less in a key set.
pub(crate) const MAX_BODY_BYTES: usize = 64 * 1024;
/// From connecting to the last byte: two answers are well inside a tick.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    #[error("{}", with_causes(.0))]
    Http(reqwest::Error),
    #[error("the answer is longer than {MAX_BODY_BYTES} bytes")]
    TooLong,
}

impl From<reqwest::Error> for TransportError {
    fn from(error: reqwest::Error) -> Self {
        Self::Http(error.without_url())
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    /// Path, and a query that is no secret.
    pub(crate) target: &'a str,
    /// Added to the query.
    pub(crate) credentials: &'a [(&'a str, &'a str)],
    pub(crate) accept: &'static str,
    /// The version that is known already.
    pub(crate) known: Option<&'a HeaderValue>,
}

/// The whole answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Zeroized, because in hmac mode the key is the secret.
    pub(crate) body: Zeroizing<Vec<u8>>,
}

/// The HTTP client.
#[derive(Debug)]
pub(crate) struct Transport(Client);

impl Transport {
    /// # Errors
    /// When the HTTP client cannot be built.
    pub(crate) fn new() -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .timeout(TIMEOUT)
            // Whoever can redirect the fetch, or proxy it, chooses the key.
            .redirect(redirect::Policy::none())
            .no_proxy()
            // Two requests a minute: a kept connection would only be found stale, and retried.
            .pool_max_idle_per_host(0)
            // Plain http only; spares loading the system's certificates.
            .tls_certs_only([])
            .user_agent(concat!("postern-sidecar/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self(client))
    }

    pub(crate) async fn get(
        &self,
        instance: &Instance,
        question: Question<'_>,
    ) -> Result<Answer, TransportError> {
        let url = format!("http://{}{}", instance.authority, question.target);
        let mut request = self
            .0
            .get(url)
            .header(header::HOST, &instance.host)
            .header(header::ACCEPT, question.accept);
        if !question.credentials.is_empty() {
            request = request.query(question.credentials);
        }
        if let Some(known) = question.known {
            request = request.header(header::IF_NONE_MATCH, known);
        }
        let mut response = request.send().await?;
        Ok(Answer {
            status: response.status(),
            headers: std::mem::take(response.headers_mut()),
            body: bounded_body(response).await?,
        })
    }
}

async fn bounded_body(mut response: Response) -> Result<Zeroizing<Vec<u8>>, TransportError> {
    let mut body = Zeroizing::new(Vec::new());
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_BODY_BYTES {
            return Err(TransportError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// reqwest keeps what really happened in the chain of causes.
fn with_causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
