//! When a request that failed on its way to the service is tried again.
//!
//! A service that is being restarted refuses connections for a moment: clients need not notice. What
//! may have been carried out is never carried out twice.

use std::time::{Duration, Instant};

use http::Method;
use pingora::{Error, ErrorSource, ErrorType, RetryType};

/// For how long after its first failure a request is tried again.
const WINDOW: Duration = Duration::from_secs(1);
/// The pauses between tries double from the first to the last; all together fill the window.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_millis(100);
/// More tries than fit into the window: Pingora's own bound must not be the one that counts.
pub(crate) const MAX_TRIES: usize = 64;

/// The failures of one request so far.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    first_failure: Option<Instant>,
    failures: u32,
    /// Whether it was sent again after a fresh connection had taken it.
    resent: bool,
}

/// How far a request had come when it failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent<'a> {
    pub(crate) method: &'a Method,
    /// Over a connection that had carried another request before: the service may have closed it
    /// without having seen this one.
    pub(crate) reused: bool,
    /// Whether its body, as far as it was read, can be sent again.
    pub(crate) repeatable: bool,
}

impl Tries {
    /// Whether to try again when no connection came about: nothing was sent then.
    pub(crate) fn after_connecting(&mut self, error: &Error, now: Instant) -> bool {
        may_pass_soon(error) && self.fits(now)
    }

    /// Whether to try again when the connection failed before the service's answer began.
    pub(crate) fn after_sending(&mut self, error: &Error, sent: Sent<'_>, now: Instant) -> bool {
        if !sent.repeatable {
            return false;
        }
        let allowed = if was_refused_unseen(error) {
            true
        } else if !broke_without_an_answer(error) {
            false
        } else if sent.reused {
            sent.method.is_idempotent()
        } else {
            // A request that ends its service must not do so for a whole second.
            sent.method.is_safe() && !std::mem::replace(&mut self.resent, true)
        };
        allowed && self.fits(now)
    }

    /// How long to wait before the next try; nothing before the first.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let doublings = self.failures.checked_sub(1)?;
        let pause = FIRST_PAUSE.saturating_mul(1 << doublings.min(8));
        Some(pause.min(LAST_PAUSE))
    }

    fn fits(&mut self, now: Instant) -> bool {
        let first = *self.first_failure.get_or_insert(now);
        self.failures += 1;
        now.duration_since(first) < WINDOW
    }
}

/// What a service that is just being started looks like. A handshake that fails, or a connection
/// that is not answered at all, has taken its time already and will not be better.
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

/// HTTP/2 says so (RFC 9113 §8.7): the stream was not processed.
fn was_refused_unseen(error: &Error) -> bool {
    matches!(error.etype(), ErrorType::H2Error | ErrorType::H2Downgrade)
        && matches!(error.retry, RetryType::Decided(true))
}

fn broke_without_an_answer(error: &Error) -> bool {
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

    fn sent(method: &Method, reused: bool) -> Sent<'_> {
        Sent {
            method,
            reused,
            repeatable: true,
        }
    }

    #[test]
    fn a_refused_connection_is_tried_for_a_second_with_growing_pauses() {
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
        assert!(all >= WINDOW && all < WINDOW + LAST_PAUSE, "{pauses:?}");
        assert_eq!((pauses[0], pauses.last()), (FIRST_PAUSE, Some(&LAST_PAUSE)));
        assert!(pauses.len() < MAX_TRIES);
    }

    #[test]
    fn what_will_not_be_better_is_not_tried_again() {
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
    fn a_get_without_an_answer_is_sent_again_and_over_a_fresh_connection_only_once() {
        let error = Error::new_up(ErrorType::ConnectionClosed);
        let now = Instant::now();
        let mut tries = Tries::default();
        assert!(tries.after_sending(&error, sent(&Method::GET, true), now));
        assert!(tries.after_sending(&error, sent(&Method::GET, false), now));
        assert!(!tries.after_sending(&error, sent(&Method::GET, false), now));
        assert!(tries.after_sending(&error, sent(&Method::GET, true), now));
        assert!(!tries.after_sending(&error, sent(&Method::GET, true), now + WINDOW));
    }

    #[test]
    fn what_may_have_been_carried_out_is_not_sent_twice() {
        let now = Instant::now();
        for kind in [ErrorType::ConnectionClosed, ErrorType::WriteError] {
            let error = Error::new_up(kind);
            for (method, reused) in [
                (Method::POST, true),
                (Method::POST, false),
                (Method::PATCH, true),
                (Method::PUT, false),
                (Method::DELETE, false),
            ] {
                let again = Tries::default().after_sending(&error, sent(&method, reused), now);
                assert!(!again, "{method} {reused}");
            }
        }
        for error in [
            Error::new_up(ErrorType::ReadTimedout),
            Error::new_up(ErrorType::InvalidHTTPHeader),
            Error::new_down(ErrorType::ReadError),
        ] {
            assert!(!Tries::default().after_sending(&error, sent(&Method::GET, true), now));
        }
        let mut truncated = sent(&Method::GET, true);
        truncated.repeatable = false;
        let error = Error::new_up(ErrorType::ConnectionClosed);
        assert!(!Tries::default().after_sending(&error, truncated, now));
    }

    #[test]
    fn a_stream_that_http_2_says_was_not_processed_is_sent_again_whatever_its_method() {
        let mut error = Error::new_up(ErrorType::H2Error);
        let again = |error: &Error| {
            Tries::default().after_sending(error, sent(&Method::POST, false), Instant::now())
        };
        assert!(!again(&error));
        error.set_retry(true);
        assert!(again(&error));
    }
}
