//! Rejects an HTTP/2 head that would become another message on its way to an HTTP/1.1 service
//! (RFC 9113 §8.2.2, §8.3.1, §10.3), with the reason codes of HTTP/1.1.
//!
//! The `h2` crate resets most such streams; these checks do not rely on it.

use crate::invalid::InvalidRequest;
use http::HeaderMap;

use crate::request::hop_by_hop::is_of_a_connection;
use crate::request::{MAX_HEAD_BYTES, MAX_HEAD_LINES};

/// Twice [`MAX_HEAD_BYTES`]: past that a client gets an envelope, past this the bare 431 of `h2`,
/// which is not counted.
pub const LIBRARY_MAX_HEAD_BYTES: u32 = 2 * MAX_HEAD_BYTES as u32;

/// Checks a request head; `target` is its `:path`.
pub(super) fn check(target: &[u8], headers: &HeaderMap) -> Result<(), InvalidRequest> {
    if bytes(headers) + target.len() > MAX_HEAD_BYTES || headers.len() > MAX_HEAD_LINES {
        return Err(InvalidRequest::HeaderTooLarge);
    }
    // `crate::framing` accepts `Transfer-Encoding: chunked`.
    for name in headers.keys() {
        if is_of_a_connection(name.as_str()) {
            return Err(InvalidRequest::Framing);
        }
    }
    check_values(headers)
}

/// Rejects a value with a blank at an end, which HTTP/1.1 drops and for which a service may end the
/// connection (RFC 9113 §8.2.1).
pub fn check_values(fields: &HeaderMap) -> Result<(), InvalidRequest> {
    for value in fields.values() {
        if let [b' ' | b'\t', ..] | [.., b' ' | b'\t'] = value.as_bytes() {
            return Err(InvalidRequest::Malformed);
        }
    }
    Ok(())
}

/// Returns the size of the fields as HTTP/1.1 would send them.
fn bytes(headers: &HeaderMap) -> usize {
    const COLON_BLANK_CR_LF: usize = 4;
    let mut bytes = 0;
    for (name, value) in headers {
        bytes += name.as_str().len() + value.len() + COLON_BLANK_CR_LF;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};

    use super::*;

    #[test]
    fn a_value_begins_and_ends_without_a_blank() {
        for (value, expected) in [
            ("a b", Ok(())),
            ("", Ok(())),
            (" a", Err(InvalidRequest::Malformed)),
            ("a\t", Err(InvalidRequest::Malformed)),
            (" ", Err(InvalidRequest::Malformed)),
        ] {
            let field = (header::VIA, HeaderValue::from_static(value));
            let checked = check_values(&HeaderMap::from_iter([field]));
            assert_eq!(checked, expected, "{value:?}");
        }
    }
}
