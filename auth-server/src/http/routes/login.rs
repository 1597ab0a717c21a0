//! `POST {ctx}/oauth/jwt/token` (contract §4.1): a signed token for who logs in.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::response::Response;
use contract::api::envelope::MSG_LOGIN_SUCCEEDED;
use contract::api::login::{AccessTokenInfo, LoginRequest};
use contract::keys::KeyId;
use contract::rejection::Rejection;
use http::{HeaderMap, header};
use runtime::client_address::TrustedProxies;
use runtime::clock::unix_now;
use tracing::error;

use crate::audit::{self, LoginEvent, LoginLine};
use crate::http::middleware::client_ip::client_of;
use crate::http::response::Refusal;
use crate::http::unfinished::Unfinished;
use crate::http::{body, response};
use crate::keys::live::CurrentKey;
use crate::metrics::{Metrics, OK};
use crate::random;
use crate::rate_limit::{AddressLimit, TooSoon};
use crate::tokens::issuer::TokenIssuer;
use crate::users::User;
use crate::users::authenticate::{Authenticator, NotAuthenticated};

pub(crate) const LOGIN_PATH: &str = "/oauth/jwt/token";

pub(crate) struct Login {
    pub(crate) users: Authenticator,
    /// `None`: an address may log in as often as it likes.
    pub(crate) address_limit: Option<AddressLimit>,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) issuer: TokenIssuer,
    pub(crate) current: Arc<CurrentKey>,
    pub(crate) metrics: Metrics,
    pub(crate) body_timeout: Duration,
    pub(crate) unfinished: Unfinished,
    /// Fill `token_type` and `expires_in` as RFC 6749 §5.1 wants them; the contract leaves them null.
    pub(crate) oauth_response: bool,
}

pub(crate) async fn login(State(login): State<Arc<Login>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let client = client_of(&login.trusted_proxies, &parts.extensions, &parts.headers);
    let parsed = body::read(body, login.body_timeout, login.unfinished.nothing_held())
        .await
        .and_then(|body| parse(&parts.headers, &body));
    let username = parsed
        .as_ref()
        .map(|request| request.username.clone())
        .unwrap_or_default();
    let outcome = match parsed {
        Ok(request) => login.attempt(request, client).await,
        Err(rejection) => Err(NoToken::Refused(rejection)),
    };

    let refusal = outcome.as_ref().err().map(|no_token| no_token.refusal());
    let code = refusal.map_or(OK, |refusal| refusal.rejection.reason());
    login.metrics.login(code);
    let event = outcome
        .as_ref()
        .map_or_else(NoToken::event, |_| LoginEvent::Succeeded);
    let issued = outcome.as_ref().ok();
    audit::login(&LoginLine {
        event,
        account: &login.users.shown(&username),
        client,
        outcome: code,
        token_id: issued.map(|issued| issued.token_id.as_str()),
        key_id: issued.map(|issued| &issued.key_id),
        ids: &parts.extensions.get().cloned().unwrap_or_default(),
    });
    match outcome {
        Ok(issued) => response::ok(MSG_LOGIN_SUCCEEDED, issued.answer),
        Err(no_token) => response::refusal(no_token.refusal()),
    }
}

/// A token on its way to its user.
struct Issued {
    answer: AccessTokenInfo,
    token_id: String,
    key_id: KeyId,
}

/// Why a login ends without a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoToken {
    /// For a reason that has nothing to do with who logs in.
    Refused(Rejection),
    AddressLimit(TooSoon),
    NotAuthenticated(NotAuthenticated),
}

impl NoToken {
    fn refusal(&self) -> Refusal {
        match *self {
            Self::Refused(rejection) => rejection.into(),
            Self::AddressLimit(too_soon)
            | Self::NotAuthenticated(NotAuthenticated::Locked(too_soon)) => too_soon.into(),
            Self::NotAuthenticated(NotAuthenticated::Failed) => Rejection::LoginFailed.into(),
            Self::NotAuthenticated(NotAuthenticated::Busy) => Rejection::ServerBusy.into(),
            Self::NotAuthenticated(NotAuthenticated::Fault) => Rejection::Internal.into(),
        }
    }

