//! The login at a registry that requires one: user and password for a token that every request then
//! carries.
//!
//! The login of `nacos-sdk` puts the password into an address and that address into its log lines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use nacos_sdk::api::plugin::{AuthContext, AuthPlugin, LoginIdentityContext, RequestResource};
use parking_lot::{Mutex, MutexGuard};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest_plain::{Client, StatusCode, header, redirect};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::address::RegistryAddress;

/// The paths of Nacos 1 and 2, then of Nacos 3, which lacks the former.
const PATHS: [&str; 2] = ["/nacos/v1/auth/login", "/nacos/v3/auth/user/login"];
/// The parameter that carries the token.
const TOKEN_FIELD: &str = "accessToken";
const TIMEOUT: Duration = Duration::from_secs(3);
/// A token and three more fields.
const MAX_RESPONSE_BYTES: usize = 16 * 1024;
/// Longest assumed lifetime of a token in seconds, for every lifetime that a response has.
const LONGEST_LIFE: u64 = 24 * 60 * 60;
/// Registries count failed logins, and lock the user out.
const PAUSE: Duration = Duration::from_secs(5);

/// A failed login. No text holds an address or a credential.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum LoginError {
    #[error("the registry's login does not respond: {0}")]
    Unreachable(String),
    #[error("the registry rejects the login: {0}")]
    Rejected(StatusCode),
    #[error("the registry's login gives no token")]
    NoToken,
}

/// User, password, and their token.
pub(crate) struct Login {
    http: Client,
    address: RegistryAddress,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    token: Option<Arc<Zeroizing<String>>>,
    renew_at: Option<Instant>,
    tried_at: Option<Instant>,
    /// The failure of the last attempt.
    failure: Option<LoginError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LoginResponse {
    access_token: Zeroizing<String>,
    /// Seconds.
    token_ttl: u64,
}

impl Login {
    /// Builds the HTTP client.
    ///
    /// # Errors
    /// When it cannot be built.
    pub(crate) fn new(address: RegistryAddress) -> Result<Self, String> {
        let http = Client::builder()
            .timeout(TIMEOUT)
            // The password goes to the configured servers and nowhere else.
            .redirect(redirect::Policy::none())
            .no_proxy()
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self {
            http,
            address,
            state: Mutex::default(),
        })
    }

    /// Logs in if requests need a token and there is no valid one.
    ///
    /// # Errors
    /// The last failed login.
    pub(crate) async fn ensure(&self) -> Result<(), LoginError> {
        let Some((user, password)) = self.address.credentials() else {
            return Ok(());
        };
        let now = Instant::now();
        {
            let mut state = self.state();
            if !state.is_due(now) {
                return state.failure.clone().map_or(Ok(()), Err);
            }
            state.tried_at = Some(now);
        }
        let response = self.log_in_anywhere(&form(user, password)).await;
        let mut state = self.state();
        state.failure = response.as_ref().err().cloned();
        let response = response?;
        // Half of its lifetime, so that a renewal may take long.
        state.renew_at = Some(now + Duration::from_secs(response.token_ttl.min(LONGEST_LIFE) / 2));
        state.token = Some(Arc::new(response.access_token));
        Ok(())
    }

    /// Has the token renewed after a rejected request: the registry may have restarted.
    pub(crate) fn invalidate_token(&self) {
        self.state().renew_at = None;
    }

    /// Returns the first response of any server.
    async fn log_in_anywhere(&self, form: &Zeroizing<String>) -> Result<LoginResponse, LoginError> {
        let mut failure = LoginError::NoToken;
        for server in self.address.servers() {
            for path in PATHS {
                match self
                    .log_in_at(&format!("http://{server}{path}"), form)
                    .await
                {
                    Ok(response) => return Ok(response),
                    // Another version of the registry.
                    Err(LoginError::Rejected(StatusCode::NOT_FOUND | StatusCode::GONE)) => {
                        failure = LoginError::NoToken;
                    }
                    Err(error) => {
                        failure = error;
                        break;
                    }
                }
            }
        }
        Err(failure)
    }

    async fn log_in_at(
        &self,
        url: &str,
        form: &Zeroizing<String>,
    ) -> Result<LoginResponse, LoginError> {
        let unreachable =
            |error: reqwest_plain::Error| LoginError::Unreachable(error.without_url().to_string());
        let mut response = self
            .http
            .post(url)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form.to_string())
            .send()
            .await
            .map_err(unreachable)?;
        if response.status() != StatusCode::OK {
            return Err(LoginError::Rejected(response.status()));
        }
        let mut body = Zeroizing::new(Vec::new());
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                return Err(LoginError::NoToken);
            }
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body).map_err(|_| LoginError::NoToken)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn is_due(&self, now: Instant) -> bool {
        let tried_lately = self.tried_at.is_some_and(|tried| now < tried + PAUSE);
        let holds = self.renew_at.is_some_and(|renew_at| now < renew_at);
        !holds && !tried_lately
    }
}

