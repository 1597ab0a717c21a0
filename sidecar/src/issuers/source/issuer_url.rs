//! The key set of an issuer with a discovery document (OpenID Connect Discovery 1.0 §4).
//!
//! The document names the address of the key set, and is read again every hour and after a fetch
//! that failed. It cannot name another issuer, nor lead to another host.

use std::fmt;
use std::time::{Duration, Instant};

use http::StatusCode;
use runtime::logs::sanitize::LogText;
use runtime::process::exit::ExitError;
use runtime::tls::peer::PeerFiles;
use serde::Deserialize;
use wire::keys::algorithms::AsymmetricAlgorithm;

use super::jwks_url::{JwksUrl, JwksUrlSettings};
use crate::issuers::fetch::{FetchError, Fetched, Purpose};
use crate::issuers::http_client::{KeyRequest, KeyResponse, MAX_BODY_BYTES, Transport, Unexpected};
use crate::issuers::jwks_address::{JwksAddress, JwksAddressError};
use crate::issuers::proxy::KeysProxy;
use wire::keys::BYTE_ORDER_MARK;

/// The path of the document, behind the issuer without its final slash.
const DOCUMENT: &str = "/.well-known/openid-configuration";
/// The path of the same of an OAuth server (RFC 8414 §3.1), between host and path of the issuer.
const OAUTH_DOCUMENT: &str = "/.well-known/oauth-authorization-server";
/// Interval of reads of the document; issuers announce new addresses days ahead.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(3600);
/// The same after a failed read, while the known address still responds.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(300);

/// The address of an issuer, which is its `iss` too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IssuerUrl {
    issuer: String,
    document: JwksAddress,
    /// Read where there is no other.
    oauth_document: JwksAddress,
}

/// The error of an unusable issuer URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IssuerUrlError {
    #[error(transparent)]
    Address(#[from] JwksAddressError),
    #[error("has a query, which an issuer never has")]
    Query,
    #[error("a discovery document over plain HTTP is read from this machine only: https://")]
    Plain,
}

impl IssuerUrl {
    /// Parses the issuer, byte for byte its `iss`.
    pub(crate) fn new(issuer: &str) -> Result<Self, IssuerUrlError> {
        if issuer.contains('?') {
            return Err(IssuerUrlError::Query);
        }
        let base = issuer.strip_suffix('/').unwrap_or(issuer);
        let document: JwksAddress = format!("{base}{DOCUMENT}").parse()?;
        if document.is_plain_over_a_network() {
            return Err(IssuerUrlError::Plain);
        }
        let host = base.find("://").map_or(0, |scheme| scheme + 3);
        let path = base
            .get(host..)
            .and_then(|rest| Some(host + rest.find('/')?));
        let (server, path) = base.split_at(path.unwrap_or(base.len()));
        Ok(Self {
            issuer: issuer.to_owned(),
            document,
            oauth_document: format!("{server}{OAUTH_DOCUMENT}{path}").parse()?,
        })
    }

    /// Returns the `iss`.
    pub(crate) fn as_str(&self) -> &str {
        &self.issuer
    }

    pub(crate) const fn document(&self) -> &JwksAddress {
        &self.document
    }
}

/// The settings of one issuer.
#[derive(Debug, Clone)]
pub(crate) struct DiscoverySettings {
    pub(crate) issuer: IssuerUrl,
    /// Other hosts that may serve its key set.
    pub(crate) hosts: Vec<String>,
    pub(crate) tls: PeerFiles,
    pub(crate) proxy: Option<KeysProxy>,
    pub(crate) algorithms: Vec<AsymmetricAlgorithm>,
    pub(crate) max_key_age: Option<Duration>,
}

/// The reason why a document is not followed. Of its own text, which is foreign, only the issuer is logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DocumentError {
    #[error("the response to the request for the discovery document was {}", Unexpected(*.0))]
    Status(StatusCode),
    #[error("the response is not a discovery document, or has a member twice")]
    NotADocument,
    #[error(
        "the discovery document is of the issuer '{}', not of '{expected}': both have to be equal byte for byte",
        LogText(found)
    )]
    OtherIssuer { found: String, expected: String },
    #[error("the jwks_uri of the discovery document is no usable address")]
    NoAddress,
    #[error(
        "the discovery document leads to {0}, which is not the issuer's host; jwks-hosts allows others"
    )]
    OtherHost(String),
    #[error("the jwks_uri of the discovery document is not https")]
    Plain,
}

/// The members in use.
#[derive(Debug, Deserialize)]
struct Document {
    issuer: String,
    jwks_uri: String,
}