    fn event(&self) -> LoginEvent {
        match self {
            Self::AddressLimit(_) => LoginEvent::Limited,
            Self::NotAuthenticated(NotAuthenticated::Failed) => LoginEvent::Failed,
            Self::NotAuthenticated(NotAuthenticated::Locked(_)) => LoginEvent::Locked,
            Self::Refused(_) | Self::NotAuthenticated(_) => LoginEvent::Refused,
        }
    }
}

impl From<Rejection> for NoToken {
    fn from(rejection: Rejection) -> Self {
        Self::Refused(rejection)
    }
}

/// An absent body is an incomplete login whatever media type it does not have.
fn parse(headers: &HeaderMap, body: &[u8]) -> Result<LoginRequest, Rejection> {
    if LoginRequest::is_absent(body) {
        return Err(Rejection::LoginIncomplete);
    }
    if !is_json(headers) {
        return Err(Rejection::MediaTypeUnsupported);
    }
    LoginRequest::from_json(body)
}

/// `application/json`, in any case and with any parameters (RFC 9110 §8.3.1).
fn is_json(headers: &HeaderMap) -> bool {
    let mut fields = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return false;
    };
    let media_type = field
        .as_bytes()
        .split(|&b| b == b';')
        .next()
        .unwrap_or_default();
    media_type
        .trim_ascii()
        .eq_ignore_ascii_case(b"application/json")
}

impl Login {
    async fn attempt(&self, request: LoginRequest, client: IpAddr) -> Result<Issued, NoToken> {
        // Before anything is counted or worked for: without a key nobody gets in.
        self.current.load().ok_or(Rejection::StoreUnavailable)?;
        if let Some(limit) = &self.address_limit {
            limit
                .admit(client, Instant::now())
                .map_err(NoToken::AddressLimit)?;
        }
        let user = self.users.authenticate(request, client).await;
        Ok(self.token_for(&user.map_err(NoToken::NotAuthenticated)?)?)
    }

    fn token_for(&self, user: &User) -> Result<Issued, Rejection> {
        let pair = self.current.load().ok_or(Rejection::StoreUnavailable)?;
        let token_id = random::token_id().map_err(|error| fault(&error))?;
        let began = Instant::now();
        let access_token = self
            .issuer
            .issue(&pair, user, unix_now(), token_id.clone())
            .map_err(|error| fault(&error))?;
        self.metrics.signed(began.elapsed());
        let answer = AccessTokenInfo {
            access_token,
            token_type: self.oauth_response.then(|| "Bearer".to_owned()),
            expires_in: self.oauth_response.then(|| u64::from(self.issuer.lifetime)),
            info: user.info(),
            ..AccessTokenInfo::default()
        };
        Ok(Issued {
            answer,
            token_id,
            key_id: pair.id().clone(),
        })
    }
}

fn fault(error: &dyn std::error::Error) -> Rejection {
    error!(%error, "no token can be issued");
    Rejection::Internal
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use http::HeaderValue;

    use super::*;

    fn content_type(values: &[&str]) -> HeaderMap {
        values
            .iter()
            .map(|value| (header::CONTENT_TYPE, HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    #[test]
    fn json_is_known_in_any_case_and_with_parameters() {
        for value in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json ;x",
        ] {
            assert!(is_json(&content_type(&[value])), "{value}");
        }
        for values in [
            &[][..],
            &["text/plain"],
            &["application/jsonx"],
            &["", ""],
            &["application/json", "text/plain"],
        ] {
            assert!(!is_json(&content_type(values)), "{values:?}");
        }
    }

    #[test]
    fn contract_4_1_rule_1_an_absent_body_is_incomplete_whatever_its_media_type() {
        for headers in [
            content_type(&[]),
            content_type(&["text/plain"]),
            content_type(&["application/json"]),
        ] {
            assert_eq!(parse(&headers, b""), Err(Rejection::LoginIncomplete));
        }
        assert_eq!(
            parse(&content_type(&[]), b"{}"),
            Err(Rejection::MediaTypeUnsupported)
        );
    }
}
