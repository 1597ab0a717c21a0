//! Header fields that hold a list (RFC 9110 §5.6.1), what `Connection` says about others, and fields that a
//! client has no say in.

use http::header::{self, HeaderMap, HeaderName};
use pingora::http::RequestHeader;

/// The members of all fields of the name. By bytes: one that is not ASCII does not hide the others.
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

/// Whether the byte may stand in a name (RFC 9110 §5.6.2).
pub(crate) fn is_tchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The fields that `Connection` names: they are for the next hop only (RFC 9110 §7.6.1).
pub(crate) fn connection_headers(headers: &HeaderMap) -> Vec<HeaderName> {
    members(headers, &header::CONNECTION)
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .collect()
}

/// Removes every field whose name is one that the service must not get from a client.
pub(crate) fn remove_where(request: &mut RequestHeader, is_one: impl Fn(&str) -> bool) {
    let names = request.headers.keys();
    let theirs: Vec<HeaderName> = names
        .filter(|name| is_one(name.as_str()))
        .cloned()
        .collect();
    for name in &theirs {
        request.remove_header(name);
    }
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
