//! Requests to the registry, bounded in time and size. Nothing here holds a connection: callers
//! repeat renewals and polls.
//!
//! The token travels in a header and the password in a body, so no address holds a secret.

use std::fmt;
use std::time::Duration;

use postern_process::files::file_watch::run_blocking;
use postern_transport::tls::failure::with_causes;
use postern_transport::tls::peer::PeerSettings;
use postern_transport::tls::trusted;
use reqwest::{Certificate, Client, Method, StatusCode, redirect, tls};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use crate::api::{Api, Call, parsed};
use crate::instance::Instance;
use crate::settings::RegistrySettings;

/// Deadline of one response, connecting included.
const TIMEOUT: Duration = Duration::from_secs(3);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Far more than a list of thousand instances.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;
/// Longest assumed lifetime of a token in seconds, for every lifetime that a response has.
const LONGEST_LIFE: u64 = 24 * 60 * 60;
/// Registries count failed logins, and lock the user out.
const LOGIN_PAUSE: Duration = Duration::from_secs(5);

/// The settings that errors name.
const SETTINGS: PeerSettings = PeerSettings::without_key("`ca` in its URL", "a registry gets none");

/// A failed request to the registry. No text holds an address, a credential or a text of the server.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// No whole response.
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

    /// Sends the request, and sends it in the other version where the server lacks this one.
    async fn send(&mut self, call: Call<'_>) -> Result<Vec<u8>, RegistryError> {
        let http = match self.http.take() {
            Some(http) => http,
            None => http_client(&self.settings).await?,
        };
        let (mut status, mut body) = self.exchange(&http, self.api, call).await?;
        if is_missing(status) {
            (status, body) = self.exchange(&http, self.api.other(), call).await?;
            if !is_missing(status) {
                self.api = self.api.other();
            }
        }
        self.http = Some(http);
        match status {
            StatusCode::OK => Ok(body),
            status => Err(RegistryError::Rejected(status)),
        }
    }

    async fn exchange(
        &self,
        http: &Client,
        api: Api,
        call: Call<'_>,
    ) -> Result<(StatusCode, Vec<u8>), RegistryError> {
        let RegistrySettings {
            is_https, server, ..
        } = &self.settings;
        let scheme = if *is_https { "https" } else { "http" };
        let (method, path) = api.target(call);
        let is_form = method == Method::POST;
        let request = http.request(method, format!("{scheme}://{server}{path}"));
        let parameters = api.parameters(call, &self.settings);
        let mut request = match is_form {
            true => request.form(&parameters),
            false => request.query(&parameters),
        };
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.value.expose_secret());
        }
        let mut response = request.send().await.map_err(unreachable)?;
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

/// Returns true for the response of a server without this version of the API.
fn is_missing(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::NOT_IMPLEMENTED
    )
}

/// Builds an HTTP client with the authorities of now.
async fn http_client(settings: &RegistrySettings) -> Result<Client, RegistryError> {
    let client = Client::builder()
        .timeout(TIMEOUT)
        // Shared by the addresses of a name: one that is away leaves time for the next.
        .connect_timeout(CONNECT_TIMEOUT)
        // The password goes to the configured server and nowhere else.
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
    RegistryError::Tls(with_causes(&error, &SETTINGS))
}

fn unreachable(error: reqwest::Error) -> RegistryError {
    RegistryError::Unreachable(with_causes(&error.without_url(), &SETTINGS))
}
