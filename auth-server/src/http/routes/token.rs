//! `POST {ctx}/oauth/token`: access tokens for registered applications, by their own credentials (RFC
//! 6749 §4.4), and for users who have a refresh token (§6).

mod refresh;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::HeaderMap;
use serde::Serialize;
use tracing::warn;
use wire::api::form::Form;
use wire::keys::KeyId;
use wire::rejection::Rejection;

use crate::app::App;
use crate::audit::{self, TokenLine};
use crate::grants::{Grant, Scope};
use crate::http::body::{self, Received};
use crate::http::issuance::internal_error;
use crate::http::oauth::{self, Presented};
use crate::http::response::ErrorResponse;
use crate::metrics::OK;
use crate::random;
use crate::tokens::issuer::Machine;

const NO_AUDIENCE: &str = "this application has no audience: auth-server application grant --app-id ID --audience NAME gives it one";
pub(crate) const TOKEN_PATH: &str = "/oauth/token";

pub(crate) const CLIENT_CREDENTIALS: &str = "client_credentials";
pub(crate) const REFRESH_TOKEN: &str = "refresh_token";
/// Label of everything else that clients send as a grant type: they must not create labels.
const OTHER_GRANT: &str = "other";

/// Characters of an unknown id that are logged.
const MAX_UNKNOWN_ID: usize = 8;

/// The response of RFC 6749 §5.1.
#[derive(Serialize)]
struct AccessTokenResponse {
    access_token: String,
    token_type: &'static str,
    expires_in: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
}

/// An issued token with the ids for the audit line.
struct Issued {
    response: AccessTokenResponse,
    /// The user's, unless an application got it.
    account: Option<String>,
    token_id: String,
    key_id: KeyId,
}

pub(crate) async fn token(State(app): State<Arc<App>>, request: Request) -> Response {
    let Received {
        parts,
        client,
        body,
    } = body::receive(&app, request).await;
    let form = body
        .map_err(ErrorResponse::from)
        .and_then(|body| oauth::parse_form(&parts.headers, &body));
    let granted = form.and_then(|form| GrantRequest::read(&app, &parts.headers, form));
    let outcome = match &granted {
        Ok(granted) => issue(&app, granted, client).await,
        Err(error) => Err(*error),
    };

    let code = outcome
        .as_ref()
        .map_or_else(|error| error.rejection.reason(), |_| OK);
    let grant = granted.as_ref().map_or(OTHER_GRANT, GrantRequest::grant);
    app.metrics().token_request(grant, code);
    let issued = outcome.as_ref().ok();
    audit::token(&TokenLine {
        grant,
        app_id: &granted
            .as_ref()
            .map_or_else(|_| "".into(), |it| it.logged_id(&app)),
        account: issued.and_then(|issued| issued.account.as_deref()),
        client,
        outcome: code,
        scope: issued.and_then(|issued| issued.response.scope.as_deref()),
        token_id: issued.map(|issued| issued.token_id.as_str()),
        key_id: issued.map(|issued| &issued.key_id),
        ids: &parts.extensions.get().cloned().unwrap_or_default(),
    });
    match outcome {
        Ok(issued) => oauth::success(&issued.response),
        Err(error) => oauth::error(error),
    }
}

enum GrantRequest {
    /// A form with the credentials of an application.
    Application(Form, Presented),
    /// The form of a user's client, which has no credentials.
    Refresh(Form),
}

impl GrantRequest {
    /// Checks the grant first: to another one no credentials would help.
    fn read(app: &App, headers: &HeaderMap, form: Form) -> Result<Self, ErrorResponse> {
        match form.value("grant_type") {
            Some(REFRESH_TOKEN) if app.config.refresh_tokens => {
                refresh::check_client(headers, &form)?;
                Ok(Self::Refresh(form))
            }
            Some(CLIENT_CREDENTIALS) => {
                let presented = Presented::read(headers, &form)?;
                Ok(Self::Application(form, presented))
            }
            Some(_) => Err(Rejection::GrantUnsupported.into()),
            None => Err(Rejection::ParameterMissing.into()),
        }
    }

    /// Returns the grant type as a label.
    fn grant(&self) -> &'static str {
        match self {
            Self::Refresh(_) => REFRESH_TOKEN,
            Self::Application(..) => CLIENT_CREDENTIALS,
        }
    }

    /// Cuts what is no id to a half: users send their password as one.
    fn logged_id(&self, app: &App) -> Cow<'_, str> {
        match self {
            Self::Refresh(_) => "".into(),
            Self::Application(_, presented) => {
                let (id, secret) = presented.first();
                let half = id.chars().count() / 2;
                let registrations = &app.synced.registrations;
                registrations.logged_id(id, secret, half.min(MAX_UNKNOWN_ID))
            }
        }
    }
}

async fn issue(app: &App, granted: &GrantRequest, client: IpAddr) -> Result<Issued, ErrorResponse> {
    // Before the keys are there, revocations may not be either.
    app.check_key()?;
    let issued = match granted {
        GrantRequest::Application(form, presented) => {
            issue_to_application(app, form, presented, client)
        }
        GrantRequest::Refresh(form) => refresh::refresh(app, form, client).await,
    };
    // After the check: guesses of one client at an address keep no other from what is its own.
    if let Err(error) = &issued
        && matches!(
            error.rejection,
            Rejection::GrantInvalid | Rejection::ApplicationUnknown
        )
    {
        app.count_guess(client)?;
    }
    issued
}

fn issue_to_application(
    app: &App,
    form: &Form,
    presented: &Presented,
    client: IpAddr,
) -> Result<Issued, ErrorResponse> {
    // Before the registration is read: a removal is recorded with a later time than this one.
    let now = app.now();
    let registrations = &app.synced.registrations;
    let (id, grant) = registrations.authenticate(&presented.pairs())?;
    app.count_proven(client)?;
    if grant.audience.is_empty() {
        return Err(ErrorResponse::from(Rejection::GrantNotAllowed).described(NO_AUDIENCE));
    }
    if app.users.is_user(id.as_str()) {
        warn!(app_id = %id, "an application has the name of a user: it gets no token");
        return Err(Rejection::GrantNotAllowed.into());
    }
    let scope = scope(form.value("scope"), &grant)?;
    let machine = Machine {
        id: &id,
        grant: &grant,
        scope: &scope,
    };
    let token_id = random::token_id().map_err(|error| internal_error(&error))?;
    let signed =
        app.sign(|issuer, pair| issuer.issue_to_application(pair, machine, now, token_id.clone()))?;
    Ok(Issued {
        response: AccessTokenResponse {
            access_token: signed.token,
            token_type: "Bearer",
            expires_in: app.config.issuer.lifetime,
            refresh_token: None,
            scope: machine.scope.text(),
        },
        account: None,
        token_id,
        key_id: signed.key_id,
    })
}

/// Returns the requested part of what was given, or all of it (RFC 6749 §3.3).
fn scope(requested: Option<&str>, grant: &Grant) -> Result<Scope, Rejection> {
    let Some(requested) = requested else {
        return Ok(grant.scope.clone());
    };
    let requested: Scope = requested.parse().map_err(|_| Rejection::ScopeNotGranted)?;
    if requested.is_within(&grant.scope) {
        Ok(requested)
    } else {
        Err(Rejection::ScopeNotGranted)
    }
}
