//! The input of `explain`: a request from memory, limited to what a client could send.

use http::{HeaderName, HeaderValue, Method};
use serde::{Deserialize, Serialize};

/// The request to explain.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainRequest {
    /// The header block as it would arrive.
    pub(crate) head: String,
    /// Seconds since the epoch; absent: now.
    pub(crate) at: Option<i64>,
}

/// The part that no client can send.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("method: not valid in HTTP")]
    Method,
    #[error("'{0}' is not a request target: it has to begin with a slash")]
    Target(String),
    #[error("target: byte {position} is 0x{byte:02x}, which ends the line; write %{byte:02X}")]
    TargetByte { position: usize, byte: u8 },
    /// The text does not quote the line, which may hold a token.
    #[error("--header: expected 'NAME: VALUE', as in 'Accept: text/html'")]
    NotAField,
    /// The text does not quote the value, which may be a token.
    #[error("header '{0}': this name or this value cannot be sent")]
    Header(String),
}

impl ExplainRequest {
    /// Returns the request of a command line: `target` may be a URL, each of `lines` is a field, and a
    /// missing `Host` is added.
    ///
    /// # Errors
    /// For input that no client would send, or that would arrive as another request.
    pub(crate) fn from_lines<'l>(
        method: &str,
        target: &str,
        lines: impl IntoIterator<Item = &'l str>,
        at: Option<i64>,
    ) -> Result<Self, RequestError> {
        Method::from_bytes(method.as_bytes()).map_err(|_| RequestError::Method)?;
        let (mut fields, mut has_host) = (String::new(), false);
        for line in lines {
            if !line.trim().is_empty() {
                let (name, value) = field(line)?;
                fields += &format!("{name}: {value}\r\n");
                has_host |= name.eq_ignore_ascii_case("host");
            }
        }
        let mut target = target.to_owned();
        // Without `Host` the sidecar would reject the request before the decision.
        if !has_host {
            let (host, origin_form) = host_and_target(&target);
            fields = format!("Host: {host}\r\n{fields}");
            target = origin_form;
        }
        if method != "CONNECT" && !is_target(&target) {
            return Err(RequestError::Target(target));
        }
        let mut bytes = target.bytes().zip(1..);
        // A line end in the target would begin a header field.
        if let Some((byte, position)) = bytes.find(|(byte, _)| b"\r\n".contains(byte)) {
            return Err(RequestError::TargetByte { position, byte });
        }
        Ok(Self {
            head: format!("{method} {target} HTTP/1.1\r\n{fields}\r\n"),
            at,
        })
    }
}

/// Parses a header line. The name stays as written: the service gets it in the same letter case.
fn field(line: &str) -> Result<(&str, &str), RequestError> {
    let (name, value) = line.split_once(':').ok_or(RequestError::NotAField)?;
    let (name, value) = (name.trim(), value.trim());
    match (
        HeaderName::from_bytes(name.as_bytes()),
        HeaderValue::from_bytes(value.as_bytes()),
    ) {
        (Ok(_), Ok(_)) => Ok((name, value)),
        _ => Err(RequestError::Header(name.to_owned())),
    }
}

/// Splits a pasted URL into a `Host`, and path and query. Beside an explicit `Host` the URL stays an
/// absolute-form target (RFC 9112 §3.2.2).
fn host_and_target(given: &str) -> (&str, String) {
    let (scheme, rest) = given.split_once("://").unwrap_or_default();
    if !matches!(scheme, "http" | "https") {
        return ("localhost", given.to_owned());
    }
    // Browsers keep the fragment of a URL to themselves.
    let url = rest.split('#').next().unwrap_or_default();
    let (host, target) = url.split_at(url.find(['/', '?']).unwrap_or(url.len()));
    let slash = if target.starts_with('/') { "" } else { "/" };
    (host, format!("{slash}{target}"))
}

/// Returns true for a target that a client may send (RFC 9112 §3.2).
fn is_target(target: &str) -> bool {
    match target.split_once("://") {
        _ if target.starts_with('/') || target == "*" => true,
        Some((scheme, _)) => !scheme.is_empty() && scheme.bytes().all(may_be_in_scheme),
        None => false,
    }
}

fn may_be_in_scheme(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_name_and_a_value_and_a_url_is_a_host_and_a_path() {
        let parsed = |target: &str, lines: &[&str]| {
            let request = ExplainRequest::from_lines("GET", target, lines.iter().copied(), None)?;
            Ok(request.head.trim_end().replace("\r\n", "|"))
        };
        let of_target = |target: &str| Err(RequestError::Target(target.to_owned()));
        for (target, lines, expected) in [
            (
                "/a",
                &[" X-Me:  a: b ", ""][..],
                Ok("GET /a HTTP/1.1|Host: localhost|X-Me: a: b".to_owned()),
            ),
            (
                "http://b:1/a?c#d",
                &[],
                Ok("GET /a?c HTTP/1.1|Host: b:1".to_owned()),
            ),
            (
                "https://b?c",
                &[],
                Ok("GET /?c HTTP/1.1|Host: b".to_owned()),
            ),
            (
                "http://b/a",
                &["host: c"],
                Ok("GET http://b/a HTTP/1.1|host: c".to_owned()),
            ),
            ("*", &[], Ok("GET * HTTP/1.1|Host: localhost".to_owned())),
            ("/a", &["token"], Err(RequestError::NotAField)),
            ("orders/42", &[], of_target("orders/42")),
            ("?a=b", &[], of_target("?a=b")),
            ("a b://c", &[], of_target("a b://c")),
        ] {
            assert_eq!(parsed(target, lines), expected, "{target} {lines:?}");
        }
    }
}
