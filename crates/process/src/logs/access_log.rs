//! One log line per rejected request, or per request if configured; the fields are the same in
//! both programs and stand in `docs/observe.md`.
//!
//! A line never holds a query, a header or a token, and at most 128 bytes of the path.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::time::Duration;

use postern_http::path::destination::AbsoluteForm;
use postern_http::trace::{RequestId, TraceId};

use crate::logs::rejection_lines::RejectionLine;
use crate::logs::sanitize::LogText;

/// The requests that get a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AccessLog {
    /// Only rejected requests, with the reason code.
    // The alias is for scripts that use the word `refusals`.
    #[value(alias = "refusals")]
    Rejections,
    /// Every request.
    All,
    /// No request.
    Off,
}

/// The line of one request; unknown fields are left out.
#[derive(Default)]
pub struct AccessLine<'a> {
    /// The end of the request, in one word.
    pub outcome: &'a str,
    /// The reason code of a rejection.
    pub reason: Option<&'a str>,
    /// Status of the response.
    pub status: Option<u16>,
    /// The method as it was sent; 20 bytes of it are logged.
    pub method: Option<&'a str>,
    /// The target, of which the path is logged.
    pub path: Option<LoggedPath<'a>>,
    /// Address of the client.
    pub client: Option<IpAddr>,
    /// The user of the verified token, where the log names users.
    pub user: Option<String>,
    /// The configured issuer of the token, where there may be several.
    pub issuer: Option<&'a str>,
    /// The time from the head of the request to the end of its response.
    pub duration: Option<Duration>,
    /// The service's part of the duration: up to the head of its response.
    pub upstream_duration: Option<Duration>,
    /// Length of the response's body.
    pub bytes: Option<u64>,
    /// Present with `--request-id`.
    pub request_id: Option<&'a RequestId>,
    /// Present where the request belongs to a trace.
    pub trace_id: Option<TraceId>,
    /// The address of the service, if the service failed.
    pub upstream: Option<String>,
    /// The error that prevented a response of the service, or what made a token or a path unusable, or the
    /// rule that does not hold.
    pub cause: Option<Cow<'a, str>>,
}

impl AccessLog {
    /// Returns true if a request gets a line; a rejection beyond the rate of its `reason` is counted
    /// instead.
    #[must_use]
    pub fn takes_line(self, reason: Option<&'static str>) -> bool {
        match self {
            Self::Off => false,
            Self::All => true,
            Self::Rejections => match reason {
                Some(reason) => RejectionLine::Access(reason).takes_line(),
                None => false,
            },
        }
    }
}

impl AccessLine<'_> {
    /// Writes the line.
    pub fn write(&self) {
        tracing::info!(
            target: "access",
            outcome = self.outcome,
            reason = self.reason,
            status = self.status,
            method = self.method.map(short),
            path = self.path.as_ref().map(tracing::field::display),
            client = self.client.map(tracing::field::display),
            user = self.user.as_deref().map(|user| tracing::field::display(LogText(user))),
            issuer = self.issuer,
            duration_ms = self.duration.map(milliseconds),
            upstream_ms = self.upstream_duration.map(milliseconds),
            bytes = self.bytes,
            request_id = self.request_id.map(tracing::field::display),
            trace_id = self.trace_id.map(tracing::field::display),
            upstream = self.upstream.as_deref(),
            cause = self.cause.as_deref(),
            "request"
        );
    }
}

/// Returns milliseconds with three places.
fn milliseconds(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

const MAX_METHOD_BYTES: usize = 20;
const MAX_PATH_BYTES: usize = 128;

/// Returns the method, cut to the length that is logged.
#[must_use]
pub fn short(method: &str) -> &str {
    method.get(..MAX_METHOD_BYTES).unwrap_or(method)
}

/// A request target fit for a log: no query, bounded, one line, printable.
///
/// The text ends where a query begins, and where a query may have been meant to begin: a client that
/// escapes the `?`, or forgets it, puts its secrets into the path.
#[derive(Debug, Clone, Copy)]
pub struct LoggedPath<'a>(pub &'a [u8]);

impl fmt::Display for LoggedPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, meant) = without_query(path_of(self.0));
        for byte in path.iter().take(MAX_PATH_BYTES) {
            write!(f, "{}", byte.escape_ascii())?;
        }
        // Mark a cut by length and a guessed cut; a cut at a certain query needs no mark.
        if meant || path.len() > MAX_PATH_BYTES {
            f.write_char('…')?;
        }
        Ok(())
    }
}

/// Returns the path of a target without the authority, which may hold a password; empty for an absolute
/// target without a path.
fn path_of(target: &[u8]) -> &[u8] {
    if target.starts_with(b"/") || target == b"*" {
        return target;
    }
    match AbsoluteForm::parse(target) {
        Some(absolute) => absolute.target,
        None => &[],
    }
}

/// Returns the part before the query, and true if that is a guess.
fn without_query(target: &[u8]) -> (&[u8], bool) {
    for end in 0..target.len() {
        let (path, rest) = target.split_at(end);
        match rest {
            [b'?' | b'#', ..] => return (path, false),
            [b';' | b'&' | b'=', ..] => return (path, true),
            [b'%', digits @ ..] if may_be_delimiter(digits) => return (path, true),
            _ => {}
        }
    }
    (target, false)
}

/// Returns true if `digits` escape one of `? # & ; =`, or a percent sign, which escapes twice.
fn may_be_delimiter(digits: &[u8]) -> bool {
    const ESCAPES: [&[u8]; 6] = [b"3f", b"23", b"26", b"3b", b"3d", b"25"];
    let Some(digits) = digits.get(..2) else {
        return false;
    };
    ESCAPES.iter().any(|it| digits.eq_ignore_ascii_case(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_cut_escaped_and_loses_its_query() {
        let long = "/".repeat(200);
        let cut = format!("{}…", "/".repeat(128));
        for (target, logged) in [
            ("/a/b?appSecret=x", "/a/b"),
            ("/a#appSecret=x", "/a"),
            ("/key%3FappId=a&appSecret=x", "/key…"),
            ("/key%253fappSecret=x", "/key…"),
            ("/key;appId=a;appSecret=x", "/key…"),
            ("/key&appSecret=x", "/key…"),
            ("/key%26appSecret%3Dx", "/key…"),
            ("/appSecret=x", "/appSecret…"),
            ("/a%20b%2", "/a%20b%2"),
            ("/a\x1b[31m\n\"", "/a\\x1b[31m\\n\\\""),
            ("/\u{e9}", "/\\xc3\\xa9"),
            ("http://ada:hush@a/b", "/b"),
            ("http://a?appSecret=/hush", ""),
            ("ada:hu/sh@a:1", ""),
            ("*", "*"),
            (&long, &cut),
        ] {
            assert_eq!(LoggedPath(target.as_bytes()).to_string(), logged);
        }
        assert_eq!(short(&"X".repeat(30)).len(), 20);
    }
}
