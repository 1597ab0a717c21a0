//! The contract's key endpoint (§4.3), and the key set that its response may link to.
//!
//! `appId` and `appSecret` travel in the query, so no error text here ever holds a URL with one.

use contract::keys::signing_type::SigningType;
use contract::keys::{KeySet, VerificationKey};
use runtime::exit::Failure;
use secrecy::{ExposeSecret, SecretString};

use crate::discovery::{AuthServer, Instance, RecentAttempts};
use crate::keys::fetch::FetchError;
use crate::keys::http_client::{KeyRequest, KeyResponse, Transport, TransportError};
use crate::keys::jwks::{self, CachedJwks};
use crate::keys::key_response::{KeyResponseError, key_string};
use crate::keys::tls::TlsFiles;

/// Relative to the auth server's context path.
const KEY_PATH: &str = "/client/user/secret/key";
/// Contract §1: the application name of the authentication service.
const USUAL_CONTEXT: &str = "/auth";

/// The credentials for the key endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Application {
    pub(crate) id: String,
    pub(crate) secret: SecretString,
}

/// The auth server, the credentials, and the signing type.
#[derive(Debug, Clone)]
pub(crate) struct EndpointSettings {
    pub(crate) auth_server: AuthServer,
    pub(crate) tls: TlsFiles,
    pub(crate) application: Application,
    pub(crate) signing_type: SigningType,
}

/// The endpoint, its last instance, and the key set it linked to.
#[derive(Debug)]
pub(crate) struct KeyEndpointSource {
    transport: Transport,
    auth_server: AuthServer,
    application: Application,
    signing_type: SigningType,
    attempts: RecentAttempts,
    /// The set of the last fetch; a failure clears it.
    known: Option<CachedJwks>,
}

impl KeyEndpointSource {
    /// Prepares the client.
    ///
    /// # Errors
    /// [`Failure::Config`] for TLS files that cannot be used.
    pub(crate) fn new(settings: EndpointSettings) -> Result<Self, Failure> {
        let scheme = settings.auth_server.scheme().clone();
        Ok(Self {
            transport: Transport::new(scheme, settings.tls)?,
            auth_server: settings.auth_server,
            application: settings.application,
            signing_type: settings.signing_type,
            attempts: RecentAttempts::default(),
            known: None,
        })
    }

    /// Returns the HTTP client.
    pub(crate) const fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Returns the last instance; before the first fetch the configured location.
    pub(crate) fn last_endpoint(&self) -> String {
        match self.attempts.last() {
            Some(instance) => instance.authority.clone(),
            None => self.auth_server.to_string(),
        }
    }

    /// Sets the credentials from the next fetch on.
    pub(crate) fn set_credentials(&mut self, application: Application) {
        self.application = application;
    }

    /// Fetches from the next instance, once.
    pub(crate) async fn fetch(&mut self) -> Result<KeySet, FetchError> {
        let instance = self.auth_server.locate(&self.attempts).await?;
        let fetched = self.fetch_from(&instance).await;
        self.attempts.note(instance, fetched.is_ok());
        fetched
    }

    /// Fetches key and key set, or fails.
    async fn fetch_from(&mut self, instance: &Instance) -> Result<KeySet, FetchError> {
        self.transport.follow_files().await;
        let known = self.known.take();
        let path = format!("{}{KEY_PATH}", self.auth_server.context());
        let answer = self.contract_answer(instance, &path).await?;
        let text = key_string(answer.status, &answer.body).map_err(|cause| {
            if cause.is_of_another_path() {
                self.wrong_endpoint_error(instance, &path, cause)
            } else {
                cause.into()
            }
        })?;
        let key = VerificationKey::parse(self.signing_type, &text)?;
        match self.jwks_target(&answer, instance, &path) {
            None => Ok(KeySet::nameless(key)),
            Some(target) => self.key_set(instance, &target, known, &key).await,
        }
    }

    /// Explains a response of a server without this path.
    fn wrong_endpoint_error(
        &self,
        instance: &Instance,
        path: &str,
        cause: KeyResponseError,
    ) -> FetchError {
        let hint = match self.auth_server.context().to_string().as_str() {
            "" => {
                let right = self.transport.url(instance, USUAL_CONTEXT);
                format!("does --auth-server lack the context path, as in {right}?")
            }
            context => format!("is {context} its context path, and this its public port?"),
        };
        FetchError::NoEndpoint {
            cause,
            url: self.transport.url(instance, path),
            hint,
        }
    }

    async fn contract_answer(
        &mut self,
        instance: &Instance,
        path: &str,
    ) -> Result<KeyResponse, TransportError> {
        let credentials = [
            ("appId", self.application.id.as_str()),
            ("appSecret", self.application.secret.expose_secret()),
        ];
        let question = KeyRequest {
            target: path,
            credentials: &credentials,
            accept: "application/json",
            known: None,
            is_last: !self.may_have_set(),
        };
        self.transport.get(instance, question).await
    }

    /// Returns true where there may be a key set; a shared secret is in none.
    fn may_have_set(&self) -> bool {
        self.signing_type != SigningType::Hmac
    }

    /// Returns the path of the key set; a server without one has one key without a name.
    fn jwks_target(&self, answer: &KeyResponse, instance: &Instance, path: &str) -> Option<String> {
        if !self.may_have_set() {
            return None;
        }
        let base = self.transport.url(instance, path);
        jwks::target(&answer.headers, &base).unwrap_or_else(|error| {
            let auth_server = &instance.authority;
            tracing::warn!(auth_server, %error, "the link to a key set is ignored");
            None
        })
    }

    async fn key_set(
        &mut self,
        instance: &Instance,
        target: &str,
        known: Option<CachedJwks>,
        contract_key: &VerificationKey,
    ) -> Result<KeySet, FetchError> {
        let question = KeyRequest {
            target,
            credentials: &[],
            accept: "application/jwk-set+json, application/json",
            known: CachedJwks::version_of(known.as_ref(), target),
            is_last: true,
        };
        let answer = self.transport.get(instance, question).await;
        let answer = answer.map_err(FetchError::JwksTransport)?;
        let (keys, known) =
            jwks::parse_response_with_key(&answer, target, known.as_ref(), contract_key)?;
        self.known = known;
        Ok(keys)
    }
}

#[cfg(test)]
mod tests;
