//! Form bodies of OAuth requests (`application/x-www-form-urlencoded`, RFC 6749 Appendix B).

use std::collections::BTreeMap;
use std::fmt;

use crate::path::canonical::split_escape;

/// Max number of parameters: OAuth requests have a handful, and a body of thousands only costs memory.
const MAX_PARAMETERS: usize = 32;

/// The parameter that may repeat (RFC 8707 §2).
const RESOURCE: &str = "resource";

/// The parameters of a form, each at most once (RFC 6749 §3.2) but for the resources.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Form {
    parameters: BTreeMap<String, String>,
    resources: Vec<String>,
}

// The errors of an unusable form, for the client: they quote nothing of it, and have the characters of
// `error_description` (RFC 6749 §5.2).
const ENCODING: &str = "the form has a byte that must be encoded (a space as + or %20), a broken escape, or text that is \
                        not UTF-8";
const CONTROL_CHARACTER: &str = "a parameter of the form holds a control character";
const NAMELESS: &str = "a parameter of the form has no name";
const REPEATED: &str = "a parameter stands in the form twice";
const TOO_MANY: &str = "the form has too many parameters";

/// Prints the names; values may be secrets.
impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.parameters.keys()).finish()
    }
}

impl Form {
    /// Parses a body; two programs must not read it differently, so nothing is repaired.
    ///
    /// # Errors
    /// The first error, as text for the client.
    pub fn parse(body: &[u8]) -> Result<Self, &'static str> {
        let body = std::str::from_utf8(body).map_err(|_| ENCODING)?;
        let (mut parameters, mut resources) = (BTreeMap::new(), Vec::new());
        // An empty pair, as in `a=1&&b=2`, counts as nothing in the URL standard too.
        for pair in body.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if name.is_empty() {
                return Err(NAMELESS);
            }
            // `resource` alone may be repeated (RFC 8707 §2).
            if name == RESOURCE {
                if !value.is_empty() && !resources.contains(&value) {
                    resources.push(value);
                }
            } else if parameters.insert(name, value).is_some() {
                return Err(REPEATED);
            }
            if parameters.len() + resources.len() > MAX_PARAMETERS {
                return Err(TOO_MANY);
            }
        }
        Ok(Self {
            parameters,
            resources,
        })
    }

    /// Returns a parameter; a parameter without a value counts as absent (RFC 6749 §3.2).
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        match self.parameters.get(name)?.as_str() {
            "" => None,
            value => Some(value),
        }
    }

    /// Returns the resources that a token is requested for, each once.
    #[must_use]
    pub fn resources(&self) -> &[String] {
        &self.resources
    }
}

/// Decodes one name or value: `+` is a space, `%` begins an escape, and the rest is visible ASCII.
///
/// # Errors
/// For any other byte, and for a text that is not UTF-8 or holds a control character.
pub fn decode(encoded: &str) -> Result<String, &'static str> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let (byte, tail) = match first {
            b'+' => (b' ', tail),
            b'%' => split_escape(tail).ok_or(ENCODING)?,
            b'!'..=b'~' => (first, tail),
            _ => return Err(ENCODING),
        };
        bytes.push(byte);
        rest = tail;
    }
    let text = String::from_utf8(bytes).map_err(|_| ENCODING)?;
    // Check after decoding, because an escape may hide a control character.
    if text.contains(char::is_control) {
        Err(CONTROL_CHARACTER)
    } else {
        Ok(text)
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
            (&b"a=1&a=1"[..], REPEATED),
            (b"a=1&%61=2", REPEATED),
            (b"a&a=", REPEATED),
            (b"=1", NAMELESS),
            (b"a=%", ENCODING),
            (b"a=%4", ENCODING),
            (b"a=%zz", ENCODING),
            (b"a=%ff", ENCODING),
            (b"a=\xff", ENCODING),
            ("a=ö".as_bytes(), ENCODING),
            (b"a=x y", ENCODING),
            (b"a=1\n", ENCODING),
            (b"a=%00", CONTROL_CHARACTER),
            (b"a%0a=1", CONTROL_CHARACTER),
            (many.join("&").as_bytes(), TOO_MANY),
        ] {
            assert_eq!(Form::parse(body), Err(expected), "{body:?}");
        }
    }

    #[test]
    fn debug_shows_no_value() {
        let form = Form::parse(b"client_secret=hush").unwrap_or_default();
        assert_eq!(format!("{form:?}"), r#"{"client_secret"}"#);
    }

    #[test]
    fn rfc_8707_resources_may_repeat_and_are_bounded() {
        let resources = |body: &str| Form::parse(body.as_bytes()).map(|form| form.resources);
        let owned = |list: &[&str]| Ok(list.iter().map(ToString::to_string).collect());
        for (body, expected) in [
            ("a=1", &[][..]),
            ("resource=x&a=1&resource=y&resource=x", &["x", "y"]),
            ("resource=&resource=x&resource", &["x"]),
            ("Resource=x", &[]),
        ] {
            assert_eq!(resources(body), owned(expected), "{body}");
        }
        let many: Vec<_> = (0..=MAX_PARAMETERS)
            .map(|n| format!("resource={n}"))
            .collect();
        assert_eq!(resources(&many.join("&")), Err(TOO_MANY));
    }
}
