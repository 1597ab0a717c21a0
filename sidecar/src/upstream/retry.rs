//! Retries of requests that failed before the service responded.
//!
//! A service that restarts rejects connections for a moment, which clients need not notice. A
//! request that the service may have carried out is not sent twice.

use std::time::{Duration, Instant};

use http::Method;
use pingora::{Error, ErrorSource, ErrorType, RetryType};
use postern_process::pauses::Pauses;

/// Time after the first failure in which a request is retried.
const WINDOW: Duration = Duration::from_secs(1);
const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(10),
    last: Duration::from_millis(100),
};

/// Failures of one request.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    first_failure: Option<Instant>,
    failures: u32,
    /// True once the request was sent again after a failure on a new connection, or with a malformed response.
    resent: bool,
}

impl Tries {
    /// Returns true to retry after a failed connect: nothing was sent.
    pub(crate) fn after_connecting(&mut self, error: &Error, now: Instant) -> bool {
        may_pass_soon(error) && self.fits(now)
    }

    /// Returns true to retry a request that can be sent again, after a failure before the beginning of the
    /// response. The service may have closed a reused connection before it read the request. Without a
    /// `method` the service may carry out any.
    pub(crate) fn after_sending(
        &mut self,
        error: &Error,
        method: Option<&Method>,
        is_reused: bool,
        now: Instant,
    ) -> bool {
        let is_decided = matches!(error.retry, RetryType::Decided(true));
        // HTTP/2 says that the stream was not processed (RFC 9113 §8.7).
        let allowed = if *error.etype() == ErrorType::H2Error && is_decided {
            true
        } else if *error.etype() == ErrorType::InvalidH2 {
            // Once only: it may be the response to this request, or to another one on the connection.
            method.is_some_and(Method::is_idempotent) && !std::mem::replace(&mut self.resent, true)
        } else if !broke_before_response(error) {
            false
        } else if is_reused {
            // It may have been closed as idle, or after the request was carried out.
            method.is_some_and(Method::is_idempotent)
        } else {
            // Once only: a request that crashes the service must not do so for the whole window.
            method.is_some_and(Method::is_safe) && !std::mem::replace(&mut self.resent, true)
        };
        allowed && self.fits(now)
    }

    /// Returns the pause before the next try; `None` before the first.
    pub(crate) fn pause(&self) -> Option<Duration> {
        (self.failures > 0).then(|| PAUSES.after(self.failures))
    }

    fn fits(&mut self, now: Instant) -> bool {
        let first = *self.first_failure.get_or_insert(now);
        self.failures += 1;
        now.duration_since(first) < WINDOW
    }
}

/// Returns true for errors of a service that is starting; `HandshakeError` is a failed handshake of HTTP/2.
/// After a failed TLS handshake or a connect timeout a retry would not help.
fn may_pass_soon(error: &Error) -> bool {
    matches!(
        error.etype(),
        ErrorType::ConnectRefused
            | ErrorType::ConnectNoRoute
            | ErrorType::ConnectError
            | ErrorType::ConnectionClosed
            | ErrorType::HandshakeError
            | ErrorType::H2Error
    )
}

/// Returns true for a connection that the service closed before it responded.
pub(crate) fn broke_before_response(error: &Error) -> bool {
    let broke = matches!(
        error.etype(),
        ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::WriteError
    );
    broke && *error.esource() == ErrorSource::Upstream
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_failed_connect_is_retried_with_growing_pauses() {
        let error = Error::new_up(ErrorType::ConnectRefused);
        let mut tries = Tries::default();
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        assert_eq!(tries.pause(), None);
        while tries.after_connecting(&error, now) {
            pauses.push(tries.pause().unwrap());
            now += tries.pause().unwrap();
        }
        let all: Duration = pauses.iter().sum();
        assert!(all >= WINDOW && all < WINDOW + PAUSES.last, "{pauses:?}");
        assert_eq!(
            (pauses[0], pauses.last()),
            (PAUSES.first, Some(&PAUSES.last))
        );
    }

    #[test]
    fn timeouts_and_tls_errors_are_not_retried() {
        for kind in [
            ErrorType::ConnectTimedout,
            ErrorType::TLSHandshakeFailure,
            ErrorType::InvalidCert,
        ] {
            let error = Error::new_up(kind);
            assert!(!Tries::default().after_connecting(&error, Instant::now()));
        }
    }

    #[test]
    fn a_get_is_resent_but_on_new_connections_only_once() {
        let error = Error::new_up(ErrorType::ConnectionClosed);
        let now = Instant::now();
        let mut tries = Tries::default();
        let mut again =
            |is_reused, now| tries.after_sending(&error, Some(&Method::GET), is_reused, now);
        assert!(again(true, now));
        assert!(again(false, now));
        assert!(!again(false, now));
        assert!(again(true, now));
        assert!(!again(true, now + WINDOW));
    }

    #[test]
    fn a_malformed_response_repeats_an_idempotent_request_once() {
        let error = Error::new_up(ErrorType::InvalidH2);
        let now = Instant::now();
        for (method, is_repeated) in [
            (Some(&Method::PUT), true),
            (Some(&Method::POST), false),
            (None, false),
        ] {
            let mut tries = Tries::default();
            let mut again = || tries.after_sending(&error, method, true, now);
            assert_eq!([again(), again()], [is_repeated, false], "{method:?}");
        }
    }

    #[test]
    fn a_request_that_may_have_been_processed_is_not_resent() {
        let now = Instant::now();
        for kind in [ErrorType::ConnectionClosed, ErrorType::WriteError] {
            let error = Error::new_up(kind);
            for (method, reused) in [
                (Some(&Method::POST), true),
                (Some(&Method::POST), false),
                (Some(&Method::PATCH), true),
                (Some(&Method::PUT), false),
                (Some(&Method::DELETE), false),
                (None, true),
                (None, false),
            ] {
                let again = Tries::default().after_sending(&error, method, reused, now);
                assert!(!again, "{method:?} {reused}");
            }
        }
        for error in [
            Error::new_up(ErrorType::ReadTimedout),
            Error::new_up(ErrorType::InvalidHTTPHeader),
            Error::new_down(ErrorType::ReadError),
        ] {
            assert!(!Tries::default().after_sending(&error, Some(&Method::GET), true, now));
        }
    }

    #[test]
    fn an_unprocessed_http2_stream_is_resent_for_any_method() {
        let mut error = Error::new_up(ErrorType::H2Error);
        let again = |error: &Error| {
            Tries::default().after_sending(error, Some(&Method::POST), false, Instant::now())
        };
        assert!(!again(&error));
        error.set_retry(true);
        assert!(again(&error));
    }
}
