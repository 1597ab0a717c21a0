//! The service as an OAuth protected resource (RFC 9728).

use http::uri::Scheme;
use postern_contract::rules::AccessRules;
use postern_http::folding::folded;
use postern_http::host;
use postern_http::host::normal_url::NormalUrl;
use postern_http::host::server_url::{ServerUrl, ServerUrlError};
use postern_http::path::canonical::RequestPath;
use postern_http::path::destination::AbsoluteForm;
use postern_http::path::patterns::{ContextPath, PathPattern};
use serde::Serialize;

const METADATA: &str = "/.well-known/oauth-protected-resource";
/// The scope for which authorization servers issue refresh tokens; no resource needs it.
const OFFLINE_ACCESS: &str = "offline_access";

/// A `--resource` with its metadata, which name the scopes of the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProtectedResource {
    pub(crate) url: String,
    /// The URL in the form in which proofs are compared with it.
    pub(super) normal: NormalUrl,
    scheme: Scheme,
    /// The host in lower case, without the default port.
    host: Vec<u8>,
    /// The path of the URL; empty for the whole host.
    pub(super) path: String,
    /// The paths of the metadata: their own, and one without the path of the resource.
    pub(super) metadata: [String; 2],
    pub(super) document: Vec<u8>,
    pub(super) challenge: String,
    /// True if clients learn from the document where to get a token.
    pub(crate) names_server: bool,
}

/// The error of a resource that clients could not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResourceError {
    #[error("expected a URL such as https://api.example/orders, without a query or a fragment")]
    NotAUrl,
    #[error("expected a host with a port up to 65535")]
    Host,
    #[error(
        "expected a path in ASCII, without dot segments, empty segments and needless escapes: clients write it in different ways"
    )]
    Path,
    #[error("expected https; http is for localhost")]
    PlainHttp,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    resource: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    authorization_servers: &'a [&'a str],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    scopes_supported: &'a [&'a str],
    bearer_methods_supported: [&'static str; 1],
    #[serde(flatten)]
    bound_tokens: BoundTokenSupport,
}

/// The bound tokens that are accepted, as the metadata name them (RFC 9449 §10, RFC 9728 §2).
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct BoundTokenSupport {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) dpop_signing_alg_values_supported: Vec<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) dpop_bound_access_tokens_required: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) tls_client_certificate_bound_access_tokens: bool,
}

impl ProtectedResource {
    /// Builds the metadata of the service at the URL `resource`; of `issuers` those that are URLs
    /// are its authorization servers.
    ///
    /// # Errors
    /// [`ResourceError`].
    pub(crate) fn new(
        resource: &str,
        issuers: &[String],
        (rules, context): (&AccessRules, &ContextPath),
        bound_tokens: BoundTokenSupport,
    ) -> Result<Self, ResourceError> {
        let url = url(resource)?;
        if url.is_plain_over_a_network() {
            return Err(ResourceError::PlainHttp);
        }
        let scopes = check_url(&url).map(|path| scopes_below(&path, rules, context))?;
        let servers: Vec<&str> = issuers
            .iter()
            .map(String::as_str)
            .filter(|issuer| self::url(issuer).is_ok())
            .collect();
        let document = Document {
            resource,
            authorization_servers: &servers,
            scopes_supported: &scopes,
            bearer_methods_supported: ["header"],
            bound_tokens,
        };
        // RFC 9728 §3.1: of the slashes at an end, only the one after the host is left out.
        let suffix = match url.target().path() {
            "/" => "",
            path => path,
        };
        let (scheme, authority) = (url.scheme(), url.authority());
        Ok(Self {
            url: resource.to_owned(),
            normal: NormalUrl::parse(resource).ok_or(ResourceError::NotAUrl)?,
            scheme: scheme.clone(),
            host: match AbsoluteForm::parse(resource.as_bytes()) {
                Some(url) => url.host(),
                None => Vec::new(),
            },
            path: suffix.to_owned(),
            metadata: [format!("{METADATA}{suffix}"), METADATA.to_owned()],
            challenge: format!("resource_metadata=\"{scheme}://{authority}{METADATA}{suffix}\""),
            document: serde_json::to_vec(&document).unwrap_or_default(),
            names_server: !servers.is_empty(),
        })
    }

