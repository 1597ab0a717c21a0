//! The path of a request: rejected, canonical, or neither.
//!
//! A path that two programs could read differently is not canonical: it never matches the pass
//! list, needs a token, and is forwarded byte for byte. A path that no honest client sends is
//! rejected.
//!
//! Some services look for a route before they decode. So a setting that restricts a request compares the
//! decoded text, and a setting that opens a path compares the text as written, where `%40` is no `@`.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;

use crate::folding::is_invisible;
use crate::invalid::InvalidRequest;

/// The checked path of a request target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPath<'a> {
    raw: &'a [u8],
    /// The text, decoded but for the escapes of characters that could stand there themselves; `None`
    /// if some programs may read one as a dot or a separator.
    written: Option<Cow<'a, str>>,
    /// True if all programs read the same names.
    is_canonical: bool,
    hides_separators: bool,
}

/// As nginx reads.
pub const MAX_PATH_BYTES: usize = 8192;

impl<'a> RequestPath<'a> {
    /// Checks a raw path without its query.
    ///
    /// # Errors
    /// [`InvalidRequest::PathNotCanonical`] for dot segments in any encoding, raw control bytes and broken
    /// escapes; [`InvalidRequest::PathTooLong`].
    pub fn parse(raw: &'a [u8]) -> Result<Self, InvalidRequest> {
        if raw.len() > MAX_PATH_BYTES {
            return Err(InvalidRequest::PathTooLong);
        }
        // The short way of most paths, which allocates nothing; the other way checks every rule.
        match std::str::from_utf8(raw) {
            Ok(text) if is_evidently_canonical(raw) => Ok(Self {
                raw,
                written: Some(Cow::Borrowed(text)),
                is_canonical: true,
                hides_separators: false,
            }),
            _ => Self::parse_any(raw),
        }
    }

    /// Checks every path by every rule.
    fn parse_any(raw: &'a [u8]) -> Result<Self, InvalidRequest> {
        if raw.first() != Some(&b'/') || raw.iter().any(u8::is_ascii_control) {
            return Err(InvalidRequest::PathNotCanonical);
        }
        let decoded = decode(raw, |_| true)?;
        // Before the conversion to UTF-8, whose error makes the path unclear and no more.
        if has_overlong_utf8(&decoded) {
            return Err(InvalidRequest::PathNotCanonical);
        }
        // In every layer of escapes: a program behind the service may decode once more.
        let hides_separators = hides_a_separator(&decoded)?;
        let is_clear = String::from_utf8(decoded).is_ok_and(|text| !is_confusing(&text));
        Ok(Self {
            raw,
            written: if is_clear && !hides_separators {
                as_written(raw).map(Cow::Owned)
            } else {
                None
            },
            is_canonical: first_unclear(raw).is_none(),
            hides_separators,
        })
    }

    /// Returns the canonical form, decoded; `None` for a path that needs a token regardless of the
    /// pass list.
    pub fn canonical(&self) -> Option<Cow<'_, str>> {
        self.written().map(unescaped)
    }

    /// Returns the canonical form with the escapes of characters that could stand there themselves.
    pub fn written(&self) -> Option<&str> {
        if self.is_canonical {
            self.contained()
        } else {
            None
        }
    }

    /// Returns the text as written of a path that no program reads as one outside of the folder with
    /// which it begins.
    pub(crate) fn contained(&self) -> Option<&str> {
        self.written.as_deref()
    }

    /// Returns true for a path that no honest client sends to a service behind rules: a backslash, a
    /// control byte, or a double-encoded dot or separator.
    pub const fn hides_separators(&self) -> bool {
        self.hides_separators
    }

    /// Names what makes the path neither canonical nor clear, for an explanation.
    pub(crate) fn unclear_part(&self) -> String {
        for name in self.raw.split(|byte| *byte == b'/') {
            let written = String::from_utf8_lossy(name);
            if let Some(part) = first_unclear(name) {
                return format!("{} in '{written}'", String::from_utf8_lossy(part));
            }
            let Ok(text) = String::from_utf8(decode(name, |_| true).unwrap_or_default()) else {
                return format!("'{written}'");
            };
            if let Some(c) = text.chars().find(|c| is_separator_alike(*c)) {
                return format!("{c} (U+{:04X}) in '{written}'", u32::from(c));
            }
            if is_confusing(&text) {
                return format!("'{written}'");
            }
        }
        "an empty name".to_owned()
    }
}

