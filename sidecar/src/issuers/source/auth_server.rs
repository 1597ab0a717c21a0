//! The contract's key endpoint (§4.3), and the key set that its response may announce.
//!
//! `appId` and `appSecret` travel in the query, so no error text here ever holds a URL with one.

use http::uri::Scheme;
use http::{StatusCode, header};
use runtime::tls::peer::PeerFiles;
use secrecy::{ExposeSecret, SecretString};
use wire::keys::signing_type::SigningType;
use wire::keys::{KeySet, VerificationKey};
use wire::token::revocations::MAX_LIST_BYTES;

use super::fetch::{FetchError, Fetched};
use super::http_client::{KeyRequest, KeyResponse, Transport, TransportError};
use super::jwks::{self, CachedJwks, JWK_SET};
use super::key_response::{KeyResponseError, key_string};
use crate::discovery::{AuthServer, Instance, RecentAttempts};
use crate::issuers::revocations::{FetchedList, ListError};

/// Relative to the auth server's context path.
const KEY_PATH: &str = "/client/user/secret/key";
/// Contract §1: the application name of the authentication service.
const USUAL_CONTEXT: &str = "/auth";
/// The key set and the revocation list of our auth server, relative to its context path, and the
/// relation types by which its response says that it has them. Another path is never followed.
const KEY_SET: (&str, &str) = ("/.well-known/jwks.json", "jwks");
const REVOCATIONS: (&str, &str) = ("/.well-known/revocations", "revocations");

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
    pub(crate) tls: PeerFiles,
    pub(crate) application: Application,
    pub(crate) signing_type: SigningType,
    /// True where the revocation list is fetched with each key.
    pub(crate) wants_list: bool,
}

/// The endpoint, its last instance, and the last key set beside it.
#[derive(Debug)]
pub(crate) struct KeyEndpointSource {
    pub(super) settings: EndpointSettings,
    pub(super) transport: Transport,
    attempts: RecentAttempts,
    /// The set of the last fetch; a failure clears it.
    known: Option<CachedJwks>,
    /// Server and path of the last revocation list.
    list: Option<(Instance, String)>,
}

impl KeyEndpointSource {
    pub(crate) fn new(settings: EndpointSettings) -> Self {
        let uses_tls = *settings.auth_server.scheme() == Scheme::HTTPS;
        Self {
            transport: Transport::new(uses_tls, settings.tls.clone(), None),
            settings,
            attempts: RecentAttempts::default(),
            known: None,
            list: None,
        }
    }

    /// Fetches the revocation list again, from the server of the last fetch.
    pub(crate) async fn fetch_list(&mut self, cursor: Option<&str>) -> FetchedList {
        match self.list.clone() {
            Some((instance, path)) => self.revocation_list(instance, path, cursor).await,
            None => FetchedList::NotRequested,
        }
    }

    /// Returns the last instance; before the first fetch the configured location.
    pub(crate) fn last_endpoint(&self) -> String {
        match self.attempts.last() {
            Some(instance) => instance.authority.clone(),
            None => self.settings.auth_server.to_string(),
        }
    }

    /// Fetches from the next instance, once: key, key set, and the lines of the revocation list
    /// after `cursor`.
    pub(crate) async fn fetch(&mut self, cursor: Option<&str>) -> Result<Fetched, FetchError> {
        let instance = self.settings.auth_server.locate(&self.attempts).await?;
        let fetched = self.fetch_from(&instance, cursor).await;
        self.attempts.note(instance, fetched.is_ok());
        fetched
    }

    async fn fetch_from(
        &mut self,
        instance: &Instance,
        cursor: Option<&str>,
    ) -> Result<Fetched, FetchError> {
        let known = self.known.take();
        let path = format!("{}{KEY_PATH}", self.settings.auth_server.context());
        let response = self.contract_response(instance, &path).await?;
        let text = key_string(response.status, &response.body).map_err(|cause| {
            if cause.is_of_another_path() {
                self.wrong_endpoint_error(instance, &path, cause)
            } else {
                cause.into()
            }
        })?;
        let key = VerificationKey::parse(self.settings.signing_type, &text)?;
        let announced = |path| self.announced(&response, path);
        let jwks = self.may_have_set().then(|| announced(KEY_SET)).flatten();
        let wants_list = self.settings.wants_list;
        let list = wants_list.then(|| announced(REVOCATIONS)).flatten();
        let keys = match jwks {
            None => KeySet::nameless(key),
            Some(target) => {
                let is_last = list.is_none();
                self.key_set(instance, &target, known, &key, is_last)
                    .await?
            }
        };
        let list = match list {
            Some(path) => self.revocation_list(instance.clone(), path, cursor).await,
            None if wants_list => FetchedList::Absent,
            None => FetchedList::NotRequested,
        };
        Ok(Fetched {
            keys: Some(keys),
            list,
        })
    }