    /// Returns the path without a slash at its end.
    pub(super) fn base(&self) -> &str {
        self.path.trim_end_matches('/')
    }

    /// Returns true for the host of a request that the URL names.
    pub(super) fn is_on(&self, host: &[u8]) -> bool {
        let url = [self.scheme.as_str().as_bytes(), b"://", host].concat();
        AbsoluteForm::parse(&url).is_some_and(|url| url.host() == self.host)
    }
}

/// Returns the scopes of the rules that may apply to a path at or below this one, each once.
fn scopes_below<'r>(path: &str, rules: &'r AccessRules, context: &ContextPath) -> Vec<&'r str> {
    let path = folded(path.trim_end_matches('/'));
    let reaches = |pattern: &PathPattern| {
        let whole = format!("{context}{}", pattern.as_str());
        match whole.parse::<PathPattern>() {
            Ok(pattern) => pattern.loosened().reaches(&path),
            Err(_) => false,
        }
    };
    let mut scopes = Vec::new();
    for rule in rules.rules() {
        if !rule.paths.iter().any(reaches) {
            continue;
        }
        for scope in rule.requirement.scope.iter().map(String::as_str) {
            if scope != OFFLINE_ACCESS && !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
    }
    scopes
}

/// Parses a URL that clients can reach.
fn url(text: &str) -> Result<ServerUrl, ResourceError> {
    match ServerUrl::from_http(text) {
        Ok(url) if !text.contains(['?', '"', '\\']) => Ok(url),
        Err(ServerUrlError::Port(_)) => Err(ResourceError::Host),
        _ => Err(ResourceError::NotAUrl),
    }
}

/// Accepts a URL that every client and proxy reads alike; returns its path, decoded.
fn check_url(url: &ServerUrl) -> Result<String, ResourceError> {
    host::check(Some(url.authority().as_str().as_bytes())).map_err(|_| ResourceError::Host)?;
    let path = url.target().path();
    let checked = RequestPath::parse(path.as_bytes()).map_err(|_| ResourceError::Path)?;
    match checked.written() {
        Some(written) if path.is_ascii() && !written.contains(['%', '[', ']', '|', '^']) => {
            Ok(written.to_owned())
        }
        _ => Err(ResourceError::Path),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::Value;

    use super::*;

    fn resource(url: &str, issuers: &[&str]) -> ProtectedResource {
        let issuers: Vec<_> = issuers.iter().map(ToString::to_string).collect();
        let rules = (&AccessRules::default(), &ContextPath::default());
        ProtectedResource::new(url, &issuers, rules, BoundTokenSupport::default()).unwrap()
    }

    fn document(resource: &ProtectedResource) -> Value {
        serde_json::from_slice(&resource.document).unwrap()
    }

    #[test]
    fn an_issuer_that_is_a_name_is_left_out() {
        let resource = resource("https://api.example", &["auth"]);
        assert_eq!(document(&resource)["authorization_servers"], Value::Null);
        assert!(!resource.names_server);
    }

    #[test]
    fn a_host_is_the_same_in_any_case_and_with_its_default_port() {
        for (url, host, is_on) in [
            ("https://api.example/x", "API.example:443", true),
            ("https://API.example:443/x", "api.example", true),
            ("https://api.example/x", "api.example:80", false),
            ("http://localhost:8080/x", "localhost:8080", true),
            ("http://localhost:8080/x", "localhost", false),
            ("http://[::1]/", "[::1]:80", true),
            ("https://api.example/x", "", false),
        ] {
            let resource = resource(url, &[]);
            assert_eq!(resource.is_on(host.as_bytes()), is_on, "{url} {host}");
        }
    }
}
