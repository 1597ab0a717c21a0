//! The decision about one request: forward it, answer it with the current user, or refuse it.
//!
//! Pure: the request's head, the keys and the time come in as arguments. What is decided here is
//! carried out by the room `proxy`.

use std::sync::Arc;

use contract::api::envelope::{Envelope, MSG_OPERATION_SUCCEEDED};
use contract::api::user_details::CurrentUserDetails;
use contract::explain::observer::{Observer, Unobserved};
use contract::interceptor::{AuthRequirement, Interceptor};
use contract::rejection::Rejection;
use contract::token::bearer::Bearer;
use contract::token::verifier::VerificationPolicy;
use http::{HeaderValue, Uri, header};

use crate::auth::csrf::is_cross_site_request;
use crate::headers::identity::UserHeader;
use crate::keys::current::KeyState;
use crate::keys::token_cache::VerifiedToken;
use crate::request::head::{RawHead, RequestHead};
use crate::request::kind::RequestKind;
use crate::telemetry::outcome::Outcome;

/// What happens to a request that is not refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It goes to the service.
    Forward(Forward),
    /// It is answered here, with this body.
    Respond(Vec<u8>),
    /// A browser asks whether it may ask for the current user.
    Preflight,
}

/// How a request goes to the service.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    /// Whose token it was; `None` on a pass-listed path.
    pub(crate) verified: Option<Arc<VerifiedToken>>,
    /// The target to send where it is not the received one.
    pub(crate) target: Option<Uri>,
    /// A 101 of the service opens a tunnel only where this is a WebSocket.
    pub(crate) kind: RequestKind,
    /// Whether a body follows, which the service may leave unread.
    pub(crate) body: bool,
    /// Until when, in seconds since the epoch, a stream may go on; `None` without an expiry.
    pub(crate) ends_at: Option<i64>,
}

impl Forward {
    /// Whether it is a verified user's.
    pub(crate) fn has_token(&self) -> bool {
        self.outcome() == Outcome::Verified
    }

    pub(crate) fn outcome(&self) -> Outcome {
        if self.verified.is_some() {
            Outcome::Verified
        } else {
            Outcome::Passed
        }
    }
}

/// The rules that all requests are held to.
#[derive(Debug, Clone)]
pub(crate) struct AuthPolicy {
    pub(crate) interceptor: Interceptor,
    pub(crate) policy: VerificationPolicy,
    pub(crate) user_header: UserHeader,
    /// Whether the service can be asked to open one.
    pub(crate) carries_websockets: bool,
    /// Moves with every change of what a verified token comes to.
    generation: u64,
}

impl AuthPolicy {
    pub(crate) fn new(
        interceptor: Interceptor,
        mut policy: VerificationPolicy,
        user_header: UserHeader,
    ) -> Self {
        policy.extra_claims = user_header.extra_claims();
        Self {
            interceptor,
            policy,
            user_header,
            carries_websockets: true,
            generation: 0,
        }
    }

    /// They take the place of `former`. What was remembered under those counts on only where these
    /// would have come to the same.
    pub(crate) fn next_generation(&mut self, former: &Self) {
        let same = self.policy == former.policy && self.user_header == former.user_header;
        self.generation = former.generation + u64::from(!same);
    }

