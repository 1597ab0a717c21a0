//! Reading a request body: bounded in size and in time.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use contract::rejection::Rejection;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;

/// A login is a few hundred bytes.
pub(super) const MAX_BODY_BYTES: usize = 64 * 1024;

/// The whole body.
///
/// # Errors
/// [`Rejection::BodyTooLarge`], before a byte is read where the length is declared;
/// [`Rejection::RequestTimeout`]; [`Rejection::BodyMalformed`] where its framing breaks.
pub(super) async fn read(body: Body, timeout: Duration) -> Result<Bytes, Rejection> {
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(Rejection::BodyTooLarge);
    }
    let whole = Limited::new(body, MAX_BODY_BYTES).collect();
    match tokio::time::timeout(timeout, whole).await {
        Err(_) => Err(Rejection::RequestTimeout),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Rejection::BodyTooLarge),
        Ok(Err(_)) => Err(Rejection::BodyMalformed),
        Ok(Ok(body)) => Ok(body.to_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn a_body_within_the_limit_is_read_whole() {
        for length in [0, 1, MAX_BODY_BYTES] {
            let body = read(Body::from(vec![b'x'; length]), SOON).await;
            assert_eq!(body.map(|body| body.len()), Ok(length));
        }
    }

    #[tokio::test]
    async fn a_larger_one_is_refused_whether_or_not_it_declares_its_length() {
        let declared = Body::from(vec![b'x'; MAX_BODY_BYTES + 1]);
        assert_eq!(read(declared, SOON).await, Err(Rejection::BodyTooLarge));
        let chunks = (0..3).map(|_| Ok::<_, Infallible>(vec![b'x'; MAX_BODY_BYTES / 2]));
        let undeclared = Body::from_stream(stream::iter(chunks));
        assert_eq!(read(undeclared, SOON).await, Err(Rejection::BodyTooLarge));
    }

    #[tokio::test]
    async fn one_that_never_ends_is_given_up() {
        let endless = Body::from_stream(stream::pending::<Result<Vec<u8>, Infallible>>());
        let outcome = read(endless, Duration::from_millis(1)).await;
        assert_eq!(outcome, Err(Rejection::RequestTimeout));
    }
}
