//! The chunks of a body, read byte by byte (RFC 9112 §7.1). This reader is stricter than the libraries: a
//! size without a digit, or a line feed within an extension, ends the line for some parsers and not for
//! others.

use super::Piece;

/// The chunks of a body are malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed chunked body")]
pub struct MalformedChunk;

/// The position of the next byte in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunks {
    Size { size: u64, digits: u8 },
    Blank { size: u64, length: u16 },
    Extension { size: u64, length: u16 },
    SizeLineFeed { size: u64 },
    Data { left: u64 },
    DataCarriageReturn,
    DataLineFeed,
    Trailers { at_line_start: bool, length: u32 },
    TrailerLineFeed { of_empty_line: bool, length: u32 },
    End,
}

/// Max number of digits of a size: those of a `u64`.
const MAX_DIGITS: u8 = 16;
/// Max length of the blanks and the extension of one chunk. No service reads extensions, and without a limit
/// a sender could send them for each byte of data.
const MAX_EXTENSION: u16 = 4096;
/// Max length of all trailers, the limit of a head.
const MAX_TRAILERS: u32 = 64 * 1024;

impl Chunks {
    pub(super) const START: Self = Self::Size { size: 0, digits: 0 };

    /// Finds the first run of data in `bytes`.
    pub(super) fn next_piece(&mut self, bytes: &[u8]) -> Result<Piece, MalformedChunk> {
        let mut skipped = 0;
        while let Some(&byte) = bytes.get(skipped) {
            match self {
                // The bytes after the end belong to the next message, and stay unread.
                Self::End => break,
                Self::Data { left } => {
                    let data = usize::try_from(*left)
                        .unwrap_or(usize::MAX)
                        .min(bytes.len() - skipped);
                    *self = Self::data(*left - data as u64);
                    return Ok(Piece { skipped, data });
                }
                _ => {
                    *self = self.after(byte).ok_or(MalformedChunk)?;
                    skipped += 1;
                }
            }
        }
        Ok(Piece { skipped, data: 0 })
    }

    const fn data(left: u64) -> Self {
        match left {
            0 => Self::DataCarriageReturn,
            left => Self::Data { left },
        }
    }

    /// Returns the position after `byte`; `None` for an invalid byte.
    fn after(self, byte: u8) -> Option<Self> {
        match (self, byte) {
            (Self::Size { size, digits }, _) => Self::after_size(size, digits, byte),
            (Self::Blank { size, length }, _) => Self::after_blank(size, length, byte),
            (Self::Extension { size, length }, _) => Self::after_extension(size, length, byte),
            // The last chunk: trailers or the final empty line follow, and no data.
            (Self::SizeLineFeed { size: 0 }, b'\n') => Some(Self::trailer(0)),
            (Self::SizeLineFeed { size }, b'\n') => Some(Self::data(size)),
            (Self::DataCarriageReturn, b'\r') => Some(Self::DataLineFeed),
            (Self::DataLineFeed, b'\n') => Some(Self::START),
            (
                Self::Trailers {
                    at_line_start,
                    length,
                },
                _,
            ) => Self::after_trailer(at_line_start, length, byte),
            (
                Self::TrailerLineFeed {
                    of_empty_line: true,
                    ..
                },
                b'\n',
            ) => Some(Self::End),
            (Self::TrailerLineFeed { length, .. }, b'\n') => Some(Self::trailer(length)),
            // Rejects, among others, a CR or LF alone, which ends a line for some parsers only.
            _ => None,
        }
    }

    fn after_size(size: u64, digits: u8, byte: u8) -> Option<Self> {
        match byte {
            b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' => {
                let digit = char::from(byte).to_digit(16)?;
                // A further digit would shift the first one out of the `u64`; leading zeros count as digits.
                (digits < MAX_DIGITS).then_some(Self::Size {
                    size: size << 4 | u64::from(digit),
                    digits: digits + 1,
                })
            }
            // For some parsers an empty size is 0, and ends the body.
            _ if digits == 0 => None,
            // Senders pad the size with blanks; RFC 9112 §7.1.1 has them before an extension only.
            b' ' | b'\t' => Some(Self::Blank { size, length: 1 }),
            b';' => Some(Self::Extension { size, length: 1 }),
            b'\r' => Some(Self::SizeLineFeed { size }),
            _ => None,
        }
    }

    fn after_blank(size: u64, length: u16, byte: u8) -> Option<Self> {
        match byte {
            b' ' | b'\t' => longer(length).map(|length| Self::Blank { size, length }),
            b';' => longer(length).map(|length| Self::Extension { size, length }),
            b'\r' => Some(Self::SizeLineFeed { size }),
            _ => None,
        }
    }

    fn after_extension(size: u64, length: u16, byte: u8) -> Option<Self> {
        match byte {
            b'\r' => Some(Self::SizeLineFeed { size }),
            _ if is_text(byte) => longer(length).map(|length| Self::Extension { size, length }),
            _ => None,
        }
    }

    fn after_trailer(at_line_start: bool, length: u32, byte: u8) -> Option<Self> {
        match byte {
            b'\r' => Some(Self::TrailerLineFeed {
                of_empty_line: at_line_start,
                length,
            }),
            _ if is_text(byte) && length < MAX_TRAILERS => Some(Self::Trailers {
                at_line_start: false,
                length: length + 1,
            }),
            _ => None,
        }
    }

    /// Returns the start of a trailer, after others of this length.
    const fn trailer(length: u32) -> Self {
        Self::Trailers {
            at_line_start: true,
            length,
        }
    }
}

