//! The request target (RFC 9112 §3.2) as the client wrote it. The service gets the one that was
//! authorized, byte for byte.

use http::HeaderValue;
use wire::http::destination::AbsoluteForm;
use wire::rejection::Rejection;

/// A target in origin form: a path and an optional query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    received: &'a [u8],
    /// Takes the place of the received target and `Host`: the absolute form is for proxies, its
    /// host counts (RFC 9112 §3.2.2), and a service may take it for a path.
    pub(crate) replacement: Option<OriginForm>,
}

/// The target and the host of a request that came with an absolute target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OriginForm {
    pub(crate) target: Vec<u8>,
    pub(crate) host: HeaderValue,
}

impl<'a> Target<'a> {
    /// Reads a target; over HTTP/2 it is in origin form.
    ///
    /// # Errors
    /// [`Rejection::PathNotCanonical`] for `*`, a fragment, or another scheme than http.
    pub(crate) fn parse(target: &'a [u8], is_http_2: bool) -> Result<Self, Rejection> {
        // A request has no fragment: some parsers would drop it, others would not.
        if target.contains(&b'#') {
            return Err(Rejection::PathNotCanonical);
        }
        let mut replacement = None;
        if !target.starts_with(b"/") {
            let absolute = AbsoluteForm::parse(target).filter(|_| !is_http_2);
            let absolute = absolute.ok_or(Rejection::PathNotCanonical)?;
            let host = HeaderValue::from_bytes(&absolute.host());
            // What follows the host may be a query alone.
            let slash: &[u8] = match absolute.target.starts_with(b"/") {
                true => b"",
                false => b"/",
            };
            replacement = Some(OriginForm {
                target: [slash, absolute.target].concat(),
                host: host.map_err(|_| Rejection::RequestMalformed)?,
            });
        }
        Ok(Self {
            received: target,
            replacement,
        })
    }

    /// Returns the path, without the query.
    pub(crate) fn path(&self) -> &[u8] {
        let replacement = self.replacement.as_ref();
        let target = replacement.map_or(self.received, |it| &it.target);
        let mut parts = target.split(|&byte| byte == b'?');
        parts.next().unwrap_or_default()
    }
}

/// Returns the host of an absolute target, as it was written.
pub(crate) fn authority(target: &[u8]) -> Option<&[u8]> {
    if target.starts_with(b"/") {
        return None;
    }
    Some(AbsoluteForm::parse(target)?.authority)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn parsed(target: &str) -> Result<(String, Option<String>), Rejection> {
        let target = Target::parse(target.as_bytes(), false)?;
        let path = String::from_utf8(target.path().to_vec()).unwrap();
        let sent = target.replacement;
        let text = |target| String::from_utf8(target).unwrap();
        let sent = sent.map(|sent| format!("{:?} {}", sent.host, text(sent.target)));
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
    fn http2_has_the_origin_form_only() {
        let target = Target::parse(b"/a?b", true).unwrap();
        assert_eq!((target.path(), &target.replacement), (&b"/a"[..], &None));
        for path in ["", "*", "a", "http://h/a", "/a#b"] {
            let rejected = Err(Rejection::PathNotCanonical);
            assert_eq!(Target::parse(path.as_bytes(), true), rejected, "{path}");
        }
    }
}
