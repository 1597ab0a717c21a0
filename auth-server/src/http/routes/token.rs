//! `POST {ctx}/oauth/token`: access tokens for registered applications, by their own credentials (RFC
//! 6749 §4.4), and for users who have a refresh token (§6).

mod refresh;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::request::Parts;
use postern_contract::rejection::Rejection;
use postern_http::form::Form;
use tracing::warn;

use crate::accounts::grants::{Audience, Grant, Scope};
use crate::http::app::App;
use crate::http::body;
use crate::http::issuance::token_id;
use crate::http::oauth::{self, AccessToken, Presented};
use crate::http::possession::Possession;
use crate::http::response::ErrorResponse;
use crate::http::routes::TOKEN_PATH;
use crate::telemetry::audit::events::TokenIds;
use crate::telemetry::audit::{self, RequestEvent, RequestLine};
use crate::telemetry::metrics::OK;
use crate::tokens::issuer::TokenIdentity;

const NO_AUDIENCE: &str = "this application has no audience: auth-server application grant --app-id ID --audience NAME gives it one";
pub(crate) const CLIENT_CREDENTIALS: &str = "client_credentials";
pub(crate) const REFRESH_TOKEN: &str = "refresh_token";
/// Label of every other grant type: clients must not create labels.
const OTHER_GRANT: &str = "other";

/// An issued token with the ids for the audit line.
struct Issued {
    response: AccessToken,
    /// The account of the user; `None` for an application's token.
    account: Option<String>,
    ids: TokenIds,
}

pub(crate) async fn token(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, client, body) = body::receive(&app, request).await;
    let granted = match body {
        Ok(body) => GrantRequest::read(&app, &parts, &body),
        Err(error) => Err(error.into()),
    };
    // Success and error meet here, so that each request has one count and one audit line.
    let outcome = match &granted {
        Ok(granted) => issue(&app, granted, client).await,
        Err(error) => Err(*error),
    };

    let (event, code) = match &outcome {
        Ok(_) => (RequestEvent::TokenIssued, OK),
        Err(error) => (RequestEvent::TokenRejected, error.rejection.reason()),
    };
    let grant = granted.as_ref().map_or(OTHER_GRANT, GrantRequest::grant);
    app.metrics.token_request(grant, code);
    let issued = outcome.as_ref().ok();
    let app_id = granted.as_ref().map(|granted| granted.logged_id(&app));
    audit::request(&RequestLine {
        event,
        grant: Some(grant),
        app_id: Some(&app_id.unwrap_or_default()),
        account: issued.and_then(|issued| issued.account.as_deref()),
        client,
        outcome: code,
        scope: issued.and_then(|issued| issued.response.scope.as_deref()),
        token: issued.map(|issued| &issued.ids),
        ids: parts.extensions.get(),
    });
    match outcome {
        Ok(issued) => oauth::success(&issued.response),
        Err(error) => oauth::error(error),
    }
}

struct GrantRequest<'r> {
    form: Form,
    /// The credentials of an application; `None` for the client of a user, which has no credentials.
    presented: Option<Presented>,
    possession: Possession<'r>,
}

impl<'r> GrantRequest<'r> {
    /// Reads a request. The grant type is checked first: with an unsupported one no credentials would help.
    fn read(app: &App, parts: &'r Parts, body: &[u8]) -> Result<Self, ErrorResponse> {
        let headers = &parts.headers;
        let form = oauth::parse_form(headers, body)?;
        let presented = match form.value("grant_type") {
            // A grant that is switched off is as unsupported as an unknown one.
            Some(REFRESH_TOKEN) if app.config.refresh_tokens => {
                refresh::check_client(headers, &form)?;
                None
            }
            Some(CLIENT_CREDENTIALS) => Some(Presented::read(headers, &form)?),
            Some(_) => return Err(Rejection::GrantUnsupported.into()),
            None => return Err(Rejection::ParameterMissing.into()),
        };
        Ok(Self {
            form,
            presented,
            possession: Possession {
                parts,
                path: TOKEN_PATH,
            },
        })
    }