    /// Decides about `request` at `now` (seconds since the epoch). `keys` is a refusal until the
    /// first key was fetched, and again when it is too old; there is no placeholder that could be
    /// mistaken for one. What they verified before is not verified again, but held to its times.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn authorize(
        &self,
        request: RequestHead<'_>,
        keys: Result<&KeyState, Rejection>,
        now: i64,
    ) -> Result<Decision, Rejection> {
        self.authorize_observed(request, keys, now, &mut Unobserved)
    }

    /// The same while `observer` watches; nothing that was remembered spares it a step.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn authorize_observed(
        &self,
        request: RequestHead<'_>,
        keys: Result<&KeyState, Rejection>,
        now: i64,
        observer: &mut impl Observer,
    ) -> Result<Decision, Rejection> {
        let RequestHead {
            method,
            version,
            headers,
            ..
        } = request;
        let target = observer.check("framing", request.checked_target())?;
        let kind = RequestKind::of(method, version, headers);
        let is_websocket = kind == RequestKind::WebSocket;
        let requirement = self.interceptor.classify_observed(
            method,
            target.path(),
            headers,
            is_websocket,
            observer,
        );
        let verified = match requirement {
            AuthRequirement::Reject(rejection) => return Err(rejection),
            AuthRequirement::UserDetails(token) => {
                let body = self.user_details(keys, token, now, observer)?;
                return Ok(Decision::Respond(body));
            }
            // Nobody vouches for what flows through the tunnel afterwards.
            AuthRequirement::Pass if is_websocket => {
                return observer.check("upgrade", Err(Rejection::UpgradeNotAllowed));
            }
            AuthRequirement::Pass => None,
            AuthRequirement::NeedsToken(_) if self.is_forged(&request, is_websocket) => {
                return observer.check("cross_site", Err(Rejection::CrossSite));
            }
            AuthRequirement::NeedsToken(token) => {
                let verified = self.verified(keys, token, now, observer)?;
                if is_websocket && !self.carries_websockets {
                    return observer.check("upgrade", Err(Rejection::UpgradeNotAllowed));
                }
                Some(verified)
            }
            AuthRequirement::Preflight {
                of_user_details: true,
            } => return Ok(Decision::Preflight),
            AuthRequirement::Preflight { .. } => None,
        };
        let ends_at = verified
            .as_ref()
            .and_then(|verified| verified.validity.expires_at);
        Ok(Decision::Forward(Forward {
            // Nobody holds a place for long by saying that this would be a stream.
            kind: verified.as_ref().map_or(RequestKind::Plain, |_| kind),
            verified,
            target: target.replacement()?,
            body: request.has_body(),
            ends_at: ends_at
                .map(|expiry| expiry.saturating_add(i64::from(self.policy.leeway_seconds))),
        }))
    }

    fn is_forged(&self, request: &RequestHead<'_>, is_websocket: bool) -> bool {
        let host = match request.wire {
            RawHead::Http2 {
                authority: Some(authority),
                ..
            } => Some(authority),
            _ => request.headers.get(header::HOST).map(HeaderValue::as_bytes),
        };
        is_cross_site_request(
            self.interceptor.sources(),
            request.method,
            is_websocket,
            request.headers,
            host,
        )
    }

    /// What the service is told, and how long it holds.
    fn verified<O: Observer>(
        &self,
        keys: Result<&KeyState, Rejection>,
        token: Bearer<'_>,
        now: i64,
        observer: &mut O,
    ) -> Result<Arc<VerifiedToken>, Rejection> {
        let keys = observer.check("keys", keys)?;
        if let Some(known) = self.cached::<O>(keys, token, now)? {
            return Ok(known);
        }
        let (_, verified) = self.verify(keys, token, now, observer)?;
        let verified = observer.check("user_header", verified)?;
        keys.verified_tokens()
            .remember(token, Arc::clone(&verified));
        Ok(verified)
    }

    /// The answer's body.
    fn user_details<O: Observer>(
        &self,
        keys: Result<&KeyState, Rejection>,
        token: Bearer<'_>,
        now: i64,
        observer: &mut O,
    ) -> Result<Vec<u8>, Rejection> {
        let keys = observer.check("keys", keys)?;
        let details = match self.cached::<O>(keys, token, now)? {
            Some(known) => self.user_header.user(&known.identity)?,
            None => {
                let (details, verified) = self.verify(keys, token, now, observer)?;
                // Who is too large for the header is shown all the same.
                if let Ok(verified) = verified {
                    keys.verified_tokens().remember(token, verified);
                }
                details
            }
        };
        Envelope::ok(MSG_OPERATION_SUCCEEDED, details)
            .to_json()
            .map_err(|_| Rejection::Internal)
    }

    /// The user, and what is to be told and remembered of the token.
    fn verify(
        &self,
        keys: &KeyState,
        token: Bearer<'_>,
        now: i64,
        observer: &mut impl Observer,
    ) -> Result<(CurrentUserDetails, Result<Arc<VerifiedToken>, Rejection>), Rejection> {
        let mut claims = self
            .policy
            .verify_observed(keys.keys(), token, now, observer)?;
        let validity = claims.validity();
        let extra = std::mem::take(&mut claims.extra);
        let details = claims.into_user_details();
        let identity = self.user_header.identity(&details, &extra);
        let verified = identity.map(|identity| VerifiedToken {
            identity,
            validity,
            rules: self.generation,
        });
        Ok((details, verified.map(Arc::new)))
    }

    /// What the keys at hand have verified before under these rules, if it may still be used.
    fn cached<O: Observer>(
        &self,
        keys: &KeyState,
        token: Bearer<'_>,
        now: i64,
    ) -> Result<Option<Arc<VerifiedToken>>, Rejection> {
        if O::WATCHES {
            return Ok(None);
        }
        let Some(known) = keys.verified_tokens().find(token, self.generation) else {
            return Ok(None);
        };
        self.policy.check_times(known.validity, now)?;
        Ok(Some(known))
    }
}

#[cfg(test)]
mod tests;