fn form(user: &str, password: &str) -> Zeroizing<String> {
    let encoded =
        |text: &str| Zeroizing::new(utf8_percent_encode(text, NON_ALPHANUMERIC).to_string());
    Zeroizing::new(format!(
        "username={}&password={}",
        *encoded(user),
        *encoded(password)
    ))
}

#[async_trait]
impl AuthPlugin for Login {
    /// Logs in if necessary; the client calls it twice a minute.
    async fn login(&self, _: Arc<Vec<String>>, _: Arc<AuthContext>) {
        // Requests that need the token log in too, and report the failure.
        let _ = self.ensure().await;
    }

    fn get_login_identity(&self, _: RequestResource) -> LoginIdentityContext {
        let identity = LoginIdentityContext::default();
        match &self.state().token {
            Some(token) => identity.add_context(TOKEN_FIELD, token.as_str()),
            None => identity,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Starts a registry that sends these responses in order, and returns the requests.
    fn login(responses: Vec<(u16, &'static str)>) -> (Login, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("m%40e:h%26sh@{}", listener.local_addr().unwrap());
        let requests = thread::spawn(move || {
            let response = |(status, body): (u16, &str)| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = String::new();
                while !request.ends_with("password=h%26sh") {
                    let mut bytes = [0; 4096];
                    let count = stream.read(&mut bytes).unwrap();
                    request += std::str::from_utf8(&bytes[..count]).unwrap();
                }
                let length = body.len();
                let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n");
                stream.write_all((head + body).as_bytes()).unwrap();
                request.lines().next().unwrap().to_owned()
            };
            responses.into_iter().map(response).collect()
        });
        let address = RegistryAddress::parse(&address).unwrap();
        (Login::new(address).unwrap(), requests)
    }

    const TOKEN: &str = r#"{"accessToken":"token","tokenTtl":18000,"globalAdmin":true}"#;

    fn token(login: &Login) -> Option<String> {
        let state = login.state();
        state.token.as_ref().map(|token| token.to_string())
    }

    #[tokio::test]
    async fn a_token_is_fetched_once_with_the_password_in_the_body() {
        let (login, requests) = login(vec![(200, TOKEN)]);
        login.ensure().await.unwrap();
        login.ensure().await.unwrap();
        assert_eq!(token(&login).as_deref(), Some("token"));
        assert_eq!(
            requests.join().unwrap(),
            ["POST /nacos/v1/auth/login HTTP/1.1"]
        );
    }

    #[tokio::test]
    async fn a_token_may_say_that_it_lasts_for_ever() {
        let response = r#"{"accessToken":"token","tokenTtl":18446744073709551615}"#;
        let (login, _) = login(vec![(200, response)]);
        login.ensure().await.unwrap();
        assert_eq!(token(&login).as_deref(), Some("token"));
    }

    #[tokio::test]
    async fn a_registry_with_only_the_newer_path_gets_the_login_there() {
        let (login, requests) = login(vec![(404, ""), (200, TOKEN)]);
        login.ensure().await.unwrap();
        assert_eq!(
            requests.join().unwrap()[1],
            "POST /nacos/v3/auth/user/login HTTP/1.1"
        );
    }

    #[tokio::test]
    async fn a_rejected_login_pauses_and_prints_no_password() {
        for (status, body) in [(403, "unknown user"), (302, ""), (200, "{}"), (200, "h&sh")] {
            let (login, requests) = login(vec![(status, body)]);
            let error = login.ensure().await.unwrap_err().to_string();
            assert!(
                !error.contains("h&sh") && !error.contains("http"),
                "{error}"
            );
            let again = login.ensure().await.unwrap_err();
            assert_eq!(again.to_string(), error, "there is no request");
            assert_eq!(token(&login), None);
            assert_eq!(requests.join().unwrap().len(), 1);
        }
    }

    #[test]
    fn a_token_is_renewed_at_half_its_life_or_when_in_doubt() {
        let now = Instant::now();
        let later = |seconds| Some(now + Duration::from_secs(seconds));
        let due = |renew_at, tried_at| {
            let state = State {
                renew_at,
                tried_at,
                ..State::default()
            };
            state.is_due(now + Duration::from_secs(100))
        };
        assert!(due(None, None));
        assert!(due(None, later(95)));
        assert!(!due(None, later(96)));
        assert!(due(later(100), later(0)));
        assert!(!due(later(101), later(0)));
    }
}
