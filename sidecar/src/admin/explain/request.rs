//! The input of `explain`: a request from memory, limited to what a client could send.

use http::{HeaderName, HeaderValue, Method};
use serde::{Deserialize, Serialize};

/// The request to explain.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainRequest {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Name and value of each field, in their order.
    pub(crate) headers: Vec<(String, String)>,
    /// Seconds since the epoch; absent: now.
    pub(crate) at: Option<i64>,
}

/// The part that no client can send.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("the request is not in JSON, or lacks a member")]
    ExplainRequest,
    #[error("method: not valid in HTTP")]
    Method,
    #[error("'{0}' is not a request target: it has to begin with a slash")]
    Target(String),
    #[error("target: byte {position} is 0x{byte:02x}, which ends the line; write %{byte:02X}")]
    TargetByte { position: usize, byte: u8 },
    /// Without the line, which may hold a token.
    #[error("header: expected 'NAME: VALUE'")]
    NotAField,
    /// Without the value, which may be a token.
    #[error("header '{0}': this name or this value cannot be sent")]
    Header(String),
}

impl ExplainRequest {
    /// Returns the request of a command line or a form: `target` may be a URL, each of `lines` is a
    /// field, and a missing `Host` is added.
    ///
    /// # Errors
    /// For a line that is no field, and a target that no client would send.
    pub(crate) fn of_lines<'l>(
        method: &str,
        target: &str,
        lines: impl IntoIterator<Item = &'l str>,
        at: Option<i64>,
    ) -> Result<Self, RequestError> {
        let lines = lines.into_iter().filter(|line| !line.trim().is_empty());
        let mut headers = lines.map(field).collect::<Result<Vec<_>, _>>()?;
        let is_host = |(name, _): &(String, String)| name.eq_ignore_ascii_case("host");
        let target = if headers.iter().any(is_host) {
            target.to_owned()
        } else {
            let (host, target) = host_and_target(target);
            headers.insert(0, ("Host".to_owned(), host.to_owned()));
            target
        };
        if method != "CONNECT" && !is_target(&target) {
            return Err(RequestError::Target(target));
        }
        Ok(Self {
            method: method.to_owned(),
            target,
            headers,
            at,
        })
    }

    /// Returns the header block as it would arrive.
    ///
    /// # Errors
    /// For input that would arrive as another request.
    pub(crate) fn raw_head(&self) -> Result<Vec<u8>, RequestError> {
        Method::from_bytes(self.method.as_bytes()).map_err(|_| RequestError::Method)?;
        let target = self.target.as_bytes();
        let ends_the_line = |byte: &u8| matches!(byte, b'\r' | b'\n');
        if let Some(at) = target.iter().position(ends_the_line) {
            let (position, byte) = (at + 1, target.get(at).copied().unwrap_or_default());
            return Err(RequestError::TargetByte { position, byte });
        }
        let mut raw = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            let sendable = HeaderName::from_bytes(name.as_bytes()).is_ok()
                && HeaderValue::from_bytes(value.as_bytes()).is_ok();
            if !sendable {
                return Err(RequestError::Header(name.clone()));
            }
            raw += &format!("{name}: {value}\r\n");
        }
        raw += "\r\n";
        Ok(raw.into_bytes())
    }
}

/// Parses a header line. The name stays as written: the service gets it in this case.
fn field(line: &str) -> Result<(String, String), RequestError> {
    let (name, value) = line.split_once(':').ok_or(RequestError::NotAField)?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Splits a pasted URL into a `Host`, and path and query. Beside an explicit `Host` it stays an
/// absolute-form target (RFC 9112 §3.2.2).
fn host_and_target(given: &str) -> (&str, String) {
    let rest = ["http://", "https://"]
        .iter()
        .find_map(|scheme| given.strip_prefix(scheme));
    let Some(rest) = rest else {
        return ("localhost", given.to_owned());
    };
    let rest = rest.split('#').next().unwrap_or_default();
    let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let slash = if target.starts_with('/') { "" } else { "/" };
    (host, format!("{slash}{target}"))
}

/// Returns true for a target that a client may send (RFC 9112 §3.2).
fn is_target(target: &str) -> bool {
    let of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let is_absolute =
        |(scheme, _): (&str, &str)| !scheme.is_empty() && scheme.bytes().all(of_scheme);
    target.starts_with('/') || target == "*" || target.split_once("://").is_some_and(is_absolute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_name_and_a_value_and_a_url_is_a_host_and_a_path() {
        let parsed = |target: &str, lines: &[&str]| {
            let request = ExplainRequest::of_lines("GET", target, lines.iter().copied(), None)?;
            let of_field = |(name, value)| format!("{name}={value}");
            let fields: Vec<String> = request.headers.into_iter().map(of_field).collect();
            Ok(format!("{} {}", request.target, fields.join(" ")))
        };
        let of_target = |target: &str| Err(RequestError::Target(target.to_owned()));
        for (target, lines, expected) in [
            (
                "/a",
                &[" X-Me:  a: b ", ""][..],
                Ok("/a Host=localhost X-Me=a: b".to_owned()),
            ),
            ("http://b:1/a?c#d", &[], Ok("/a?c Host=b:1".to_owned())),
            ("https://b?c", &[], Ok("/?c Host=b".to_owned())),
            (
                "http://b/a",
                &["host: c"],
                Ok("http://b/a host=c".to_owned()),
            ),
            ("*", &[], Ok("* Host=localhost".to_owned())),
            ("/a", &["token"], Err(RequestError::NotAField)),
            ("orders/42", &[], of_target("orders/42")),
            ("?a=b", &[], of_target("?a=b")),
            ("a b://c", &[], of_target("a b://c")),
        ] {
            assert_eq!(parsed(target, lines), expected, "{target} {lines:?}");
        }
    }
}
