//! The decision about one request: forward it, respond with the current user, or reject it.
//!
//! Pure: the request's head, the keys and the time come in as arguments. `exchange` carries it out.

mod verified;

use std::sync::Arc;

use postern_contract::interceptor::AuthRequirement;
use postern_contract::rejection::Rejection;
use postern_contract::rules::{Broken, Rule, RuleRequest};
use postern_token::observer::{Observer, Unobserved};
use postern_token::sources::bearer::Bearer;
use postern_token::unverified::DecodedToken;
use postern_token::unverified::detail;

use crate::decision::csrf::is_cross_site_request;
use crate::decision::decided::{Decision, Rejected};
use crate::decision::forward::Forward;
use crate::decision::issuers::Issuer;
use crate::decision::policy::AuthPolicy;
use crate::decision::possession::Presented;
use crate::identity::client::Client;
use crate::issuers::issuer_keys::KeysByIssuer;
use crate::issuers::token_cache::{TokenDigest, VerifiedToken};
use postern_http::request::kind::RequestKind;
use postern_http::request::received::ReceivedHead;

impl AuthPolicy {
    /// Returns the rule that a rejection names.
    pub(crate) fn rule_of(&self, rejected: &Rejected) -> Option<&Rule> {
        self.access_rules.rules().get(rejected.rule?)
    }

    /// Names what in a request is the cause of a rejection, where the reason does not say it. Of a
    /// token it is its audience, or no more than one character that none has, of a path one that is
    /// not plain.
    pub(crate) fn cause(&self, rejection: Rejection, request: &ReceivedHead) -> Option<String> {
        match rejection {
            Rejection::PathNotCanonical => Some(request.rejected_part()),
            Rejection::TokenAudience => {
                let (token, issuer) = self.token_and_issuer(request)?;
                detail::other_audience(&issuer.policy, token.as_str())
            }
            Rejection::AuthorizationScheme | Rejection::TokenMalformed => match self.token(request)
            {
                Some(token) => detail::unreadable(token.as_str()),
                None => {
                    let opens_websocket = request.kind == RequestKind::WebSocket;
                    self.interceptor
                        .sources()
                        .unreadable(&request.headers, opens_websocket)
                }
            },
            _ => None,
        }
    }

