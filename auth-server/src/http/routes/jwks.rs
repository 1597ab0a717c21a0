//! `GET {ctx}/.well-known/jwks.json`: a JWK Set (RFC 7517), without an envelope, of every key that
//! may sign now or soon. Public keys only; 404 in hmac mode.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use postern_contract::rejection::Rejection;

use crate::http::app::App;
use crate::http::response::ErrorResponse;

/// The media type of a JWK Set (RFC 7517 §8.5.2).
const JWK_SET: HeaderValue = HeaderValue::from_static("application/jwk-set+json");

/// The cache lifetime is [`crate::config::MAX_AGE_SECONDS`].
const CACHEABLE: HeaderValue = HeaderValue::from_static("public, max-age=15, must-revalidate");

pub(crate) async fn jwks(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ErrorResponse> {
    let keys = app.keys()?;
    // With HMAC there is no set: its key is a secret.
    let set = keys.jwk_set.as_ref().ok_or(Rejection::NotFound)?;
    let mut response = Response::new(Body::empty());
    if matches_etag(request.headers(), &set.etag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        *response.body_mut() = Body::from(set.json.clone());
        response.headers_mut().insert(CONTENT_TYPE, JWK_SET);
    }
    let fields = response.headers_mut();
    fields.insert(ETAG, set.etag.clone());
    fields.insert(CACHE_CONTROL, CACHEABLE);
    Ok(response)
}

/// Returns true if the caller has this version (RFC 9110 §13.1.2: weak comparison, `*` matches
/// any).
fn matches_etag(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .flat_map(|field| field.as_bytes().split(|&b| b == b','))
        .map(<[u8]>::trim_ascii)
        .any(|tag| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == etag.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MAX_AGE_SECONDS;

    #[test]
    fn a_version_is_known_by_its_tag_in_any_list() {
        let etag = HeaderValue::from_static("\"abc\"");
        for (fields, known) in [
            (&[][..], false),
            (&["\"abc\""], true),
            (&["W/\"abc\""], true),
            (&["*"], true),
            (&["\"x\", \"abc\" ,\"y\""], true),
            (&["\"x\"", "\"abc\""], true),
            (&["abc"], false),
            (&["\"x\""], false),
            (&[""], false),
        ] {
            let headers = fields
                .iter()
                .map(|field| (IF_NONE_MATCH, HeaderValue::from_static(field)))
                .collect();
            assert_eq!(matches_etag(&headers, &etag), known, "{fields:?}");
        }
    }

    #[test]
    fn the_freshness_that_is_counted_with_is_the_one_that_is_sent() {
        let sent = format!("public, max-age={MAX_AGE_SECONDS}, must-revalidate");
        assert_eq!(CACHEABLE, sent);
    }
}
