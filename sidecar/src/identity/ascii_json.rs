//! JSON in visible ASCII alone, which any language can read from a header.

use std::io;

use serde::Serialize;

/// Serializes `value` with every character beyond ASCII escaped.
///
/// # Errors
/// A `value` that is not representable in JSON.
pub(super) fn ascii_json(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut json = Vec::with_capacity(256);
    let mut serializer = serde_json::Serializer::with_formatter(&mut json, AsciiFormatter);
    value.serialize(&mut serializer)?;
    Ok(json)
}

/// Formatter that also escapes characters beyond ASCII, and DEL, which no header value may hold.
struct AsciiFormatter;

impl serde_json::ser::Formatter for AsciiFormatter {
    fn write_string_fragment<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(|c: char| !matches!(c, ' '..='~')) {
            // Text up to the next character beyond ASCII is written at once.
            let (plain, tail) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            let mut characters = tail.chars();
            for unit in characters.next().into_iter().flat_map(utf16_units) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = characters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

/// Returns the UTF-16 units of a JSON escape: two beyond the basic plane (RFC 8259 §7).
fn utf16_units(character: char) -> impl Iterator<Item = u16> {
    let mut units = [0; 2];
    let count = character.encode_utf16(&mut units).len();
    units.into_iter().take(count)
}
