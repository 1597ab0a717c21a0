//! One line per refused request, or per request when asked for.
//!
//! A line never holds a query, a header or a token, and at most 128 bytes of the path.

use std::fmt::{self, Write as _};

use contract::trace::{RequestId, TraceId};
use http::Method;

use crate::outcome::Outcome;

/// Which requests get a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AccessLog {
    /// Only what was refused, with the reason code.
    Refusals,
    /// Every request.
    All,
    /// None.
    Off,
}

/// What is said about one request.
#[derive(Default)]
pub(crate) struct Line<'a> {
    /// Method and target, where a request could be read at all.
    pub(crate) request: Option<(&'a Method, &'a [u8])>,
    /// Of the answer, if there was one.
    pub(crate) status: Option<u16>,
    /// What made the service, or the way to it, fail.
    pub(crate) cause: Option<String>,
    /// Where request ids are asked for.
    pub(crate) request_id: Option<RequestId>,
    /// Where the request belongs to a trace.
    pub(crate) trace_id: Option<TraceId>,
}

impl<'a> Line<'a> {
    /// About what never became a request.
    pub(crate) const fn without_request(status: u16) -> Self {
        Self {
            request: None,
            status: Some(status),
            cause: None,
            request_id: None,
            trace_id: None,
        }
    }

    /// The method, cut: a client may make one up.
    pub(crate) fn method(&self) -> Option<&'a str> {
        let (method, _) = self.request?;
        let whole = method.as_str();
        Some(whole.get(..MAX_METHOD_BYTES).unwrap_or(whole))
    }

    /// The path as it may be shown.
    pub(crate) fn path(&self) -> Option<LoggedPath<'a>> {
        self.request.map(|(_, target)| LoggedPath(target))
    }
}

const MAX_METHOD_BYTES: usize = 20;

impl AccessLog {
    pub(crate) fn wants(self, outcome: Outcome) -> bool {
        match self {
            Self::Off => false,
            Self::All => true,
            Self::Refusals => matches!(outcome, Outcome::Refused(_)),
        }
    }

    /// Writes a line if `outcome` gets one.
    pub(crate) fn record(self, outcome: Outcome, line: &Line<'_>) {
        if !self.wants(outcome) {
            return;
        }
        tracing::info!(
            target: "access",
            outcome = outcome.as_str(),
            reason = outcome.reason(),
            status = line.status,
            method = line.method(),
            path = line.path().map(tracing::field::display),
            request_id = line.request_id.as_ref().map(tracing::field::display),
            trace_id = line.trace_id.map(tracing::field::display),
            cause = line.cause,
            "request"
        );
    }
}

const MAX_PATH_BYTES: usize = 128;

/// A request target fit for a log: no query, bounded, one line, printable.
pub(crate) struct LoggedPath<'a>(pub(crate) &'a [u8]);

impl fmt::Display for LoggedPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self
            .0
            .split(|byte| matches!(byte, b'?' | b'#'))
            .next()
            .unwrap_or_default();
        for byte in path.iter().take(MAX_PATH_BYTES) {
            write!(f, "{}", byte.escape_ascii())?;
        }
        if path.len() > MAX_PATH_BYTES {
            f.write_char('…')?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use contract::rejection::Rejection;

    use super::*;

    #[test]
    fn refusals_are_logged_by_default_and_nothing_when_off() {
        let refused = Outcome::Refused(Rejection::TokenExpired);
        for (log, of_refusal, of_verified) in [
            (AccessLog::Refusals, true, false),
            (AccessLog::All, true, true),
            (AccessLog::Off, false, false),
        ] {
            assert_eq!(log.wants(refused), of_refusal);
            assert_eq!(log.wants(Outcome::Verified), of_verified);
        }
    }

    #[test]
    fn a_path_is_cut_escaped_and_loses_its_query() {
        let long = "/".repeat(200);
        let cut = format!("{}…", "/".repeat(128));
        for (target, logged) in [
            ("/a/b?appSecret=x", "/a/b"),
            ("/a#appSecret=x", "/a"),
            ("/a\x1b[31m\n\"", "/a\\x1b[31m\\n\\\""),
            ("/\u{e9}", "/\\xc3\\xa9"),
            (&long, &cut),
        ] {
            assert_eq!(LoggedPath(target.as_bytes()).to_string(), logged);
        }
    }
}
