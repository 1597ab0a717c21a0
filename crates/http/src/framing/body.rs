//! The reader that finds the data of a message body in the bytes of a connection.

use super::chunks::Chunks;
pub use super::chunks::MalformedChunk;
use super::{Body, Piece};

/// A reader of one body, in pieces of any size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyReader(State);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Length(u64),
    Chunked(Chunks),
    UntilClose,
}

impl BodyReader {
    /// The reader of a message without a body.
    pub const NONE: Self = Self(State::Length(0));
    /// The reader of a response body that ends with its connection.
    pub const UNTIL_CLOSE: Self = Self(State::UntilClose);

    /// Creates the reader of a body that is delimited by `body`.
    #[must_use]
    pub const fn new(body: Body) -> Self {
        Self(match body {
            Body::Length(length) => State::Length(length),
            Body::Chunked => State::Chunked(Chunks::START),
        })
    }

    /// Returns true once the last byte of the body was read.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self.0, State::Length(0) | State::Chunked(Chunks::End))
    }

    /// Returns true for a body in chunks.
    #[must_use]
    pub const fn is_chunked(&self) -> bool {
        matches!(self.0, State::Chunked(_))
    }

    /// Returns true if the end of the connection is the end of the body.
    #[must_use]
    pub const fn ends_with_connection(&self) -> bool {
        matches!(self.0, State::UntilClose)
    }

    /// Takes the first run of data from `received`. Without data, only the skipped bytes can be
    /// read so far.
    ///
    /// # Errors
    /// [`MalformedChunk`].
    pub fn next_piece(&mut self, received: &[u8]) -> Result<Piece, MalformedChunk> {
        match &mut self.0 {
            State::Length(left) => {
                let data = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(received.len());
                *left -= data as u64;
                Ok(Piece { skipped: 0, data })
            }
            State::Chunked(chunks) => chunks.next_piece(received),
            State::UntilClose => Ok(Piece {
                skipped: 0,
                data: received.len(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `received` in parts of `size` bytes; returns the data and the bytes after the body.
    fn read(
        mut body: BodyReader,
        received: &[u8],
        size: usize,
    ) -> Result<(Vec<u8>, Vec<u8>), MalformedChunk> {
        let (mut data, mut rest) = (Vec::new(), Vec::new());
        for part in received.chunks(size) {
            rest.extend_from_slice(part);
            while !body.is_done() && !rest.is_empty() {
                let piece = body.next_piece(&rest)?;
                let (taken, left) = rest.split_at(piece.skipped + piece.data);
                data.extend_from_slice(taken.get(piece.skipped..).unwrap_or_default());
                rest = left.to_vec();
            }
        }
        Ok((data, rest))
    }

    #[test]
    fn a_body_is_the_same_in_pieces_of_any_size() {
        let chunked = BodyReader::new(Body::Chunked);
        let chunks = &b"3;a=b\r\nabc\r\n00a\r\n0123456789\r\n0\r\nX: 1\r\n\r\nnext"[..];
        for (body, received, data, rest) in [
            (chunked, chunks, &b"abc0123456789"[..], &b"next"[..]),
            (chunked, b"0\r\n\r\n", b"", b""),
            (BodyReader::new(Body::Length(3)), b"abcdef", b"abc", b"def"),
            (BodyReader::NONE, b"abc", b"", b"abc"),
            (BodyReader::UNTIL_CLOSE, b"abc", b"abc", b""),
        ] {
            let is_until_close = body == BodyReader::UNTIL_CLOSE;
            assert_eq!(body.ends_with_connection(), is_until_close, "{body:?}");
            for size in 1..=received.len() {
                let read = read(body, received, size);
                assert_eq!(read, Ok((data.to_vec(), rest.to_vec())), "{body:?} {size}");
            }
        }
    }
}
