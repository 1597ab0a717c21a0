//! Header fields that hold a list (RFC 9110 §5.6.1), and the options of `Connection`.

use http::header::{self, HeaderMap, HeaderName};

/// Returns the members of all fields of the name, as bytes: a non-ASCII one does not hide the
/// others.
pub(crate) fn members<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'h [u8]> {
    headers
        .get_all(name)
        .into_iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
}

/// Returns true for a byte of a token (RFC 9110 §5.6.2).
pub(crate) fn is_tchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns the fields that `Connection` names: they are for the next hop only (RFC 9110 §7.6.1).
pub(crate) fn connection_headers(headers: &HeaderMap) -> Vec<HeaderName> {
    members(headers, &header::CONNECTION)
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn each_member_of_each_field_is_found() {
        let mut headers = HeaderMap::new();
        for value in [&b"Keep-Alive , x-a"[..], b"\xe9, X-B", b""] {
            headers.append(
                header::CONNECTION,
                HeaderValue::from_bytes(value).unwrap_or_else(|error| unreachable!("{error}")),
            );
        }
        let all: Vec<_> = members(&headers, &header::CONNECTION).collect();
        assert_eq!(all, [&b"Keep-Alive"[..], b"x-a", b"\xe9", b"X-B", b""]);
        assert_eq!(connection_headers(&headers), ["keep-alive", "x-a", "x-b"]);
    }
}
