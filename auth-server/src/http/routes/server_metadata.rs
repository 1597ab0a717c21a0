//! `GET …/.well-known/oauth-authorization-server` (RFC 8414) and `…/openid-configuration` (OpenID
//! Connect Discovery): where clients of any kind find the keys and the token endpoint.
//!
//! Only with an issuer that is a URL. The documents name no secret and no application.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use runtime::net::server_url::ServerUrl;
use serde::Serialize;
use wire::http::path_patterns::ContextPath;
use wire::keys::signing_type::SigningType;

use super::jwks::JWKS_PATH;
use super::revoke::REVOKE_PATH;
use super::token::{CLIENT_CREDENTIALS, REFRESH_TOKEN, TOKEN_PATH};

const DOCUMENTS: [&str; 2] = [
    "/.well-known/oauth-authorization-server",
    "/.well-known/openid-configuration",
];

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The document changes with a restart only.
const CACHEABLE: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// An issuer that is the URL of this server's context path (RFC 8414 §2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IssuerUrl {
    issuer: String,
    url: ServerUrl,
}

impl IssuerUrl {
    /// Returns `None` for an issuer that is a mere name.
    pub(crate) fn parse(issuer: &str) -> Option<Self> {
        let url: ServerUrl = issuer.parse().ok()?;
        (url.is_http() && url.target().query().is_none()).then(|| Self {
            issuer: issuer.to_owned(),
            url,
        })
    }

    /// Returns true if others can replace the documents on their way.
    pub(crate) fn is_plain_over_a_network(&self) -> bool {
        self.url.is_plain_over_a_network()
    }

    /// Returns true if the URL ends with this context path, so that no gateway has to map it.
    pub(crate) fn leads_to(&self, context: &ContextPath) -> bool {
        self.url.target().path().trim_end_matches('/') == context.as_str()
    }

    fn endpoint(&self, path: &str) -> String {
        format!("{}{path}", self.issuer.trim_end_matches('/'))
    }
}