    /// Returns the token of a request, and its issuer; `None` without a token, and for one of an
    /// unknown issuer.
    pub(crate) fn token_and_issuer<'a>(
        &'a self,
        request: &'a ReceivedHead,
    ) -> Option<(Bearer<'a>, &'a Issuer)> {
        let token = self.token(request)?;
        Some((token, self.issuers.select(token).ok()?))
    }

    /// Returns the name of the issuer of a request's token, where there may be several. Of a token
    /// that was not verified it is the issuer that the token claims.
    pub(crate) fn issuer_name<'a>(
        &'a self,
        forward: Option<&Forward>,
        request: &'a ReceivedHead,
    ) -> Option<&'a str> {
        match forward {
            Some(Forward {
                verified: Some(verified),
                ..
            }) => self.issuers.policy(verified.key_set)?.name.as_deref(),
            // The sidecar reads no token on a public path.
            Some(Forward { reported: None, .. }) => None,
            _ => self.token_and_issuer(request)?.1.policy.name.as_deref(),
        }
    }

    /// Decides about `request` at `now`, in seconds since the epoch. `keys` are an error before the
    /// first fetch and once they are stale; of a cached token only the times are checked.
    ///
    /// # Errors
    /// The rejection of the request.
    pub(crate) fn authorize(
        &self,
        request: &ReceivedHead,
        client: &Client,
        keys: impl KeysByIssuer,
        now: i64,
    ) -> Result<Decision, Rejected> {
        self.authorize_observed(request, client, keys, now, &mut Unobserved)
    }

    /// Decides like [`AuthPolicy::authorize`], reports each check to `observer`, and reads no
    /// cache.
    ///
    /// # Errors
    /// The rejection of the request.
    pub(crate) fn authorize_observed(
        &self,
        request: &ReceivedHead,
        client: &Client,
        keys: impl KeysByIssuer,
        now: i64,
        observer: &mut impl Observer,
    ) -> Result<Decision, Rejected> {
        let presented = |token| Presented {
            request,
            client,
            token,
            digest: TokenDigest::new(token),
            now,
        };
        // First: no other check means anything for a head that others may read differently.
        let target = observer.check("framing", request.checked_target())?;
        // Before a token is needed: clients read here where to get one (RFC 9728 §3).
        if let Some(metadata) = self.metadata(request, target.path()) {
            return Ok(observer.check("method", metadata)?);
        }
        let verified = match self.requirement(request, target.path(), observer)? {
            // An endpoint of the sidecar itself, which no rule of the service restricts.
            AuthRequirement::UserDetails(token) => {
                let body = self.user_details(&keys, &presented(token), observer)?;
                return Ok(Decision::Respond(body));
            }
            // Nothing authenticates the bytes of a tunnel that was opened without a token.
            AuthRequirement::Pass if request.kind == RequestKind::WebSocket => {
                return Ok(observer.check("upgrade", Err(Rejection::UpgradeNotAllowed))?);
            }
            AuthRequirement::Pass => None,
            AuthRequirement::NeedsToken(token) => {
                Some(self.check_token(&keys, &presented(token), target.path(), observer)?)
            }
            AuthRequirement::Preflight {
                of_user_details: true,
            } => return Ok(Decision::Preflight),
            AuthRequirement::Preflight { .. } => None,
        };
        Ok(Decision::Forward(self.forward(
            verified,
            request.kind,
            &target,
        )))
    }

    /// Returns what a request needs by its method and path.
    fn requirement<'a>(
        &self,
        request: &'a ReceivedHead,
        path: &[u8],
        observer: &mut impl Observer,
    ) -> Result<AuthRequirement<'a>, Rejection> {
        let requirement = self.interceptor.classify_observed(
            &request.method,
            path,
            &request.headers,
            request.kind == RequestKind::WebSocket,
            request.has_body(),
            observer,
        );
        match requirement {
            // A challenge would send a client that looks for an authorization server in a circle.
            Err(Rejection::TokenMissing) if self.is_well_known(path) => {
                observer.check("path", Err(Rejection::NotFound))
            }
            requirement => requirement,
        }
    }

    /// Returns true for a token that a page of another site may have made the browser send.
    fn is_cross_site(&self, token: Bearer<'_>, request: &ReceivedHead) -> bool {
        !token.location().is_explicit()
            && is_cross_site_request(&self.interceptor.sources().cookie_origins, request)
    }

    /// Verifies the token of a request, and checks the rules for its method and path.
    fn check_token<O: Observer>(
        &self,
        keys: &impl KeysByIssuer,
        presented: &Presented<'_>,
        path: &[u8],
        observer: &mut O,
    ) -> Result<Arc<VerifiedToken>, Rejected> {
        let request = presented.request;
        // Before the verification: the page gets the same response, whatever the cookie holds.
        if self.is_cross_site(presented.token, request) {
            return Ok(observer.check("cross_site", Err(Rejection::CrossSite))?);
        }
        let verified = self.verified(keys, presented, observer)?;
        let requested = RuleRequest {
            method: &request.method,
            headers: &request.headers,
            path,
        };
        self.check_rules(requested, presented.token, &verified, observer)?;
        // HTTP/2 to the service has no Upgrade (RFC 9113 §8.6), so the handshake ends here.
        if request.kind == RequestKind::WebSocket && !self.carries_websockets {
            return Ok(observer.check("upgrade", Err(Rejection::UpgradeNotAllowed))?);
        }
        Ok(verified)
    }

    /// Compares a request that has a verified token with the rules for its method and path.
    fn check_rules<O: Observer>(
        &self,
        request: RuleRequest<'_>,
        token: Bearer<'_>,
        verified: &Arc<VerifiedToken>,
        observer: &mut O,
    ) -> Result<(), Rejected> {
        let (rules, context) = (&self.access_rules, self.interceptor.context());
        let outcome = rules.check(request, context, &verified.rule_verdicts);
        if O::WATCHES && !rules.rules().is_empty() {
            let payload = DecodedToken::decode(token.as_str())
                .and_then(|token| token.claims.as_object().cloned())
                .unwrap_or_default();
            if let Some(why) = rules.any_path(request, context) {
                observer.learned(
                    "rules",
                    format_args!("every rule of its method is for it: {why}"),
                );
            }
            for rule in rules.matching(request, context) {
                if let Some(facts) = rules.describe(rule, &payload) {
                    observer.learned("rules", facts);
                }
            }
            observer.checked("rules", outcome.is_ok());
        }
        match outcome {
            Ok(()) => Ok(()),
            Err(Broken { rejection, rule }) => Err(Rejected {
                rejection,
                rule,
                verified: Some(Arc::clone(verified)),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
