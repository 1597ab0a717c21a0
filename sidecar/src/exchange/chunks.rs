//! Writes a body in chunks (RFC 9112 §7.1).

use std::fmt::Write;

use bytes::{BufMut, BytesMut};

/// The end of a body; trailers are dropped.
pub(super) const LAST: &[u8] = b"0\r\n\r\n";

/// Appends `data`, as one chunk or unchanged.
pub(super) fn put(out: &mut BytesMut, data: &[u8], in_chunks: bool) {
    if !in_chunks {
        out.put_slice(data);
    } else if !data.is_empty() {
        // Into memory it cannot fail.
        let _ = write!(out, "{:x}\r\n", data.len());
        out.put_slice(data);
        out.put_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_chunk_would_be_the_last() {
        let mut out = BytesMut::new();
        put(&mut out, b"", true);
        assert!(out.is_empty());
    }
}
