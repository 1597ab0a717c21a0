//! Form bodies of OAuth requests (`application/x-www-form-urlencoded`, RFC 6749 Appendix B).

use std::collections::BTreeMap;
use std::fmt;

/// OAuth requests have a handful; a body of thousands only costs memory.
const MAX_PARAMETERS: usize = 32;

/// May repeat (RFC 8707 §2), and is not evaluated.
const UNREAD: &str = "resource";

/// The parameters of a form, each at most once (RFC 6749 §3.2).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Form(BTreeMap<String, String>);

/// An unusable form. The texts quote nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
pub enum FormError {
    /// A byte that a form has only encoded, a broken escape, or text that is not UTF-8.
    Encoding,
    /// A control character.
    ControlCharacter,
    /// A parameter without a name.
    Nameless,
    /// A parameter that stands there twice.
    Repeated,
    /// More parameters than any request has.
    TooMany,
}

impl FormError {
    /// Returns the text for the client, in the characters of `error_description` (RFC 6749 §5.2).
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Encoding => {
                "the form has a byte that must be encoded (a space as + or %20), a broken escape, or text that is not UTF-8"
            }
            Self::ControlCharacter => "a parameter of the form holds a control character",
            Self::Nameless => "a parameter of the form has no name",
            Self::Repeated => "a parameter stands in the form twice",
            Self::TooMany => "the form has too many parameters",
        }
    }
}

/// Prints the names; values may be secrets.
impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Form {
    /// Parses a body; two programs must not read it differently, so nothing is repaired.
    ///
    /// # Errors
    /// The first [`FormError`].
    pub fn parse(body: &[u8]) -> Result<Self, FormError> {
        let body = std::str::from_utf8(body).map_err(|_| FormError::Encoding)?;
        let mut parameters = BTreeMap::new();
        for pair in body.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if name.is_empty() {
                return Err(FormError::Nameless);
            }
            if name == UNREAD {
                continue;
            }
            if parameters.insert(name, value).is_some() {
                return Err(FormError::Repeated);
            }
            if parameters.len() > MAX_PARAMETERS {
                return Err(FormError::TooMany);
            }
        }
        Ok(Self(parameters))
    }

    /// Returns a parameter; one without a value counts as absent (RFC 6749 §3.2).
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name)?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }
}

/// Decodes one name or value: `+` is a space, `%` begins an escape, and the rest is visible ASCII.
///
/// # Errors
/// [`FormError::Encoding`] or [`FormError::ControlCharacter`].
pub fn decode(encoded: &str) -> Result<String, FormError> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (high, low) = (hex_digit(rest.next())?, hex_digit(rest.next())?);
                high << 4 | low
            }
            b'!'..=b'~' => byte,
            _ => return Err(FormError::Encoding),
        });
    }
    let text = String::from_utf8(bytes).map_err(|_| FormError::Encoding)?;
    if text.contains(char::is_control) {
        return Err(FormError::ControlCharacter);
    }
    Ok(text)
}

fn hex_digit(byte: Option<u8>) -> Result<u8, FormError> {
    match byte {
        Some(digit @ b'0'..=b'9') => Ok(digit - b'0'),
        Some(digit @ b'a'..=b'f') => Ok(digit - b'a' + 10),
        Some(digit @ b'A'..=b'F') => Ok(digit - b'A' + 10),
        _ => Err(FormError::Encoding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(body: &str, name: &str) -> Option<String> {
        let form = Form::parse(body.as_bytes()).unwrap_or_default();
        form.value(name).map(str::to_owned)
    }

    #[test]
    fn parameters_are_decoded_and_an_empty_one_is_absent() {
        for (body, expected) in [
            ("a=1", Some("1")),
            ("b=2&a=x+y%2Bz&c", Some("x y+z")),
            ("a=gr%C3%B6%c3%9fe", Some("größe")),
            ("%61=1", Some("1")),
            ("a=b=c", Some("b=c")),
            ("&a=1&&", Some("1")),
            ("a=", None),
            ("a", None),
            ("resource=x&a=1&resource=y", Some("1")),
            ("", None),
            ("A=1", None),
        ] {
            assert_eq!(value(body, "a").as_deref(), expected, "{body}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_an_error() {
        let many: Vec<String> = (0..=MAX_PARAMETERS).map(|n| format!("p{n}=1")).collect();
        for (body, expected) in [
            (&b"a=1&a=1"[..], FormError::Repeated),
            (b"a=1&%61=2", FormError::Repeated),
            (b"a&a=", FormError::Repeated),
            (b"=1", FormError::Nameless),
            (b"a=%", FormError::Encoding),
            (b"a=%4", FormError::Encoding),
            (b"a=%zz", FormError::Encoding),
            (b"a=%ff", FormError::Encoding),
            (b"a=\xff", FormError::Encoding),
            ("a=ö".as_bytes(), FormError::Encoding),
            (b"a=x y", FormError::Encoding),
            (b"a=1\n", FormError::Encoding),
            (b"a=%00", FormError::ControlCharacter),
            (b"a%0a=1", FormError::ControlCharacter),
            (many.join("&").as_bytes(), FormError::TooMany),
        ] {
            assert_eq!(Form::parse(body), Err(expected), "{body:?}");
        }
    }

    #[test]
    fn debug_shows_no_value() {
        let form = Form::parse(b"client_secret=hush").unwrap_or_default();
        assert_eq!(format!("{form:?}"), r#"{"client_secret"}"#);
    }
}
