//! The discovery document of an issuer (OpenID Connect Discovery 1.0 §4), which names the address of its key
//! set. The document cannot name another issuer, nor lead to another host.

use http::StatusCode;
use postern_http::host::server_url::{ServerUrl, ServerUrlError};
use postern_http::text_encoding::BYTE_ORDER_MARK;
use postern_process::logs::sanitize::LogText;
use postern_token::keys::found_in;
use serde::Deserialize;
use serde_json::Value;

use crate::http_client::Unexpected;

/// The path of the document, after the issuer without its final slash.
const DOCUMENT: &str = "/.well-known/openid-configuration";
/// The path of an OAuth server's document (RFC 8414 §3.1), between host and path of the issuer.
const OAUTH_DOCUMENT: &str = "/.well-known/oauth-authorization-server";
/// The address of an issuer, which is its `iss` too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerUrl {
    issuer: String,
    document: ServerUrl,
    /// The address of the OAuth document, which is read if there is no other.
    oauth_document: ServerUrl,
}

/// The error of an unusable issuer URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssuerUrlError {
    /// No URL of a server.
    #[error(transparent)]
    Address(#[from] ServerUrlError),
    /// A query.
    #[error("has a query, which an issuer never has")]
    Query,
    /// The address of the document.
    #[error(
        "is the address of the discovery document: leave /.well-known/… off, the rest names the issuer"
    )]
    Document,
    /// Plain HTTP over a network.
    #[error(
        "a discovery document over plain HTTP is read from this machine only: https://, or on a network of your own the address of the key set in `jwks` (--jwks), beside `issuer` (--issuer)"
    )]
    Plain,
}

impl IssuerUrl {
    /// Parses the issuer, byte for byte its `iss`.
    ///
    /// # Errors
    /// [`IssuerUrlError`]
    pub fn new(issuer: &str) -> Result<Self, IssuerUrlError> {
        if issuer.contains('?') {
            return Err(IssuerUrlError::Query);
        }
        // The address of the document instead of the issuer is a frequent mistake.
        if issuer.contains(DOCUMENT) || issuer.contains(OAUTH_DOCUMENT) {
            return Err(IssuerUrlError::Document);
        }
        let base = issuer.strip_suffix('/').unwrap_or(issuer);
        let document = ServerUrl::from_http(&format!("{base}{DOCUMENT}"))?;
        if document.is_plain_over_a_network() {
            return Err(IssuerUrlError::Plain);
        }
        // RFC 8414 §3.1 puts the well-known part between host and path, OpenID Connect after the path.
        let (_, behind_scheme) = base.split_once("://").unwrap_or(("", base));
        let host = behind_scheme.split('/').next().unwrap_or_default();
        let path = behind_scheme.strip_prefix(host).unwrap_or_default();
        let server = base.strip_suffix(path).unwrap_or(base);
        Ok(Self {
            issuer: issuer.to_owned(),
            document,
            oauth_document: ServerUrl::from_http(&format!("{server}{OAUTH_DOCUMENT}{path}"))?,
        })
    }

    /// Returns the `iss`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.issuer
    }

    /// Returns the address of the document.
    #[must_use]
    pub const fn document(&self) -> &ServerUrl {
        &self.document
    }

    /// Returns the addresses of the document; the first that exists counts.
    pub(super) const fn documents(&self) -> [&ServerUrl; 2] {
        [&self.document, &self.oauth_document]
    }

    /// Returns the address of the key set in a document of this issuer, on its host or on one of
    /// `hosts`.
    pub(super) fn address_in(
        &self,
        body: &[u8],
        hosts: &[String],
    ) -> Result<ServerUrl, DocumentError> {
        let document = Document::parse(body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body))?;
        let found = text("issuer", &document.issuer)?;
        if found != self.issuer {
            return Err(DocumentError::OtherIssuer {
                found: found.to_owned(),
                expected: self.issuer.clone(),
            });
        }
        let Ok(address) = ServerUrl::from_http(text("jwks_uri", &document.jwks_uri)?) else {
            return Err(DocumentError::NoAddress);
        };
        let own = &self.document;
        let host = address.host();
        let is_allowed = |allowed: &str| allowed.eq_ignore_ascii_case(host);
        if !is_allowed(own.host()) && !hosts.iter().any(|host| is_allowed(host)) {
            let readable: String = host.escape_debug().take(MAX_LOGGED_CHARACTERS).collect();
            return Err(DocumentError::OtherHost(readable));
        }
        // The key set is never fetched over plain HTTP if the document came over TLS, and over plain HTTP
        // from this machine only.
        let is_downgrade = address.scheme() != own.scheme() && !address.is_https();
        if is_downgrade || address.is_plain_over_a_network() {
            return Err(DocumentError::Plain);
        }
        Ok(address)
    }
}

