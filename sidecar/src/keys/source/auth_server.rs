//! The contract's key endpoint (§4.3), and the key set that its answer may lead to.
//!
//! `appId` and `appSecret` travel in the query, so no error text here ever holds a URL with one.

use contract::keys::signing_type::SigningType;
use contract::keys::{KeySet, VerificationKey};
use runtime::exit::Failure;
use secrecy::{ExposeSecret, SecretString};

use crate::discovery::{Asked, AuthServer, Instance};
use crate::keys::fetch::FetchError;
use crate::keys::http_client::{Answer, Question, Transport, TransportError};
use crate::keys::jwks::{self, KnownSet};
use crate::keys::key_response::{AnswerError, key_string};
use crate::keys::tls::TlsFiles;

/// Relative to the auth server's context path.
const KEY_PATH: &str = "/client/user/secret/key";
/// Contract §1: the application name of the authentication service.
const USUAL_CONTEXT: &str = "/auth";

/// What the sidecar shows to get the key.
#[derive(Debug, Clone)]
pub(crate) struct Application {
    pub(crate) id: String,
    pub(crate) secret: SecretString,
}

/// Which auth server, as whom, for which keys.
#[derive(Debug, Clone)]
pub(crate) struct EndpointSettings {
    pub(crate) auth_server: AuthServer,
    pub(crate) tls: TlsFiles,
    pub(crate) application: Application,
    pub(crate) signing_type: SigningType,
}

/// The endpoint, which instance of it was asked last, and which key set it led to.
#[derive(Debug)]
pub(crate) struct ContractEndpoint {
    transport: Transport,
    auth_server: AuthServer,
    application: Application,
    signing_type: SigningType,
    asked: Asked,
    /// Of the last fetch, if that one succeeded: after a failure nothing is taken as known.
    known: Option<KnownSet>,
}

impl ContractEndpoint {
    /// # Errors
    /// [`Failure::Config`] for TLS files that cannot be used.
    pub(crate) fn new(settings: EndpointSettings) -> Result<Self, Failure> {
        let scheme = settings.auth_server.scheme().clone();
        Ok(Self {
            transport: Transport::new(scheme, settings.tls)?,
            auth_server: settings.auth_server,
            application: settings.application,
            signing_type: settings.signing_type,
            asked: Asked::default(),
            known: None,
        })
    }

    /// How it asks.
    pub(crate) const fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Which instance was asked last; before the first, what is configured.
    pub(crate) fn asked(&self) -> String {
        match self.asked.last() {
            Some(instance) => instance.authority.clone(),
            None => self.auth_server.to_string(),
        }
    }

    /// From the next fetch on.
    pub(crate) fn now_shows(&mut self, application: Application) {
        self.application = application;
    }

    /// Fetches from the next instance, once.
    pub(crate) async fn fetch(&mut self) -> Result<KeySet, FetchError> {
        let instance = self.auth_server.locate(&self.asked).await?;
        let fetched = self.fetch_from(&instance).await;
        self.asked.note(instance, fetched.is_ok());
        fetched
    }

    /// Both answers or none.
    async fn fetch_from(&mut self, instance: &Instance) -> Result<KeySet, FetchError> {
        self.transport.follow_files().await;
        let known = self.known.take();
        let path = format!("{}{KEY_PATH}", self.auth_server.context());
        let answer = self.contract_answer(instance, &path).await?;
        let text = key_string(answer.status, &answer.body).map_err(|cause| {
            if cause.is_of_another_path() {
                self.led_astray(instance, &path, cause)
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

    /// Something listens there, and knows nothing of this path.
    fn led_astray(&self, instance: &Instance, path: &str, cause: AnswerError) -> FetchError {
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
    ) -> Result<Answer, TransportError> {
        let credentials = [
            ("appId", self.application.id.as_str()),
            ("appSecret", self.application.secret.expose_secret()),
        ];
        let question = Question {
            target: path,
            credentials: &credentials,
            accept: "application/json",
            known: None,
            is_last: !self.may_have_set(),
        };
        self.transport.get(instance, question).await
    }

    /// A shared secret is in no key set.
    fn may_have_set(&self) -> bool {
        self.signing_type != SigningType::Hmac
    }

    /// Where the key set is; a server without one knows one key, which has no name.
    fn jwks_target(&self, answer: &Answer, instance: &Instance, path: &str) -> Option<String> {
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
        known: Option<KnownSet>,
        contract_key: &VerificationKey,
    ) -> Result<KeySet, FetchError> {
        let question = Question {
            target,
            credentials: &[],
            accept: "application/jwk-set+json, application/json",
            known: KnownSet::version_of(known.as_ref(), target),
            is_last: true,
        };
        let answer = self.transport.get(instance, question).await;
        let answer = answer.map_err(FetchError::JwksTransport)?;
        let (keys, known) = jwks::accept(&answer, target, known.as_ref(), contract_key)?;
        self.known = known;
        Ok(keys)
    }
}

#[cfg(test)]
mod tests;
