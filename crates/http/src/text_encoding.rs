//! Encodings of texts, by their first bytes.

/// The mark that some programs put in front of UTF-8.
pub const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Returns true for a text in UTF-16, by its byte order mark or a first character of ASCII.
pub const fn is_utf_16(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [1..=0x7f, 0, ..] | [0, 1..=0x7f, ..]
    )
}
