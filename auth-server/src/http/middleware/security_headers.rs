//! Browser headers of every response on the public port, unless the response sets its own.

use http::header::{HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use http::{HeaderMap, HeaderValue};

const HEADERS: [(HeaderName, HeaderValue); 3] = [
    // A response is only of its declared media type.
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    // Other sites must not frame our pages; pages of the same site may.
    (X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN")),
    // A path may hold private data.
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
];

pub(crate) fn add(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(value);
    }
}