/// An issuer, and the key set that its document names.
#[derive(Debug)]
pub(crate) struct Discovered {
    settings: DiscoverySettings,
    transport: Transport,
    keys: Option<(JwksAddress, JwksUrl)>,
    /// The time of the next read; `None` for now.
    next_read: Option<Instant>,
}

impl Discovered {
    /// Prepares the client.
    ///
    /// # Errors
    /// [`ExitError::Config`] for TLS files that cannot be used.
    pub(crate) fn new(settings: DiscoverySettings) -> Result<Self, ExitError> {
        let scheme = settings.issuer.document.scheme().clone();
        let (tls, proxy) = (settings.tls.clone(), settings.proxy.clone());
        Ok(Self {
            transport: Transport::new(scheme, tls, proxy)?,
            settings,
            keys: None,
            next_read: None,
        })
    }

    /// Returns the HTTP client of the document.
    pub(crate) const fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Returns the address of the key set, or of the document before its first read.
    pub(crate) fn last_endpoint(&self) -> String {
        match &self.keys {
            Some((address, _)) => address.to_string(),
            None => self.settings.issuer.document.to_string(),
        }
    }

    /// Reads the document if that is due, and fetches the key set it names.
    pub(crate) async fn fetch(&mut self, purpose: Purpose) -> Result<Fetched, FetchError> {
        if self.next_read.is_none_or(|next| next <= Instant::now()) {
            let read = self.read_document().await;
            if self.keys.is_none() {
                read?;
            } else if let Err(error) = read {
                // The known address may still serve.
                self.next_read = Instant::now().checked_add(TRY_AGAIN_AFTER);
                tracing::warn!(issuer = self.settings.issuer.as_str(), %error, "discovery document not read");
            }
        }
        let Some((_, keys)) = &mut self.keys else {
            return Err(DocumentError::NotADocument.into());
        };
        let fetched = keys.fetch(purpose).await;
        if fetched.is_err() {
            self.next_read = None;
        }
        fetched
    }

    async fn read_document(&mut self) -> Result<(), FetchError> {
        self.transport.follow_files().await;
        let issuer = self.settings.issuer.clone();
        let mut response = self.request(&issuer.document).await?;
        if response.status == StatusCode::NOT_FOUND {
            response = self.request(&issuer.oauth_document).await?;
        }
        if response.status != StatusCode::OK {
            return Err(DocumentError::Status(response.status).into());
        }
        let address = self.settings.address_in(&response.body)?;
        self.next_read = Instant::now().checked_add(READ_AGAIN_AFTER);
        if self
            .keys
            .as_ref()
            .is_none_or(|(known, _)| *known != address)
        {
            let keys = JwksUrl::new(self.settings.key_set(address.clone()));
            let keys = keys.map_err(|error| FetchError::File(error.to_string()))?;
            self.keys = Some((address, keys));
        }
        Ok(())
    }
}

impl Discovered {
    async fn request(&mut self, document: &JwksAddress) -> Result<KeyResponse, FetchError> {
        let request = KeyRequest {
            target: document.target(),
            credentials: &[],
            bearer: None,
            accept: "application/json",
            known: None,
            max_bytes: MAX_BODY_BYTES,
            is_last: true,
        };
        Ok(self.transport.get(&document.instance(), request).await?)
    }
}

impl DiscoverySettings {
    /// Returns the address of the key set in a document of this issuer.
    fn address_in(&self, body: &[u8]) -> Result<JwksAddress, DocumentError> {
        let document: Document =
            serde_json::from_slice(body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body))
                .map_err(|_| DocumentError::NotADocument)?;
        if document.issuer != self.issuer.issuer {
            return Err(DocumentError::OtherIssuer {
                found: document.issuer,
                expected: self.issuer.issuer.clone(),
            });
        }
        let address = document.jwks_uri.parse::<JwksAddress>();
        let address = address.map_err(|_| DocumentError::NoAddress)?;
        let own = &self.issuer.document;
        let is_allowed = |host: &str| {
            let mut hosts = self.hosts.iter();
            own.host().eq_ignore_ascii_case(host)
                || hosts.any(|other| other.eq_ignore_ascii_case(host))
        };
        let host = address.host();
        if !is_allowed(host) {
            let readable: String = host.escape_debug().take(MAX_LOGGED_CHARACTERS).collect();
            return Err(DocumentError::OtherHost(readable));
        }
        // Never from TLS to plain HTTP, and plain HTTP on this machine only.
        let is_downgrade = address.scheme() != own.scheme() && !address.is_https();
        if is_downgrade || address.is_plain_over_a_network() {
            return Err(DocumentError::Plain);
        }
        Ok(address)
    }

    fn key_set(&self, url: JwksAddress) -> JwksUrlSettings {
        JwksUrlSettings {
            // Plain HTTP on this machine has none.
            tls: if url.is_https() {
                self.tls.clone()
            } else {
                PeerFiles::default()
            },
            url,
            proxy: self.proxy.clone(),
            bearer_file: None,
            algorithms: self.algorithms.clone(),
            max_key_age: self.max_key_age,
        }
    }
}

