//! Finds the rejections that Pingora and `h2` send to HTTP/2 clients before any filter: of requests
//! with two hosts, no host or a user in the authority, and of broken HTTP/2 framing.
//!
//! They are a head of `:status: 400` alone (every other response has the `Date` that Pingora adds),
//! and a stream or connection that ends with `PROTOCOL_ERROR`. They are counted, not replaced: `h2`
//! counts the bytes of a body. The bare 431 of `h2` (see `request::http2`) is not found: its status
//! is not in the static table, and its encoding looks like trailers of one field. If its request
//! has a body, the reset of the stream is found.

/// RFC 9113 §4.1.
const FRAME_HEADER_BYTES: usize = 9;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
/// RFC 9113 §7.
const PROTOCOL_ERROR: [u8; 4] = [0, 0, 0, 1];
const END_STREAM_AND_END_HEADERS: u8 = 0x05;
/// `:status: 400` in the static table (RFC 7541 §A), as an indexed field.
const STATUS_400: u8 = 0x80 | 12;
/// Two table size updates of max length (RFC 7541 §4.2), and the field.
const MAX_BARE_BYTES: usize = 2 * 6 + 1;

/// Form of a rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BareRejection {
    /// A bare status 400.
    Response,
    /// An end of the stream or of the connection.
    Reset,
}

/// Parser of the frames that are written on one connection.
#[derive(Debug, Default)]
pub(super) struct BareRejections {
    frame: Frame,
}

#[derive(Debug)]
enum Frame {
    /// A header, and the number of bytes of it that were written.
    Header([u8; FRAME_HEADER_BYTES], usize),
    /// The beginning of a frame that may be a rejection.
    Begun {
        kind: u8,
        bytes: [u8; MAX_BARE_BYTES],
        /// Number of `bytes` written.
        have: usize,
        /// Number of `bytes` to read.
        length: usize,
        /// Number of bytes to skip after them.
        rest: usize,
    },
    /// Number of bytes to skip.
    Other(usize),
}

impl Default for Frame {
    fn default() -> Self {
        Self::Header([0; FRAME_HEADER_BYTES], 0)
    }
}

impl BareRejections {
    /// Calls `report` with each rejection that `written` completes.
    pub(super) fn scan(&mut self, mut written: &[u8], mut report: impl FnMut(BareRejection)) {
        while !written.is_empty() {
            let (taken, found) = self.frame.take(written);
            found.into_iter().for_each(&mut report);
            written = written.get(taken..).unwrap_or_default();
        }
    }
}

impl Frame {
    /// Consumes at least one of the bytes; returns their number, and the rejection that they
    /// complete.
    fn take(&mut self, bytes: &[u8]) -> (usize, Option<BareRejection>) {
        let mut found = None;
        let (taken, next) = match self {
            Self::Other(left) => {
                let taken = bytes.len().min(*left);
                *left -= taken;
                (taken, (*left == 0).then(Self::default))
            }
            Self::Header(header, have) => {
                let taken = append(header, have, FRAME_HEADER_BYTES, bytes);
                let whole = *have == FRAME_HEADER_BYTES;
                (taken, whole.then(|| Self::after(*header)))
            }
            Self::Begun {
                kind,
                bytes: begun,
                have,
                length,
                rest,
            } => {
                let taken = append(begun, have, *length, bytes);
                let whole = have == length;
                if whole {
                    found = begun
                        .get(..*length)
                        .and_then(|begun| rejection_in(*kind, begun));
                }
                (taken, whole.then(|| Self::skipping(*rest)))
            }
        };
        if let Some(next) = next {
            *self = next;
        }
        (taken, found)
    }

    /// Skips `length` bytes, then expects the next frame.
    fn skipping(length: usize) -> Self {
        match length {
            0 => Self::default(),
            _ => Self::Other(length),
        }
    }

    /// Selects the state after a frame header.
    fn after([high, middle, low, kind, flags, ..]: [u8; FRAME_HEADER_BYTES]) -> Self {
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let to_read = match kind {
            HEADERS if flags == END_STREAM_AND_END_HEADERS && length <= MAX_BARE_BYTES => length,
            RST_STREAM => length.min(4),
            // The last stream and the error code; debug data may follow.
            GOAWAY => length.min(8),
            _ => 0,
        };
        if to_read == 0 {
            return Self::skipping(length);
        }
        Self::Begun {
            kind,
            bytes: [0; MAX_BARE_BYTES],
            have: 0,
            length: to_read,
            rest: length - to_read,
        }
    }
}

/// Fills `buffer` from `have` up to `end`; returns the number of bytes taken.
fn append(buffer: &mut [u8], have: &mut usize, end: usize, bytes: &[u8]) -> usize {
    let free = buffer.get_mut(*have..end).unwrap_or_default();
    let taken = free.len().min(bytes.len());
    for (slot, byte) in free.iter_mut().zip(bytes) {
        *slot = *byte;
    }
    *have += taken;
    taken
}

