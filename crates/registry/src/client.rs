//! Requests to the registry, bounded in time and size. Nothing here holds a connection: callers
//! repeat renewals and polls.
//!
//! The token travels in a header and the password in a body, so no address holds a secret.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use reqwest::{Certificate, Client, Method, StatusCode, redirect, tls};
use runtime::files::file_watch::run_blocking;
use runtime::tls::trusted;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use crate::api::{Api, Call, parsed};
use crate::instance::Instance;
use crate::settings::RegistrySettings;

/// Deadline of one response, connecting included.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Far more than a list of thousand instances.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;
/// Longest assumed lifetime of a token in seconds, for every lifetime that a response has.
const LONGEST_LIFE: u64 = 24 * 60 * 60;
/// Registries count failed logins, and lock the user out.
const LOGIN_PAUSE: Duration = Duration::from_secs(5);

/// A failed request to the registry. No text holds an address, a credential or a text of the server.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// No whole response from any server.
    #[error("the registry does not respond: {0}")]
    Unreachable(String),
    /// A status without a result.
    #[error("the registry rejects the request: {0}")]
    Rejected(StatusCode),
    /// A result that is no success.
    #[error("the registry responds with the code {0}")]
    Code(i64),
    /// A response of another form.
    #[error("the response of the registry is not understood")]
    NotUnderstood,
    /// A required login that failed with this status.
    #[error("the registry rejects the login: {0}")]
    Login(StatusCode),
    /// An HTTP client that cannot be built.
    #[error("no TLS to the registry: {0}")]
    Tls(String),
}

/// A client of one registry.
pub struct RegistryClient {
    settings: RegistrySettings,
    /// `None` before the first request and after a failure: built with the authorities of now.
    http: Option<Client>,
    /// The number of the server that responded last.
    server: usize,
    /// The API of the last response.
    api: Api,
    token: Option<Token>,
    /// `None` before the first login.
    logged_in_at: Option<Instant>,
}

struct Token {
    value: SecretString,
    renew_at: Instant,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LoginResponse {
    access_token: String,
    /// Seconds.
    token_ttl: u64,
}

/// Prints no token.
impl fmt::Debug for RegistryClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RegistryClient")
            .field(&self.settings)
            .finish()
    }
}

impl RegistryClient {
    /// Makes a client, without a request.
    #[must_use]
    pub const fn new(settings: RegistrySettings) -> Self {
        Self {
            settings,
            http: None,
            server: 0,
            api: Api::V3,
            token: None,
            logged_in_at: None,
        }
    }

    /// Lists `own` among the instances of the service until it is no longer renewed.
    ///
    /// # Errors
    /// [`RegistryError`]
    pub async fn register(&mut self, own: &Instance) -> Result<(), RegistryError> {
        let body = self.call(Call::Register(own)).await?;
        self.api.done(&body)
    }

    /// Renews the registration of `own`, and registers it whole if the registry has dropped it.
    ///
    /// # Errors
    /// [`RegistryError`]
    pub async fn renew(&mut self, own: &Instance) -> Result<(), RegistryError> {
        let body = self.call(Call::Renew(own)).await?;
        if Api::renewed(&body)? {
            return Ok(());
        }
        self.register(own).await
    }

    /// Removes `own` from the list.
    ///
    /// # Errors
    /// [`RegistryError`]; the registry then drops it after half a minute.
    pub async fn deregister(&mut self, own: &Instance) -> Result<(), RegistryError> {
        let body = self.call(Call::Deregister(own)).await?;
        self.api.done(&body)
    }

    /// Returns the present instances of the service.
    ///
    /// # Errors
    /// [`RegistryError`]
    pub async fn instances(&mut self) -> Result<Vec<Instance>, RegistryError> {
        let body = self.call(Call::List).await?;
        self.api.instances(&body)
    }

