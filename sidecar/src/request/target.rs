//! The request target (RFC 9112 §3.2) as the client wrote it.
//!
//! The service must get the target that was authorized: it is read from the raw request line and
//! compared with the one that Pingora would send.

use std::borrow::Cow;

use http::{HeaderValue, Uri};
use wire::http::destination::AbsoluteForm;
use wire::rejection::Rejection;

/// A target in origin form: a path and an optional query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    origin_form: Cow<'a, [u8]>,
    /// The host that an absolute target named.
    host: Option<Vec<u8>>,
}

/// The target and the host of a request that came with an absolute target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OriginForm {
    pub(crate) target: Uri,
    pub(crate) host: HeaderValue,
}

impl<'a> Target<'a> {
    /// Reads the target from the header block. `to_send` is what Pingora would put on the wire.
    ///
    /// # Errors
    /// [`Rejection::PathNotCanonical`] for `*`, a fragment, another scheme than http, or a target
    /// that Pingora would change.
    pub(crate) fn parse(raw_head: &'a [u8], to_send: &[u8]) -> Result<Self, Rejection> {
        let raw = raw_target(raw_head).ok_or(Rejection::PathNotCanonical)?;
        // A request has no fragment: Pingora would drop it, other parsers would not.
        if raw != to_send || raw.contains(&b'#') {
            return Err(Rejection::PathNotCanonical);
        }
        if raw.starts_with(b"/") {
            return Ok(Self {
                origin_form: Cow::Borrowed(raw),
                host: None,
            });
        }
        let absolute = AbsoluteForm::parse(raw).ok_or(Rejection::PathNotCanonical)?;
        Ok(Self {
            origin_form: origin_form(absolute.target),
            host: Some(absolute.host()),
        })
    }

    /// Reads the `:path` of HTTP/2, which is sent as it is.
    ///
    /// # Errors
    /// [`Rejection::PathNotCanonical`] for a path that is not in origin form.
    pub(crate) fn from_http2(path: &'a [u8]) -> Result<Self, Rejection> {
        if !path.starts_with(b"/") || path.contains(&b'#') {
            return Err(Rejection::PathNotCanonical);
        }
        Ok(Self {
            origin_form: Cow::Borrowed(path),
            host: None,
        })
    }

    /// Returns the path, without the query.
    pub(crate) fn path(&self) -> &[u8] {
        self.origin_form
            .split(|&byte| byte == b'?')
            .next()
            .unwrap_or_default()
    }

    /// Returns what to send instead of the received target and `Host`: the absolute form is for
    /// proxies, its host counts (RFC 9112 §3.2.2), and a service may take it for a path.
    pub(crate) fn replacement(&self) -> Result<Option<OriginForm>, Rejection> {
        let Some(host) = &self.host else {
            return Ok(None);
        };
        let target = Uri::try_from(self.origin_form.as_ref());
        let target = target.map_err(|_| Rejection::PathNotCanonical)?;
        let host = HeaderValue::from_bytes(host).map_err(|_| Rejection::RequestMalformed)?;
        Ok(Some(OriginForm { target, host }))
    }
}

/// Returns true if the target begins with a path, and so names no host.
pub(crate) fn is_in_origin_form(raw_head: &[u8]) -> bool {
    raw_target(raw_head).is_some_and(|target| target.starts_with(b"/"))
}

/// Returns the host of an absolute target, as it was written.
pub(crate) fn authority(raw_head: &[u8]) -> Option<&[u8]> {
    let target = raw_target(raw_head).filter(|target| !target.starts_with(b"/"))?;
    Some(AbsoluteForm::parse(target)?.authority)
}

/// Returns the bytes between the first and the last space of the request line; empty lines before
/// it are allowed (RFC 9112 §2.2).
fn raw_target(raw_head: &[u8]) -> Option<&[u8]> {
    let line = raw_head
        .trim_ascii_start()
        .split(|&byte| byte == b'\r')
        .next()?;
    let first = line.iter().position(|&byte| byte == b' ')?;
    let last = line.iter().rposition(|&byte| byte == b' ')?;
    line.get(first + 1..last)
}

/// Completes what follows the host of an absolute target, which may be a query alone.
fn origin_form(rest: &[u8]) -> Cow<'_, [u8]> {
    if rest.starts_with(b"/") {
        Cow::Borrowed(rest)
    } else {
        Cow::Owned([b"/", rest].concat())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn parsed(target: &str) -> Result<(String, Option<String>), Rejection> {
        let head = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        let target = Target::parse(head.as_bytes(), target.as_bytes())?;
        let path = String::from_utf8(target.path().to_vec()).unwrap();
        let sent = target.replacement()?;
        let sent = sent.map(|sent| format!("{:?} {}", sent.host, sent.target));
        Ok((path, sent))
    }

    #[test]
    fn the_origin_form_stays_as_it_is() {
        for (target, path) in [
            ("/", "/"),
            ("/a/b?c=/d?e", "/a/b"),
            ("/%2e%2E//;x?", "/%2e%2E//;x"),
            ("//host/path", "//host/path"),
        ] {
            assert_eq!(parsed(target), Ok((path.into(), None)), "{target}");
        }
    }

    #[test]
    fn the_absolute_form_becomes_the_origin_form_byte_for_byte() {
        for (target, path, sent) in [
            ("http://h/a/%2F?b=%20", "/a/%2F", "\"h\" /a/%2F?b=%20"),
            ("HTTPS://H.example:1/a", "/a", "\"h.example:1\" /a"),
            ("http://h:80", "/", "\"h\" /"),
            ("https://h:443?x=1", "/", "\"h\" /?x=1"),
            ("http://h//admin", "//admin", "\"h\" //admin"),
        ] {
            let expected = (path.to_owned(), Some(sent.to_owned()));
            assert_eq!(parsed(target), Ok(expected), "{target}");
        }
    }

    #[test]
    fn a_target_that_is_no_path_is_rejected() {
        for target in [
            "*",
            "",
            "a",
            "host:443",
            "ftp://h/a",
            "http:/a",
            "http:///a",
            "://h/a",
            "/a#b",
            "/a?b#c",
            "http://h/a#b",
            "?x",
        ] {
            assert_eq!(parsed(target), Err(Rejection::PathNotCanonical), "{target}");
        }
    }

    #[test]
    fn a_target_that_pingora_would_change_is_rejected() {
        assert_eq!(
            Target::parse(b"GET /a\xff HTTP/1.1\r\n", b"/a\xef\xbf\xbd"),
            Err(Rejection::PathNotCanonical)
        );
    }

    #[test]
    fn http2_has_the_origin_form_only() {
        let target = Target::from_http2(b"/a?b").unwrap();
        assert_eq!(
            (target.path(), target.replacement()),
            (&b"/a"[..], Ok(None))
        );
        for path in ["", "*", "a", "http://h/a", "/a#b"] {
            let rejected = Err(Rejection::PathNotCanonical);
            assert_eq!(Target::from_http2(path.as_bytes()), rejected, "{path}");
        }
    }

    #[test]
    fn empty_lines_before_the_request_line_are_skipped() {
        let target = Target::parse(b"\r\n\r\nGET /a HTTP/1.1\r\n", b"/a").unwrap();
        assert_eq!(target.path(), b"/a");
    }
}
