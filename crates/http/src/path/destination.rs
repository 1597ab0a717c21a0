//! The `Destination` of COPY and MOVE (RFC 4918 §10.3), a second path of a request.

use http::{HeaderMap, HeaderName, Method};

use crate::invalid::InvalidRequest;
use crate::methods::certain_method;
use crate::only_field::only_field;
use crate::path::canonical::RequestPath;

const DESTINATION: HeaderName = HeaderName::from_static("destination");

/// The destination of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination<'h> {
    /// As a URI, unless it is a path alone.
    uri: Option<AbsoluteForm<'h>>,
    /// The raw path without the query.
    pub path: &'h [u8],
}

impl<'h> Destination<'h> {
    /// Returns the destination of a request whose method may be COPY or MOVE.
    ///
    /// # Errors
    /// [`InvalidRequest::Destination`] for more than one, and for one without a path that a request
    /// could have.
    pub fn from_request(
        method: &Method,
        headers: &'h HeaderMap,
    ) -> Result<Option<Self>, InvalidRequest> {
        let field = only_field(headers, &DESTINATION);
        if matches!(field, Ok(None)) {
            return Ok(None);
        }
        let certain = certain_method(method, headers).map(Method::as_str);
        // A method that is not certain may be carried out as one of them.
        if !matches!(certain, None | Some("COPY" | "MOVE")) {
            return Ok(None);
        }
        let destination = match field {
            Ok(Some(value)) => Self::parse(value.as_bytes()),
            _ => None,
        };
        destination.map(Some).ok_or(InvalidRequest::Destination)
    }

    fn parse(value: &'h [u8]) -> Option<Self> {
        let uri = AbsoluteForm::parse(value);
        let target = match uri {
            Some(uri) => uri.target,
            None => value,
        };
        // `//host/path` names another host; only some parsers cut a fragment off.
        if target.starts_with(b"//") || target.contains(&b'#') {
            return None;
        }
        let path = match target.split(|&byte| byte == b'?').next()? {
            b"" if uri.is_some() => b"/",
            path => path,
        };
        if RequestPath::parse(path).ok()?.hides_separators() {
            return None;
        }
        Some(Self { uri, path })
    }

    /// Checks that the destination is on the host of the request.
    ///
    /// # Errors
    /// [`InvalidRequest::Destination`]
    pub fn check_host(&self, host: Option<&[u8]>) -> Result<(), InvalidRequest> {
        match &self.uri {
            Some(uri) if !uri.is_on(host) => Err(InvalidRequest::Destination),
            _ => Ok(()),
        }
    }
}

/// Removes the default port of a scheme, or an empty one (RFC 9110 §4.2.3).
fn without_port<'a>(authority: &'a [u8], port: &[u8]) -> &'a [u8] {
    let host = authority.strip_suffix(port).unwrap_or(authority);
    match host.strip_suffix(b":") {
        Some(host) => host,
        None => authority,
    }
}

/// An `http` URI with an authority, in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbsoluteForm<'a> {
    /// The host and the port.
    pub authority: &'a [u8],
    default_port: &'static [u8],
    /// The rest, which may be empty.
    pub target: &'a [u8],
}

impl<'a> AbsoluteForm<'a> {
    /// Reads `http://host/path?query`; `None` for another scheme and without a host.
    pub fn parse(uri: &'a [u8]) -> Option<Self> {
        let (scheme, rest) = uri.split_at(uri.windows(3).position(|bytes| bytes == b"://")?);
        let default_port: &[u8] = match scheme {
            scheme if scheme.eq_ignore_ascii_case(b"http") => b"80",
            scheme if scheme.eq_ignore_ascii_case(b"https") => b"443",
            _ => return None,
        };
        let rest = rest.get(3..)?;
        // A query may follow the authority without a path.
        let ends = |byte: &u8| matches!(byte, b'/' | b'?');
        let (authority, target) = rest.split_at(rest.iter().position(ends).unwrap_or(rest.len()));
        if authority.is_empty() {
            return None;
        }
        Some(Self {
            authority,
            default_port,
            target,
        })
    }

    /// Returns true if it is on the host of a request: letter case and the default port make no
    /// difference (RFC 9110 §4.2.3).
    #[must_use]
    pub fn is_on(&self, host: Option<&[u8]>) -> bool {
        let own = without_port(self.authority, self.default_port);
        match host {
            Some(host) => without_port(host, self.default_port).eq_ignore_ascii_case(own),
            None => false,
        }
    }

    /// Returns the host in lower case, and its port unless it is the default one.
    #[must_use]
    pub fn host(&self) -> Vec<u8> {
        without_port(self.authority, self.default_port).to_ascii_lowercase()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use http::HeaderValue;

    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let value = |value: &&str| (DESTINATION, HeaderValue::from_str(value).unwrap());
        values.iter().map(value).collect()
    }

    #[test]
    fn a_destination_is_a_path_of_this_host() {
        let malformed = Err(InvalidRequest::Destination);
        for (values, expected) in [
            (&[][..], Ok(None)),
            (&["/orders/a"], Ok(Some("/orders/a"))),
            (&["/a?b=/c"], Ok(Some("/a"))),
            (&["http://a:81/orders/x"], Ok(Some("/orders/x"))),
            (&["HTTPS://A:81"], Ok(Some("/"))),
            (&["http://b/x"], malformed),
            (&["http://a/x"], malformed),
            (&["http://u@a:81/x"], malformed),
            (&["ftp://a:81/x"], malformed),
            (&["//a:81/x"], malformed),
            (&["x"], malformed),
            (&[""], malformed),
            (&["/a/../b"], malformed),
            (&["http://a:81/%2e%2e/b"], malformed),
            (&["/a#b"], malformed),
            (&["/a", "/b"], malformed),
        ] {
            let headers = headers(values);
            let found = Destination::from_request(&Method::from_bytes(b"MOVE").unwrap(), &headers);
            let found = found.and_then(|found| {
                let Some(found) = found else { return Ok(None) };
                found.check_host(Some(b"a:81"))?;
                Ok(Some(std::str::from_utf8(found.path).unwrap()))
            });
            assert_eq!(found, expected, "{values:?}");
        }
    }

    #[test]
    fn a_default_port_may_be_left_out() {
        for (uri, host, same) in [
            ("http://a", "a:80", true),
            ("https://a:443", "a", true),
            ("https://a:", "A", true),
            ("https://a:80", "a", false),
            ("http://a1:80", "a1", true),
            ("http://a80", "a80", true),
            ("http://a80", "a", false),
            ("http://[::1]:80", "[::1]", true),
        ] {
            let destination = Destination::parse(uri.as_bytes()).unwrap();
            let checked = destination.check_host(Some(host.as_bytes()));
            assert_eq!(checked.is_ok(), same, "{uri} {host}");
        }
    }

    #[test]
    fn only_a_method_that_may_copy_or_move_has_a_destination() {
        for (method, field, has_one) in [
            ("COPY", "accept", true),
            ("move", "accept", true),
            ("POST", "x-rest-method", true),
            ("GET", "accept", false),
            ("PUT", "accept", false),
        ] {
            let mut headers = headers(&["/a"]);
            headers.insert(field, HeaderValue::from_static("COPY"));
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let found = Destination::from_request(&method, &headers).unwrap();
            assert_eq!(found.is_some(), has_one, "{method} {field}");
        }
    }
}