    /// Returns the grant type as a label.
    fn grant(&self) -> &'static str {
        match self.presented {
            None => REFRESH_TOKEN,
            Some(_) => CLIENT_CREDENTIALS,
        }
    }

    fn logged_id(&self, app: &App) -> Cow<'_, str> {
        match self.presented.as_ref().and_then(|it| it.readings().first()) {
            Some(first) => app.registrations.logged_id(&first.id, &first.secret, false),
            None => "".into(),
        }
    }
}

async fn issue(
    app: &App,
    granted: &GrantRequest<'_>,
    client: IpAddr,
) -> Result<Issued, ErrorResponse> {
    // Without keys the revocations may not have been read either.
    app.keys()?;
    let issued = match &granted.presented {
        Some(presented) => issue_to_application(app, granted, presented, client),
        None => refresh::refresh(app, granted, client).await,
    };
    // Counted after the check: guesses of one client must not keep others at its address from their tokens.
    if let Err(error) = &issued
        && matches!(
            error.rejection,
            Rejection::GrantInvalid | Rejection::ApplicationUnknown
        )
    {
        // Over the limit a 429 takes the place of the rejection.
        app.count_guess(client)?;
    }
    issued
}

fn issue_to_application(
    app: &App,
    granted: &GrantRequest<'_>,
    presented: &Presented,
    client: IpAddr,
) -> Result<Issued, ErrorResponse> {
    // Read before the registration: a removal is then recorded with a later time than this token's.
    let now = app.now();
    let (id, mut grant) = app.registrations.authenticate(presented.readings())?;
    // Not the limit of guesses, which other clients at the same address could use up.
    app.count_proven(client)?;
    if grant.audience.is_empty() {
        return Err(ErrorResponse::from(Rejection::GrantNotAllowed).described(NO_AUDIENCE));
    }
    // RFC 9700 §4.15: services could take the application's `sub` for the user of that name.
    if app.users.is_user(id.as_str()) {
        warn!(app_id = %id, "an application has the name of a user: it gets no token");
        return Err(Rejection::GrantNotAllowed.into());
    }
    grant.scope = scope(granted.form.value("scope"), &grant)?;
    grant.audience = audience(app, granted.form.resources(), &grant)?;
    let binding = granted.possession.binding(app, id.as_str(), None)?;
    let (token, ids) = app.sign(token_id()?, |issuer, pair, token_id| {
        issuer.issue_to_application(
            pair,
            &id,
            &grant,
            now,
            TokenIdentity {
                token_id,
                session: None,
                binding,
            },
        )
    })?;
    let lifetime = i64::from(app.config.issuer.lifetime);
    Ok(Issued {
        response: AccessToken {
            scope: grant.scope.text(),
            ..AccessToken::new(token, lifetime, binding.as_ref())
        },
        account: None,
        ids,
    })
}

/// Returns the part of the token's audience that the request names as resources, or the audience of the grant
/// (RFC 8707 §2).
fn audience(app: &App, requested: &[String], grant: &Grant) -> Result<Vec<Audience>, Rejection> {
    if requested.is_empty() {
        return Ok(grant.audience.clone());
    }
    let whole = app.config.issuer.audience(grant);
    let mut named = Vec::new();
    for resource in requested {
        // Resources are compared byte for byte, as verifiers compare `aud`.
        if !whole.contains(resource) || !is_absolute_uri(resource) {
            return Err(Rejection::ResourceNotGranted);
        }
        named.push(
            resource
                .parse()
                .map_err(|_| Rejection::ResourceNotGranted)?,
        );
    }
    Ok(named)
}

/// Returns true for a URI with a scheme and without a fragment (RFC 3986 §4.3).
fn is_absolute_uri(text: &str) -> bool {
    let is_scheme_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let (scheme, _) = text.split_once(':').unwrap_or_default();
    !scheme.is_empty() && scheme.bytes().all(is_scheme_byte) && !text.contains('#')
}

/// Returns the requested part of the granted scope, or the whole scope (RFC 6749 §3.3).
fn scope(requested: Option<&str>, grant: &Grant) -> Result<Scope, Rejection> {
    let Some(requested) = requested else {
        return Ok(grant.scope.clone());
    };
    match requested.parse::<Scope>() {
        Ok(scope) if scope.is_within(&grant.scope) => Ok(scope),
        _ => Err(Rejection::ScopeNotGranted),
    }
}
