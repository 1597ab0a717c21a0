//! The contract's key endpoint (§4.3), and the key set that its response may announce.
//!
//! `appId` and `appSecret` travel in the query, so no error text here ever holds a URL with one.

use std::fmt::Display;

use http::uri::Scheme;
use http::{StatusCode, header};
use postern_token::keys::algorithms::ASYMMETRIC;
use postern_token::keys::signing_type::SigningType;
use postern_token::keys::{Algorithm, KeySet, VerificationKey};
use postern_token::policy::Audience;
use postern_token::revocations::MAX_LIST_BYTES;
use postern_transport::http_client::{
    ClientSettings, HttpClient, HttpRequest, HttpResponse, MaxLength, TransportError, Trust,
};
use postern_transport::issuer::KeySetError;
use postern_transport::issuer::known_set::KnownSet;
use postern_transport::tls::peer::PeerFiles;
use secrecy::{ExposeSecret, SecretString};

use super::fetch::{FetchError, Fetched};
use super::key_client;
use super::key_response::key_string;
use crate::discovery::{AuthServer, Instance, RecentAttempts};
use crate::issuers::revocations::fetched_list::{FetchedList, ListError};

/// The path of the key endpoint, below the auth server's context path.
const KEY_PATH: &str = "/client/user/secret/key";
/// The usual context path (contract §1): the application name of the authentication service.
const USUAL_CONTEXT: &str = "/auth";
/// The key set and the revocation list of our auth server, relative to its context path, and the
/// relation types by which its response says that it has them. Another path is never followed.
const KEY_SET_PATH: &str = "/.well-known/jwks.json";
const KEY_SET: &str = "; rel=\"jwks\"";
const REVOCATIONS_PATH: &str = "/.well-known/revocations";
const REVOCATIONS: &str = "; rel=\"revocations\"";
/// The field with the `aud` that tokens of our auth server have unless users or applications have another.
const TOKEN_AUDIENCE: &str = "token-audience";

/// The credentials for the key endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Application {
    pub(crate) id: String,
    pub(crate) secret: SecretString,
    /// The audiences of the tokens that are accepted.
    pub(crate) audience: Audience,
}

impl Application {
    /// Returns a warning if the server issues tokens for another audience.
    fn foreign_audience(&self, response: &HttpResponse) -> Option<String> {
        let named = str::from_utf8(response.headers.get(TOKEN_AUDIENCE)?.as_bytes()).ok()?;
        let each: Vec<_> = named.split(", ").map(str::to_owned).collect();
        if self.audience.accepts(&each) {
            return None;
        }
        Some(format!(
            "tokens of this auth server are for {named}, and get 401 token_audience: --audience has to \
             name that, or --app-id or --app-name"
        ))
    }
}

/// The auth server, the credentials, and the signing type.
#[derive(Debug, Clone)]
pub(crate) struct EndpointSettings {
    pub(crate) auth_server: AuthServer,
    pub(crate) tls: PeerFiles,
    /// `None` where the keys verify the list alone.
    pub(crate) application: Option<Application>,
    pub(crate) signing_type: SigningType,
    /// True where the revocation list is fetched with each key.
    pub(crate) wants_list: bool,
}

impl EndpointSettings {
    /// Returns the algorithms of the auth server's keys.
    pub(crate) fn algorithms(&self) -> Vec<Algorithm> {
        match self.application {
            Some(_) => vec![self.signing_type.algorithm()],
            None => ASYMMETRIC.to_vec(),
        }
    }
}

/// The endpoint, its last instance, and the last key set beside it.
#[derive(Debug)]
pub(crate) struct KeyEndpointSource {
    pub(super) settings: EndpointSettings,
    pub(super) client: HttpClient,
    attempts: RecentAttempts,
    known: KnownSet,
    /// The last instance that responded, if only to reject the application.
    responded: Option<Instance>,
    /// False once an instance has sent a key without announcing a revocation list.
    may_have_list: bool,
}

