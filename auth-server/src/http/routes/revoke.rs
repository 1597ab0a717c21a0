//! `POST {ctx}/oauth/revoke` (RFC 7009): ends an access token for its holder, as at a logout, and the
//! session of either kind of token.
//!
//! The token is its own permission, so no application authenticates here. A token that is unknown,
//! expired or revoked already is a success: it is of no use any more.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use contract::api::envelope::MSG_OPERATION_SUCCEEDED;
use contract::rejection::Rejection;
use contract::token::bearer::{self, Bearer};
use contract::token::claims::Claims;
use contract::token::verifier::VerificationPolicy;
use http::HeaderMap;
use runtime::clock::unix_now;
use serde_json::json;
use tracing::warn;

use crate::http::body::MAX_BODY_BYTES;
use crate::http::unfinished::Unfinished;
use crate::http::{body, oauth, response};
use crate::keys::live::LiveKeys;
use crate::keys::store::sessions::SessionId;
use crate::revocations::queue::{NotStored, RevocationQueue};
use crate::revocations::{KEEP_AFTER_EXPIRY, Revocation, Revoked};
use crate::sessions::refresh_token::{RefreshToken, session_of};
use crate::sessions::{EndCause, Sessions};

pub(crate) const REVOKE_PATH: &str = "/oauth/revoke";

/// Of the store, for one write.
const STORE_TIMEOUT: Duration = Duration::from_secs(8);
/// A whole body may hold no longer token either.
const MAX_AUTHORIZATION_BYTES: usize = MAX_BODY_BYTES;

pub(crate) struct RevokeEndpoint {
    pub(crate) live_keys: Arc<LiveKeys>,
    /// With a leeway of a session: an expired token ends the session that it is of.
    pub(crate) policy: VerificationPolicy,
    pub(crate) queue: RevocationQueue,
    /// `None` without refresh tokens.
    pub(crate) sessions: Option<Sessions>,
    pub(crate) body_timeout: Duration,
    pub(crate) unfinished: Unfinished,
}

pub(crate) async fn revoke(State(state): State<Arc<RevokeEndpoint>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let read = body::read(body, state.body_timeout, state.unfinished.nothing_held()).await;
    let token = read.and_then(|body| presented_token(&parts.headers, &body));
    let outcome = match token {
        Ok(token) => state.revoke(&token).await,
        Err(rejection) => Err(rejection),
    };
    match outcome {
        Ok(()) => response::ok(MSG_OPERATION_SUCCEEDED, json!(null)),
        Err(rejection) => oauth::error(rejection.into()),
    }
}

impl RevokeEndpoint {
    async fn revoke(&self, token: &str) -> Result<(), Rejection> {
        match RefreshToken::parse(token) {
            Some(token) => self.end_session(token.session()).await,
            None => self.revoke_access_token(token).await,
        }
    }

    async fn end_session(&self, id: SessionId) -> Result<(), Rejection> {
        let Some(sessions) = &self.sessions else {
            return Ok(());
        };
        let ended = sessions.end(id, EndCause::Logout).await;
        ended.map_err(|error| {
            warn!(%error, "a session cannot be ended");
            Rejection::StoreUnavailable
        })
    }

    async fn revoke_access_token(&self, token: &str) -> Result<(), Rejection> {
        let keys = self.live_keys.published();
        let keys = keys.ok_or(Rejection::StoreUnavailable)?;
        let now = unix_now();
        let verified = Bearer::new(token)
            .and_then(|token| self.policy.verify_at(keys.verification_keys(), token, now));
        let Some(revocation) = verified.ok().and_then(revocation_of) else {
            return Ok(());
        };
        let session = match &revocation.revoked {
            Revoked::Token { id, .. } => session_of(id),
            _ => None,
        };
        let ended = match session {
            Some(session) => self.end_session(session).await,
            None => Ok(()),
        };
        if revocation.until > now {
            self.submit(revocation).await?;
        }
        ended
    }

    async fn submit(&self, revocation: Revocation) -> Result<(), Rejection> {
        let stored = tokio::time::timeout(STORE_TIMEOUT, self.queue.submit(revocation)).await;
        stored
            .unwrap_or(Err(NotStored::StoreUnavailable))
            .map_err(|error| match error {
                NotStored::Busy => Rejection::ServerBusy,
                NotStored::StoreUnavailable => Rejection::StoreUnavailable,
            })
    }
}

/// Returns the revocation of a verified token; `None` for one without an id, which this server does
/// not issue.
fn revocation_of(claims: Claims) -> Option<Revocation> {
    Some(Revocation {
        until: claims.expires_at?.saturating_add(KEEP_AFTER_EXPIRY),
        revoked: Revoked::Token {
            id: claims.token_id?,
            user: Some(claims.user_id),
        },
        changed_by: None,
    })
}

/// Returns the `token` of the form; without a body, the one in `Authorization`.
fn presented_token(headers: &HeaderMap, body: &[u8]) -> Result<String, Rejection> {
    let token = if body.is_empty() {
        let token = bearer::from_headers(headers, MAX_AUTHORIZATION_BYTES).ok();
        token.flatten().map(|token| token.as_str().to_owned())
    } else {
        let form = oauth::parse_form(headers, body)?;
        form.value("token").map(str::to_owned)
    };
    token.ok_or(Rejection::ParameterMissing)
}