/// Counts one byte more of an extension; `None` past the limit.
const fn longer(length: u16) -> Option<u16> {
    if length < MAX_EXTENSION {
        Some(length + 1)
    } else {
        None
    }
}

/// Returns true for bytes that no parser takes as the end of a line or a string.
const fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns where the body ends, or where it becomes invalid; the same for pieces of every size.
    fn read(body: &[u8]) -> Result<usize, usize> {
        let by_size = |size| {
            let mut chunks = Chunks::START;
            let mut before = 0;
            for mut part in body.chunks(size) {
                while !part.is_empty() && chunks != Chunks::End {
                    let piece = chunks.next_piece(part).map_err(|_| before)?;
                    part = part.get(piece.skipped + piece.data..).unwrap_or_default();
                    before += piece.skipped + piece.data;
                }
            }
            Ok(before)
        };
        let exact = by_size(1);
        for size in 2..=body.len() {
            let found = by_size(size);
            assert_eq!(found.ok(), exact.ok(), "{body:?} by {size}");
        }
        exact
    }

    #[test]
    fn a_body_ends_where_all_parsers_see_its_end() {
        for body in [
            "0\r\n\r\n",
            "3\r\nabc\r\n0\r\n\r\n",
            "2\r\n\r\n\r\n000\r\n\r\n",
            "1\r\n\n\r\n1;a=\"b c\"\r\n\0\r\n0\r\n\r\n",
            "000000000000000C\r\n0123456789ab\r\n0\r\n\r\n",
            "1 \t;a\r\nx\r\n0;last\r\nTrailer: a:b\r\nOther:\x09\u{fc}\r\n\r\n",
        ] {
            assert_eq!(read(body.as_bytes()), Ok(body.len()), "{body:?}");
            let followed = format!("{body}GET / HTTP/1.1\r\n\r\n");
            assert_eq!(read(followed.as_bytes()), Ok(body.len()), "{body:?}");
        }
    }

    #[test]
    fn a_byte_that_some_take_for_an_end_is_rejected() {
        for (begin, wrong) in [
            ("", "\r\n\r\n"),
            ("", ";a\r\n"),
            ("", " 1\r\n"),
            ("", "\n1\r\n"),
            ("", "-1\r\n"),
            ("", "+1\r\n"),
            ("0", "x1\r\n"),
            ("1", "_0\r\n"),
            ("1 ", "0\r\n"),
            ("1", "\nx\r\n"),
            ("1 ", "\nx\r\n"),
            ("1;", "\nx\r\n"),
            ("1;a", "\0\r\n"),
            ("1;a", "\x7f\r\n"),
            ("1;a", "\x0b\r\n"),
            ("1;a\r", "b\r\n"),
            ("1\r", "\r\n"),
            ("1\r\nx", "\n0\r\n\r\n"),
            ("1\r\nx", "y\r\n0\r\n\r\n"),
            ("1\r\nx\r", "0\r\n\r\n"),
            ("0\r\n", "\nGET / HTTP/1.1\r\n\r\n"),
            ("0\r\nA: b", "\n\r\n"),
            ("0\r\nA: b\r", "C: d\r\n\r\n"),
            ("0\r\nA: ", "\0\r\n\r\n"),
            ("0000000000000000", "1\r\n"),
        ] {
            let body = format!("{begin}{wrong}");
            assert_eq!(read(body.as_bytes()), Err(begin.len()), "{body:?}");
        }
    }

    #[test]
    fn extensions_and_trailers_end_within_their_limits() {
        let extension = usize::from(MAX_EXTENSION);
        let trailers = usize::try_from(MAX_TRAILERS).unwrap_or_default();
        for (begin, repeated, max, end) in [
            ("1", " ", extension, "\r\nx\r\n0\r\n\r\n"),
            ("1;", "a", extension - 1, "\r\nx\r\n0\r\n\r\n"),
            ("0\r\n", "a", trailers, "\r\n\r\n"),
            ("0\r\n", "a\r\n", trailers, "\r\n"),
        ] {
            let body = |count: usize| format!("{begin}{}{end}", repeated.repeat(count));
            let (max, more) = (body(max), body(max + 1));
            let ends = |body: &str| {
                let mut chunks = Chunks::START;
                let mut rest = body.as_bytes();
                while let Ok(piece) = chunks.next_piece(rest) {
                    rest = rest.get(piece.skipped + piece.data..).unwrap_or_default();
                    if rest.is_empty() {
                        break;
                    }
                }
                chunks == Chunks::End
            };
            assert!(ends(&max) && !ends(&more), "{begin:?}");
        }
    }

    #[test]
    fn the_largest_size_has_no_end() {
        let mut chunks = Chunks::START;
        let piece = chunks.next_piece(b"ffffffffffffffff\r\nabc");
        let (skipped, data) = (18, 3);
        assert_eq!(piece, Ok(Piece { skipped, data }));
        assert_eq!(chunks, Chunks::Data { left: u64::MAX - 3 });
    }
}
