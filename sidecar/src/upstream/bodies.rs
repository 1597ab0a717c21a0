//! Parts of a body of HTTP/2 that wait to be read.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;

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

    /// Returns the next part.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.parts.pop_front().map(BytesMut::freeze)
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
