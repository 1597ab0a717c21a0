//! Writes a body in chunks (RFC 9112 §7.1).

use bytes::{BufMut, BytesMut};

/// The end of a body; trailers are dropped.
pub(super) const LAST: &[u8] = b"0\r\n\r\n";

/// Appends `data`, as one chunk or unchanged.
pub(super) fn put(out: &mut BytesMut, data: &[u8], in_chunks: bool) {
    if !in_chunks {
        out.put_slice(data);
    } else if !data.is_empty() {
        put_size(out, data.len());
        out.put_slice(b"\r\n");
        out.put_slice(data);
        out.put_slice(b"\r\n");
    }
}

fn put_size(out: &mut BytesMut, size: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let highest = (usize::BITS - 1 - size.leading_zeros().min(usize::BITS - 1)) / 4;
    for position in (0..=highest).rev() {
        let digit = size >> (4 * position) & 0xf;
        out.put_slice(DIGITS.get(digit..=digit).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_its_size_in_hexadecimal_and_its_data() {
        for (size, line) in [
            (1, "1"),
            (9, "9"),
            (10, "a"),
            (15, "f"),
            (16, "10"),
            (0xbeef, "beef"),
        ] {
            let data = vec![b'x'; size];
            let mut out = BytesMut::new();
            put(&mut out, &data, true);
            let expected = [line.as_bytes(), b"\r\n", &data, b"\r\n"].concat();
            assert_eq!(out, expected, "{size}");
        }
    }

    #[test]
    fn an_empty_chunk_would_be_the_last() {
        let mut out = BytesMut::new();
        put(&mut out, b"", true);
        assert!(out.is_empty());
    }
}
