//! The bytes of messages: the data of a body, chunks (RFC 9112 §7.1), writes of HTTP/1.x.

use std::fmt::Write;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, BytesMut};
use postern_http::framing::body::{BodyReader, MalformedChunk};
use tokio::io::AsyncWrite;
use tokio::task::yield_now;

/// The end of a body in chunks; trailers are dropped.
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Max bytes of framing that are read before other tasks have their turn. One byte costs as much as
/// kilobytes of data, which are only moved, and no budget of tokio knows of it.
const MAX_FRAMING: usize = 4 * 1024;

/// Takes a part of `body` from `received`, and calls `put` with its data. After much framing, the rest is
/// left for the next call.
pub(crate) fn take_body(
    body: &mut BodyReader,
    received: &mut BytesMut,
    mut put: impl FnMut(BytesMut),
) -> Result<(), MalformedChunk> {
    let mut framing = 0;
    // The data of a turn has no bound of its own: it was read in bounded parts.
    while framing < MAX_FRAMING && !body.is_done() && !received.is_empty() {
        let piece = body.next_piece(received)?;
        framing += piece.skipped;
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
        // A write into memory cannot fail.
        let _ = write!(out, "{:x}\r\n", data.len());
        out.put_slice(data);
        out.put_slice(b"\r\n");
    }
}

/// Lets other tasks run, and their sockets wake them, before the present one goes on.
pub(super) fn give_way(cx: &mut Context<'_>) {
    // The first poll of `yield_now` wakes this task after all others.
    let _ = pin!(yield_now()).poll(cx);
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
    // TLS may hold a record back until it is flushed.
    if *needs_flush && Pin::new(stream).poll_flush(cx)?.is_ready() {
        (moved, *needs_flush) = (true, false);
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::future::poll_fn;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use postern_http::framing::Body;

    use super::*;

    #[test]
    fn an_empty_chunk_would_be_the_last() {
        let mut out = BytesMut::new();
        put_data(&mut out, b"", true);
        assert!(out.is_empty());
    }

    #[test]
    fn much_framing_takes_several_turns_and_much_data_does_not() {
        let extension = format!("1;{}\r\nx\r\n", "e".repeat(4000));
        let data = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
        for (chunk, count, turns) in [
            ("1\r\nx\r\n", 2000, 3),
            (&*extension, 6, 4),
            (&*data, 64, 1),
        ] {
            let mut body = BodyReader::new(Body::Chunked);
            let mut received = BytesMut::from(&*chunk.repeat(count));
            received.put_slice(LAST_CHUNK);
            let (mut taken, mut made) = (0, 0);
            while !body.is_done() {
                take_body(&mut body, &mut received, |data| {
                    taken += usize::from(!data.is_empty());
                })
                .unwrap();
                made += 1;
            }
            assert_eq!((taken, made), (count, turns), "{:.9}", chunk);
        }
    }

    #[tokio::test]
    async fn a_task_that_gives_way_runs_behind_the_others() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&order);
        let other = tokio::spawn(async move { noted.lock().push("other") });
        let mut has_given_way = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut has_given_way, true) {
                return Poll::Ready(());
            }
            give_way(cx);
            Poll::Pending
        })
        .await;
        order.lock().push("one");
        other.await.unwrap();
        assert_eq!(*order.lock(), ["other", "one"]);
    }
}
