//! Requests to the registry, bounded in time and size. Nothing here holds a connection: callers
//! repeat renewals and polls.
//!
//! The token travels in a header and the password in a body, so no address holds a secret.

use std::fmt;
use std::time::Duration;

use http::{Method, StatusCode};
use postern_transport::http_client::{
    Body, ClientSettings, HttpClient, HttpRequest, HttpResponse, MaxLength, TransportError, Trust,
};
use postern_transport::tls::peer::PeerFiles;
use postern_transport::tls::peer_settings::PeerSettings;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};
use zeroize::Zeroizing;

use crate::api::{Api, Call, parsed};
use crate::error::RegistryError;
use crate::instance::Instance;
use crate::settings::RegistrySettings;

/// Of one response, connecting included.
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

/// A client of one registry.
pub struct RegistryClient {
    settings: RegistrySettings,
    http: HttpClient,
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
    pub fn new(settings: RegistrySettings) -> Self {
        Self {
            http: http_client(&settings),
            settings,
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
    async fn call(&mut self, call: Call<'_>) -> Result<Zeroizing<Vec<u8>>, RegistryError> {
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
        match &self.token {
            Some(token) if now < token.renew_at => return Ok(()),
            _ => {}
        }
        // A wrong password is not tried more often than every `LOGIN_PAUSE`.
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
    async fn send(&mut self, call: Call<'_>) -> Result<Zeroizing<Vec<u8>>, RegistryError> {
        let mut response = self.exchange(self.api, call).await?;
        // Only a response of the other version shows which version the server has.
        if is_missing(response.status) {
            response = self.exchange(self.api.other(), call).await?;
            if !is_missing(response.status) {
                self.api = self.api.other();
            }
        }
        match response.status {
            StatusCode::OK => Ok(response.body),
            status => Err(RegistryError::Rejected(status)),
        }
    }

    async fn exchange(&mut self, api: Api, call: Call<'_>) -> Result<HttpResponse, RegistryError> {
        let RegistrySettings {
            is_https, server, ..
        } = &self.settings;
        let scheme = if *is_https { "https" } else { "http" };
        let (method, path) = api.target(call);
        let url = format!("{scheme}://{server}{path}");
        let parameters = api.parameters(call, &self.settings);
        let parameters: Vec<_> = parameters
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        // A POST carries its parameters, such as the password, in its body: addresses are logged.
        let (query, body) = match method {
            Method::POST => (&[][..], Body::Form(&parameters)),
            _ => (&parameters[..], Body::None),
        };
        let token = self.token.as_ref();
        let request = HttpRequest {
            method: &method,
            query,
            body,
            bearer: token.map(|token| token.value.expose_secret()),
            max_length: MaxLength::Rejected(MAX_RESPONSE_BYTES),
            ..HttpRequest::get(&url)
        };
        self.http.send(request).await.map_err(|error| match error {
            TransportError::Http { why, .. } => RegistryError::Unreachable(why),
            TransportError::NoClient(why) => RegistryError::Tls(why),
            TransportError::TooLong(_) | TransportError::Encoded(_) => RegistryError::NotUnderstood,
        })
    }
}

/// Returns true for the response of a server without this version of the API.
fn is_missing(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::NOT_IMPLEMENTED
    )
}

/// Returns a client without connections between two requests: there may be ten thousand sidecars.
fn http_client(settings: &RegistrySettings) -> HttpClient {
    let client = ClientSettings {
        trust: Trust::for_https(settings.is_https),
        named: SETTINGS,
        files: "authorities for the registry",
        connect_timeout: Some(CONNECT_TIMEOUT),
        timeout: TIMEOUT,
        ..ClientSettings::default()
    };
    HttpClient::new(
        client,
        PeerFiles {
            settings: SETTINGS,
            ca: settings.ca.clone(),
            identity: None,
        },
    )
}
