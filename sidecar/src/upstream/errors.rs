//! Maps Pingora's errors to rejections and to causes for the log.

use std::io;

use h2::Reason;
use pingora::{Error, ErrorSource, ErrorType, ImmutStr};
use postern_contract::rejection::Rejection;
use postern_transport::tls::failure;

use super::tls::UpstreamTls;

/// Returns the rejection of a failed request; `None` if the client is gone.
pub(crate) fn rejection_of(error: &Error) -> Option<Rejection> {
    use ErrorSource::{Downstream, Internal, Unset, Upstream};
    use ErrorType as Kind;
    use ErrorType::{ConnectTimedout, ReadTimedout, TLSHandshakeTimedout, WriteTimedout};
    let rejection = match (error.esource(), error.etype()) {
        (Upstream, ConnectTimedout | ReadTimedout | WriteTimedout | TLSHandshakeTimedout) => {
            Rejection::UpstreamTimeout
        }
        (Upstream, Kind::InvalidHTTPHeader | Kind::InvalidH2) => Rejection::UpstreamMalformed,
        (Upstream, _) => Rejection::UpstreamUnavailable,
        // The client is gone: no response can reach it.
        (Downstream, Kind::ReadError | Kind::WriteError | WriteTimedout) => return None,
        (Downstream, Kind::ConnectionClosed | Kind::H2Error) => return None,
        (Downstream, ReadTimedout) => Rejection::RequestTimeout,
        (Downstream, _) => Rejection::RequestFraming,
        (Internal | Unset, _) => Rejection::Internal,
    };
    Some(rejection)
}

/// Returns the code with which one side has reset its stream of HTTP/2.
pub(crate) fn reset_reason(error: &Error) -> Option<Reason> {
    let cause = error.root_cause().downcast_ref::<h2::Error>()?;
    // An error of the connection, or an error that `h2` found, is no code of the other side's stream.
    if cause.is_go_away() || cause.is_library() {
        return None;
    }
    cause.reason()
}

/// Returns true if the other side sent what HTTP/2 forbids, for which `h2` has ended the connection with
/// all its streams.
pub(crate) fn ends_connection(error: &h2::Error) -> bool {
    error.is_go_away() && error.is_library() && error.reason() == Some(Reason::PROTOCOL_ERROR)
}

/// Returns true if `h2` reset the stream because the client broke the framing after the head. The request was
/// counted and logged when the reset was written (see [`crate::downstream::http2`]).
pub(crate) fn was_reset_for_framing(error: &Error) -> bool {
    match error.root_cause().downcast_ref::<h2::Error>() {
        Some(cause) if *error.esource() == ErrorSource::Downstream => {
            cause.is_reset() && cause.is_library() && cause.reason() == Some(Reason::PROTOCOL_ERROR)
        }
        _ => false,
    }
}

/// Returns the cause for the log. It leaves out texts of Pingora that may quote received bytes.
pub(crate) fn log_cause(error: &Error) -> String {
    let what = match error.etype() {
        ErrorType::InvalidHTTPHeader => context(error).unwrap_or("a malformed message"),
        kind => in_words(error.esource(), kind),
    };
    match root_cause_in_words(error) {
        Some(cause) => format!("{what}: {cause}"),
        None => what.to_owned(),
    }
}

fn context(error: &Error) -> Option<&str> {
    error.context.as_ref().map(ImmutStr::as_str)
}

fn root_cause_in_words(error: &Error) -> Option<String> {
    // Pingora keeps no TLS error but its text, in which the cause is recognized.
    if *error.etype() == ErrorType::TLSHandshakeFailure
        && let Some(text) = context(error)
        && let Some(cause) = failure::in_words(text, &UpstreamTls::SETTINGS)
    {
        return Some(cause);
    }
    let cause = error.root_cause();
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        return Some(error.to_string());
    }
    Some(
        cause
            .downcast_ref::<h2::Error>()?
            .reason()?
            .description()
            .to_owned(),
    )
}

const fn in_words(source: &ErrorSource, kind: &ErrorType) -> &'static str {
    use ErrorType as Kind;
    match (source, kind) {
        (_, Kind::ConnectTimedout) => "no connection within --upstream-connect-timeout",
        (_, Kind::ConnectRefused) => "nothing listens at the service's address",
        (_, Kind::ConnectNoRoute) => "no route to the service's address",
        (_, Kind::ConnectError) => "the service has no usable address",
        (_, Kind::TLSHandshakeTimedout) => "no TLS handshake within --upstream-connect-timeout",
        (_, Kind::TLSHandshakeFailure | Kind::InvalidCert) => "the TLS handshake failed",
        (_, Kind::HandshakeError) => "the handshake of HTTP/2 failed",
        (ErrorSource::Downstream, Kind::ReadTimedout) => "the body came too slowly",
        (_, Kind::ReadTimedout) => "no head or further part came within --upstream-read-timeout",
        (_, Kind::WriteTimedout) => "the client took nothing within --downstream-write-timeout",
        (ErrorSource::Downstream, Kind::ConnectionClosed) => "the client left",
        (_, Kind::ConnectionClosed) => "the connection ended before the response",
        (_, Kind::ReadError) => "the connection broke",
        (_, Kind::WriteError) => "the connection broke after a part of the request",
        (_, Kind::H2Error) => "the stream ended",
        (_, Kind::InvalidH2) => "no HTTP/2",
        (_, Kind::Custom(what)) => what,
        (ErrorSource::Upstream, _) => "no connection to the service",
        _ => "an error within the sidecar",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_of_an_error_selects_the_rejection() {
        use ErrorType::{ConnectRefused, InvalidHTTPHeader, ReadError, ReadTimedout};
        use Rejection as R;
        let (up, down) = (Error::new_up, Error::new_down);
        for (error, rejection) in [
            (up(ConnectRefused), Some(R::UpstreamUnavailable)),
            (up(InvalidHTTPHeader), Some(R::UpstreamMalformed)),
            (up(ReadTimedout), Some(R::UpstreamTimeout)),
            (down(ReadTimedout), Some(R::RequestTimeout)),
            (down(InvalidHTTPHeader), Some(R::RequestFraming)),
            (down(ReadError), None),
            (down(ErrorType::H2Error), None),
            (Error::new_in(ReadError), Some(R::Internal)),
        ] {
            assert_eq!(rejection_of(&error), rejection, "{error}");
        }
    }

    #[test]
    fn a_cause_quotes_no_received_bytes() {
        let rejected = io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = Error::because(ErrorType::ConnectRefused, "buf: Cookie: secret", rejected);
        let expected = "nothing listens at the service's address: connection refused";
        assert_eq!(log_cause(&error), expected);
    }
}