    async fn revocation_list(
        &mut self,
        instance: Instance,
        path: String,
        cursor: Option<&str>,
    ) -> FetchedList {
        let mut url = self.url(&instance, &path);
        if let Some(cursor) = cursor {
            url = format!("{url}?after={cursor}");
        }
        let question = KeyRequest {
            address: instance.address,
            max_bytes: MAX_LIST_BYTES,
            ..KeyRequest::of(&url, "text/plain")
        };
        self.list = Some((instance, path));
        match self.transport.get(question).await {
            Err(error) => FetchedList::Failed(error.into()),
            Ok(response) if response.status == StatusCode::OK => {
                FetchedList::List(String::from_utf8_lossy(&response.body).into_owned())
            }
            Ok(response) => FetchedList::Failed(ListError::Status(response.status)),
        }
    }

    /// Returns the URL of a path on an instance.
    fn url(&self, instance: &Instance, path: &str) -> String {
        let scheme = self.settings.auth_server.scheme();
        format!("{scheme}://{}{path}", instance.host)
    }

    /// Explains a response of a server without this path.
    fn wrong_endpoint_error(
        &self,
        instance: &Instance,
        path: &str,
        cause: KeyResponseError,
    ) -> FetchError {
        let hint = match self.settings.auth_server.context().to_string().as_str() {
            "" => {
                let right = self.url(instance, USUAL_CONTEXT);
                format!("does --auth-server lack the context path, as in {right}?")
            }
            context => format!("is {context} its context path, and this its public port?"),
        };
        FetchError::NoEndpoint {
            cause,
            url: self.url(instance, path),
            hint,
        }
    }

    async fn contract_response(
        &mut self,
        instance: &Instance,
        path: &str,
    ) -> Result<KeyResponse, TransportError> {
        let application = &self.settings.application;
        let credentials = [
            ("appId", application.id.as_str()),
            ("appSecret", application.secret.expose_secret()),
        ];
        let url = self.url(instance, path);
        let question = KeyRequest {
            address: instance.address,
            credentials: &credentials,
            is_last: !self.may_have_set() && !self.settings.wants_list,
            ..KeyRequest::of(&url, "application/json")
        };
        self.transport.get(question).await
    }

    /// Returns true where there may be a key set; a shared secret is in none.
    fn may_have_set(&self) -> bool {
        self.settings.signing_type != SigningType::Hmac
    }

    /// Returns the path of the key set or the revocation list, if a `Link` (RFC 8288) of the response
    /// announces it; a server without a set has one key without a name.
    fn announced(&self, response: &KeyResponse, (path, relation): (&str, &str)) -> Option<String> {
        let relation = format!("; rel=\"{relation}\"");
        let mut links = response.headers.get_all(header::LINK).iter();
        links
            .any(|link| link.to_str().is_ok_and(|link| link.ends_with(&relation)))
            .then(|| format!("{}{path}", self.settings.auth_server.context()))
    }

    async fn key_set(
        &mut self,
        instance: &Instance,
        target: &str,
        known: Option<CachedJwks>,
        contract_key: &VerificationKey,
        is_last: bool,
    ) -> Result<KeySet, FetchError> {
        let url = self.url(instance, target);
        let question = KeyRequest {
            address: instance.address,
            known: known.as_ref().map(CachedJwks::version),
            is_last,
            ..KeyRequest::of(&url, JWK_SET)
        };
        let response = self.transport.get(question).await;
        let response = response.map_err(FetchError::JwksTransport)?;
        let (keys, known) = jwks::parse_response_with_key(&response, known.as_ref(), contract_key)?;
        self.known = known;
        Ok(keys)
    }
}

#[cfg(test)]
mod tests;
