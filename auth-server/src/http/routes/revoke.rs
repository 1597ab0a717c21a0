//! `POST {ctx}/oauth/revoke` (RFC 7009): ends an access token for its holder, as at a logout, and the
//! session of either kind of token.
//!
//! The token is its own permission, so no application authenticates here. A token that is unknown, expired or
//! revoked already is a success, because no verifier accepts it.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::HeaderMap;
use postern_contract::envelope::MSG_OPERATION_SUCCEEDED;
use postern_contract::rejection::Rejection;
use postern_token::claims::Claims;
use postern_token::invalid::InvalidToken;
use postern_token::keys::KeySet;
use postern_token::policy::{BoundTokens, VerificationPolicy};
use postern_token::sources::bearer::{self, Bearer};
use serde_json::json;

use crate::accounts::sessions::EndCause;
use crate::accounts::sessions::refresh_token::{RefreshToken, SessionId};
use crate::config::Config;
use crate::http::app::App;
use crate::http::body::MAX_BODY_BYTES;
use crate::http::response::{ErrorResponse, store_rejection};
use crate::http::{body, oauth, response};
use crate::keys::ring::KeyRing;
use crate::revocations::{KEEP_AFTER_EXPIRY, Revocation};
use crate::store::open_store::OpenStore;
use crate::store::{StoreError, to_the_end};

/// Max length of a token: the max length of a body.
const MAX_TOKEN_BYTES: usize = MAX_BODY_BYTES;

/// Returns the policy for tokens that are ended, which accepts more than the policy for tokens that are used:
/// sidecars may accept a token that this server takes for expired, or for not valid yet, and its session
/// lasts longer.
fn policy(config: &Config) -> VerificationPolicy {
    let leeway = u32::try_from(KEEP_AFTER_EXPIRY).unwrap_or(u32::MAX);
    VerificationPolicy {
        leeway_seconds: leeway.max(config.session_lifetime),
        // A thief who ends a stolen token does no more harm with it.
        bound_tokens: BoundTokens::Unchecked,
        ..config.policy.clone()
    }
}

pub(crate) async fn revoke(State(app): State<Arc<App>>, request: Request) -> Response {
    match end(&app, request).await {
        Ok(()) => response::ok(MSG_OPERATION_SUCCEEDED, json!(null)),
        Err(error) => oauth::error(error),
    }
}

async fn end(app: &Arc<App>, request: Request) -> Result<(), ErrorResponse> {
    let (parts, client, body) = body::receive(app, request).await;
    let token = presented_token(&parts.headers, &body?)?;
    let store = app.store_for(client);
    // A refresh token cannot be taken for a JWT: `token_type_hint` is not needed (RFC 7009 §2.1).
    let Some(token) = RefreshToken::parse(&token) else {
        return end_access_token(app, &store, &token, client).await;
    };
    let session = token.session();
    let ended = app.sessions.end(&store, session, EndCause::Logout, None);
    if !ended.await.map_err(not_ended)? {
        // No such session: it may be a guess, while a second logout of the same session is rare.
        app.count_guess(client)?;
        let absent = app.sessions.confirm_absence(&store, session);
        absent.await.map_err(not_ended)?;
    }
    Ok(())
}

fn not_ended(error: StoreError) -> Rejection {
    store_rejection(&error, "a logout is not done")
}

async fn end_access_token(
    app: &Arc<App>,
    store: &OpenStore,
    token: &str,
    client: IpAddr,
) -> Result<(), ErrorResponse> {
    let now = app.now();
    // Not ours, or expired beyond every leeway: no verifier accepts it, so the logout is done.
    let Ok(claims) = verify_token(app, store, token, client, now).await? else {
        return Ok(());
    };
    let is_revoked = app.revocations.revokes(&claims);
    let session = claims.session.as_deref().and_then(SessionId::parse);
    let Some(revocation) = revocation_of(claims, now) else {
        return Ok(());
    };
    // No verifier accepts the token any more; a session may live longer, and is ended below.
    if session.is_none() && revocation.ends <= now {
        return Ok(());
    }
    app.count_proven(client)?;
    let ends = Some(revocation.ends);
    let ended = match session {
        Some(session) => {
            app.sessions
                .end(store, session, EndCause::Logout, ends)
                .await
        }
        None if is_revoked => Ok(false),
        None => {
            let (app, store) = (Arc::clone(app), store.clone());
            let append = async move {
                app.revocations
                    .append(&store, &[revocation], vec![])
                    .await
                    .map(|_| true)
            };
            // The commit runs to its end even if the client hangs up.
            to_the_end(append).await
        }
    };
    if ended.map_err(not_ended)? {
        return Ok(());
    }
    // It has ended before, and the outcome of that may have been unclear.
    let confirmed = match session {
        Some(session) => app.sessions.confirm_absence(store, session).await,
        None => app.revocations.confirm(store).await,
    };
    Ok(confirmed.map_err(not_ended)?)
}

/// Verifies a token that is to end. A key that this server does not know yet may be in the store: another
/// server signs with it already.
async fn verify_token(
    app: &App,
    store: &OpenStore,
    token: &str,
    client: IpAddr,
    now: i64,
) -> Result<Result<Claims, InvalidToken>, ErrorResponse> {
    let keys = app.keys()?;
    let policy = policy(&app.config);
    let verify = |keys: &KeySet| policy.verify_at(keys, Bearer::new(token)?, now);
    match verify(&keys.verification_keys) {
        Err(InvalidToken::KeyUnknown) => {
            // It may be invented, and each costs a reading.
            app.count_guess(client)?;
            let held = store.read_keys().await.map_err(not_ended)?;
            let signing_type = app.config.signing_type;
            let keys = KeyRing::parse(signing_type, &held.keys)
                .ok()
                .flatten()
                .ok_or(Rejection::StoreUnavailable)?;
            let verified = verify(&keys.verification_key_set(signing_type));
            // A former primary of the store does not know keys of later.
            if verified == Err(InvalidToken::KeyUnknown)
                && !store.confirm(held.checks()).await.map_err(not_ended)?
            {
                return Err(not_ended(StoreError::changed()).into());
            }
            Ok(verified)
        }
        verified => Ok(verified),
    }
}

/// Returns the revocation of a verified token; `None` for one without an id, which this server does
/// not issue.
fn revocation_of(claims: Claims, now: i64) -> Option<Revocation> {
    let ends = claims.expires_at?.saturating_add(KEEP_AFTER_EXPIRY);
    Some(
        Revocation::for_token(claims.token_id?, Some(claims.user_id), now)
            .not_before(claims.issued_at.unwrap_or(now))
            .until(ends, ends),
    )
}

/// Returns the `token` of the form; without a body, the token in `Authorization`.
fn presented_token(headers: &HeaderMap, body: &[u8]) -> Result<String, ErrorResponse> {
    let token = if body.is_empty() {
        // Also one that is bound to a key: the end of a token needs no proof.
        let bearer = bearer::from_headers(headers, MAX_TOKEN_BYTES, true);
        bearer.ok().flatten().map(|it| it.as_str().to_owned())
    } else {
        oauth::parse_form(headers, body)?
            .value("token")
            .map(str::to_owned)
    };
    token.ok_or(Rejection::ParameterMissing.into())
}