    /// Returns the body of a success, after a login where one is due.
    async fn call(&mut self, call: Call<'_>) -> Result<Vec<u8>, RegistryError> {
        self.ensure_token().await?;
        let response = self.send(call).await;
        if let Err(RegistryError::Rejected(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) =
            response
        {
            // The registry may have forgotten it.
            self.token = None;
        }
        response
    }

    async fn ensure_token(&mut self) -> Result<(), RegistryError> {
        let Some((user, password)) = self.settings.credentials() else {
            return Ok(());
        };
        let now = Instant::now();
        if self
            .token
            .as_ref()
            .is_some_and(|token| now < token.renew_at)
        {
            return Ok(());
        }
        if let Some(former) = self.logged_in_at {
            sleep_until(former + LOGIN_PAUSE).await;
        }
        let (user, password) = (user.to_owned(), password.clone());
        self.logged_in_at = Some(Instant::now());
        self.token = None;
        let log_in = Call::LogIn {
            user: &user,
            password: password.expose_secret(),
        };
        let body = self.send(log_in).await.map_err(|error| match error {
            RegistryError::Rejected(status) => RegistryError::Login(status),
            other => other,
        })?;
        let response: LoginResponse = parsed(&body)?;
        // Half of its lifetime, so that a renewal may take long.
        let life = Duration::from_secs(response.token_ttl.min(LONGEST_LIFE) / 2);
        self.token = Some(Token {
            value: response.access_token.into(),
            renew_at: now + life,
        });
        Ok(())
    }

    /// Sends the request to the server of the last response, then to the others.
    async fn send(&mut self, call: Call<'_>) -> Result<Vec<u8>, RegistryError> {
        let http = match &self.http {
            Some(http) => http.clone(),
            None => http(&self.settings).await?,
        };
        let mut failure = RegistryError::NotUnderstood;
        for _ in 0..self.settings.servers.len() {
            match self.send_in_any_version(&http, call).await {
                Err(RegistryError::Rejected(status)) if status.is_server_error() => {
                    failure = RegistryError::Rejected(status);
                }
                Err(error @ RegistryError::Unreachable(_)) => failure = error,
                response => {
                    self.http = Some(http);
                    return response;
                }
            }
            self.server = (self.server + 1) % self.settings.servers.len();
        }
        self.http = None;
        Err(failure)
    }

    async fn send_in_any_version(
        &mut self,
        http: &Client,
        call: Call<'_>,
    ) -> Result<Vec<u8>, RegistryError> {
        let mut missing = StatusCode::NOT_FOUND;
        for api in [self.api, self.api.other()] {
            let (status, body) = self.exchange(http, api, call).await?;
            match status {
                StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::NOT_IMPLEMENTED => {
                    missing = status;
                }
                StatusCode::OK => {
                    self.api = api;
                    return Ok(body);
                }
                status => return Err(RegistryError::Rejected(status)),
            }
        }
        Err(RegistryError::Rejected(missing))
    }

    async fn exchange(
        &self,
        http: &Client,
        api: Api,
        call: Call<'_>,
    ) -> Result<(StatusCode, Vec<u8>), RegistryError> {
        let scheme = if self.settings.is_https {
            "https"
        } else {
            "http"
        };
        let server = self.settings.servers.get(self.server);
        let server = server.ok_or(RegistryError::NotUnderstood)?;
        let request = api.request(call, &self.settings);
        let url = format!("{scheme}://{server}{}", request.path);
        let mut sent = http.request(request.method.clone(), url);
        sent = match request.method {
            Method::POST => sent.form(&request.parameters),
            _ => sent.query(&request.parameters),
        };
        if let Some(token) = &self.token {
            sent = sent.bearer_auth(token.value.expose_secret());
        }
        let mut response = sent.send().await.map_err(unreachable)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                return Err(RegistryError::NotUnderstood);
            }
            body.extend_from_slice(&chunk);
        }
        Ok((response.status(), body))
    }
}

/// Builds an HTTP client with the authorities of now.
async fn http(settings: &RegistrySettings) -> Result<Client, RegistryError> {
    let client = Client::builder()
        .timeout(TIMEOUT)
        // The password goes to the configured servers and nowhere else.
        .redirect(redirect::Policy::none())
        .no_proxy()
        // Ten thousand sidecars hold no connection between two requests.
        .pool_max_idle_per_host(0);
    let client = match &settings.ca {
        // Avoids loading the system's certificates.
        _ if !settings.is_https => client.tls_certs_only([]),
        None => client.tls_version_min(tls::Version::TLS_1_2),
        Some(ca) => {
            let file = ca.clone();
            let pem = run_blocking(move || trusted(&file)).await;
            let pem = pem.map_err(RegistryError::Tls)?;
            let trusted = Certificate::from_pem_bundle(&pem).map_err(no_client)?;
            client
                .tls_version_min(tls::Version::TLS_1_2)
                .tls_certs_only(trusted)
        }
    };
    client.build().map_err(no_client)
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` calls it")]
fn no_client(error: reqwest::Error) -> RegistryError {
    RegistryError::Tls(with_causes(&error))
}

fn unreachable(error: reqwest::Error) -> RegistryError {
    RegistryError::Unreachable(with_causes(&error.without_url()))
}

/// Joins the causes: reqwest keeps the real one in the chain.
fn with_causes(error: &reqwest::Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
