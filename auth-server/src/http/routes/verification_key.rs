//! `GET {ctx}/client/user/secret/key` (contract §4.3): the verification key, for applications.
//!
//! The response has no `ETag`: the application is checked either way, and a 304 has no `success`
//! that the contract's clients look for.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::response::Response;
use http::header::LINK;
use http::{HeaderMap, HeaderName, HeaderValue};
use postern_contract::rejection::Rejection;

use super::{JWKS_PATH, REVOCATIONS_PATH};
use crate::http::app::{App, ClientIp};
use crate::http::response::{self, ErrorResponse};
use crate::keys::published::PublishedKeys;
use crate::telemetry::audit::{self, RequestEvent, RequestLine};
use crate::telemetry::metrics::OK;

/// Parameters of a query, which is encoded as a form.
type Pairs = Vec<(String, String)>;

/// A query parameter of the contract, and the header field in its place, which proxies do not log.
struct Parameter {
    name: &'static str,
    field: &'static str,
}

const APP_ID: Parameter = Parameter {
    name: "appId",
    field: "x-app-id",
};
const APP_SECRET: Parameter = Parameter {
    name: "appSecret",
    field: "x-app-secret",
};

/// The field with the `aud` of our tokens: a sidecar that rejects them logs a warning at its start.
const TOKEN_AUDIENCE: HeaderName = HeaderName::from_static("token-audience");

pub(crate) async fn verification_key(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ErrorResponse> {
    let Query(query) = Query::<Pairs>::try_from_uri(request.uri()).unwrap_or_default();
    let app_id = APP_ID.read(&query, request.headers());
    let app_secret = APP_SECRET.read(&query, request.headers());
    let client = ClientIp::added_to(request.extensions());
    let outcome = key_for(&app, app_id.zip(app_secret), client);

    let (event, code) = match &outcome {
        Ok(_) => (RequestEvent::KeyRetrieved, OK),
        Err(rejected) => (RequestEvent::KeyRejected, rejected.rejection.reason()),
    };
    let app_id = app_id.unwrap_or_default();
    let app_secret = app_secret.unwrap_or_default();
    let registrations = &app.registrations;
    audit::request(&RequestLine {
        event,
        grant: None,
        app_id: Some(&registrations.logged_id(app_id, app_secret, outcome.is_ok())),
        account: None,
        client,
        outcome: code,
        scope: None,
        token: None,
        ids: request.extensions().get(),
    });
    let registered_id = registrations.registered_id(app_id);
    app.metrics
        .key_retrieval(registered_id.map(|id| id.to_string()), code);
    Ok(key_response(&app, &*outcome?))
}

/// Returns the key response, with links (RFC 8288) to the revocation list and, except for hmac, the JWK Set.
fn key_response(app: &App, keys: &PublishedKeys) -> Response {
    let mut response = response::prepared(keys.key_response.clone());
    let context = &app.config.context_path;
    // The secret of hmac is in no JWK Set.
    let jwks = keys.jwk_set.as_ref().map(|_| (JWKS_PATH, "jwks"));
    for (path, rel) in jwks.into_iter().chain([(REVOCATIONS_PATH, "revocations")]) {
        // A context path holds no character that a field may not have.
        if let Ok(link) = HeaderValue::try_from(format!("<{context}{path}>; rel=\"{rel}\"")) {
            response.headers_mut().append(LINK, link);
        }
    }
    let audience = &app.config.issuer.audience;
    if !audience.is_empty()
        && let Ok(names) = HeaderValue::try_from(audience.join(", "))
    {
        response.headers_mut().insert(TOKEN_AUDIENCE, names);
    }
    response
}

fn key_for(
    app: &App,
    pair: Option<(&str, &str)>,
    client: IpAddr,
) -> Result<Arc<PublishedKeys>, ErrorResponse> {
    let (app_id, app_secret) = pair.ok_or(Rejection::ParameterMissing)?;
    let authorized = app.registrations.authorize(app_id, app_secret);
    // Only wrong pairs count as guesses: sidecars fetch keys often.
    if authorized == Err(Rejection::ApplicationUnknown) {
        app.count_guess(client)?;
    }
    authorized?;
    Ok(app.keys()?)
}

impl Parameter {
    /// Returns the value in the query or else in the header field; `None` where it is absent, empty, not
    /// ASCII in a field, or repeated.
    fn read<'r>(&self, query: &'r [(String, String)], headers: &'r HeaderMap) -> Option<&'r str> {
        let in_query: Vec<_> = query.iter().filter(|(key, _)| key == self.name).collect();
        let in_fields: Vec<_> = headers.get_all(self.field).iter().collect();
        match (in_query.as_slice(), in_fields.as_slice()) {
            ([(_, value)], _) if !value.is_empty() => Some(value),
            ([], [value]) if !value.is_empty() => value.to_str().ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use http::HeaderName;

    use super::*;

    fn value(query: &str, fields: &[&'static str]) -> Option<String> {
        let name = HeaderName::from_static("x-app-id");
        let headers = fields
            .iter()
            .map(|value| (name.clone(), HeaderValue::from_static(value)))
            .collect();
        let uri = format!("/?{query}").parse().unwrap();
        let Query(query) = Query::<Pairs>::try_from_uri(&uri).unwrap_or_default();
        APP_ID.read(&query, &headers).map(str::to_owned)
    }

    #[test]
    fn contract_4_3_parameters_stand_in_the_query() {
        for (query, expected) in [
            ("appId=orders", Some("orders")),
            ("x=1&appId=a%20b%26c&y", Some("a b&c")),
            ("appId=gr%C3%B6%C3%9Fe", Some("größe")),
            ("", None),
            ("appId", None),
            ("appId=", None),
            ("appid=orders", None),
            ("appId=a&appId=a", None),
        ] {
            assert_eq!(value(query, &[]).as_deref(), expected, "{query}");
        }
    }

    #[test]
    fn header_fields_stand_in_where_the_query_is_silent() {
        assert_eq!(value("", &["orders"]).as_deref(), Some("orders"));
        assert_eq!(value("appId=query", &["field"]).as_deref(), Some("query"));
        assert_eq!(value("", &["a", "a"]), None);
        assert_eq!(value("", &[""]), None);
        assert_eq!(value("appId=", &["field"]), None);
    }
}
