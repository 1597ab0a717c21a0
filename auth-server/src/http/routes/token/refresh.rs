//! The grant of RFC 6749 §6: the next access token of a user, and the next refresh token.

use http::{HeaderMap, header};
use runtime::process::clock::unix_now;
use wire::api::form::Form;
use wire::rejection::Rejection;

use super::{AccessTokenResponse, Issued, REFRESH_TOKEN, TokenEndpoint, scope};
use crate::http::issuance::internal_error;
use crate::sessions::{IssuedToken, SessionError, Sessions, log_error};

/// Rejects the credentials of an application: a login belongs to none. A mere `client_id`, which
/// public clients send, is ignored.
pub(super) fn check_client(headers: &HeaderMap, form: &Form) -> Result<(), Rejection> {
    let has_secret = form.value("client_secret").is_some();
    if has_secret || headers.contains_key(header::AUTHORIZATION) {
        return Err(Rejection::GrantInvalid);
    }
    Ok(())
}

impl TokenEndpoint {
    pub(super) async fn refresh(
        &self,
        form: &Form,
        sessions: &Sessions,
    ) -> Result<Issued, Rejection> {
        let token = form
            .value(REFRESH_TOKEN)
            .ok_or(Rejection::ParameterMissing)?;
        if !self.users.is_current() {
            return Err(Rejection::UsersStale);
        }
        let now = unix_now();
        let session = sessions.open(token, now).await.map_err(rejected)?;
        let mut user = session.user.clone();
        user.grant.scope = scope(form.value("scope"), &user.grant)?;
        let token_id = session.token_id().map_err(|error| internal_error(&error))?;
        let signed = self
            .issuance
            .sign(|issuer, pair| issuer.issue(pair, &user, now, token_id.clone()))?;
        let issuer = &self.issuance.issuer;
        let issued = IssuedToken {
            id: token_id.clone(),
            expires: issuer.expiry(now),
        };
        let refresh_token = sessions.renew(session, issued, now).await;
        Ok(Issued {
            response: AccessTokenResponse {
                access_token: signed.token,
                token_type: "Bearer",
                expires_in: issuer.lifetime,
                refresh_token: Some(refresh_token.map_err(rejected)?),
                scope: user.grant.scope.text(),
            },
            account: Some(user.account),
            token_id,
            key_id: signed.key_id,
        })
    }
}

fn rejected(error: SessionError) -> Rejection {
    log_error(&error);
    match error {
        SessionError::Ended => Rejection::GrantInvalid,
        SessionError::Store(_) => Rejection::StoreUnavailable,
        SessionError::Random(_) | SessionError::Record(_) => Rejection::Internal,
    }
}