fn rejection_in(kind: u8, begun: &[u8]) -> Option<BareRejection> {
    if kind == HEADERS {
        is_bare(begun).then_some(BareRejection::Response)
    } else {
        begun
            .ends_with(&PROTOCOL_ERROR)
            .then_some(BareRejection::Reset)
    }
}

/// Returns true for `:status: 400` alone, after table size updates (RFC 7541 §6.3): the prefix
/// `001`, and a size past five bits in further bytes, of which all but the last have their highest
/// bit set.
fn is_bare(block: &[u8]) -> bool {
    let mut rest = block;
    loop {
        rest = match rest {
            [STATUS_400] => return true,
            [0x3f, size @ ..] => {
                let Some(last) = size.iter().position(|byte| byte & 0x80 == 0) else {
                    return false;
                };
                size.get(last + 1..).unwrap_or_default()
            }
            [0x20..0x3f, rest @ ..] => rest,
            _ => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [high, middle, low] = [
            payload.len() >> 16 & 0xff,
            payload.len() >> 8 & 0xff,
            payload.len() & 0xff,
        ]
        .map(|digit| u8::try_from(digit).unwrap_or_default());
        [&[high, middle, low, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// Returns the numbers of bare responses and of resets.
    fn counted(rejections: &mut BareRejections, written: &[u8]) -> (usize, usize) {
        let (mut responses, mut resets) = (0, 0);
        rejections.scan(written, |found| match found {
            BareRejection::Response => responses += 1,
            BareRejection::Reset => resets += 1,
        });
        (responses, resets)
    }

    fn found(written: &[u8]) -> (usize, usize) {
        counted(&mut BareRejections::default(), written)
    }

    #[test]
    fn streams_and_connections_ended_by_protocol_errors_are_found() {
        let ended = |last: &[u8], code: u8, text: &[u8]| [last, &[0, 0, 0, code], text].concat();
        for (kind, payload, reset) in [
            (3, ended(&[], 1, &[]), 1),
            // CANCEL, INTERNAL_ERROR.
            (3, ended(&[], 8, &[]), 0),
            (3, ended(&[], 2, &[]), 0),
            (7, ended(&[0, 0, 0, 9], 1, b""), 1),
            (7, ended(&[0, 0, 0, 9], 1, &[b'x'; 70]), 1),
            // NO_ERROR, for a graceful end.
            (7, ended(&[0, 0, 0, 1], 0, b""), 0),
            (7, ended(&[0, 0, 0, 9], 0, &[0, 0, 0, 1]), 0),
            // A window, a ping.
            (8, ended(&[], 1, &[]), 0),
            (6, ended(&[0, 0, 0, 1], 1, &[]), 0),
        ] {
            let written = [frame(kind, 0, &payload), frame(1, 5, &[0x8c])].concat();
            assert_eq!(found(&written), (1, reset), "{kind} {payload:?}");
        }
    }

    #[test]
    fn a_head_of_status_400_alone_is_found() {
        for (kind, flags, block, bare) in [
            (1, 5, &[0x8c][..], 1),
            (1, 5, &[0x20, 0x8c], 1),
            (1, 5, &[0x20, 0x3f, 0xe1, 0x1f, 0x8c], 1),
            // A body follows, or more of the head.
            (1, 4, &[0x8c], 0),
            (1, 1, &[0x8c], 0),
            // 404, 200, a field behind the status, no field, a size without an end.
            (1, 5, &[0x8d], 0),
            (1, 5, &[0x88], 0),
            (1, 5, &[0x8c, 0xbe], 0),
            (1, 5, &[0x8c, 0x8c], 0),
            (1, 5, &[], 0),
            (1, 5, &[0x3f, 0xff, 0xff], 0),
            (1, 5, &[0x20], 0),
            (0, 5, &[0x8c], 0),
            (1, 5, &[0x8c; 100], 0),
        ] {
            assert_eq!(
                found(&frame(kind, flags, block)),
                (bare, 0),
                "{flags} {block:x?}"
            );
        }
    }

    #[test]
    fn rejections_are_found_in_writes_of_any_size() {
        let written = [
            frame(4, 0, &[0; 18]),
            frame(4, 1, &[]),
            frame(1, 5, &[0x3f, 0xe1, 0x1f, 0x8c]),
            // The same bytes within a body do not count.
            frame(0, 1, &frame(1, 5, &[0x8c])),
            frame(1, 5, &[0x8c]),
            frame(0, 0, &vec![0x8c; 70_000]),
            frame(3, 0, &PROTOCOL_ERROR),
            frame(1, 5, &[0x8c]),
            frame(7, 0, &[&[0; 4], &PROTOCOL_ERROR[..], &[0; 20]].concat()),
            frame(6, 0, &[0; 8]),
        ]
        .concat();
        assert_eq!(found(&written), (3, 2));
        for piece in [1, 2, 3, 7, 10, 1000] {
            let mut rejections = BareRejections::default();
            let pieces = written.chunks(piece);
            let found = pieces.map(|piece| counted(&mut rejections, piece));
            let sum = found.fold((0, 0), |sum, found| (sum.0 + found.0, sum.1 + found.1));
            assert_eq!(sum, (3, 2), "{piece}");
        }
    }
}
