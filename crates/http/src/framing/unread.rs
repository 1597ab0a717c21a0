//! Bodies that a service leaves unread, and then takes for the beginning of its next request (CL.0
//! request smuggling).

use memchr::{memchr_iter, memchr2_iter, memchr3_iter};

use super::is_tchar;

/// Max length of a word that counts as a method; no method is longer.
const MAX_METHOD: usize = 64;
/// The bytes that some parser takes for a blank, in groups of three: Python splits a request line at each.
const BLANKS: [[u8; 3]; 4] = [
    [b' ', b'\t', 0xa0],
    [0x0b, 0x0c, 0x85],
    [0x1c, 0x1d, 0x1e],
    [0x1f, b'\r', b'\r'],
];
/// The protocols before the `/` of a version; llhttp reads all three.
const PROTOCOLS: [&[u8]; 3] = [b"HTTP", b"RTSP", b"ICE"];

/// Returns true if a service that has not read `body`, or not all of it, could find a request in it
/// and the head that follows. The rows of `tests/data/unread_bodies.toml` are its reasons.
#[must_use]
pub fn may_be_request(body: &[u8]) -> bool {
    let is_marked = |at| ends_in_mark(body.get(..at).unwrap_or_default());
    memchr_iter(b'/', body).any(is_marked) || has_simple_request(body) || has_request_line(body)
}

/// Returns true if a `/` after `before` belongs to a version, or begins a path or the rest of a URL
/// after a blank: some parsers take a line without a version.
fn ends_in_mark(before: &[u8]) -> bool {
    if matches!(before_target(before), [.., byte] if is_blank(*byte)) {
        return true;
    }
    for protocol in PROTOCOLS {
        let start = before.len().saturating_sub(protocol.len());
        let end = before.get(start..).unwrap_or_default();
        if end.eq_ignore_ascii_case(protocol) {
            return true;
        }
    }
    false
}

/// Returns the bytes before a target whose first `/` stands after `before`.
fn before_target(before: &[u8]) -> &[u8] {
    let Some(before_colon) = before.strip_suffix(b":") else {
        return before;
    };
    // The target is absolute, as `http://`: the scheme is left out too, back to a byte that no scheme has.
    let is_other = |byte: &u8| !byte.is_ascii_alphanumeric() && !b"+-.".contains(byte);
    match before_colon.iter().rposition(is_other) {
        Some(last) => before_colon.get(..=last).unwrap_or_default(),
        None => &[],
    }
}

/// Returns true for `GET` and a blank: a request of HTTP/0.9 has no version.
fn has_simple_request(body: &[u8]) -> bool {
    memchr2_iter(b'G', b'g', body).any(|at| match body.get(at + 1..) {
        Some([e, t, blank, ..]) => [*e, *t].eq_ignore_ascii_case(b"ET") && is_blank(*blank),
        _ => false,
    })
}

/// Returns true if a line begins like a request, or if the next request could complete the last one.
fn has_request_line(body: &[u8]) -> bool {
    let mut begin = 0;
    // A CR alone and an LF alone too: some parser ends a line at each.
    for end in memchr2_iter(b'\r', b'\n', body) {
        if begins_like_request(body.get(begin..end).unwrap_or_default()) {
            return true;
        }
        begin = end + 1;
    }
    may_be_completed(body.get(begin..).unwrap_or_default())
}

fn begins_like_request(line: &[u8]) -> bool {
    // Lenient parsers skip the blanks before a method.
    let line = without_indent(line);
    match line.iter().position(|byte| !is_tchar(*byte)) {
        None | Some(0) => false,
        Some(end) => line.get(end).copied().is_some_and(is_blank),
    }
}

/// Returns true if the next head after the last line, or after the part of it that a service has not
/// read, could be a request line: it holds a method and a blank, or ends within a method.
fn may_be_completed(line: &[u8]) -> bool {
    let word = without_indent(line);
    if (1..=MAX_METHOD).contains(&word.len()) && word.iter().copied().all(is_tchar) {
        return true;
    }
    // Methods are in upper case, for all that compare them.
    if let Some(b'A'..=b'Z' | b'-') = line.last() {
        return true;
    }
    // A method and a blank: the next head would be read as the target after them.
    let is_behind_token = |at: usize| matches!(line.get(..at), Some([.., end]) if is_tchar(*end));
    BLANKS
        .iter()
        .any(|&[a, b, c]| memchr3_iter(a, b, c, line).any(is_behind_token))
}

fn without_indent(line: &[u8]) -> &[u8] {
    let blanks = line.iter().take_while(|byte| is_blank(**byte)).count();
    line.get(blanks..).unwrap_or_default()
}

fn is_blank(byte: u8) -> bool {
    BLANKS.as_flattened().contains(&byte)
}
