//! The fields of requests in unit tests.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use http::{HeaderMap, HeaderName, HeaderValue};

/// Returns these fields in their order.
///
/// # Panics
/// For what is no field.
#[must_use]
pub fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let field = |(name, value): &(&str, &str)| {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        (name, HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    fields.iter().map(field).collect()
}