/// Names the part for which a path is rejected, by itself or beside rules. Nothing else of it is
/// repeated, because a query may hide behind an escape.
pub(crate) fn rejected_part(raw: &[u8]) -> String {
    // The empty name before the first slash is no segment.
    let mut names = raw.split(|byte| *byte == b'/').zip(0..).skip(1);
    let invalid = names.clone().find(|(name, _)| hides(name).is_err());
    let Some((name, number)) = invalid.or_else(|| names.find(|(name, _)| hides(name) == Ok(true)))
    else {
        return "the path does not begin with a slash".to_owned();
    };
    let segment = format!("segment {number} of the path");
    let Ok(decoded) = decode(name, |_| true) else {
        return format!("{}{segment} is no escape", hiding_part(name));
    };
    match invalid {
        None => format!(
            "{}{segment} is or hides a dot, a slash, a backslash or a control character",
            hiding_part(name)
        ),
        Some(_) if has_overlong_utf8(&decoded) => {
            format!("{segment} holds UTF-8 in a longer form than it has")
        }
        Some(_) => format!(
            "{segment} is a dot segment (`..`, `%2e%2e`, `..;`), or escaped more than {MAX_ESCAPE_DEPTH} times"
        ),
    }
}

/// Returns true for a segment that no honest client sends to a service behind rules.
fn hides(name: &[u8]) -> Result<bool, InvalidRequest> {
    Ok(RequestPath::parse_any(&[b"/", name].concat())?.hides_separators)
}

/// Escapes of a segment among which the hiding one is searched for.
const MAX_NAMED_MARKS: usize = 16;

/// Names the first part of a segment that is no escape, or that is or hides a separator.
fn hiding_part(name: &[u8]) -> String {
    match hiding_bytes(name) {
        Some(part) => format!("`{}` in ", part.escape_ascii()),
        None => String::new(),
    }
}

fn hiding_bytes(name: &[u8]) -> Option<&[u8]> {
    // The first few are enough for a text; each is parsed several times, and a client sends thousands.
    for at in memchr::memchr2_iter(b'%', b'\\', name).take(MAX_NAMED_MARKS) {
        let rest = name.get(at..)?;
        if let Some(None) = rest.strip_prefix(b"%").map(split_escape) {
            return rest.get(.."%zz".len()).or(Some(rest));
        }
        for form in ["\\", "%5c", "%252f", "%25252f"] {
            match rest.get(..form.len()) {
                Some(part) if hides(part) == Ok(true) => return Some(part),
                _ => {}
            }
        }
    }
    None
}

/// Returns true for most paths of honest clients: plain bytes, in segments that neither are empty nor
/// begin with a dot or a bracket. No rule has anything to find in them, and each would read them once
/// more.
fn is_evidently_canonical(raw: &[u8]) -> bool {
    if raw.first() != Some(&b'/') {
        return false;
    }
    let mut previous = 0;
    for &byte in raw {
        if !is_plain(byte) || previous == b'/' && matches!(byte, b'/' | b'.' | b'(') {
            return false;
        }
        previous = byte;
    }
    true
}

/// Returns true for control bytes, which end lines and strings, and the backslash, a slash to some
/// programs.
const fn is_never_allowed(byte: u8) -> bool {
    byte.is_ascii_control() || byte == b'\\'
}

/// Decodes one layer of escapes, of the bytes that are meant; the others get capital digits.
fn decode(raw: &[u8], is_meant: impl Fn(u8) -> bool) -> Result<Vec<u8>, InvalidRequest> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&first, tail)) = rest.split_first() {
        let (byte, tail) = match first {
            b'%' => split_escape(tail).ok_or(InvalidRequest::PathNotCanonical)?,
            byte => (byte, tail),
        };
        // In capitals, so that `%2f` and `%2F` compare alike (RFC 3986 §6.2.2.1).
        if first == b'%' && !is_meant(byte) {
            decoded.extend(format!("%{byte:02X}").into_bytes())
        } else {
            decoded.push(byte)
        }
        rest = tail;
    }
    Ok(decoded)
}

