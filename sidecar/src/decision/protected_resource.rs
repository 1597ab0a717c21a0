//! The service as an OAuth protected resource: its metadata (RFC 9728), which clients without a token
//! read, and the parameters of a challenge that lead to a better token.

use http::uri::Scheme;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use postern_contract::rejection::Rejection;
use postern_contract::rules::{AccessRules, RuleRequest};
use postern_http::folding::folded;
use postern_http::host::normal_url::NormalUrl;
use postern_http::host::server_url::{ServerUrl, ServerUrlError};
use postern_http::path::canonical::RequestPath;
use postern_http::path::destination::AbsoluteForm;
use postern_http::path::patterns::{ContextPath, PathPattern};
use postern_http::{cors, host};
use serde::Serialize;

use super::authorize::{AuthPolicy, Decision, Rejected};
use postern_http::request::received::ReceivedHead;

const METADATA: &str = "/.well-known/oauth-protected-resource";
const WELL_KNOWN: &[u8] = b"/.well-known/";
/// The scope for which authorization servers issue refresh tokens; no resource needs it.
const OFFLINE_ACCESS: &str = "offline_access";
/// Max length of the scopes in a challenge. Gateways reject larger heads, and a request with more scopes
/// needs those of nearly all rules, because its path could be any.
const MAX_SCOPE_BYTES: usize = 1024;

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
    path: String,
    /// The paths of the metadata: their own, and one without the path of the resource.
    metadata: [String; 2],
    document: Vec<u8>,
    challenge: String,
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
        // RFC 9728 §3.1: of the slashes at an end, only the one behind the host is left out.
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
    fn base(&self) -> &str {
        self.path.trim_end_matches('/')
    }

    /// Returns true for the host of a request that the URL names.
    fn is_on(&self, host: &[u8]) -> bool {
        let url = [self.scheme.as_str().as_bytes(), b"://", host].concat();
        AbsoluteForm::parse(&url).is_some_and(|url| url.host() == self.host)
    }
}

impl AuthPolicy {
    /// Returns the response to a request for the metadata of a resource, or to its preflight, which
    /// needs no setting because they are public; `None` for other paths. Behind a gateway the host may
    /// be another one.
    pub(super) fn metadata(
        &self,
        request: &ReceivedHead,
        path: &[u8],
    ) -> Option<Result<Decision, Rejection>> {
        let host = request.host().unwrap_or_default();
        let is_at = |metadata: &String| metadata.as_bytes() == path;
        // Reversed: of equal resources `max_by_key` takes the last, and the first configured one counts.
        let found = self
            .resources
            .iter()
            .rev()
            .filter(|resource| resource.metadata.iter().any(is_at));
        let resource =
            found.max_by_key(|resource| (is_at(&resource.metadata[0]), resource.is_on(host)))?;
        Some(match request.method {
            Method::GET | Method::HEAD => Ok(Decision::Respond(resource.document.clone())),
            _ if !request.has_body() && cors::is_preflight(&request.method, &request.headers) => {
                Ok(Decision::Preflight)
            }
            _ => Err(Rejection::MethodNotAllowed),
        })
    }

    /// Returns true for a path at which clients look for documents of an authorization server, below
    /// the host or as if the resource were one.
    pub(super) fn is_well_known(&self, path: &[u8]) -> bool {
        let mut bases = self.resources.iter().flat_map(|it| ["", it.base()]);
        bases.any(|base| rest_below(path, base).is_some_and(|rest| rest.starts_with(WELL_KNOWN)))
    }

    /// Returns the fields by which pages may read our response to this request.
    pub(crate) fn cors_fields(&self, request: &ReceivedHead) -> Vec<(HeaderName, HeaderValue)> {
        // Without a resource the head need not be checked once more.
        if !self.resources.is_empty()
            && let Ok(target) = request.checked_target()
            && self.is_well_known(target.path())
        {
            return cors::public_fields(&request.headers);
        }
        self.interceptor.cors_fields(&request.headers)
    }

