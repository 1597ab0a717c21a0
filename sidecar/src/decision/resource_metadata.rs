//! The metadata of resources, which clients without a token read, and the parameters of a challenge that lead
//! to a better token (RFC 9728).

use http::{HeaderName, HeaderValue, Method, StatusCode};
use postern_contract::rejection::Rejection;
use postern_contract::rules::RuleRequest;
use postern_http::cors;
use postern_http::request::received::ReceivedHead;

use super::decided::{Decision, Rejected};
use super::policy::AuthPolicy;

const WELL_KNOWN: &[u8] = b"/.well-known/";
/// Max length of the scopes in a challenge. Gateways reject larger heads, and a request with more scopes
/// needs those of nearly all rules, because its path could be any.
const MAX_SCOPE_BYTES: usize = 1024;

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