/// Decodes the escapes that have no other spelling: of the space and of everything beyond ASCII.
pub(super) fn as_written(raw: &[u8]) -> Option<String> {
    String::from_utf8(decode(raw, |byte| matches!(byte, b' ' | 0x80..)).ok()?).ok()
}

/// Decodes a text as written, in which valid escapes of ASCII alone are left.
pub fn unescaped(written: &str) -> Cow<'_, str> {
    if !written.contains('%') {
        return Cow::Borrowed(written);
    }
    // Never an error: a text as written has valid escapes of ASCII alone.
    let decoded = decode(written.as_bytes(), |_| true).unwrap_or_default();
    Cow::Owned(String::from_utf8(decoded).unwrap_or_default())
}

/// Returns the byte of two leading hex digits, and the rest.
pub(crate) fn split_escape(after_percent: &[u8]) -> Option<(u8, &[u8])> {
    let ([high, low], rest) = after_percent.split_first_chunk::<2>()?;
    Some((u8::try_from(hex(*high)? << 4 | hex(*low)?).ok()?, rest))
}

fn hex(digit: u8) -> Option<u32> {
    char::from(digit).to_digit(16)
}

/// Returns true for `.` and `..`, also between backslashes and before path parameters: Tomcat reads
/// `/..;x/` as `/../`. Some programs drop control bytes, or what follows one.
fn has_dot_segment(decoded: &[u8]) -> bool {
    for segment in decoded.split(|b| b"/\\".contains(b)) {
        let name = segment.split(|&b| b == b';').next().unwrap_or_default();
        let mut parts = name.split(u8::is_ascii_control);
        if let Some(b"." | b"..") = parts.find(|part| !part.is_empty()) {
            return true;
        }
    }
    false
}

/// Returns true for encodings that RFC 3629 §3 forbids and lenient decoders read as ASCII: `c0 ae`
/// as a dot.
fn has_overlong_utf8(decoded: &[u8]) -> bool {
    decoded.contains(&0xc0)
        || decoded.contains(&0xc1)
        || decoded
            .windows(2)
            .any(|pair| matches!(pair, [0xe0, 0x80..=0x9f] | [0xf0, 0x80..=0x8f]))
}

/// Deeper than any honest chain of proxies encodes; bounds the work per path.
const MAX_ESCAPE_DEPTH: usize = 4;

/// Returns true for a forbidden byte, and if further layers of escapes hide one, a dot or a slash.
///
/// # Errors
/// [`InvalidRequest::PathNotCanonical`] for a dot segment in any layer, and for too many layers.
fn hides_a_separator(decoded: &[u8]) -> Result<bool, InvalidRequest> {
    let mut hides = decoded.iter().copied().any(is_never_allowed);
    let mut layer = Cow::Borrowed(decoded);
    for _ in 0..MAX_ESCAPE_DEPTH {
        // In any layer: who decodes that often leaves the folder.
        if has_dot_segment(&layer) {
            break;
        }
        // Without a further escape no program can decode more than this layer.
        let Some((next, hidden)) = decode_leniently(&layer) else {
            return Ok(hides);
        };
        hides |= hidden;
        layer = Cow::Owned(next);
    }
    Err(InvalidRequest::PathNotCanonical)
}

/// Decodes the valid escapes of a layer, and returns true with it if one of them hid a separator;
/// `None` without a valid escape.
fn decode_leniently(layer: &[u8]) -> Option<(Vec<u8>, bool)> {
    if !layer.contains(&b'%') {
        return None;
    }
    let (mut decoded, mut found, mut hidden) = (Vec::with_capacity(layer.len()), false, false);
    let mut rest = layer;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        let escape = match first {
            b'%' => split_escape(tail),
            _ => None,
        };
        // Lenient decoders leave a percent sign that begins no escape as it is.
        let Some((byte, tail)) = escape else {
            decoded.push(first);
            continue;
        };
        found = true;
        hidden |= matches!(byte, b'.' | b'/') || is_never_allowed(byte);
        decoded.push(byte);
        rest = tail;
    }
    found.then_some((decoded, hidden))
}