/// Length of a host in a log line.
const MAX_LOGGED_CHARACTERS: usize = 256;

impl fmt::Display for IssuerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.issuer.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;

    fn address_in(
        issuer: &str,
        hosts: &[&str],
        document: &serde_json::Value,
    ) -> Result<String, DocumentError> {
        let settings = DiscoverySettings {
            issuer: IssuerUrl::new(issuer).unwrap(),
            hosts: hosts.iter().map(ToString::to_string).collect(),
            tls: PeerFiles::default(),
            proxy: None,
            algorithms: Vec::new(),
            max_key_age: None,
        };
        let address = settings.address_in(document.to_string().as_bytes())?;
        Ok(address.with_query())
    }

    #[test]
    fn the_document_stands_behind_the_issuer() {
        for (issuer, host, path) in [
            ("https://idp", "https://idp", ""),
            ("https://idp/", "https://idp", ""),
            ("https://idp/realms/a", "https://idp", "/realms/a"),
            ("http://127.0.0.1:81/a", "http://127.0.0.1:81", "/a"),
        ] {
            let url = IssuerUrl::new(issuer).unwrap();
            assert_eq!(url.as_str(), issuer);
            let document = format!("{host}{path}/.well-known/openid-configuration");
            assert_eq!(url.document.to_string(), document);
            let document = format!("{host}/.well-known/oauth-authorization-server{path}");
            assert_eq!(url.oauth_document.to_string(), document);
        }
        for issuer in [
            "idp",
            "http://idp",
            "https://idp?a",
            "https://u:p@idp",
            "https://idp#a",
            "",
        ] {
            assert!(IssuerUrl::new(issuer).is_err(), "{issuer}");
        }
    }

    #[test]
    fn the_key_set_is_on_an_allowed_host_of_the_same_issuer() {
        const IDP: &str = "https://idp/a";
        let leads = |uri: &str| json!({"issuer": IDP, "jwks_uri": uri, "more": {}});
        let plain = Err(DocumentError::Plain);
        let other = |host: &str| Err(DocumentError::OtherHost(host.to_owned()));
        for (uri, hosts, expected) in [
            (
                "https://idp/keys?v=1",
                &[][..],
                Ok("https://idp/keys?v=1".to_owned()),
            ),
            (
                "https://idp:444/keys",
                &[],
                Ok("https://idp:444/keys".to_owned()),
            ),
            ("https://IDP/keys", &[], Ok("https://IDP/keys".to_owned())),
            (
                "https://keys.example/",
                &["keys.example"],
                Ok("https://keys.example/".to_owned()),
            ),
            ("https://keys.example/", &[], other("keys.example")),
            ("https://idp.evil/keys", &[], other("idp.evil")),
            ("http://idp/keys", &[], plain.clone()),
            ("http://127.0.0.1/keys", &["127.0.0.1"], plain),
            ("https://idp@evil/keys", &[], Err(DocumentError::NoAddress)),
            ("file:///keys", &[], Err(DocumentError::NoAddress)),
        ] {
            assert_eq!(address_in(IDP, hosts, &leads(uri)), expected, "{uri}");
        }
        let other_issuer = |found: &str| DocumentError::OtherIssuer {
            found: found.to_owned(),
            expected: IDP.to_owned(),
        };
        for (document, expected) in [
            (
                json!({"issuer": "https://idp/a/", "jwks_uri": "https://idp/"}),
                other_issuer("https://idp/a/"),
            ),
            (
                json!({"issuer": "https://idp/b", "jwks_uri": "https://idp/"}),
                other_issuer("https://idp/b"),
            ),
            (
                json!({"jwks_uri": "https://idp/"}),
                DocumentError::NotADocument,
            ),
            (json!({"issuer": IDP}), DocumentError::NotADocument),
            (
                json!({"issuer": IDP, "jwks_uri": ["https://idp/"]}),
                DocumentError::NotADocument,
            ),
            (json!([]), DocumentError::NotADocument),
        ] {
            assert_eq!(address_in(IDP, &[], &document), Err(expected), "{document}");
        }
    }
}
