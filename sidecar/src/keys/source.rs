//! The contract's key endpoint (§4.3): one fetch, checked through before anything is trusted.
//!
//! `appId` and `appSecret` travel in the query, so no error text here ever holds a URL.

use std::error::Error as _;
use std::time::Duration;

use contract::keys::{KeyError, VerificationKey};
use contract::signing_type::SigningType;
use http::{StatusCode, header};
use reqwest::{Client, Response, redirect};
use zeroize::Zeroizing;

use super::answer::{AnswerError, key_string};
use crate::discovery::{AuthServer, DiscoveryError, Instance};

/// Relative to the auth server's context path.
const KEY_PATH: &str = "/client/user/secret/key";
/// An envelope with the largest RSA key takes 2 KB.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// From connecting to the last byte: well inside a tick.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// What the sidecar shows to get the key.
#[derive(Clone)]
pub(crate) struct Application {
    pub(crate) id: String,
    pub(crate) secret: Zeroizing<String>,
}

impl std::fmt::Debug for Application {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Application")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Why a fetch brought no key. One line each, for the log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error("{}", with_causes(.0))]
    Http(reqwest::Error),
    #[error("the answer is longer than {MAX_BODY_BYTES} bytes")]
    TooLong,
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error("the key cannot be used: {0}")]
    Key(#[from] KeyError),
}

impl From<reqwest::Error> for FetchError {
    fn from(error: reqwest::Error) -> Self {
        Self::Http(error.without_url())
    }
}

/// The endpoint, and which instance of it was asked last.
#[derive(Debug)]
pub(crate) struct KeySource {
    client: Client,
    auth_server: AuthServer,
    application: Application,
    signing_type: SigningType,
    last: Option<Instance>,
}

impl KeySource {
    /// # Errors
    /// When the HTTP client cannot be built.
    pub(crate) fn new(
        auth_server: AuthServer,
        application: Application,
        signing_type: SigningType,
    ) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .timeout(FETCH_TIMEOUT)
            // Whoever can redirect the fetch, or proxy it, chooses the key.
            .redirect(redirect::Policy::none())
            .no_proxy()
            // One request a minute: a kept connection would only be found stale, and retried.
            .pool_max_idle_per_host(0)
            // Plain http only; spares loading the system's certificates.
            .tls_certs_only([])
            .user_agent(concat!("postern-sidecar/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self {
            client,
            auth_server,
            application,
            signing_type,
            last: None,
        })
    }

    /// Which instance was asked last; before the first, what is configured.
    pub(crate) fn asked(&self) -> String {
        match &self.last {
            Some(instance) => instance.authority.clone(),
            None => self.auth_server.to_string(),
        }
    }

    /// Fetches the key from the next instance, once.
    pub(crate) async fn fetch(&mut self) -> Result<VerificationKey, FetchError> {
        let instance = self.auth_server.locate(self.last.as_ref()).await?;
        let answer = self.request(&instance).await;
        self.last = Some(instance);
        let (status, body) = answer?;
        let text = key_string(status, &body)?;
        Ok(VerificationKey::parse(self.signing_type, &text)?)
    }

    async fn request(
        &self,
        instance: &Instance,
    ) -> Result<(StatusCode, Zeroizing<Vec<u8>>), FetchError> {
        let context = self.auth_server.context();
        let url = format!("http://{}{context}{KEY_PATH}", instance.authority);
        let credentials = [
            ("appId", self.application.id.as_str()),
            ("appSecret", self.application.secret.as_str()),
        ];
        let response = self
            .client
            .get(url)
            .header(header::HOST, &instance.host)
            .header(header::ACCEPT, "application/json")
            .query(&credentials)
            .send()
            .await?;
        let status = response.status();
        Ok((status, bounded_body(response).await?))
    }
}

/// Zeroized, because in hmac mode the key is the secret.
async fn bounded_body(mut response: Response) -> Result<Zeroizing<Vec<u8>>, FetchError> {
    let mut body = Zeroizing::new(Vec::new());
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_BODY_BYTES {
            return Err(FetchError::TooLong);
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    /// Answers each connection with `answer` and hands over the request's head.
    fn auth_server(answer: String) -> (SocketAddr, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (heads, received) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = [0; 4096];
                let length = stream.read(&mut head).unwrap();
                let _ = heads.send(String::from_utf8_lossy(&head[..length]).into_owned());
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        (address, received)
    }

    fn source(address: SocketAddr) -> KeySource {
        // The first test of the process installs it, the others find it there.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let application = Application {
            id: "orders&co".to_owned(),
            secret: Zeroizing::new("h\u{fc}sh".to_owned()),
        };
        let auth_server = format!("http://{address}/auth").parse().unwrap();
        KeySource::new(auth_server, application, SigningType::Hmac).unwrap()
    }

    fn answer(status: &str, body: &str) -> String {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}")
    }

    fn envelope(data: &str) -> String {
        format!(r#"{{"success":true,"status":200,"msg":"m","data":{data}}}"#)
    }

    #[tokio::test]
    async fn contract_4_3_the_key_is_asked_for_with_both_parameters() {
        let (address, heads) = auth_server(answer("200 OK", &envelope(&format!("\"{KEY}\""))));
        let mut source = source(address);
        let key = source.fetch().await.unwrap();
        let expected = VerificationKey::parse(SigningType::Hmac, KEY).unwrap();
        assert_eq!(key.id(), expected.id());
        let head = heads.recv().unwrap();
        let line =
            "GET /auth/client/user/secret/key?appId=orders%26co&appSecret=h%C3%BCsh HTTP/1.1";
        assert_eq!(head.lines().next(), Some(line));
        assert_eq!(source.asked(), address.to_string());
    }

    #[tokio::test]
    async fn whatever_goes_wrong_brings_no_key_and_says_why_without_the_query() {
        for (answer, why) in [
            (answer("200 OK", &envelope("null")), "data is not a string"),
            (
                answer("200 OK", &envelope("\"short\"")),
                "the key cannot be used",
            ),
            // Not followed: whoever can redirect the fetch would choose the key.
            (
                answer("302 Found\r\nLocation: /x", ""),
                "refused with 302 Found",
            ),
            (
                answer("200 OK", &" ".repeat(MAX_BODY_BYTES + 1)),
                "longer than 65536 bytes",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{".to_owned(),
                "body",
            ),
            ("SSH-2.0\r\n".to_owned(), "error sending request"),
        ] {
            let (address, _heads) = auth_server(answer.clone());
            let error = source(address).fetch().await.unwrap_err().to_string();
            assert!(error.contains(why), "{error}\n{answer:.200}");
            assert!(!error.contains("appSecret"), "{error}");
        }
    }

    #[tokio::test]
    async fn an_auth_server_that_is_away_is_an_error_without_the_query() {
        let address = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let error = source(address).fetch().await.unwrap_err().to_string();
        assert!(error.contains("refused"), "{error}");
        assert!(
            !error.contains("app") && !error.contains("secret"),
            "{error}"
        );
    }
}