/// The reason why a document is not followed. Of its own text, which is foreign, only the issuer is logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// A status without a document.
    #[error(
        "the response to the request for the discovery document was {}{}",
        Unexpected(*.0),
        hint(*.0)
    )]
    Status(StatusCode),
    /// A body that holds this.
    #[error("the response has to be a discovery document, and holds {0}")]
    NotADocument(String),
    /// A member that is no text.
    #[error("the {0} of the discovery document is missing, or no text")]
    NoText(&'static str),
    /// The document of another issuer.
    #[error(
        "the discovery document is of the issuer '{}', not of '{expected}': both have to be equal byte for byte",
        LogText(found)
    )]
    OtherIssuer {
        /// As the document names it.
        found: String,
        /// As configured.
        expected: String,
    },
    /// An unusable address of the key set.
    #[error(
        "the jwks_uri of the discovery document has to be https://HOST/PATH, without user information"
    )]
    NoAddress,
    /// A key set on this host, which is not allowed.
    #[error(
        "the discovery document leads to {0}, which is not the issuer's host; `jwks-hosts` of an [[issuer]] table allows others"
    )]
    OtherHost(String),
    /// A key set over plain HTTP.
    #[error("the jwks_uri of the discovery document is not https")]
    Plain,
}

/// Returns the hint of a status.
fn hint(status: StatusCode) -> &'static str {
    match status {
        // As our own auth server responds to what it does not serve.
        StatusCode::UNAUTHORIZED => {
            "; one of Postern's auth servers has it only with this URL as its --issuer, else use --auth-server"
        }
        _ => "",
    }
}

/// The members in use.
#[derive(Debug, Deserialize)]
struct Document {
    #[serde(default)]
    issuer: Value,
    #[serde(default)]
    jwks_uri: Value,
}

impl Document {
    fn parse(body: &[u8]) -> Result<Self, DocumentError> {
        // A list could be read as the members in their order.
        if body.trim_ascii_start().starts_with(b"[") {
            return Err(DocumentError::NotADocument("a list".to_owned()));
        }
        serde_json::from_slice(body).map_err(|_| DocumentError::NotADocument(found_in(body)))
    }
}

/// Returns a member that has to be text.
fn text<'m>(name: &'static str, member: &'m Value) -> Result<&'m str, DocumentError> {
    member.as_str().ok_or(DocumentError::NoText(name))
}

/// Max length of a host in a log line.
const MAX_LOGGED_CHARACTERS: usize = 256;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;

    fn address_in(issuer: &str, hosts: &[&str], document: &Value) -> Result<String, DocumentError> {
        let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
        let issuer = IssuerUrl::new(issuer).unwrap();
        let address = issuer.address_in(document.to_string().as_bytes(), &hosts)?;
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
    }

    #[test]
    fn what_is_no_document_is_named_by_what_it_holds() {
        let issuer = IssuerUrl::new("https://idp").unwrap();
        for (body, why) in [
            ("", "and holds nothing"),
            ("<!doctype html><p>hush", "and holds HTML"),
            ("hush", "and holds something else"),
            ("\u{1f}\u{8b}", "and holds something else"),
            ("[{\"hush\":1}]", "and holds a list"),
            (
                "{\"issuer\":\"https://idp\"",
                "JSON that cannot be read: EOF",
            ),
            (
                "{\"issuer\":\"https://idp\",\"issuer\":\"hush\"}",
                "a member twice",
            ),
            ("{}", "the issuer of the discovery document is missing"),
            (
                "{\"issuer\":null,\"jwks_uri\":\"https://idp/keys\"}",
                "the issuer of the discovery document is missing",
            ),
            (
                "{\"issuer\":[\"hush\"]}",
                "the issuer of the discovery document is missing, or no text",
            ),
            (
                "{\"issuer\":\"https://idp\"}",
                "the jwks_uri of the discovery document is missing",
            ),
            (
                "{\"issuer\":\"https://idp\",\"jwks_uri\":{\"hush\":1}}",
                "the jwks_uri of the discovery document is missing, or no text",
            ),
        ] {
            let error = issuer.address_in(body.as_bytes(), &[]).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(why), "{body}: {error}");
            assert!(!error.contains("hush"), "{body}: {error}");
        }
    }
}
