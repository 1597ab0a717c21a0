//! Finds the refusals that Pingora and `h2` write to an HTTP/2 client by themselves: a request that names two
//! hosts (if only in another case), none, or a user beside one, and one that breaks the framing of HTTP/2, never
//! reach a filter. One bare answer, the 431 of `h2` (see `request::http2`), is not found: its status is in no
//! static table. The first on a connection is a literal, each later one an index into what that connection has
//! been sent before, which is also what trailers of one field look like: telling them apart would take decoding
//! every head that is sent. If the request has a body its stream is reset besides, and that is found.
//!
//! They cannot be replaced as those of HTTP/1.1 are, for `h2` counts every byte of a body. But they can be
//! told apart: a head of `:status: 400` and nothing else – whatever a filter or the service answers has a
//! `Date`, which Pingora adds –, and a stream or the connection that ends with `PROTOCOL_ERROR`.

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
/// The two largest changes of the table's size that may stand before it (RFC 7541 §4.2), and the field.
const MAX_BARE_BYTES: usize = 2 * 6 + 1;

/// How a client is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BareRejection {
    /// With a status of 400.
    Answer,
    /// With an end of the stream, or of the connection.
    Reset,
}

/// Follows the frames that are written on one connection.
#[derive(Debug, Default)]
pub(super) struct BareRejections {
    frame: Frame,
}

#[derive(Debug)]
enum Frame {
    /// So much of the header has been written.
    Header([u8; FRAME_HEADER_BYTES], usize),
    /// The beginning of what may be one.
    Begun {
        kind: u8,
        bytes: [u8; MAX_BARE_BYTES],
        /// So many of them have been written.
        have: usize,
        /// So many are looked at.
        length: usize,
        /// So many bytes of no interest follow.
        rest: usize,
    },
    /// So many bytes of no interest are left.
    Other(usize),
}

impl Default for Frame {
    fn default() -> Self {
        Self::Header([0; FRAME_HEADER_BYTES], 0)
    }
}

impl BareRejections {
    /// Tells those that were completed by what was just `written`.
    pub(super) fn in_written(&mut self, mut written: &[u8], mut tell: impl FnMut(BareRejection)) {
        while !written.is_empty() {
            let (taken, found) = self.frame.take(written);
            found.into_iter().for_each(&mut tell);
            written = written.get(taken..).unwrap_or_default();
        }
    }
}

impl Frame {
    /// How many of the bytes, at least one, belong to it, and the bare refusal that they complete.
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
                        .and_then(|begun| refusal_in(*kind, begun));
                }
                (taken, whole.then(|| Self::passing(*rest)))
            }
        };
        if let Some(next) = next {
            *self = next;
        }
        (taken, found)
    }

    /// Bytes of no interest, and the next frame after them.
    fn passing(length: usize) -> Self {
        match length {
            0 => Self::default(),
            _ => Self::Other(length),
        }
    }

    /// What follows a frame's header.
    fn after([high, middle, low, kind, flags, ..]: [u8; FRAME_HEADER_BYTES]) -> Self {
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let of_interest = match kind {
            HEADERS if flags == END_STREAM_AND_END_HEADERS && length <= MAX_BARE_BYTES => length,
            RST_STREAM => length.min(4),
            // The last stream, and the error; a text may follow.
            GOAWAY => length.min(8),
            _ => 0,
        };
        if of_interest == 0 {
            return Self::passing(length);
        }
        Self::Begun {
            kind,
            bytes: [0; MAX_BARE_BYTES],
            have: 0,
            length: of_interest,
            rest: length - of_interest,
        }
    }
}

/// Fills `buffer` from `have` on, up to `end`; how many bytes that took.
fn append(buffer: &mut [u8], have: &mut usize, end: usize, bytes: &[u8]) -> usize {
    let free = buffer.get_mut(*have..end).unwrap_or_default();
    let taken = free.len().min(bytes.len());
    for (place, byte) in free.iter_mut().zip(bytes) {
        *place = *byte;
    }
    *have += taken;
    taken
}

fn refusal_in(kind: u8, begun: &[u8]) -> Option<BareRejection> {
    if kind == HEADERS {
        is_bare(begun).then_some(BareRejection::Answer)
    } else {
        begun
            .ends_with(&PROTOCOL_ERROR)
            .then_some(BareRejection::Reset)
    }
}

/// `:status: 400` alone, perhaps after changes of the table's size: `001`, and what does not fit into five
/// bits in bytes of which all but the last have their highest bit set.
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

    /// Those that were answered, and those that were reset.
    fn counted(refusals: &mut BareRejections, written: &[u8]) -> (usize, usize) {
        let (mut answered, mut reset) = (0, 0);
        refusals.in_written(written, |found| match found {
            BareRejection::Answer => answered += 1,
            BareRejection::Reset => reset += 1,
        });
        (answered, reset)
    }

    fn found(written: &[u8]) -> (usize, usize) {
        counted(&mut BareRejections::default(), written)
    }

    #[test]
    fn a_stream_or_a_connection_that_ends_with_a_protocol_error_is_one() {
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
    fn a_status_of_400_and_nothing_else_is_one() {
        for (kind, flags, block, bare) in [
            (1, 5, &[0x8c][..], 1),
            (1, 5, &[0x20, 0x8c], 1),
            (1, 5, &[0x20, 0x3f, 0xe1, 0x1f, 0x8c], 1),
            // A body follows, or more of the head.
            (1, 4, &[0x8c], 0),
            (1, 1, &[0x8c], 0),
            // 404, 200, a field behind the status, none, a size without an end.
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
    fn each_is_found_however_the_frames_are_cut() {
        let written = [
            frame(4, 0, &[0; 18]),
            frame(4, 1, &[]),
            frame(1, 5, &[0x3f, 0xe1, 0x1f, 0x8c]),
            // What looks like one within a body is none.
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
            let mut refusals = BareRejections::default();
            let pieces = written.chunks(piece);
            let found = pieces.map(|piece| counted(&mut refusals, piece));
            let sum = found.fold((0, 0), |sum, found| (sum.0 + found.0, sum.1 + found.1));
            assert_eq!(sum, (3, 2), "{piece}");
        }
    }
}
