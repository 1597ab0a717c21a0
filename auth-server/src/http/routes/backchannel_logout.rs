//! `POST {ctx}/oidc/backchannel-logout`: another issuer reports the end of a session, by a logout token
//! (OpenID Connect Back-Channel Logout 1.0 §2.5) or a pushed security event token (RFC 8935).

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::CACHE_CONTROL;
use http::{HeaderMap, StatusCode};
use postern_contract::rejection::Rejection;
use postern_process::logs::sanitize::LogText;
use postern_token::invalid::InvalidToken;
use postern_token::revocations::statement::{Form, InvalidStatement};
use postern_token::sources::bearer::Bearer;
use postern_token::strict_json::Value;
use postern_token::unverified::DecodedToken;
use postern_token::verifier::unverified_issuer;
use serde_json::json;
use tracing::info;

use crate::http::app::App;
use crate::http::response::{ErrorResponse, NO_STORE, store_rejection};
use crate::http::{body, oauth, response};
use crate::revocations::foreign::{ForeignIssuer, NotVerified};
use crate::store::to_the_end;
use crate::telemetry::metrics::StatementOutcome;

/// The media type of a pushed security event token (RFC 8935 §2.1).
const SECURITY_EVENT: &str = "application/secevent+jwt";

/// The reason why no session has ended.
struct NotEnded {
    error: ErrorResponse,
    /// The error code of RFC 8935 §2.4, for a security event.
    code: &'static str,
}

impl<E: Into<ErrorResponse>> From<E> for NotEnded {
    fn from(error: E) -> Self {
        Self {
            error: error.into(),
            code: "invalid_request",
        }
    }
}

impl From<InvalidStatement> for NotEnded {
    fn from(invalid: InvalidStatement) -> Self {
        use InvalidToken::{Algorithm, Audience, Issuer, KeyUnknown, Signature};
        let error = ErrorResponse::from(Rejection::StatementInvalid);
        Self {
            error: error.described(describe(invalid)),
            code: match invalid {
                InvalidStatement::Token(Issuer) => "invalid_issuer",
                InvalidStatement::Token(Audience) => "invalid_audience",
                InvalidStatement::Token(Algorithm | KeyUnknown | Signature) => "invalid_key",
                _ => "invalid_request",
            },
        }
    }
}

/// Returns a sentence for the operator of the issuer.
const fn describe(invalid: InvalidStatement) -> &'static str {
    use InvalidToken::{
        Algorithm, Audience, ClaimInvalid, Expired, Header, Issuer, KeyUnknown, NotYetValid,
        Signature,
    };
    match invalid {
        InvalidStatement::Token(Header) => {
            "its typ, or another member of its header, does not fit its form"
        }
        InvalidStatement::Token(Algorithm) => "no key of the issuer has its alg",
        InvalidStatement::Token(KeyUnknown) => "no key of the issuer has its kid",
        InvalidStatement::Token(Signature) => "no key of the issuer signed it",
        InvalidStatement::Token(Issuer) => "no [[logout]] table has its iss",
        InvalidStatement::Token(Audience) => "its aud is not the client of the [[logout]] table",
        InvalidStatement::Token(Expired) => "it has expired",
        InvalidStatement::Token(NotYetValid) => "its nbf is in the future: compare the clocks",
        InvalidStatement::Token(ClaimInvalid) => "a claim has the wrong type",
        InvalidStatement::Token(_) => "it is no signed JWT of three parts with an object of claims",
        InvalidStatement::Id => "its jti is missing or empty",
        InvalidStatement::IdUsed => "another one had its jti",
        InvalidStatement::NoTime => "its iat is missing",
        InvalidStatement::TooOld => "its iat is too long ago",
        InvalidStatement::Ahead => "its iat is in the future: compare the clocks",
        InvalidStatement::Nonce => "it has a nonce, which an ID token has and a logout token never",
        InvalidStatement::Events => "its events are no object with the event of a logout",
        InvalidStatement::Subject => "it names neither a session nor a user of this issuer",
    }
}

