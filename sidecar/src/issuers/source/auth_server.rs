//! The contract's key endpoint (§4.3), and the key set that its response may announce.
//!
//! `appId` and `appSecret` travel in the query, so no error text here ever holds a URL with one.

use http::{StatusCode, header};
use runtime::process::exit::ExitError;
use runtime::tls::peer::PeerFiles;
use secrecy::{ExposeSecret, SecretString};
use wire::keys::signing_type::SigningType;
use wire::keys::{KeySet, VerificationKey};
use wire::token::revocations::MAX_LIST_BYTES;

use crate::discovery::{AuthServer, Instance, RecentAttempts};
use crate::issuers::fetch::FetchError;
use crate::issuers::http_client::{
    KeyRequest, KeyResponse, MAX_BODY_BYTES, Transport, TransportError,
};
use crate::issuers::jwks::{self, CachedJwks};
use crate::issuers::key_response::{KeyResponseError, key_string};
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
    transport: Transport,
    auth_server: AuthServer,
    application: Application,
    signing_type: SigningType,
    attempts: RecentAttempts,
    /// The set of the last fetch; a failure clears it.
    known: Option<CachedJwks>,
    wants_list: bool,
    /// The revocation list of the last fetch, until it is taken.
    list: FetchedList,
    /// The name of the lines that it need not have.
    list_cursor: Option<String>,
    /// Server and path of the last one.
    list_location: Option<(Instance, String)>,
}

impl KeyEndpointSource {
    /// Prepares the client.
    ///
    /// # Errors
    /// [`ExitError::Config`] for TLS files that cannot be used.
    pub(crate) fn new(settings: EndpointSettings) -> Result<Self, ExitError> {
        let scheme = settings.auth_server.scheme().clone();
        Ok(Self {
            transport: Transport::new(scheme, settings.tls, None)?,
            auth_server: settings.auth_server,
            application: settings.application,
            signing_type: settings.signing_type,
            attempts: RecentAttempts::default(),
            known: None,
            wants_list: settings.wants_list,
            list: FetchedList::default(),
            list_cursor: None,
            list_location: None,
        })
    }

    /// Takes the revocation list of the last fetch.
    pub(crate) fn take_revocations(&mut self) -> FetchedList {
        std::mem::take(&mut self.list)
    }

    /// Names the lines that the next list need not have.
    pub(crate) fn set_list_cursor(&mut self, cursor: Option<String>) {
        self.list_cursor = cursor;
    }

    /// Fetches the revocation list again, from the server of the last fetch.
    pub(crate) async fn fetch_revocations(&mut self) {
        if let Some((instance, target)) = self.list_location.clone() {
            self.list = self.revocation_list(&instance, target).await;
        }
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
        let response = self.contract_response(instance, &path).await?;
        let text = key_string(response.status, &response.body).map_err(|cause| {
            if cause.is_of_another_path() {
                self.wrong_endpoint_error(instance, &path, cause)
            } else {
                cause.into()
            }
        })?;
        let key = VerificationKey::parse(self.signing_type, &text)?;
        let announced = |path| self.announced(&response, path);
        let jwks = self.may_have_set().then(|| announced(KEY_SET)).flatten();
        let list = self.wants_list.then(|| announced(REVOCATIONS)).flatten();
        let keys = match jwks {
            None => KeySet::nameless(key),
            Some(target) => {
                let is_last = list.is_none();
                self.key_set(instance, &target, known, &key, is_last)
                    .await?
            }
        };
        self.list = match list {
            Some(target) => self.revocation_list(instance, target).await,
            None if self.wants_list => FetchedList::Absent,
            None => FetchedList::NotRequested,
        };
        Ok(keys)
    }

    async fn revocation_list(&mut self, instance: &Instance, target: String) -> FetchedList {
        let after = match &self.list_cursor {
            Some(cursor) => format!("{target}?after={cursor}"),
            None => target.clone(),
        };
        let question = KeyRequest {
            target: &after,
            credentials: &[],
            bearer: None,
            accept: "text/plain",
            known: None,
            is_last: true,
            max_bytes: MAX_LIST_BYTES,
        };
        let response = self.transport.get(instance, question).await;
        self.list_location = Some((instance.clone(), target));
        let response = match response {
            Ok(response) => response,
            Err(error) => return FetchedList::Failed(error.into()),
        };
        match response.status {
            StatusCode::OK => {
                FetchedList::List(String::from_utf8_lossy(&response.body).into_owned())
            }
            status => FetchedList::Failed(ListError::Status(status)),
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

    async fn contract_response(
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
            bearer: None,
            accept: "application/json",
            known: None,
            is_last: !self.may_have_set() && !self.wants_list,
            max_bytes: MAX_BODY_BYTES,
        };
        self.transport.get(instance, question).await
    }

    /// Returns true where there may be a key set; a shared secret is in none.
    fn may_have_set(&self) -> bool {
        self.signing_type != SigningType::Hmac
    }

    /// Returns the path of the key set or the revocation list, if a `Link` (RFC 8288) of the response
    /// announces it; a server without a set has one key without a name.
    fn announced(&self, response: &KeyResponse, (path, relation): (&str, &str)) -> Option<String> {
        let relation = format!("; rel=\"{relation}\"");
        let mut links = response.headers.get_all(header::LINK).iter();
        links
            .any(|link| link.to_str().is_ok_and(|link| link.ends_with(&relation)))
            .then(|| format!("{}{path}", self.auth_server.context()))
    }

    async fn key_set(
        &mut self,
        instance: &Instance,
        target: &str,
        known: Option<CachedJwks>,
        contract_key: &VerificationKey,
        is_last: bool,
    ) -> Result<KeySet, FetchError> {
        let question = KeyRequest {
            target,
            credentials: &[],
            bearer: None,
            accept: "application/jwk-set+json, application/json",
            known: known.as_ref().map(CachedJwks::version),
            is_last,
            max_bytes: MAX_BODY_BYTES,
        };
        let response = self.transport.get(instance, question).await;
        let response = response.map_err(FetchError::JwksTransport)?;
        let (keys, known) = jwks::parse_response_with_key(&response, known.as_ref(), contract_key)?;
        self.known = known;
        Ok(keys)
    }
}

#[cfg(test)]
mod tests;
