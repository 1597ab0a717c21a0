//! Bodies of HTTP/2 towards either side: parts that wait to be read, room in windows, and turns of a connection.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use tokio::task::coop::poll_proceed;

/// Length of a part.
const PART: usize = 16 * 1024;

/// The parts of a body that were taken out of the library. There each frame would hold a buffer, and many small
/// ones would end the connection, with the requests of all clients. The window is not given back meanwhile, and
/// bounds the bytes.
#[derive(Default)]
pub(crate) struct Arrived {
    /// All but the last are full.
    parts: VecDeque<BytesMut>,
}

impl Arrived {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Reads the next part, of these or of the library, and gives its window back; `None` after the last one.
    pub(crate) fn poll_next(
        &mut self,
        body: &mut RecvStream,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let data = match self.parts.pop_front() {
            Some(part) => part.freeze(),
            None => match ready!(body.poll_data(cx)) {
                Some(Ok(data)) => data,
                other => return Poll::Ready(other),
            },
        };
        // An error means that the stream has ended, which the next read reports.
        let _ = body.flow_control().release_capacity(data.len());
        Poll::Ready(Some(Ok(data)))
    }

    /// Takes frames out of the library; returns true if there were any. An end or an error stays, and the next read
    /// finds it again.
    pub(crate) fn take_in(&mut self, body: &mut RecvStream, cx: &mut Context<'_>) -> bool {
        let mut has_taken = false;
        while let Poll::Ready(Some(Ok(data))) = body.poll_data(cx) {
            has_taken = true;
            self.put(data);
        }
        has_taken
    }

    fn put(&mut self, mut data: Bytes) {
        while !data.is_empty() {
            match self.parts.back_mut() {
                Some(last) if last.len() < PART => {
                    let room = PART - last.len();
                    last.extend_from_slice(&data.split_to(room.min(data.len())));
                }
                _ => self.parts.push_back(BytesMut::with_capacity(PART)),
            }
        }
    }
}

/// Waits until the windows of the other side have room for some of the `wanted` bytes.
pub(crate) fn poll_room(
    stream: &mut SendStream<Bytes>,
    wanted: usize,
    cx: &mut Context<'_>,
) -> Poll<Result<usize, h2::Error>> {
    stream.reserve_capacity(wanted);
    // A granted capacity may be 0, when the other side takes its window back.
    while stream.capacity() == 0 {
        match ready!(stream.poll_capacity(cx)) {
            Some(granted) => granted?,
            None => return Poll::Ready(Err(Reason::CANCEL.into())),
        };
    }
    Poll::Ready(Ok(stream.capacity().min(wanted)))
}

/// Spends units of the task's budget of 128 reads and writes on purpose: tokio lets it yield once none is left.
pub(crate) fn spend_budget(units: usize, cx: &mut Context<'_>) {
    for _ in 0..units {
        match poll_proceed(cx) {
            Poll::Ready(unit) => unit.made_progress(),
            Poll::Pending => return,
        }
    }
}
