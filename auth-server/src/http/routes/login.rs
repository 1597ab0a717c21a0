//! `POST {ctx}/oauth/jwt/token` (contract §4.1): a signed token for a user.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::HeaderMap;
use postern_contract::envelope::MSG_LOGIN_SUCCEEDED;
use postern_contract::login::{AccessTokenInfo, LoginRequest};
use postern_contract::rejection::Rejection;
use postern_token::possession::Binding;

use crate::accounts::users::PresentUser;
use crate::accounts::users::authenticate::AuthenticationError;
use crate::http::app::App;
use crate::http::issuance::token_id;
use crate::http::possession::Possession;
use crate::http::response::ErrorResponse;
use crate::http::routes::LOGIN_PATH;
use crate::http::{body, oauth, response};
use crate::store::open_store::OpenStore;
use crate::telemetry::audit::events::TokenIds;
use crate::telemetry::audit::{self, RequestEvent, RequestLine};
use crate::telemetry::metrics::OK;
use crate::tokens::issuer::TokenIdentity;

const JSON: &str = "application/json";

pub(crate) async fn login(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ErrorResponse> {
    let (parts, client, body) = body::receive(&app, request).await;
    let parsed = body.and_then(|body| parse(&parts.headers, &body));
    let possession = Possession {
        parts: &parts,
        path: LOGIN_PATH,
    };
    let outcome = match &parsed {
        Ok(request) => attempt(&app, request, possession, client).await,
        Err(rejection) => Err(Denied::from(*rejection)),
    };

    let (event, code) = match &outcome {
        Ok(_) => (RequestEvent::LoginSucceeded, OK),
        Err(denied) => (denied.event, denied.response.rejection.reason()),
    };
    app.metrics.login(code);
    let account = match &parsed {
        Ok(request) => request.username.as_str(),
        Err(_) => "",
    };
    audit::request(&RequestLine {
        event,
        grant: None,
        app_id: None,
        account: Some(&app.authenticator.loggable(account)),
        client,
        outcome: code,
        scope: None,
        token: outcome.as_ref().ok().map(|issued| &issued.ids),
        ids: parts.extensions.get(),
    });
    match outcome {
        Ok(issued) => Ok(response::ok(MSG_LOGIN_SUCCEEDED, issued.token)),
        Err(denied) => Err(denied.response),
    }
}

/// An issued token.
struct Issued {
    token: AccessTokenInfo,
    /// For the audit line.
    ids: TokenIds,
}

/// A login that failed.
struct Denied {
    response: ErrorResponse,
    event: RequestEvent,
}

impl From<AuthenticationError> for Denied {
    fn from(error: AuthenticationError) -> Self {
        let (response, event) = match error {
            AuthenticationError::Failed => {
                (Rejection::LoginFailed.into(), RequestEvent::LoginFailed)
            }
            AuthenticationError::Locked(wait) => (wait.into(), RequestEvent::LoginLocked),
            AuthenticationError::Busy => return Rejection::ServerBusy.into(),
            AuthenticationError::Internal => return Rejection::Internal.into(),
        };
        Self { response, event }
    }
}

/// For a reason unrelated to the user.
impl From<ErrorResponse> for Denied {
    fn from(response: ErrorResponse) -> Self {
        Self {
            response,
            event: RequestEvent::LoginRejected,
        }
    }
}

impl From<Rejection> for Denied {
    fn from(rejection: Rejection) -> Self {
        ErrorResponse::from(rejection).into()
    }
}

/// Parses the body. An absent body is an incomplete login, whatever its media type.
fn parse(headers: &HeaderMap, body: &[u8]) -> Result<LoginRequest, Rejection> {
    if LoginRequest::is_absent(body) {
        return Err(Rejection::LoginIncomplete);
    }
    if !body::is_of_type(headers, JSON) {
        return Err(Rejection::MediaTypeUnsupported);
    }
    body::check_coding(headers)?;
    LoginRequest::from_json(body)
}

async fn attempt(
    app: &App,
    request: &LoginRequest,
    possession: Possession<'_>,
    client: IpAddr,
) -> Result<Issued, Denied> {
    app.keys()?;
    if let Err(wait) = app.count_guess(client) {
        return Err(Denied {
            response: wait.into(),
            event: RequestEvent::LoginLimited,
        });
    }
    if !app.users.is_current() {
        return Err(Rejection::UsersStale.into());
    }
    let verified = app
        .authenticator
        .authenticate(request.clone(), client)
        .await?;
    // The check takes long. A user who was disabled meanwhile is revoked by a later time than this
    // one, or is not present any more.
    let now = app.now();
    if app.users.present(&request.username).as_ref() != Some(&verified) {
        return Err(AuthenticationError::Failed.into());
    }
    let store = app.store_for(client);
    app.check_user_is_current(&store, &verified).await?;
    let binding = possession.binding(app, &verified.user.id, None)?;
    Ok(token_for(app, &store, &verified, now, binding).await?)
}

/// Issues a token at `now`, in seconds since the epoch. With refresh tokens, or bound, it fills `token_type` and
/// `expires_in` as in RFC 6749 §5.1; the contract leaves them null.
async fn token_for(
    app: &App,
    store: &OpenStore,
    verified: &PresentUser,
    now: i64,
    binding: Option<Binding>,
) -> Result<Issued, Rejection> {
    let user = &verified.user;
    let has_sessions = app.config.refresh_tokens;
    let session = if has_sessions {
        app.sessions.begin(store, verified, now, binding).await
    } else {
        None
    };
    // A session names its first token, so that its end is the end of the token.
    let (token_id, session_id) = match &session {
        Some(session) => (session.token_id.clone(), Some(session.id.clone())),
        None => (token_id()?, None),
    };
    let (access_token, ids) = app.sign(token_id, |issuer, pair, token_id| {
        issuer.issue(
            pair,
            user,
            issuer.times_from(now),
            TokenIdentity {
                token_id,
                session: session_id,
                binding,
            },
        )
    })?;
    let token = AccessTokenInfo {
        access_token,
        refresh_token: session.map(|session| session.refresh_token.to_string()),
        token_type: if has_sessions || binding.is_some() {
            Some(oauth::token_type(binding.as_ref()).to_owned())
        } else {
            None
        },
        expires_in: if has_sessions {
            Some(app.config.issuer.lifetime.into())
        } else {
            None
        },
        info: user.info(),
        ..AccessTokenInfo::default()
    };
    Ok(Issued { token, ids })
}
