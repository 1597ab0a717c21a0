//! Reads request bodies within limits of size, time and total memory.

use std::net::IpAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use bytes::BytesMut;
use http::request::Parts;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use postern_contract::rejection::Rejection;
use postern_http::only_field::only_field;
use postern_transport::net::shares::{Holder, Share};
use postern_transport::net::unfinished::counted;
use tokio::time::timeout;

use crate::http::app::{App, ClientIp};

/// Max length of a body; a login has a few hundred bytes.
pub(in crate::http) const MAX_BODY_BYTES: usize = 8 * 1024;

/// Receives a whole request: its head, its client and its body.
pub(in crate::http) async fn receive(
    app: &App,
    request: Request,
) -> (Parts, IpAddr, Result<BytesMut, Rejection>) {
    let (parts, body) = request.into_parts();
    let client = ClientIp::added_to(&parts.extensions);
    let held = app
        .unfinished
        .nothing_for(Holder::for_address(Some(client)));
    let body = read(body, app.config.request_timeout, held).await;
    (parts, client, body)
}

/// Reads the whole body; `held` accounts for its memory while it is incomplete.
///
/// # Errors
/// [`Rejection::BodyTooLarge`], before reading where the length is declared;
/// [`Rejection::RequestTimeout`]; [`Rejection::ServerBusy`] where incomplete requests fill the
/// budget; [`Rejection::BodyMalformed`] on broken framing.
async fn read(body: Body, limit: Duration, held: Share) -> Result<BytesMut, Rejection> {
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(Rejection::BodyTooLarge);
    }
    timeout(limit, copy(body, held))
        .await
        .unwrap_or(Err(Rejection::RequestTimeout))
}

/// Returns true for a body of this media type, in any case and with any parameters (RFC 9110
/// §8.3.1).
pub(in crate::http) fn is_of_type(headers: &HeaderMap, expected: &str) -> bool {
    let Ok(Some(field)) = only_field(headers, &header::CONTENT_TYPE) else {
        return false;
    };
    field
        .as_bytes()
        .split(|&b| b == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii()
        .eq_ignore_ascii_case(expected.as_bytes())
}

/// Rejects a compressed body.
///
/// # Errors
/// [`Rejection::BodyEncoding`]
pub(in crate::http) fn check_coding(headers: &HeaderMap) -> Result<(), Rejection> {
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
    if codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        Ok(())
    } else {
        Err(Rejection::BodyEncoding)
    }
}

/// Copies the data: a slice of a body would keep its whole receive buffer alive.
async fn copy(mut body: Body, mut held: Share) -> Result<BytesMut, Rejection> {
    let mut copied = BytesMut::new();
    while let Some(frame) = body.frame().await {
        // A frame without data holds trailers, which are ignored.
        let Ok(data) = frame.map_err(|_| Rejection::BodyMalformed)?.into_data() else {
            continue;
        };
        if copied.len() + data.len() > MAX_BODY_BYTES {
            return Err(Rejection::BodyTooLarge);
        }
        copied.extend_from_slice(&data);
        // A body that has ended needs no larger share, so do not request one.
        if body.is_end_stream() {
            break;
        }
        if !held.set(counted(copied.capacity())) {
            return Err(Rejection::ServerBusy);
        }
    }
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use postern_transport::net::shares::Shares;

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    fn held() -> Share {
        Shares::new(MAX_BODY_BYTES * 2).nothing_for(Holder::for_address(None))
    }

    /// Returns a body in chunks of one byte.
    fn dripping(length: usize) -> Body {
        let chunks = (0..length).map(|_| Ok::<_, Infallible>(b"x".as_slice()));
        Body::from_stream(stream::iter(chunks))
    }

    #[tokio::test]
    async fn a_body_within_the_limit_is_read_whole() {
        for length in [0, 1, MAX_BODY_BYTES] {
            let body = read(Body::from(vec![b'x'; length]), SOON, held()).await;
            assert_eq!(body.map(|body| body.len()), Ok(length));
        }
    }

    #[tokio::test]
    async fn a_larger_body_is_rejected_with_or_without_its_length() {
        let declared = Body::from(vec![b'x'; MAX_BODY_BYTES + 1]);
        assert_eq!(
            read(declared, SOON, held()).await,
            Err(Rejection::BodyTooLarge)
        );
        let chunks = (0..3).map(|_| Ok::<_, Infallible>(vec![b'x'; MAX_BODY_BYTES / 2]));
        let undeclared = Body::from_stream(stream::iter(chunks));
        assert_eq!(
            read(undeclared, SOON, held()).await,
            Err(Rejection::BodyTooLarge)
        );
    }

    #[tokio::test]
    async fn one_in_many_chunks_is_copied_into_one_buffer() {
        let copied = read(dripping(MAX_BODY_BYTES), SOON, held()).await;
        let copied = copied.unwrap_or_default();
        assert_eq!(copied.len(), MAX_BODY_BYTES);
        assert!(copied.capacity() <= 2 * MAX_BODY_BYTES);
    }

    #[tokio::test]
    async fn all_that_wait_for_their_rest_share_one_budget() {
        let budget = Shares::new(MAX_BODY_BYTES);
        let newcomer = || budget.nothing_for(Holder::for_address(Some([192, 0, 2, 1].into())));
        let mut other = budget.nothing_for(Holder::for_address(None));
        assert!(other.set(MAX_BODY_BYTES));
        let long = || read(dripping(MAX_BODY_BYTES), SOON, newcomer());
        assert_eq!(long().await, Err(Rejection::ServerBusy));
        let ordinary = read(dripping(300), SOON, newcomer()).await;
        assert_eq!(ordinary.map(|body| body.len()), Ok(300));
        let whole = Body::from(vec![b'x'; MAX_BODY_BYTES]);
        let whole = read(whole, SOON, newcomer()).await;
        assert_eq!(whole.map(|body| body.len()), Ok(MAX_BODY_BYTES));
        drop(other);
        assert_eq!(long().await.map(|body| body.len()), Ok(MAX_BODY_BYTES));
    }

    #[tokio::test]
    async fn one_that_never_ends_is_given_up() {
        let endless = Body::from_stream(stream::pending::<Result<Vec<u8>, Infallible>>());
        let outcome = read(endless, Duration::from_millis(1), held()).await;
        assert_eq!(outcome, Err(Rejection::RequestTimeout));
    }
}
