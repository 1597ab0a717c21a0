//! Header names that a CGI-style service cannot distinguish: PHP, WSGI and CGI turn each name into a
//! variable.

use http::{HeaderMap, HeaderName};

/// Returns true if both names become the same variable (RFC 3875 §4.1.18 and common practice):
/// letters regardless of case, everything else but digits as `_`.
#[must_use]
pub fn cgi_equal(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().map(cgi_byte).eq(other.bytes().map(cgi_byte))
}

/// Returns true if a field has one of these names, or one that becomes the same variable.
#[must_use]
pub fn has_any(headers: &HeaderMap, names: &[&str]) -> bool {
    let is_one = |name: &HeaderName| names.iter().any(|other| cgi_equal(name.as_str(), other));
    headers.keys().any(is_one)
}

const fn cgi_byte(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() {
        byte.to_ascii_lowercase()
    } else {
        b'_'
    }
}
