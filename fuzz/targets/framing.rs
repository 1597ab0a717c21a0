//! The bytes of a connection: the borders of its requests, however the bytes are split, compared
//! with Pingora's parser. The first byte selects the split.

#![no_main]

use libfuzzer_sys::fuzz_target;
use postern_http::framing::requests::RequestBoundaries;

/// Checks with a more lenient parser that the bytes are whole requests, bodies included; returns
/// `None` where that parser accepts none, and within a head.
fn is_whole(mut bytes: &[u8]) -> Option<bool> {
    while !bytes.is_empty() {
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut fields);
        let httparse::Status::Complete(head) = request.parse(bytes).ok()? else {
            let is_blank = bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
            return is_blank.then_some(true);
        };
        bytes = bytes.get(head..)?;
        let mut body = Some(0);
        for field in request.headers.iter() {
            if field.name.eq_ignore_ascii_case("content-length") {
                body = Some(std::str::from_utf8(field.value).ok()?.parse().ok()?);
            } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
                body = None;
            }
        }
        let taken = match body {
            Some(length) => Some(length),
            None => after_chunks(bytes)?,
        };
        match taken.and_then(|taken| bytes.get(taken..)) {
            Some(rest) => bytes = rest,
            None => return Some(false),
        }
    }
    Some(true)
}

/// Returns the length of a body in chunks; `Some(None)` where its end is missing.
fn after_chunks(bytes: &[u8]) -> Option<Option<usize>> {
    let mut at = 0usize;
    loop {
        let rest = bytes.get(at..)?;
        let httparse::Status::Complete((line, size)) = httparse::parse_chunk_size(rest).ok()?
        else {
            return Some(None);
        };
        if size == 0 {
            let trailers = bytes.get(at + line - 2..)?;
            let end = trailers.windows(4).position(|four| four == b"\r\n\r\n");
            return Some(end.map(|end| at + line - 2 + end + 4));
        }
        let Some(next) = usize::try_from(size)
            .ok()
            .and_then(|size| at.checked_add(line)?.checked_add(size)?.checked_add(2))
        else {
            return Some(None);
        };
        if next > bytes.len() {
            return Some(None);
        }
        at = next;
    }
}

/// Parses the bytes in pieces of one size; `None` where they are rejected.
fn checked(bytes: &[u8], size: usize) -> Option<RequestBoundaries> {
    let mut requests = RequestBoundaries::default();
    let mut pieces = bytes.chunks(size);
    pieces
        .all(|piece| requests.check(piece).is_ok())
        .then_some(requests)
}

fuzz_target!(|data: &[u8]| {
    let Some((&size, bytes)) = data.split_first() else {
        return;
    };
    let whole = checked(bytes, bytes.len().max(1));
    let pieces = checked(bytes, usize::from(size).max(1));
    let is_between = whole.map(|requests| requests.is_between());
    let in_pieces = pieces.map(|requests| requests.is_between());
    assert_eq!(is_between, in_pieces, "{}", bytes.escape_ascii());
    if let (Some(is_between), Some(is_whole)) = (is_between, is_whole(bytes)) {
        assert_eq!(is_between, is_whole, "{}", bytes.escape_ascii());
    }
});
