//! The begin of a body, which is received before its request is forwarded: at the pace of one that the
//! service waits for, because it holds a place of the sidecar.

use std::future::poll_fn;
use std::task::{Poll, ready};
use std::time::Duration;

use pingora::{Error, ErrorType};

use super::one_exchange::start;
use super::pace::Pace;
use super::side::ClientSide;
use super::upload::Upload;

/// Receives a short body, or the begin of a long one, whose parts have to come within `timeout`.
///
/// # Errors
/// Those of the client.
pub(super) async fn receive(
    side: &mut impl ClientSide,
    upload: &mut Upload,
    timeout: Option<Duration>,
) -> pingora::Result<()> {
    let (mut pace, mut until) = (Pace::default(), None);
    poll_fn(|cx| {
        while !upload.is_held() {
            let before = upload.received();
            if let Poll::Ready(received) = side.poll_receive(upload, cx) {
                received?;
                pace.received(upload.received() - before);
                until = None;
                continue;
            }
            start(&mut until, timeout.into_iter().chain([pace.left()]).min());
            let Some(until) = until else {
                return Poll::Pending;
            };
            ready!(side.timer().poll_until(cx, until));
            return Poll::Ready(Err(Error::new_down(ErrorType::ReadTimedout)));
        }
        Poll::Ready(Ok(()))
    })
    .await
}
