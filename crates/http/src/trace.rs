//! Identifiers that join the log lines of several programs: a request id, and the trace id of W3C
//! Trace Context. Both come from clients, so only values that fit into a log line are accepted.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::only_field::only_field;

/// The header of a request id.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The header of a trace (W3C Trace Context §3.2).
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Further data about the trace of [`TRACEPARENT`], from W3C Trace Context.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

const MAX_REQUEST_ID_BYTES: usize = 64;

/// The name of one request: short, printable, without special characters of logs and shells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// Returns the id that came with the request: exactly one field of at most 64 letters, digits
    /// and `-._:/+=@`.
    pub fn received(headers: &HeaderMap) -> Option<Self> {
        let value = only_field(headers, &REQUEST_ID).ok()??;
        match value.len() {
            1..=MAX_REQUEST_ID_BYTES if value.as_bytes().iter().all(may_be_in_id) => {
                Some(Self(value.clone()))
            }
            _ => None,
        }
    }

    /// Creates an id from random bits.
    pub fn new(random: u128) -> Self {
        // Hex digits are always a valid value.
        let value = HeaderValue::from_str(&format!("{random:032x}"));
        Self(value.unwrap_or(HeaderValue::from_static("0")))
    }

    /// Returns the header value.
    pub const fn value(&self) -> &HeaderValue {
        &self.0
    }
}

fn may_be_in_id(b: &u8) -> bool {
    b.is_ascii_alphanumeric() || b"-._:/+=@".contains(b)
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_str().unwrap_or_default())
    }
}

/// The trace of a request: 32 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId([u8; 32]);

impl TraceId {
    /// Returns the trace that came with the request, if `traceparent` is valid (W3C Trace Context
    /// §3.2.2).
    pub fn received(headers: &HeaderMap) -> Option<Self> {
        Self::from_traceparent(only_field(headers, &TRACEPARENT).ok()??)
    }

    /// Returns the trace of a value of `traceparent`, if the value is valid.
    pub fn from_traceparent(value: &HeaderValue) -> Option<Self> {
        let mut parts = value.as_bytes().split(|&b| b == b'-');
        let [version, trace, parent, flags] = [(); 4].map(|()| parts.next().unwrap_or_default());
        for (part, length) in [(version, 2), (trace, 32), (parent, 16), (flags, 2)] {
            if part.len() != length || !part.iter().all(is_lower_hex) {
                return None;
            }
        }
        match version {
            b"ff" => return None,
            b"00" if parts.next().is_some() => return None,
            // A later version may have further parts after the flags.
            _ => {}
        }
        for id in [trace, parent] {
            // Ids of zeros alone are invalid.
            if id.iter().all(|&b| b == b'0') {
                return None;
            }
        }
        Some(Self(trace.try_into().ok()?))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.0).unwrap_or_default())
    }
}

fn is_lower_hex(byte: &u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;
    use token_corpus::fields;

    fn headers(name: &HeaderName, values: &[&str]) -> HeaderMap {
        let fields: Vec<_> = values.iter().map(|value| (name.as_str(), *value)).collect();
        fields::headers(&fields)
    }

    #[test]
    fn a_request_id_is_taken_as_it_came_or_not_at_all() {
        let read = |values: &[&str]| {
            RequestId::received(&headers(&REQUEST_ID, values)).map(|id| id.to_string())
        };
        for id in ["a", "018f-Z_9.x:/+=@", &"x".repeat(64)] {
            assert_eq!(read(&[id]).as_deref(), Some(id));
        }
        for ids in [
            &[][..],
            &[""],
            &["a", "a"],
            &["a b"],
            &["a\"b"],
            &["a\tb"],
            &["$(id)"],
            &["<script>"],
            &[&"x".repeat(65)],
        ] {
            assert_eq!(read(ids), None, "{ids:?}");
        }
        assert_eq!(RequestId::new(10).to_string(), format!("{:0>32}", "a"));
    }

    #[test]
    fn a_trace_id_is_read_from_a_traceparent_that_is_one() {
        const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
        let read = |values: &[&str]| {
            TraceId::received(&headers(&TRACEPARENT, values)).map(|id| id.to_string())
        };
        let parent =
            |version: &str, rest: &str| format!("{version}-{TRACE}-00f067aa0ba902b7-{rest}");
        for value in [
            parent("00", "01"),
            parent("00", "00"),
            parent("01", "01-what-comes-later"),
        ] {
            assert_eq!(read(&[&value]).as_deref(), Some(TRACE), "{value}");
        }
        for value in [
            parent("ff", "01"),
            parent("00", "01-more"),
            parent("00", "1"),
            parent("0", "01"),
            parent("00", "01").to_uppercase(),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}"),
            String::new(),
        ] {
            assert_eq!(read(&[&value]), None, "{value}");
        }
        let good = parent("00", "01");
        assert_eq!(read(&[&good, &good]), None);
    }
}
