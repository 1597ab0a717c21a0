//! URLs in one spelling, so that two of them can be compared (RFC 3986 §6.2.2, §6.2.3).

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use url::{Host, Url};

use crate::path::canonical::split_escape;

/// The characters of ASCII that no path of a URI has (RFC 3986 §3.3), and that some clients send as they are.
const NOT_IN_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// An `http` or `https` URL without query and fragment, normalised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NormalUrl {
    /// Scheme and host in lower case, with the port unless it is the scheme's own.
    pub origin: String,
    /// The path begins with a slash, has no dot segments, and only needed escapes, in upper case.
    pub path: String,
}

impl NormalUrl {
    /// Normalises a URL; `None` for another scheme, for user information, and for characters that no
    /// URI has.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // The parser is a browser's, which repairs much: texts that need a repair are rejected before.
        if !text.bytes().all(is_of_uri) {
            return None;
        }
        let end = text.find(['?', '#']).unwrap_or(text.len());
        let (scheme, rest) = text[..end].split_once("://")?;
        if !matches!(&*scheme.to_ascii_lowercase(), "http" | "https") {
            return None;
        }
        let normal = without_needless_escapes(rest)?;
        let authority = normal.split('/').next()?;
        if authority.is_empty() || authority.contains('@') {
            return None;
        }
        let url = Url::parse(&format!("{scheme}://{normal}")).ok()?;
        // An IPv4 address has one spelling (RFC 3986 §3.2.2); anything else is a name.
        if matches!(url.host(), Some(Host::Ipv4(_)))
            && authority.split(':').next() != url.host_str()
        {
            return None;
        }
        Some(Self {
            origin: url.origin().ascii_serialization(),
            path: percent_encode(url.path().as_bytes(), NOT_IN_PATH).to_string(),
        })
    }

    /// Normalises the raw path of a request as a client's URL has it: with escapes for what no path has.
    #[must_use]
    pub fn path_of(raw: &[u8]) -> Option<String> {
        if !raw.starts_with(b"/") {
            return None;
        }
        let path = percent_encode(raw, NOT_IN_PATH);
        Some(Self::parse(&format!("http://host{path}"))?.path)
    }
}

/// Returns true for the characters of RFC 3986 §2, and for those of paths that clients leave as they
/// are.
const fn is_of_uri(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'"' | b'<' | b'>')
}

/// Decodes the escapes of unreserved characters and writes the others in upper case (RFC 3986
/// §6.2.2.1, §6.2.2.2); `None` for a `%` without two digits after it.
fn without_needless_escapes(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut normal = parts.next()?.to_owned();
    for part in parts {
        let (byte, _) = split_escape(part.as_bytes())?;
        match char::from(byte) {
            c if c.is_ascii_alphanumeric() || "-._~".contains(c) => normal.push(c),
            // A reserved character would change the meaning of the URL, so its escape stays.
            _ => normal.push_str(&format!("%{byte:02X}")),
        }
        normal.push_str(&part[2..]);
    }
    Some(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_3986_6_2_spellings_of_one_url_are_equal() {
        let parsed = |text: &str| NormalUrl::parse(text).map(|url| url.origin + &url.path);
        for (text, normal) in [
            ("https://api.example/a/b", Some("https://api.example/a/b")),
            ("HTTPS://API.example:443/a", Some("https://api.example/a")),
            ("http://api.example:80", Some("http://api.example/")),
            ("https://api.example:/a", Some("https://api.example/a")),
            (
                "https://api.example:8443/",
                Some("https://api.example:8443/"),
            ),
            ("https://[2001:DB8::1]/", Some("https://[2001:db8::1]/")),
            ("https://a/b?c=d", Some("https://a/b")),
            ("https://a/b#c", Some("https://a/b")),
            ("https://a?b", Some("https://a/")),
            ("https://a/%7eada/%41%2d", Some("https://a/~ada/A-")),
            ("https://a/x%2fy%c3%bc", Some("https://a/x%2Fy%C3%BC")),
            ("https://a/b/./c/../d", Some("https://a/b/d")),
            ("https://a/b/%2e%2E/d", Some("https://a/d")),
            ("https://a/%252e", Some("https://a/%252e")),
            ("https://a/b/", Some("https://a/b/")),
            ("https://a//b", Some("https://a//b")),
            ("https://127.0.0.1:8443/", Some("https://127.0.0.1:8443/")),
            ("https://127.0.0.%31:/", Some("https://127.0.0.1/")),
            ("https://a/b|c[d]^", Some("https://a/b%7Cc%5Bd%5D%5E")),
            ("https://a/B", Some("https://a/B")),
            // Nothing of these is repaired.
            ("https://a\\b", None),
            ("https://a/b c", None),
            ("https:/a/b", None),
            ("https:a/b", None),
            ("https:///a/b", None),
            ("https:////a/b", None),
            ("https:b://a/b", None),
            ("http%73://a/b", None),
            ("https://@a/", None),
            ("https://0x7f000001/", None),
            ("https://2130706433:80/", None),
            ("https://127.1/", None),
            ("https://127.0.0.01/", None),
            ("https://127.0.0.1./", None),
            ("https://a/\tb", None),
            ("https://a/\u{fc}", None),
            ("https://a/%", None),
            ("https://a/%4", None),
            ("https://a/%+1", None),
            ("https://ada@a/", None),
            ("https://:x@a/", None),
            ("ftp://a/b", None),
            ("/a/b", None),
            ("", None),
        ] {
            assert_eq!(parsed(text).as_deref(), normal, "{text}");
        }
    }

    #[test]
    fn a_path_is_spelt_as_in_a_url() {
        for (raw, path) in [
            (&b"/a/%7eb"[..], Some("/a/~b")),
            // Not of a URI, and yet sent by some: as a client's URL has them.
            (b"/a|b[1]", Some("/a%7Cb%5B1%5D")),
            (b"/\"<>{}`^\\", Some("/%22%3C%3E%7B%7D%60%5E%5C")),
            ("/\u{fc}".as_bytes(), Some("/%C3%BC")),
            (b"/\xfc", Some("/%FC")),
            (b"/a@b:c;d=e!$&'()*+,-._~", Some("/a@b:c;d=e!$&'()*+,-._~")),
            (b"/", Some("/")),
            (b"//b", Some("//b")),
            (b"a", None),
            (b"*", None),
            (b"/%4", None),
        ] {
            assert_eq!(NormalUrl::path_of(raw).as_deref(), path, "{raw:?}");
        }
    }
}