/// Returns true for a decoded text that some programs may read with other dots or separators, or
/// without a name: classic ASP.NET drops `(S(x))`, which holds a session.
fn is_confusing(text: &str) -> bool {
    text.chars().any(is_separator_alike)
        || has_wide_escape(text)
        || text
            .split('/')
            .any(|name| is_almost_dots(name) || name.starts_with('(') && name.ends_with("))"))
}

/// Returns true for `...` and `.. `: programs that trim names, as Win32 does, or leave out what is
/// not visible may read them as `..`.
fn is_almost_dots(segment: &str) -> bool {
    segment.contains(is_dot) && segment.chars().all(is_dropped)
}

fn is_dropped(c: char) -> bool {
    is_dot(c) || c.is_whitespace() || is_invisible(c)
}

/// Returns true for a dot, and for characters that become one or two.
pub(super) const fn is_dot(c: char) -> bool {
    matches!(
        c,
        '.' | '\u{2024}' | '\u{2025}' | '\u{fe30}' | '\u{fe52}' | '\u{ff0e}'
    )
}

/// Returns true for `％2e` and `％u002e`: a program that converts wide characters before decoding reads a dot.
/// `100％` is a name.
fn has_wide_escape(text: &str) -> bool {
    for rest in text.split(['\u{fe6a}', '\u{ff05}']).skip(1) {
        // The first two digits decide, after a `u` as well; NFKC turns wide digits into ASCII.
        let digits = rest.strip_prefix(['u', 'U']).unwrap_or(rest).nfkc().take(2);
        if digits.filter(char::is_ascii_hexdigit).count() == 2 {
            return true;
        }
    }
    false
}

/// Returns the first bytes that make a path not canonical: an empty name, what is neither a `pchar`
/// of RFC 3986 without `;` nor written by clients that follow the URL standard, and escapes of others
/// than these, the space and everything beyond ASCII. No client escapes a letter or digit.
fn first_unclear(raw: &[u8]) -> Option<&[u8]> {
    let mut rest = raw;
    while let Some((&first, tail)) = rest.split_first() {
        let (is_clear, length) = match first {
            b'%' => match split_escape(tail) {
                Some((b' ' | 0x80.., _)) => (true, "%40".len()),
                Some((byte, _)) => (is_name_mark(byte), "%40".len()),
                None => (false, "%40".len()),
            },
            b'/' => (!tail.starts_with(b"/"), 1),
            // The length of a character of UTF-8.
            byte => (is_plain(byte), byte.leading_ones().max(1) as usize),
        };
        if !is_clear {
            return rest.get(..length).or(Some(rest));
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    None
}

/// Returns true for what clients leave in a path as it is: besides `pchar`, browsers leave brackets
/// and bars, and many libraries circumflexes (URL Standard, path percent-encode set).
const fn is_plain(byte: u8) -> bool {
    let is_escaped = matches!(byte, b'"' | b'<' | b'>' | b'`' | b'{' | b'}');
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'/' | b'.')
        || (is_name_mark(byte) && !is_escaped)
}

/// Returns true for punctuation without a meaning to the readers of paths.
const fn is_name_mark(byte: u8) -> bool {
    let has_meaning = matches!(byte, b'/' | b'\\' | b'.' | b'%' | b';' | b'?' | b'#');
    byte.is_ascii_punctuation() && !has_meaning
}

/// Returns true for characters that compatible forms (NFKC) or the best-fit tables of Windows, by which
/// CGI and PHP there get paths, turn into a slash or a backslash; and for the C1 controls.
///
/// No server normalises what it routes: the form matters after that, where a name becomes a file.
/// A character that becomes `?`, `;` or `#` belongs to a name, because parameters are cut off before that.
const fn is_separator_alike(c: char) -> bool {
    matches!(
        c,
        '\u{80}'..='\u{9f}'
            | '\u{a5}'
            | '\u{2044}'
            | '\u{20a9}'
            | '\u{2100}'..='\u{2101}'
            | '\u{2105}'..='\u{2106}'
            | '\u{2215}'..='\u{2216}'
            | '\u{29f8}'
            | '\u{fe68}'
            | '\u{ff0f}'
            | '\u{ff3c}'
    )
}

#[cfg(test)]
mod tests;
