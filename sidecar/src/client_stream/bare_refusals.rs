//! Finds the refusals that Pingora writes to an HTTP/2 client by itself: a request that names two hosts (if
//! only in another case), none, or a user beside one never reaches a filter. The other bare answer, the 431 of
//! `h2` (see `http2_head`), is not found.
//!
//! They cannot be replaced as those of HTTP/1.1 are, for `h2` counts every byte of a body. But they can be
//! told apart: a head of `:status: 400` and nothing else. Whatever a filter or the service answers has a
//! `Date`, which Pingora adds.

/// RFC 9113 §4.1.
const FRAME_HEADER_BYTES: usize = 9;
const HEADERS: u8 = 1;
const END_STREAM_AND_END_HEADERS: u8 = 0x05;
/// `:status: 400` in the static table (RFC 7541 §A), as an indexed field.
const STATUS_400: u8 = 0x80 | 12;
/// The two largest changes of the table's size that may stand before it (RFC 7541 §4.2), and the field.
const MAX_BARE_BYTES: usize = 2 * 6 + 1;

/// Follows the frames that are written on one connection.
#[derive(Debug, Default)]
pub(super) struct BareRefusals {
    frame: Frame,
}

#[derive(Debug)]
enum Frame {
    /// So much of the header has been written.
    Header([u8; FRAME_HEADER_BYTES], usize),
    /// The block of a short head.
    Block {
        bytes: [u8; MAX_BARE_BYTES],
        /// So many of them have been written.
        have: usize,
        /// So many there are.
        length: usize,
    },
    /// So many bytes of no interest are left.
    Other(usize),
}

impl Default for Frame {
    fn default() -> Self {
        Self::Header([0; FRAME_HEADER_BYTES], 0)
    }
}

impl BareRefusals {
    /// How many were completed by what was just `written`.
    pub(super) fn in_written(&mut self, mut written: &[u8]) -> usize {
        let mut found = 0;
        while !written.is_empty() {
            let (taken, is_one) = self.frame.take(written);
            found += usize::from(is_one);
            written = written.get(taken..).unwrap_or_default();
        }
        found
    }
}

impl Frame {
    /// How many of the bytes, at least one, belong to it, and whether a bare refusal ends with them.
    fn take(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut is_one = false;
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
            Self::Block {
                bytes: block,
                have,
                length,
            } => {
                let taken = append(block, have, *length, bytes);
                let whole = have == length;
                is_one = whole && block.get(..*length).is_some_and(is_bare);
                (taken, whole.then(Self::default))
            }
        };
        if let Some(next) = next {
            *self = next;
        }
        (taken, is_one)
    }

    /// What follows a frame's header.
    fn after([high, middle, low, kind, flags, ..]: [u8; FRAME_HEADER_BYTES]) -> Self {
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        match length {
            0 => Self::default(),
            1..=MAX_BARE_BYTES if kind == HEADERS && flags == END_STREAM_AND_END_HEADERS => {
                Self::Block {
                    bytes: [0; MAX_BARE_BYTES],
                    have: 0,
                    length,
                }
            }
            _ => Self::Other(length),
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

    fn found(written: &[u8]) -> usize {
        BareRefusals::default().in_written(written)
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
                bare,
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
            frame(1, 5, &[0x8c]),
        ]
        .concat();
        assert_eq!(found(&written), 3);
        for piece in [1, 2, 3, 7, 10, 1000] {
            let mut refusals = BareRefusals::default();
            let pieces = written.chunks(piece);
            let found: usize = pieces.map(|piece| refusals.in_written(piece)).sum();
            assert_eq!(found, 3, "{piece}");
        }
    }
}
