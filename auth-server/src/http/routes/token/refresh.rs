//! The grant of RFC 6749 §6: the next access token of a user, and the next refresh token.

use http::{HeaderMap, header};
use wire::api::form::Form;
use wire::rejection::Rejection;

use super::{AccessTokenResponse, Issued, REFRESH_TOKEN, TokenEndpoint, scope};
use crate::http::response::store_rejection;
use crate::sessions::{Renewed, SessionError, Sessions, log_error};

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
        // Before the keys are there, revocations may not be either.
        let keys = self.issuance.live_keys.load();
        keys.ok_or(Rejection::StoreUnavailable)?;
        let now = self.issuance.clock.now();
        let session = sessions.open(token, now).await.map_err(rejected)?;
        let scope = scope(form.value("scope"), &session.user.grant)?;
        let renewed = sessions.renew(session, now).await.map_err(rejected)?;
        let Renewed {
            mut user,
            refresh_token,
            id,
            access_token,
            issued_at,
        } = renewed;
        user.grant.scope = scope;
        let token_id = access_token.id;
        let signed = self.issuance.sign(|issuer, pair| {
            let issuer = issuer.with_times(issued_at, access_token.expires);
            issuer.issue(pair, &user, issued_at, (token_id.clone(), Some(id)))
        })?;
        let left = access_token.expires.saturating_sub(now);
        Ok(Issued {
            response: AccessTokenResponse {
                access_token: signed.token,
                token_type: "Bearer",
                expires_in: u32::try_from(left).unwrap_or_default(),
                refresh_token: Some(refresh_token.to_string()),
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
        SessionError::OtherUsers => Rejection::UsersStale,
        SessionError::Store(error) => store_rejection(&error),
    }
}
