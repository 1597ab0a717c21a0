//! The request target (RFC 9112 §3.2) as the client wrote it. The service gets the one that was
//! authorized, byte for byte.

use crate::invalid::InvalidRequest;
use crate::path::destination::AbsoluteForm;
use http::HeaderValue;

/// A target in origin form: a path and an optional query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target<'a> {
    received: &'a [u8],
    /// Takes the place of the received target and `Host`: the absolute form is for proxies, its
    /// host counts (RFC 9112 §3.2.2), and a service may take it for a path.
    pub replacement: Option<OriginForm>,
}

/// The target and the host of a request that came with an absolute target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginForm {
    /// Path and query.
    pub target: Vec<u8>,
    /// The host of the absolute target.
    pub host: HeaderValue,
}

impl<'a> Target<'a> {
    /// Reads a target; over HTTP/2 it is in origin form.
    ///
    /// # Errors
    /// [`InvalidRequest::PathNotCanonical`] for `*`, a fragment, or another scheme than http.
    pub fn parse(target: &'a [u8], is_http_2: bool) -> Result<Self, InvalidRequest> {
        // A request has no fragment: some parsers would drop it, others would not.
        if target.contains(&b'#') {
            return Err(InvalidRequest::PathNotCanonical);
        }
        let mut replacement = None;
        if !target.starts_with(b"/") {
            let absolute = AbsoluteForm::parse(target)
                .filter(|_| !is_http_2)
                .ok_or(InvalidRequest::PathNotCanonical)?;
            let host = HeaderValue::from_bytes(&absolute.host());
            // The text after the host may be a query alone.
            let slash: &[u8] = if absolute.target.starts_with(b"/") {
                b""
            } else {
                b"/"
            };
            replacement = Some(OriginForm {
                target: [slash, absolute.target].concat(),
                host: host.map_err(|_| InvalidRequest::Malformed)?,
            });
        }
        Ok(Self {
            received: target,
            replacement,
        })
    }

    /// Returns the path, without the query.
    pub fn path(&self) -> &[u8] {
        let target = match &self.replacement {
            Some(replacement) => &replacement.target,
            None => self.received,
        };
        target
            .split(|&byte| byte == b'?')
            .next()
            .unwrap_or_default()
    }
}

/// Returns the host of an absolute target, as it was written.
pub fn authority(target: &[u8]) -> Option<&[u8]> {
    if target.starts_with(b"/") {
        return None;
    }
    Some(AbsoluteForm::parse(target)?.authority)
}
