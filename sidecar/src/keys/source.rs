//! Where the keys come from: the contract's key endpoint (§4.3), and the key set that its answer may
//! lead to. One fetch, checked through before anything is trusted.
//!
//! `appId` and `appSecret` travel in the query, so no error text here ever holds a URL.

use contract::keys::{KeyError, KeySet, VerificationKey};
use contract::signing_type::SigningType;
use zeroize::Zeroizing;

use super::answer::{AnswerError, key_string};
use super::jwks::{self, JwksError, KnownSet};
use super::transport::{Answer, Question, Transport, TransportError};
use crate::discovery::{Asked, AuthServer, DiscoveryError, Instance};

/// Relative to the auth server's context path.
const KEY_PATH: &str = "/client/user/secret/key";

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

/// Why a fetch brought no keys. One line each, for the log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error("the key cannot be used: {0}")]
    Key(#[from] KeyError),
    #[error("the key set was not fetched: {0}")]
    JwksTransport(TransportError),
    #[error(transparent)]
    Jwks(#[from] JwksError),
}

/// The endpoint, which instance of it was asked last, and which key set it led to.
#[derive(Debug)]
pub(crate) struct KeySource {
    transport: Transport,
    auth_server: AuthServer,
    application: Application,
    signing_type: SigningType,
    asked: Asked,
    /// Of the last fetch, if that one succeeded: after a failure nothing is taken as known.
    known: Option<KnownSet>,
}

impl KeySource {
    /// # Errors
    /// When the HTTP client cannot be built.
    pub(crate) fn new(
        auth_server: AuthServer,
        application: Application,
        signing_type: SigningType,
    ) -> Result<Self, reqwest::Error> {
        Ok(Self {
            transport: Transport::new(auth_server.scheme().clone())?,
            auth_server,
            application,
            signing_type,
            asked: Asked::default(),
            known: None,
        })
    }

    /// Which instance was asked last; before the first, what is configured.
    pub(crate) fn asked(&self) -> String {
        match self.asked.last() {
            Some(instance) => instance.authority.clone(),
            None => self.auth_server.to_string(),
        }
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
        let known = self.known.take();
        let path = format!("{}{KEY_PATH}", self.auth_server.context());
        let answer = self.contract_answer(instance, &path).await?;
        let text = key_string(answer.status, &answer.body)?;
        let key = VerificationKey::parse(self.signing_type, &text)?;
        match self.jwks_target(&answer, instance, &path) {
            None => Ok(KeySet::nameless(key)),
            Some(target) => self.key_set(instance, &target, known, &key).await,
        }
    }

    async fn contract_answer(
        &self,
        instance: &Instance,
        path: &str,
    ) -> Result<Answer, TransportError> {
        let credentials = [
            ("appId", self.application.id.as_str()),
            ("appSecret", self.application.secret.as_str()),
        ];
        let question = Question {
            target: path,
            credentials: &credentials,
            accept: "application/json",
            known: None,
        };
        self.transport.get(instance, question).await
    }

    /// Where the key set is; a server without one knows one key, which has no name.
    fn jwks_target(&self, answer: &Answer, instance: &Instance, path: &str) -> Option<String> {
        if self.signing_type == SigningType::Hmac {
            // A shared secret is in no key set.
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