impl KeyEndpointSource {
    pub(crate) fn new(settings: EndpointSettings) -> Self {
        let client = ClientSettings {
            trust: Trust::for_https(*settings.auth_server.scheme() == Scheme::HTTPS),
            ..key_client()
        };
        Self {
            client: HttpClient::new(client, settings.tls.clone()),
            settings,
            attempts: RecentAttempts::default(),
            known: KnownSet::default(),
            responded: None,
            may_have_list: true,
        }
    }

    /// Fetches the revocation list alone, from the last server that responded. The list needs no application,
    /// so a server that rejects ours will do.
    pub(crate) async fn fetch_list(&mut self, cursor: Option<&str>) -> FetchedList {
        if !(self.settings.wants_list && self.may_have_list) {
            return FetchedList::NotRequested;
        }
        match self.responded.clone() {
            Some(instance) => self.revocation_list(&instance, cursor).await.into(),
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
        // The next fetch chooses another instance after a failure.
        self.attempts.note(instance, fetched.is_ok());
        fetched
    }

    async fn fetch_from(
        &mut self,
        instance: &Instance,
        cursor: Option<&str>,
    ) -> Result<Fetched, FetchError> {
        let Some(application) = self.settings.application.clone() else {
            return self.fetch_for_list(instance, cursor).await;
        };
        // Taken out: only a set that holds the contract's key is put back, by `key_set`.
        let known = std::mem::take(&mut self.known);
        let response = self.contract_response(instance, &application).await?;
        let text = match key_string(response.status, &response.body) {
            Ok(text) => text,
            Err(cause) if cause.is_of_another_path() => {
                return Err(self.wrong_endpoint_error(instance, KEY_PATH, &cause));
            }
            Err(cause) => return Err(cause.into()),
        };
        self.may_have_list = announces(&response, REVOCATIONS);
        let warning = application.foreign_audience(&response);
        let key = VerificationKey::parse(self.settings.signing_type, &text)?;
        let wants_list = self.settings.wants_list;
        let has_list = wants_list && self.may_have_list;
        let keys = if self.may_have_set() && announces(&response, KEY_SET) {
            let url = self.url(instance, KEY_SET_PATH);
            let request = HttpRequest {
                address: instance.address,
                // The connection is closed with the last request of this fetch.
                is_last: !has_list,
                ..HttpRequest::get_json(&url)
            };
            self.key_set(request, known, &key).await?
        } else {
            // A server without a key set has one key, and its tokens name none.
            KeySet::nameless(key)
        };
        let list = match (wants_list, has_list) {
            (false, _) => FetchedList::NotRequested,
            // The server has announced no list: a request would get a 404.
            (true, false) => FetchedList::Failed(ListError::Absent),
            (true, true) => self.revocation_list(instance, cursor).await.into(),
        };
        Ok(Fetched {
            keys: Some(keys),
            list,
            warning,
        })
    }

    /// Fetches the list, and the key set that verifies it; neither needs an application.
    async fn fetch_for_list(
        &mut self,
        instance: &Instance,
        cursor: Option<&str>,
    ) -> Result<Fetched, FetchError> {
        let url = self.url(instance, KEY_SET_PATH);
        let request = HttpRequest {
            address: instance.address,
            ..HttpRequest::get_json(&url)
        };
        let allowed = self.settings.algorithms();
        let fetched = self.known.fetch(&mut self.client, request, &allowed).await;
        let (keys, _) = fetched.map_err(|cause| match cause {
            // An auth server rejects an unknown path with 401 or 404: the configured path is likely wrong.
            KeySetError::Status(StatusCode::NOT_FOUND | StatusCode::UNAUTHORIZED) => {
                self.wrong_endpoint_error(instance, KEY_SET_PATH, &cause)
            }
            cause => cause.into(),
        })?;
        self.responded = Some(instance.clone());
        Ok(Fetched {
            keys: Some(keys),
            list: self.revocation_list(instance, cursor).await.into(),
            warning: None,
        })
    }

    /// Fetches the set, which has to hold the contract's key.
    async fn key_set(
        &mut self,
        request: HttpRequest<'_>,
        mut known: KnownSet,
        key: &VerificationKey,
    ) -> Result<KeySet, FetchError> {
        let (keys, _) = known
            .fetch(&mut self.client, request, &[key.algorithm()])
            .await?;
        let mut thumbprints = keys.keys().iter().map(VerificationKey::thumbprint);
        // A set without the contract's key is another server's, or of another time.
        if thumbprints.all(|thumbprint| thumbprint != key.thumbprint()) {
            return Err(FetchError::Inconsistent);
        }
        self.known = known;
        Ok(keys)
    }

    async fn revocation_list(
        &mut self,
        instance: &Instance,
        cursor: Option<&str>,
    ) -> Result<String, ListError> {
        let mut url = self.url(instance, REVOCATIONS_PATH);
        if let Some(cursor) = cursor {
            // With a cursor the server sends only the lines after it.
            url = format!("{url}?after={cursor}");
        }
        let request = HttpRequest {
            address: instance.address,
            accept: Some("text/plain"),
            max_length: MaxLength::Rejected(MAX_LIST_BYTES),
            ..HttpRequest::get_json(&url)
        };
        let response = self.client.send(request).await?;
        match response.status {
            StatusCode::OK => Ok(String::from_utf8_lossy(&response.body).into_owned()),
            status => Err(ListError::Status(status)),
        }
    }

    /// Returns the URL of a path below the context path of an instance.
    fn url(&self, instance: &Instance, path: &str) -> String {
        let server = &self.settings.auth_server;
        let (scheme, context) = (server.scheme(), server.context());
        format!("{scheme}://{}{context}{path}", instance.host)
    }

    /// Explains a response of a server without this path.
    fn wrong_endpoint_error(
        &self,
        instance: &Instance,
        path: &str,
        cause: &dyn Display,
    ) -> FetchError {
        let flag = match self.settings.application {
            Some(_) => "--auth-server",
            None => "--revocations-from",
        };
        let mut hint = match self.settings.auth_server.context().to_string().as_str() {
            "" => {
                let right = self.url(instance, USUAL_CONTEXT);
                format!("does {flag} lack the context path, as in {right}?")
            }
            context => format!("is {context} its context path, and this its public port?"),
        };
        // A server with a shared secret has no key set, so its path may be right all the same.
        if path == KEY_SET_PATH {
            hint.push_str(" With --signing-type hmac it has no key set, and no list for others.");
        }
        FetchError::NoEndpoint {
            cause: cause.to_string(),
            url: self.url(instance, path),
            hint,
        }
    }

    async fn contract_response(
        &mut self,
        instance: &Instance,
        application: &Application,
    ) -> Result<HttpResponse, TransportError> {
        let credentials = [
            ("appId", application.id.as_str()),
            ("appSecret", application.secret.expose_secret()),
        ];
        let url = self.url(instance, KEY_PATH);
        let request = HttpRequest {
            address: instance.address,
            query: &credentials,
            is_last: !self.may_have_set() && !self.settings.wants_list,
            ..HttpRequest::get_json(&url)
        };
        let response = self.client.send(request).await?;
        // A server in trouble gets no second request from every sidecar.
        if !response.status.is_server_error() {
            self.responded = Some(instance.clone());
        }
        Ok(response)
    }

    /// Returns true where there may be a key set; a shared secret is in none.
    fn may_have_set(&self) -> bool {
        self.settings.signing_type != SigningType::Hmac
    }
}

/// Returns true if a `Link` (RFC 8288) of the response announces the key set or the revocation list;
/// a server without a set has one key without a name.
fn announces(response: &HttpResponse, relation: &str) -> bool {
    for field in response.headers.get_all(header::LINK) {
        // Several `Link` fields may have been joined on the way (RFC 9110 §5.3).
        for link in field.to_str().unwrap_or_default().split(',') {
            if link.trim_end().ends_with(relation) {
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
pub(crate) mod tests;
