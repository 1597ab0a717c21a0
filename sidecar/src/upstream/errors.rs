//! What Pingora's errors mean: whose fault it was, what the client is told, what the log says.

use contract::rejection::Rejection;
use pingora::{Error, ErrorSource, ErrorType};

/// How a failed request is answered; `None` where the client is gone.
pub(crate) fn rejection_of(error: &Error) -> Option<Rejection> {
    use ErrorType::{
        ConnectTimedout, ConnectionClosed, H2Error, InvalidH2, InvalidHTTPHeader, ReadError,
        ReadTimedout, TLSHandshakeTimedout, WriteError, WriteTimedout,
    };
    match (error.esource(), error.etype()) {
        (
            ErrorSource::Upstream,
            ConnectTimedout | ReadTimedout | WriteTimedout | TLSHandshakeTimedout,
        ) => Some(Rejection::UpstreamTimeout),
        (ErrorSource::Upstream, InvalidHTTPHeader | InvalidH2) => {
            Some(Rejection::UpstreamMalformed)
        }
        (ErrorSource::Upstream, _) => Some(Rejection::UpstreamUnavailable),
        (
            ErrorSource::Downstream,
            ReadError | WriteError | WriteTimedout | ConnectionClosed | H2Error,
        ) => None,
        (ErrorSource::Downstream, ReadTimedout) => Some(Rejection::RequestTimeout),
        (ErrorSource::Downstream, _) => Some(Rejection::RequestFraming),
        (ErrorSource::Internal | ErrorSource::Unset, _) => Some(Rejection::Internal),
    }
}

/// Whether the HTTP/2 library reset the request's stream because the client broke the framing after the head.
/// That was counted and told of when it was written (see [`crate::downstream::stream`]).
pub(crate) fn was_reset_for_framing(error: &Error) -> bool {
    let cause = error.root_cause().downcast_ref::<h2::Error>();
    *error.esource() == ErrorSource::Downstream
        && cause.is_some_and(|cause| {
            cause.is_reset()
                && cause.is_library()
                && cause.reason() == Some(h2::Reason::PROTOCOL_ERROR)
        })
}

/// What happened, for the log. Not the whole of Pingora's text: that quotes what was received.
pub(crate) fn log_cause(error: &Error) -> String {
    let kind = error.etype().as_str();
    match error.root_cause().downcast_ref::<std::io::Error>() {
        Some(cause) => format!("{kind}: {cause}"),
        None => kind.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_apart_by_whose_they_are() {
        use ErrorType::{ConnectRefused, InvalidHTTPHeader, ReadError, ReadTimedout};
        for (error, rejection) in [
            (
                Error::new_up(ConnectRefused),
                Some(Rejection::UpstreamUnavailable),
            ),
            (
                Error::new_up(InvalidHTTPHeader),
                Some(Rejection::UpstreamMalformed),
            ),
            (
                Error::new_up(ReadTimedout),
                Some(Rejection::UpstreamTimeout),
            ),
            (
                Error::new_down(ReadTimedout),
                Some(Rejection::RequestTimeout),
            ),
            (
                Error::new_down(InvalidHTTPHeader),
                Some(Rejection::RequestFraming),
            ),
            (Error::new_down(ReadError), None),
            (Error::new_down(ErrorType::H2Error), None),
            (Error::new_in(ReadError), Some(Rejection::Internal)),
        ] {
            assert_eq!(rejection_of(&error), rejection, "{error}");
        }
    }

    #[test]
    fn a_log_line_holds_the_cause_and_nothing_that_was_received() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = Error::because(ErrorType::ConnectRefused, "buf: Cookie: secret", refused);
        assert_eq!(log_cause(&error), "ConnectRefused: connection refused");
    }
}
