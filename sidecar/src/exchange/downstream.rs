//! The downstream of an exchange, the connection to the client, which each version of HTTP implements.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use h2::Reason;
use http::{HeaderMap, Response};
use pingora::Error;
use postern_http::framing::body::BodyReader;
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

use super::upload::Upload;

/// Wait for a client that is still sending: closing earlier would reset the connection before it
/// reads the response.
pub(crate) const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// The client of one request.
pub(crate) trait Downstream {
    /// Moves available bytes of the request into `upload`.
    fn poll_receive(
        &mut self,
        upload: &mut Upload,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<()>>;

    /// Waits until the client is gone, and returns the error. After a request that `is_received`, HTTP/1.x
    /// may read further bytes.
    fn poll_left(&mut self, is_received: bool, cx: &mut Context<'_>) -> Poll<Box<Error>>;

    /// Sends the waiting parts of a response; returns true if any moved.
    fn poll_send(&mut self, response: &mut Outgoing, cx: &mut Context<'_>)
    -> pingora::Result<bool>;

    /// Sends all that waits of a response of the sidecar; returns false if it fails.
    async fn send(&mut self, response: &mut Outgoing) -> bool;

    /// Lets the client see that its response stays incomplete, for the reason that the service gave.
    async fn abandon(&mut self, response: &mut Outgoing, reason: Option<Reason>);

    /// Waits a while for the rest of a request that was responded to; returns false where the
    /// connection has to end.
    async fn discard(&mut self, rest: BodyReader) -> bool;

    /// Returns the timer of the exchange.
    fn timer(&mut self) -> &mut Timer;

    /// Begins a tunnel: all further bytes of the client belong to it.
    fn open_tunnel(&mut self) {}
}

/// The parts of a response that wait for the client.
#[derive(Default)]
pub(crate) struct Outgoing {
    /// The heads of HTTP/2.
    pub(crate) heads: VecDeque<Response<()>>,
    /// The body, which HTTP/1.x frames and to which its heads belong.
    pub(crate) bytes: BytesMut,
    /// The trailers of HTTP/2.
    pub(crate) trailers: Option<HeaderMap>,
    /// True if nothing follows.
    pub(crate) is_whole: bool,
    /// True if the end of the connection is the end of the body for the client.
    pub(crate) ends_with_connection: bool,
    /// True while sent bytes may still be here: in TLS, or in the queue of a stream.
    pub(crate) needs_flush: bool,
}

impl Outgoing {
    /// Returns the numbers of heads and of bytes that wait.
    pub(super) fn waiting(&self) -> (usize, usize) {
        (self.heads.len(), self.bytes.len())
    }

    /// Takes back everything after the heads and bytes that were `waiting`, while none has left.
    pub(super) fn take_back(&mut self, (heads, bytes): (usize, usize)) {
        self.heads.truncate(heads);
        self.bytes.truncate(bytes);
        self.trailers = None;
        self.is_whole = false;
    }

    /// Returns true if nothing follows the bytes that are here.
    pub(crate) fn ends_here(&self) -> bool {
        self.is_whole && self.bytes.is_empty() && self.trailers.is_none()
    }

    /// Returns true once the whole response has left.
    pub(crate) fn is_sent(&self) -> bool {
        self.is_whole && self.heads.is_empty() && self.bytes.is_empty() && !self.needs_flush
    }
}

/// Timer with a deadline that may move with every read. An armed timer that fires early enough is
/// kept: arming costs more than one unneeded wake-up a minute.
#[derive(Default)]
pub(crate) struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Completes once `deadline` has passed.
    pub(crate) fn poll_until(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let sleep = self
            .0
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        // Only an earlier deadline needs a reset; a later one is found when the timer fires.
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        // A busy transfer uses up the task's budget, without which no timer of tokio completes.
        while pin!(unconstrained(sleep.as_mut())).poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            // The timer was armed for a deadline that has moved since.
            sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_ends_a_transfer_that_is_never_idle() {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        (0..1000).for_each(|_| sender.send(()).unwrap_or_default());
        let (mut timer, deadline) = (Timer::default(), Instant::now() + Duration::from_secs(1));
        let mut poll = |is_busy: bool, cx: &mut Context<'_>| {
            // Until the budget of this poll is used up.
            while is_busy && receiver.poll_recv(cx).is_ready() {}
            timer.poll_until(cx, deadline)
        };
        assert!(
            poll_fn(|cx| Poll::Ready(poll(false, cx)))
                .await
                .is_pending()
        );
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(poll_fn(|cx| Poll::Ready(poll(true, cx))).await.is_ready());
    }
}
