//! `POST {ctx}/oauth/revoke` (RFC 7009): ends an access token for its holder, as at a logout, and the
//! session of either kind of token.
//!
//! The token is its own permission, so no application authenticates here. A token that is unknown,
//! expired or revoked already is a success: it is of no use any more.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::response::Response;
use http::HeaderMap;
use runtime::net::client_address::TrustedProxies;
use runtime::net::shares::Holder;
use serde_json::json;
use tracing::warn;
use wire::api::envelope::MSG_OPERATION_SUCCEEDED;
use wire::rejection::Rejection;
use wire::token::bearer::{self, Bearer};
use wire::token::claims::Claims;
use wire::token::verifier::VerificationPolicy;

use crate::http::body::MAX_BODY_BYTES;
use crate::http::middleware::client_ip::client_of;
use crate::http::response::{ErrorResponse, store_rejection};
use crate::http::unfinished::Unfinished;
use crate::http::{body, oauth, response};
use crate::keys::live::LiveKeys;
use crate::rate_limit::{AddressLimit, RetryAfter};
use crate::revocations::log::RevocationLog;
use crate::revocations::{KEEP_AFTER_EXPIRY, Revocation, Revoked};
use crate::sessions::refresh_token::{RefreshToken, SessionId};
use crate::sessions::{EndCause, Sessions};
use crate::store::clock::StoreClock;

pub(crate) const REVOKE_PATH: &str = "/oauth/revoke";

/// Max length of a token, as of a whole body.
const MAX_AUTHORIZATION_BYTES: usize = MAX_BODY_BYTES;

pub(crate) struct RevokeEndpoint {
    pub(crate) live_keys: Arc<LiveKeys>,
    /// The policy of [`policy`].
    pub(crate) policy: VerificationPolicy,
    pub(crate) log: Arc<RevocationLog>,
    pub(crate) clock: Arc<StoreClock>,
    /// `None` without refresh tokens.
    pub(crate) sessions: Option<Sessions>,
    /// Limit of logins; `None` for no limit.
    pub(crate) address_limit: Option<Arc<AddressLimit>>,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) body_timeout: Duration,
    pub(crate) unfinished: Unfinished,
}

/// Returns the policy for tokens that end, from the one for tokens that are used: sidecars may accept
/// one that this server takes for expired, or for not valid yet, and its session lasts longer.
pub(crate) fn policy(
    of_use: VerificationPolicy,
    session_lifetime: Option<u32>,
) -> VerificationPolicy {
    let leeway = u32::try_from(KEEP_AFTER_EXPIRY).unwrap_or(u32::MAX);
    VerificationPolicy {
        leeway_seconds: leeway.max(session_lifetime.unwrap_or_default()),
        ..of_use
    }
}

pub(crate) async fn revoke(State(state): State<Arc<RevokeEndpoint>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let client = client_of(&state.trusted_proxies, &parts.extensions, &parts.headers);
    let held = state.unfinished.nothing_held(Holder::at(Some(client)));
    let read = body::read(body, state.body_timeout, held).await;
    let read = read.map_err(ErrorResponse::from);
    let token = read.and_then(|body| presented_token(&parts.headers, &body));
    let outcome = match token {
        Ok(token) => state.revoke(&token, client).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => response::ok(MSG_OPERATION_SUCCEEDED, json!(null)),
        Err(error) => oauth::error(error),
    }
}

impl RevokeEndpoint {
    async fn revoke(&self, token: &str, client: IpAddr) -> Result<(), ErrorResponse> {
        match RefreshToken::parse(token) {
            Some(token) => {
                self.count(client)?;
                Ok(self.end_session(token.session(), None).await?)
            }
            None => self.revoke_access_token(token, client).await,
        }
    }

    /// Counts a request that calls the store.
    fn count(&self, client: IpAddr) -> Result<(), RetryAfter> {
        match &self.address_limit {
            Some(limit) => limit.take(client, Instant::now()),
            None => Ok(()),
        }
    }

    async fn end_session(&self, id: SessionId, verified: Option<i64>) -> Result<(), Rejection> {
        let Some(sessions) = &self.sessions else {
            return Ok(());
        };
        let ended = sessions.end(id, EndCause::Logout, verified).await;
        ended.map_err(|error| {
            warn!(%error, "a session cannot be ended");
            store_rejection(&error)
        })
    }

    async fn revoke_access_token(&self, token: &str, client: IpAddr) -> Result<(), ErrorResponse> {
        let keys = self.live_keys.published();
        let keys = keys.ok_or(Rejection::StoreUnavailable)?;
        let now = self.clock.now();
        let verified = Bearer::new(token)
            .and_then(|token| self.policy.verify_at(keys.verification_keys(), token, now));
        let Ok(claims) = verified else {
            return Ok(());
        };
        let is_revoked = self.log.revokes(&claims);
        let session = claims.session.as_deref().and_then(SessionId::parse);
        let Some(revocation) = revocation_of(claims) else {
            return Ok(());
        };
        let session = session.filter(|_| self.sessions.is_some());
        if session.is_none() && (is_revoked || revocation.ends <= now) {
            return Ok(());
        }
        self.count(client)?;
        let ended = match session {
            Some(session) => self.end_session(session, Some(revocation.ends)).await,
            None => self.append(revocation).await,
        };
        Ok(ended?)
    }

    async fn append(&self, revocation: Revocation) -> Result<(), Rejection> {
        let stored = self.log.append(&[revocation], Vec::new()).await;
        stored.map(drop).map_err(|error| {
            warn!(%error, "a token is not revoked");
            store_rejection(&error)
        })
    }
}

/// Returns the revocation of a verified token; `None` for one without an id, which this server does
/// not issue.
fn revocation_of(claims: Claims) -> Option<Revocation> {
    let ends = claims.expires_at?.saturating_add(KEEP_AFTER_EXPIRY);
    Some(Revocation {
        live: Some(ends),
        ends,
        revoked: Revoked::Token {
            id: claims.token_id?,
            user: Some(claims.user_id),
        },
    })
}

/// Returns the `token` of the form; without a body, the one in `Authorization`.
fn presented_token(headers: &HeaderMap, body: &[u8]) -> Result<String, ErrorResponse> {
    let token = if body.is_empty() {
        let token = bearer::from_headers(headers, MAX_AUTHORIZATION_BYTES).ok();
        token.flatten().map(|token| token.as_str().to_owned())
    } else {
        let form = oauth::parse_form(headers, body)?;
        form.value("token").map(str::to_owned)
    };
    token.ok_or(Rejection::ParameterMissing.into())
}
