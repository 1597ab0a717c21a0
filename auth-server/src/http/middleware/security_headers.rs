//! What every answer of the public port tells a browser. An answer that says something of its own
//! about one of these is left alone.

use axum::response::Response;
use http::header::{HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use http::{HeaderMap, HeaderValue};

const HEADERS: [(HeaderName, HeaderValue); 3] = [
    // An answer is what its media type says, and nothing else.
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    // Other sites must not draw a page of ours into theirs; a static page of the company may be
    // framed by another one beside it.
    (X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN")),
    // A path may hold what is nobody else's business.
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
];

/// The outermost layer.
pub(crate) async fn security_headers(mut response: Response) -> Response {
    add(response.headers_mut());
    response
}

pub(crate) fn add(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_added_and_what_is_there_stays() {
        let mut headers = HeaderMap::new();
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("origin"));
        add(&mut headers);
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "SAMEORIGIN"),
            ("referrer-policy", "origin"),
        ] {
            assert_eq!(
                headers.get(name).map(HeaderValue::as_bytes),
                Some(value.as_bytes())
            );
        }
    }
}
