//! Bodies that a service leaves unread, and then takes for the begin of its next request (CL.0
//! request smuggling).

use memchr::{memchr_iter, memchr2_iter};

use super::is_tchar;

/// Longer than any method.
const MAX_METHOD: usize = 64;
/// The protocols before the `/` of a version; llhttp reads all three.
const PROTOCOLS: [&[u8]; 3] = [b"HTTP", b"RTSP", b"ICE"];

/// Returns true if a service that has not read `body`, or not all of it, could find a request in it
/// and the head that follows. The rows of `tests/data/unread_bodies.toml` are its reasons.
#[must_use]
pub fn may_be_request(body: &[u8]) -> bool {
    let is_marked = |at| ends_in_mark(body.get(..at).unwrap_or_default());
    memchr_iter(b'/', body).any(is_marked) || has_simple_request(body) || has_request_line(body)
}

/// Returns true if a `/` behind `before` belongs to a version, or begins a path or the rest of a URL
/// behind a blank: some parsers take a line without a version.
fn ends_in_mark(before: &[u8]) -> bool {
    let is_version = |protocol: &&[u8]| {
        let length = before.len().checked_sub(protocol.len());
        let end = length.and_then(|length| before.get(length..));
        end.is_some_and(|end| end.eq_ignore_ascii_case(protocol))
    };
    let before_scheme = before.strip_suffix(b":").map(|scheme| {
        let is_other = |byte: &u8| !byte.is_ascii_alphanumeric() && !b"+-.".contains(byte);
        let end = scheme.iter().rposition(is_other);
        end.and_then(|end| scheme.get(..=end)).unwrap_or_default()
    });
    let before_target = before_scheme.unwrap_or(before);
    before_target.last().copied().is_some_and(is_blank) || PROTOCOLS.iter().any(is_version)
}

/// Returns true for `GET` and a blank: a request of HTTP/0.9 has no version.
fn has_simple_request(body: &[u8]) -> bool {
    memchr2_iter(b'G', b'g', body).any(|at| match body.get(at + 1..) {
        Some([e, t, blank, ..]) => [*e, *t].eq_ignore_ascii_case(b"ET") && is_blank(*blank),
        _ => false,
    })
}

/// Returns true if a line begins like a request, or if the last one is the begin of a method, which
/// the next request would complete.
fn has_request_line(body: &[u8]) -> bool {
    let mut begin = 0;
    for end in memchr2_iter(b'\r', b'\n', body).chain([body.len()]) {
        let line = body.get(begin..end).unwrap_or_default();
        let blanks = line.iter().take_while(|byte| is_blank(**byte)).count();
        let line = line.get(blanks..).unwrap_or_default();
        let begins_with = line.iter().take(MAX_METHOD + 1);
        let token = begins_with.take_while(|byte| is_tchar(**byte)).count();
        let is_request = match line.get(token) {
            Some(&byte) => token > 0 && is_blank(byte),
            None => end == body.len() && token > 0,
        };
        if is_request {
            return true;
        }
        begin = end + 1;
    }
    false
}

/// Returns true for a byte that some parser takes for a blank: Python splits a request line at each.
const fn is_blank(byte: u8) -> bool {
    matches!(
        byte,
        b'\t' | b'\x0b' | b'\x0c' | b'\r' | 0x1c..=0x1f | b' ' | 0x85 | 0xa0
    )
}
