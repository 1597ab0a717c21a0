//! A request from memory, read by the parser of the proxy and within its limits, so that
//! explanations hold for the same request over a connection.

use std::io::Cursor;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use pingora::protocols::http::ServerSession;
use wire::rejection::Rejection;

use crate::downstream::stream::{ClientStream, RejectUnparsed};
use crate::downstream::transport::{self, ClientTransport};

/// Reads a header block up to its final empty line.
///
/// # Errors
/// The response to a client whose bytes are not a request.
pub(crate) fn read(raw: &[u8]) -> Result<ServerSession, Rejection> {
    let first = Arc::new(FirstRejection::default());
    let bytes = Box::new(Cursor::new(raw.to_vec()));
    let transport = ClientTransport::plain(transport::socket(bytes, None));
    let stream = ClientStream::new(transport, Arc::clone(&first) as _, Duration::MAX, None);
    let mut session = ServerSession::new_http1(Box::new(stream));
    let is_request = at_once(async {
        let read = session.read_request().await;
        if read.is_err() {
            // Pingora responds like this to a failed parse; `ClientStream` replaces the response.
            let _ = session.respond_error(400).await;
        }
        matches!(read, Ok(true))
    });
    match is_request {
        Some(true) => Ok(session),
        _ => Err(first
            .0
            .get()
            .copied()
            .unwrap_or(Rejection::RequestMalformed)),
    }
}

/// The first rejection.
#[derive(Debug, Default)]
struct FirstRejection(OnceLock<Rejection>);

impl RejectUnparsed for FirstRejection {
    fn reject(&self, rejection: Rejection, _: Option<IpAddr>) -> Bytes {
        let _ = self.0.set(rejection);
        Bytes::new()
    }

    fn on_rejected(&self, _: Rejection, _: Option<IpAddr>, _: bool) {}
}

/// Polls once: all bytes are there.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::downstream::head_limits::{MAX_HEAD_BYTES, MAX_HEAD_LINES};
    use crate::request::head::with_request_head;

    fn seen(fields: &str) -> Result<Vec<u8>, Rejection> {
        seen_at("/a", fields)
    }

    fn seen_at(target: &str, fields: &str) -> Result<Vec<u8>, Rejection> {
        let session = read(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes())?;
        with_request_head(&session, |head| Ok(head.target_to_send.to_vec()))
    }

    #[test]
    fn requests_from_memory_pass_the_proxy_s_parser() {
        assert_eq!(seen("X: 1\r\n"), Ok(b"/a".to_vec()));
        assert_eq!(seen_at("/a b", ""), Err(Rejection::RequestMalformed));
        let long = format!("X: {}\r\n", "a".repeat(2 * MAX_HEAD_BYTES));
        for (fields, rejection) in [
            ("Host: b\r\n", Rejection::RequestMalformed),
            ("a line without a colon\r\n", Rejection::RequestMalformed),
            (long.as_str(), Rejection::RequestHeaderTooLarge),
            (
                "X: 1\r\n".repeat(MAX_HEAD_LINES).as_str(),
                Rejection::RequestHeaderTooLarge,
            ),
        ] {
            assert_eq!(seen(fields), Err(rejection), "{fields}");
        }
    }

    #[test]
    fn half_a_head_is_malformed() {
        let read = read(b"GET / HTTP/1.1\r\n").map(|_| ());
        assert_eq!(read, Err(Rejection::RequestMalformed));
    }
}
