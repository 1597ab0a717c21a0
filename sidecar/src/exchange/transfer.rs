//! The bytes of messages: the data of a body, chunks (RFC 9112 §7.1), writes of HTTP/1.x.

use std::fmt::Write;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::AsyncWrite;
use wire::http::framing::body::{BodyReader, MalformedChunk};

/// The end of a body in chunks; trailers are dropped.
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Takes the part of `body` from `received`, and calls `put` with its data.
pub(crate) fn take_body(
    body: &mut BodyReader,
    received: &mut BytesMut,
    mut put: impl FnMut(BytesMut),
) -> Result<(), MalformedChunk> {
    while !body.is_done() && !received.is_empty() {
        let piece = body.next_piece(received)?;
        received.advance(piece.skipped);
        put(received.split_to(piece.data));
    }
    Ok(())
}

/// Appends `data`, as one chunk or unchanged.
pub(super) fn put_data(out: &mut BytesMut, data: &[u8], in_chunks: bool) {
    if !in_chunks {
        out.put_slice(data);
    } else if !data.is_empty() {
        // Into memory it cannot fail.
        let _ = write!(out, "{:x}\r\n", data.len());
        out.put_slice(data);
        out.put_slice(b"\r\n");
    }
}

/// Writes what `stream` takes of `bytes`, and flushes it; returns true if anything moved.
pub(crate) fn poll_write(
    stream: &mut (impl AsyncWrite + Unpin),
    bytes: &mut impl Buf,
    needs_flush: &mut bool,
    cx: &mut Context<'_>,
) -> io::Result<bool> {
    let mut moved = false;
    while bytes.has_remaining() {
        match Pin::new(&mut *stream).poll_write(cx, bytes.chunk()) {
            Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(written) => bytes.advance(written?),
            Poll::Pending => return Ok(moved),
        }
        (moved, *needs_flush) = (true, true);
    }
    if *needs_flush && Pin::new(stream).poll_flush(cx)?.is_ready() {
        (moved, *needs_flush) = (true, false);
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_chunk_would_be_the_last() {
        let mut out = BytesMut::new();
        put_data(&mut out, b"", true);
        assert!(out.is_empty());
    }
}