/// One document for both paths: each standard leaves room for the members of the other.
#[derive(Debug, Serialize)]
struct Document<'a> {
    issuer: &'a str,
    jwks_uri: String,
    token_endpoint: String,
    revocation_endpoint: String,
    /// A token is its own permission.
    revocation_endpoint_auth_methods_supported: [&'static str; 1],
    grant_types_supported: Vec<&'static str>,
    /// A refresh token needs no client: the user who logged in has it.
    token_endpoint_auth_methods_supported: Vec<&'static str>,
    /// Required; there is no authorization endpoint.
    response_types_supported: [&'static str; 1],
    subject_types_supported: [&'static str; 1],
    id_token_signing_alg_values_supported: [&'static str; 1],
}

/// The document and the paths where it is served.
#[derive(Debug, Clone)]
pub(crate) struct ServerMetadata {
    pub(crate) paths: Vec<String>,
    json: Bytes,
}

impl ServerMetadata {
    /// Returns `None` in hmac mode, where there are no public keys to discover.
    pub(crate) fn new(
        url: &IssuerUrl,
        context: &ContextPath,
        signing_type: SigningType,
        refresh_tokens: bool,
    ) -> Option<Self> {
        let algorithm = match signing_type {
            SigningType::Rsa => "RS256",
            SigningType::Ecdsa => "ES256",
            SigningType::Hmac => return None,
        };
        let document = Document {
            issuer: &url.issuer,
            jwks_uri: url.endpoint(JWKS_PATH),
            token_endpoint: url.endpoint(TOKEN_PATH),
            revocation_endpoint: url.endpoint(REVOKE_PATH),
            revocation_endpoint_auth_methods_supported: ["none"],
            grant_types_supported: [CLIENT_CREDENTIALS]
                .into_iter()
                .chain(refresh_tokens.then_some(REFRESH_TOKEN))
                .collect(),
            token_endpoint_auth_methods_supported: ["client_secret_basic", "client_secret_post"]
                .into_iter()
                .chain(refresh_tokens.then_some("none"))
                .collect(),
            response_types_supported: ["none"],
            subject_types_supported: ["public"],
            id_token_signing_alg_values_supported: [algorithm],
        };
        let json = serde_json::to_vec(&document).ok()?;
        Some(Self {
            paths: paths(context),
            json: json.into(),
        })
    }
}

/// Returns each path once: below the context path (OpenID Connect Discovery §4), and with the context
/// path at the end (RFC 8414 §3).
fn paths(context: &ContextPath) -> Vec<String> {
    let context = context.as_str();
    let below = DOCUMENTS.map(|document| format!("{context}{document}"));
    let mut paths = Vec::from(below);
    if !context.is_empty() {
        paths.extend(DOCUMENTS.map(|document| format!("{document}{context}")));
    }
    paths
}

pub(crate) async fn server_metadata(State(metadata): State<Arc<ServerMetadata>>) -> Response {
    let mut response = Response::new(Body::from(metadata.json.clone()));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response.headers_mut().insert(CACHE_CONTROL, CACHEABLE);
    response
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::{Value, json};

    use super::*;

    fn context(path: &str) -> ContextPath {
        path.parse().unwrap()
    }

    #[test]
    fn an_issuer_is_a_url_or_a_name() {
        for (issuer, expected) in [
            ("https://login.example/auth", true),
            ("https://login.example", true),
            ("http://127.0.0.1:9000/auth", true),
            ("auth", false),
            ("login.example/auth", false),
            ("urn:example:auth", false),
            ("ftp://login.example", false),
            ("https://login.example/auth?x=1", false),
            ("https://login.example/auth#x", false),
            ("https://me@login.example/auth", false),
            ("https://", false),
            ("https://login.example:65536/auth", false),
        ] {
            assert_eq!(IssuerUrl::parse(issuer).is_some(), expected, "{issuer}");
        }
    }

    #[test]
    fn what_an_operator_should_know_about_the_url_is_seen() {
        for (issuer, is_plain, leads_there) in [
            ("https://login.example/auth", false, true),
            ("https://login.example/auth/", false, true),
            ("https://login.example", false, false),
            ("http://localhost:9000/auth", false, true),
            ("http://auth-server:9000/auth", true, true),
        ] {
            let url = IssuerUrl::parse(issuer).unwrap();
            assert_eq!(url.is_plain_over_a_network(), is_plain, "{issuer}");
            assert_eq!(url.leads_to(&context("/auth")), leads_there, "{issuer}");
        }
        let root = IssuerUrl::parse("https://login.example/").unwrap();
        assert!(root.leads_to(&context("")));
    }

    #[test]
    fn rfc_8414_the_document_names_the_endpoints_below_the_issuer() {
        let url = IssuerUrl::parse("https://login.example/auth").unwrap();
        let document = |signing_type, refresh_tokens| {
            let metadata =
                ServerMetadata::new(&url, &context("/auth"), signing_type, refresh_tokens)?;
            serde_json::from_slice::<Value>(&metadata.json).ok()
        };
        assert_eq!(
            document(SigningType::Ecdsa, false).unwrap(),
            json!({
                "issuer": "https://login.example/auth",
                "jwks_uri": "https://login.example/auth/.well-known/jwks.json",
                "token_endpoint": "https://login.example/auth/oauth/token",
                "revocation_endpoint": "https://login.example/auth/oauth/revoke",
                "revocation_endpoint_auth_methods_supported": ["none"],
                "grant_types_supported": ["client_credentials"],
                "token_endpoint_auth_methods_supported":
                    ["client_secret_basic", "client_secret_post"],
                "response_types_supported": ["none"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
            })
        );
        assert_eq!(document(SigningType::Hmac, false), None);
        let with_refresh_tokens = document(SigningType::Ecdsa, true).unwrap();
        assert_eq!(
            with_refresh_tokens["grant_types_supported"],
            json!(["client_credentials", "refresh_token"])
        );
        assert_eq!(
            with_refresh_tokens["token_endpoint_auth_methods_supported"],
            json!(["client_secret_basic", "client_secret_post", "none"])
        );
    }

    #[test]
    fn each_path_stands_there_once() {
        assert_eq!(
            paths(&context("/auth")),
            [
                "/auth/.well-known/oauth-authorization-server",
                "/auth/.well-known/openid-configuration",
                "/.well-known/oauth-authorization-server/auth",
                "/.well-known/openid-configuration/auth",
            ]
        );
        assert_eq!(
            paths(&context("")),
            [
                "/.well-known/oauth-authorization-server",
                "/.well-known/openid-configuration",
            ]
        );
    }
}
