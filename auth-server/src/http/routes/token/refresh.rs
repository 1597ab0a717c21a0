//! The grant of RFC 6749 §6: the next access token of a user, and the next refresh token.

use std::net::IpAddr;

use http::{HeaderMap, header};
use postern_contract::rejection::Rejection;
use postern_http::form::Form;

use super::{GrantRequest, Issued, REFRESH_TOKEN, audience, scope};
use crate::accounts::sessions::refresh_token::RefreshToken;
use crate::accounts::sessions::{SessionError, SessionTokens};
use crate::http::app::App;
use crate::http::oauth::{AccessToken, is_access_token};
use crate::http::response::{ErrorResponse, store_rejection};
use crate::tokens::issuer::{IssuedTimes, TokenIdentity};

const CREDENTIALS: &str =
    "a session belongs to no application: leave out client_secret and Authorization: Basic";

/// Rejects the credentials of an application. A mere `client_id`, which public clients send, is
/// ignored, and the access token that others send with every request.
pub(super) fn check_client(headers: &HeaderMap, form: &Form) -> Result<(), ErrorResponse> {
    let mut fields = headers.get_all(header::AUTHORIZATION).iter();
    if form.value("client_secret").is_some() || !fields.all(is_access_token) {
        return Err(ErrorResponse::from(Rejection::ApplicationUnknown).described(CREDENTIALS));
    }
    Ok(())
}

pub(super) async fn refresh(
    app: &App,
    granted: &GrantRequest<'_>,
    client: IpAddr,
) -> Result<Issued, ErrorResponse> {
    let form = &granted.form;
    let text = form
        .value(REFRESH_TOKEN)
        .ok_or(Rejection::ParameterMissing)?;
    let token = RefreshToken::parse(text).ok_or(Rejection::GrantInvalid)?;
    // The file was replaced where it cannot be read: it is unknown who may still log in.
    if !app.users.is_current() {
        return Err(Rejection::UsersStale.into());
    }
    let now = app.now();
    let store = app.store_for(client);
    let opened = app.sessions.open(&store, token, now).await;
    let session = opened.map_err(rejected)?;
    // Only a right token gets here: wrong ones count as guesses in `issue`.
    app.count_proven(client)?;
    app.check_user_is_current(&store, &session.present).await?;
    let grant = &session.present.user.grant;
    // Before the renewal: a rejected scope or resource must not use the refresh token up.
    let scope = scope(form.value("scope"), grant)?;
    let audience = audience(app, form.resources(), grant)?;
    let user = &session.present.user.id;
    let binding = granted.possession.binding(app, user, session.binding())?;
    let mut renewed = app
        .sessions
        .renew(&store, session, now, binding)
        .await
        .map_err(rejected)?;
    renewed.user.grant.scope = scope;
    renewed.user.grant.audience = audience;
    issue_renewed(app, renewed, now)
}

/// Signs the access token of a renewed session. If this fails, the client may present its refresh token
/// again: soon after, it is a repetition.
fn issue_renewed(app: &App, renewed: SessionTokens, now: i64) -> Result<Issued, ErrorResponse> {
    let user = renewed.user;
    let (token, ids) = app.sign(renewed.token_id, |issuer, pair, token_id| {
        issuer.issue(
            pair,
            &user,
            IssuedTimes {
                issued_at: renewed.issued_at,
                expires: renewed.expires,
            },
            TokenIdentity {
                token_id,
                session: Some(renewed.id),
                binding: renewed.binding,
            },
        )
    })?;
    // A repetition gives the first pair again, whose lifetime has begun already.
    let left = renewed.expires.saturating_sub(now).max(0);
    Ok(Issued {
        response: AccessToken {
            refresh_token: Some(renewed.refresh_token.to_string()),
            scope: user.grant.scope.text(),
            ..AccessToken::new(token, left, renewed.binding.as_ref())
        },
        account: Some(user.account),
        ids,
    })
}

fn rejected(error: SessionError) -> Rejection {
    match error {
        SessionError::Ended => Rejection::GrantInvalid,
        SessionError::OtherUsers => Rejection::UsersStale,
        SessionError::Store(error) => store_rejection(&error, "a session is not available"),
    }
}
