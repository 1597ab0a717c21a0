//! The reasons for which a request is rejected before its token is looked for.

use http::StatusCode;

/// A request that two programs could read differently, that is no request, or that is not here in
/// time or memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InvalidRequest {
    /// Dot segments, a backslash, a control byte, a broken or a double escape in the path.
    PathNotCanonical,
    /// A path past 8 KiB.
    PathTooLong,
    /// A `Destination` on another host, repeated, or without a valid path.
    Destination,
    /// Ambiguous framing: Content-Length with Transfer-Encoding, and the like.
    Framing,
    /// Not a request at all: a broken request line, field or length.
    Malformed,
    /// No `Host` field.
    HostMissing,
    /// TRACE or CONNECT, in any letter case.
    MethodNotAllowed,
    /// The header block or the request target is longer than allowed.
    HeaderTooLarge,
    /// The request did not arrive in time.
    Timeout,
    /// No memory is left for unfinished heads.
    MemoryExhausted,
}

impl InvalidRequest {
    /// Returns the status of a response to such a request.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::PathTooLong => StatusCode::URI_TOO_LONG,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::HeaderTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::MemoryExhausted => StatusCode::SERVICE_UNAVAILABLE,
            Self::PathNotCanonical
            | Self::Destination
            | Self::Framing
            | Self::Malformed
            | Self::HostMissing => StatusCode::BAD_REQUEST,
        }
    }
}
