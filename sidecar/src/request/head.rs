//! The head of a received request, as it was parsed and as it was sent.

use http::{HeaderMap, HeaderValue, Method, Version, header};
use wire::http::destination::Destination;
use wire::http::framing::announces_body;
use wire::interceptor::check_method;
use wire::rejection::Rejection;

use crate::request::target::Target;
use crate::request::{http1, http2, target};

/// The head of one received request.
#[derive(Clone, Copy)]
pub(crate) struct RequestHead<'a> {
    pub(crate) method: &'a Method,
    pub(crate) version: Version,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) wire: RawHead<'a>,
    /// The target that the service would get.
    pub(crate) target_to_send: &'a [u8],
}

/// The head before it was parsed.
#[derive(Clone, Copy)]
pub(crate) enum RawHead<'a> {
    /// The header block, byte for byte.
    Http1(&'a [u8]),
    /// HTTP/2 has no header block: `h2` decoded it.
    Http2 {
        /// `:authority`
        authority: Option<&'a [u8]>,
        /// True if the stream continues after the head.
        has_body: bool,
    },
}

impl<'a> RequestHead<'a> {
    /// Checks the framing, the host, the method and the destination, then returns the target.
    ///
    /// # Errors
    /// A rejection of a head that two parsers could read differently.
    pub(crate) fn checked_target(&self) -> Result<Target<'a>, Rejection> {
        match self.wire {
            RawHead::Http1(raw) => http1::check(self.version, self.headers, raw)?,
            RawHead::Http2 { authority, .. } => {
                http2::check(authority, self.target_to_send, self.headers)?;
            }
        }
        // Before the target: CONNECT has no path. After the framing: the connection stays open.
        check_method(self.method)?;
        if let Some(destination) = Destination::of(self.method, self.headers)? {
            destination.check_host(self.host())?;
        }
        match self.wire {
            RawHead::Http1(raw) => Target::parse(raw, self.target_to_send),
            RawHead::Http2 { .. } => Target::from_http2(self.target_to_send),
        }
    }

    /// Returns the host that the request names.
    pub(crate) fn host(&self) -> Option<&'a [u8]> {
        match self.wire {
            RawHead::Http2 {
                authority: Some(authority),
                ..
            } => Some(authority),
            RawHead::Http1(raw) => target::authority(raw).or_else(|| self.host_field()),
            RawHead::Http2 { .. } => self.host_field(),
        }
    }

    fn host_field(&self) -> Option<&'a [u8]> {
        self.headers.get(header::HOST).map(HeaderValue::as_bytes)
    }

    /// Returns true if a body follows.
    pub(crate) fn has_body(&self) -> bool {
        match self.wire {
            RawHead::Http1(_) => announces_body(self.headers),
            RawHead::Http2 { has_body, .. } => has_body,
        }
    }
}
