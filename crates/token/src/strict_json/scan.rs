//! The parts of a JSON text that `serde_json` does not pass on unchanged.

use std::borrow::Cow;

use super::Number;

/// Returns the text with whole characters, and its numbers in their order. Text that is no JSON is left for
/// the parser to reject.
///
/// Half of a character is left where a character beyond the basic plane was cut (RFC 8259 §8.2).
pub(super) fn scan(json: &str) -> (Cow<'_, str>, Vec<Number>) {
    let (mut whole, mut numbers) = (Cow::Borrowed(json), Vec::new());
    let (mut at, mut is_in_text) = (0, false);
    loop {
        let is_mark = |byte: u8| match byte {
            b'"' | b'\\' => true,
            // Within a text digits are no numbers: only an escape or its end counts there.
            b'-' | b'0'..=b'9' => !is_in_text,
            _ => false,
        };
        let Some(found) = json.bytes().skip(at).position(is_mark) else {
            return (whole, numbers);
        };
        at += found;
        let rest = json.get(at..).unwrap_or_default();
        at += match rest.as_bytes().first() {
            Some(b'"') => {
                is_in_text = !is_in_text;
                1
            }
            Some(b'\\') => match escaped(rest) {
                Some(Ok(character)) => ESCAPE_BYTES * character.len_utf16(),
                Some(Err(_)) => {
                    whole
                        .to_mut()
                        // The substitute has the same length, so that offsets hold in both texts.
                        .replace_range(at..at + ESCAPE_BYTES, "\\ufffd");
                    ESCAPE_BYTES
                }
                // The escaped character is skipped too: `\"` ends no text.
                None => 2,
            },
            _ => {
                let is_part = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
                let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                numbers.push(Number::from_text(rest.get(..end).unwrap_or_default()));
                end
            }
        };
    }
}

/// The length of `\uXXXX`.
const ESCAPE_BYTES: usize = 6;

/// Returns the character of `\uXXXX`, or of two escapes that are one character (RFC 8259 §7); an error for
/// half of a character, `None` for another escape.
fn escaped(text: &str) -> Option<Result<char, std::char::DecodeUtf16Error>> {
    let unit = |text: &str| u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok();
    let first = unit(text)?;
    let second = text.get(ESCAPE_BYTES..).and_then(unit);
    char::decode_utf16([first].into_iter().chain(second)).next()
}