    /// Returns the parameters that the challenge to a rejected request has beside those of its reason code:
    /// scopes, and the metadata of the resource (RFC 9728 §5.1).
    pub(crate) fn challenge_parameters(
        &self,
        rejected: &Rejected,
        request: &ReceivedHead,
    ) -> Vec<String> {
        // Most rejections have no such parameters, and need no second check of the head.
        if self.resources.is_empty() && rejected.rejection != Rejection::InsufficientScope {
            return Vec::new();
        }
        let Ok(target) = request.checked_target() else {
            return Vec::new();
        };
        let (path, host) = (target.path(), request.host().unwrap_or_default());
        let resource = self.resources.iter().rev().max_by_key(|resource| {
            let covered = rest_below(path, resource.base()).map(|_| resource.base().len());
            // Of two resources that differ in a slash at the end, the one that ends like the request's path.
            let exact = path
                .starts_with(resource.path.as_bytes())
                .then_some(resource.path.len());
            (covered.is_some(), resource.is_on(host), covered, exact)
        });
        let mut parameters = Vec::from_iter(self.missing_scope(rejected, request, path));
        parameters.extend(resource.map(|resource| resource.challenge.clone()));
        parameters
    }

    /// Returns the scopes that a request needs and lacks (RFC 6750 §3). A client without a verified token
    /// learns only of scopes that the metadata publish.
    fn missing_scope(
        &self,
        rejected: &Rejected,
        request: &ReceivedHead,
        path: &[u8],
    ) -> Option<String> {
        let is_of_rule = rejected.rejection == Rejection::InsufficientScope;
        let is_of_token = rejected.rejection.status() == StatusCode::UNAUTHORIZED;
        let is_published = is_of_token && !self.resources.is_empty();
        if !is_of_rule && !is_published {
            return None;
        }
        let requested = RuleRequest {
            method: &request.method,
            headers: &request.headers,
            path,
        };
        let verdicts = match &rejected.verified {
            Some(verified) => &*verified.rule_verdicts,
            None => &[],
        };
        let scope = self
            .access_rules
            .missing_scopes(requested, self.interceptor.context(), verdicts)
            .join(" ");
        match scope.len() {
            1..=MAX_SCOPE_BYTES => Some(format!("scope=\"{scope}\"")),
            // A list that is too long would exceed a proxy's limit of a field: send no scope then.
            _ => None,
        }
    }
}

/// Returns the rest of a path at or below another, which has no slash at its end.
fn rest_below<'p>(path: &'p [u8], base: &str) -> Option<&'p [u8]> {
    match path.strip_prefix(base.as_bytes())? {
        rest @ ([] | [b'/', ..]) => Some(rest),
        _ => None,
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
    use serde_json::{Value, json};

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
    fn rfc_9728_the_metadata_stands_before_the_path_of_the_resource() {
        for (url, path, metadata) in [
            (
                "https://api.example/orders",
                "/.well-known/oauth-protected-resource/orders",
                "https://api.example/.well-known/oauth-protected-resource/orders",
            ),
            (
                "https://api.example",
                "/.well-known/oauth-protected-resource",
                "https://api.example/.well-known/oauth-protected-resource",
            ),
            (
                "http://127.0.0.1:8080/",
                "/.well-known/oauth-protected-resource",
                "http://127.0.0.1:8080/.well-known/oauth-protected-resource",
            ),
            (
                "https://api.example/orders/",
                "/.well-known/oauth-protected-resource/orders/",
                "https://api.example/.well-known/oauth-protected-resource/orders/",
            ),
        ] {
            let resource = resource(url, &["https://login.example", "auth"]);
            assert_eq!(resource.metadata, [path, METADATA], "{url}");
            let challenge = format!("resource_metadata=\"{metadata}\"");
            assert_eq!(resource.challenge, challenge);
            assert_eq!(
                document(&resource),
                json!({
                    "resource": url,
                    "authorization_servers": ["https://login.example"],
                    "bearer_methods_supported": ["header"],
                })
            );
        }
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
