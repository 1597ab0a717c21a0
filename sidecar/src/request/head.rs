//! The head of a request, as Pingora hands it over.

use contract::interceptor::check_method;
use contract::rejection::Rejection;
use http::{HeaderMap, Method, Version};
use pingora::protocols::http::ServerSession;

use crate::request::target::Target;
use crate::request::{http1, http2};

/// One request as it arrived.
#[derive(Clone, Copy)]
pub(crate) struct RequestHead<'a> {
    pub(crate) method: &'a Method,
    pub(crate) version: Version,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) wire: RawHead<'a>,
    /// The target that Pingora would send to the service.
    pub(crate) target_to_send: &'a [u8],
}

/// What a head was before it was parsed, as far as that is known.
#[derive(Clone, Copy)]
pub(crate) enum RawHead<'a> {
    /// The header block, byte for byte.
    Http1(&'a [u8]),
    /// Its fields came one by one.
    Http2 {
        /// `:authority`
        authority: Option<&'a [u8]>,
        /// Whether the stream goes on after the head.
        has_body: bool,
    },
}

impl<'a> RequestHead<'a> {
    /// The target of a head whose shape is beyond doubt.
    pub(crate) fn checked_target(&self) -> Result<Target<'a>, Rejection> {
        match self.wire {
            RawHead::Http1(raw) => http1::check(self.version, self.headers, raw)?,
            RawHead::Http2 { authority, .. } => {
                http2::check(authority, self.target_to_send, self.headers)?;
            }
        }
        // Before the target, which is no path with CONNECT; after the framing, because the connection
        // lives on.
        check_method(self.method)?;
        match self.wire {
            RawHead::Http1(raw) => Target::parse(raw, self.target_to_send),
            RawHead::Http2 { .. } => Target::of_http_2(self.target_to_send),
        }
    }

    pub(crate) fn has_body(&self) -> bool {
        match self.wire {
            RawHead::Http1(_) => http1::announces_body(self.headers),
            RawHead::Http2 { has_body, .. } => has_body,
        }
    }
}

/// Has `judge` decide about the request that was read last.
pub(crate) fn with_request_head<T>(
    session: &ServerSession,
    read: impl FnOnce(RequestHead<'_>) -> Result<T, Rejection>,
) -> Result<T, Rejection> {
    let request = session.req_header();
    let raw;
    let wire = match session {
        ServerSession::H1(connection) => {
            raw = connection.get_headers_raw_bytes();
            RawHead::Http1(&raw)
        }
        ServerSession::H2(stream) => RawHead::Http2 {
            authority: request.uri.authority().map(|name| name.as_str().as_bytes()),
            has_body: !stream.is_body_empty(),
        },
        _ => return Err(Rejection::Internal),
    };
    read(RequestHead {
        method: &request.method,
        version: request.version,
        headers: &request.headers,
        wire,
        target_to_send: request.raw_path(),
    })
}
