//! Header fields that hold a list (RFC 9110 §5.6.1).

use http::header::{HeaderMap, HeaderName};

/// Returns the members of all fields of the name, as bytes: a non-ASCII one does not hide the
/// others.
pub fn members<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h [u8]> {
    headers
        .get_all(name)
        .into_iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};

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
    }
}