pub(crate) async fn backchannel_logout(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, client, body) = body::receive(&app, request).await;
    let form = if body::is_of_type(&parts.headers, SECURITY_EVENT) {
        Form::SecurityEvent
    } else {
        Form::LogoutToken
    };
    // Errors of the body are counted below, together with the errors of the token.
    let token = match body {
        Ok(body) => read_token(form, &parts.headers, &body),
        Err(error) => Err(error.into()),
    };
    let ended = match token {
        Ok(token) => end(&app, form, &token, client).await,
        Err(error) => Err(error),
    };
    app.metrics.statement(match &ended {
        Ok(outcome) => *outcome,
        Err(not_ended) if not_ended.error.is_for_now() => StatementOutcome::Unavailable,
        Err(_) => StatementOutcome::Rejected,
    });
    // Each form has its own responses: OAuth errors, or those of RFC 8935.
    match (form, ended) {
        (Form::LogoutToken, Ok(_)) => empty(StatusCode::OK),
        (Form::SecurityEvent, Ok(_)) => empty(StatusCode::ACCEPTED),
        (Form::LogoutToken, Err(not_ended)) => oauth::error(not_ended.error),
        (Form::SecurityEvent, Err(not_ended)) => event_error(&not_ended),
    }
}

fn read_token(form: Form, headers: &HeaderMap, body: &[u8]) -> Result<String, NotEnded> {
    match form {
        Form::LogoutToken => match oauth::parse_form(headers, body)?.value("logout_token") {
            Some(token) => Ok(token.to_owned()),
            None => Err(Rejection::ParameterMissing.into()),
        },
        Form::SecurityEvent => {
            body::check_coding(headers)?;
            match str::from_utf8(body) {
                Ok(token) => Ok(token.trim().to_owned()),
                Err(_) => Err(InvalidStatement::from(InvalidToken::Malformed).into()),
            }
        }
    }
}

/// Ends the sessions that the statement names, once.
async fn end(
    app: &Arc<App>,
    form: Form,
    token: &str,
    client: IpAddr,
) -> Result<StatementOutcome, NotEnded> {
    let verified = match issuer_of(app, token) {
        Ok(issuer) => {
            // A client with too many wrong statements begins no fetch of newer keys.
            let may_fetch = || app.check_guess(client);
            issuer.verified(form, token, app.now(), may_fetch).await
        }
        Err(invalid) => Err(InvalidStatement::from(invalid).into()),
    };
    let statement = match verified {
        Ok(statement) => statement,
        Err(NotVerified::Invalid(invalid)) => {
            app.count_guess(client)?;
            log_found_names(invalid, token);
            return Err(invalid.into());
        }
        Err(NotVerified::Limited(wait)) => return Err(wait.into()),
        Err(NotVerified::NoKeys) => return Err(Rejection::AuthKeysUnavailable.into()),
    };
    let is_repeated = app.revocations.statement(&statement.digests.id).is_some();
    if is_repeated || statement.is_without_effect() {
        // New statements have no limit: an issuer that logs everyone out at once does not send them again.
        app.count_proven(client)?;
    }
    if statement.is_without_effect() {
        return Ok(StatementOutcome::Ignored);
    }
    let (app, store) = (Arc::clone(app), app.store_for(client));
    // The commit runs to its end even if the client hangs up.
    let ending = async move { statement.end_once(&app.revocations, &store).await };
    match to_the_end(ending).await {
        Ok(Some(outcome)) => Ok(outcome),
        Ok(None) => Err(InvalidStatement::IdUsed.into()),
        Err(error) => Err(store_rejection(&error, "a logout at another issuer is not done").into()),
    }
}

/// Returns the issuer that a token names; no part of the token is verified.
fn issuer_of<'a>(app: &'a App, token: &str) -> Result<&'a ForeignIssuer, InvalidToken> {
    let named = unverified_issuer(Bearer::new(token)?)?;
    for issuer in &app.config.foreign_issuers {
        if named.as_deref() == Some(issuer.issuer()) {
            return Ok(issuer);
        }
    }
    Err(InvalidToken::Issuer)
}

/// Logs the names in a statement that fits no table: most often a name differs by a slash, or is another
/// client's. No part of the statement is verified.
fn log_found_names(invalid: InvalidStatement, token: &str) {
    use InvalidToken::{Audience, Issuer};
    let InvalidStatement::Token(Issuer | Audience) = invalid else {
        return;
    };
    let Some(decoded) = DecodedToken::decode(token) else {
        return;
    };
    let found = |claim| match decoded.claims.get(claim)? {
        Value::String(name) => Some(LogText(name).to_string()),
        other => Some(LogText(&other.to_string()).to_string()),
    };
    info!(
        iss = found("iss"),
        aud = found("aud"),
        cause = describe(invalid),
        "a logout at another issuer does not count"
    );
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

/// Returns an error as RFC 8935 §2.3 writes it.
fn event_error(not_ended: &NotEnded) -> Response {
    let body = json!({"err": not_ended.code, "description": not_ended.error.description});
    let mut response = response::rejection(not_ended.error);
    *response.body_mut() = Body::from(body.to_string());
    response
}
