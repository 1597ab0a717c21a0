//! The grant of RFC 6749 §6: the next access token of a user, and the next refresh token.

use std::time::Instant;

use contract::api::form::Form;
use contract::rejection::Rejection;
use http::{HeaderMap, header};
use runtime::clock::unix_now;

use super::{AccessTokenResponse, Issued, REFRESH_TOKEN, TokenEndpoint, internal_error, scope};
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
        let pair = self.live_keys.load().ok_or(Rejection::StoreUnavailable)?;
        let token = form
            .value(REFRESH_TOKEN)
            .ok_or(Rejection::ParameterMissing)?;
        let now = unix_now();
        let session = sessions.open(token, now).await.map_err(rejected)?;
        let mut user = session.user.clone();
        user.grant.scope = scope(form.value("scope"), &user.grant)?;
        let token_id = session.token_id().map_err(|error| internal_error(&error))?;
        let began = Instant::now();
        let access_token = self
            .issuer
            .issue(&pair, &user, now, token_id.clone())
            .map_err(|error| internal_error(&error))?;
        self.metrics.signed(began.elapsed());
        let issued = IssuedToken {
            id: token_id.clone(),
            expires: self.issuer.expiry(now),
        };
        let refresh_token = sessions.renew(session, issued, now).await;
        Ok(Issued {
            answer: AccessTokenResponse {
                access_token,
                token_type: "Bearer",
                expires_in: self.issuer.lifetime,
                refresh_token: Some(refresh_token.map_err(rejected)?),
                scope: user.grant.scope.text(),
            },
            account: Some(user.account),
            token_id,
            key_id: pair.id().clone(),
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
