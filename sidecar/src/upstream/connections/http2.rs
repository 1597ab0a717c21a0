//! Connections of HTTP/2 to the service, each shared by many requests.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::{HeaderMap, Request};
use parking_lot::Mutex;
use pingora::protocols::Stream;
use postern_transport::net::shares::Holder;
use tokio::task::coop::has_budget_remaining;

use crate::upstream::MAX_HEAD_BYTES;
use crate::upstream::bodies::spend_budget;

/// The limit of most HTTP/2 servers; a lower one of the service applies.
const MAX_STREAMS: u32 = 100;
/// Window of one response, whose bytes wait for its client. A larger window would let clients that do not
/// read hold more memory; a smaller one would block more calls in which both sides only send.
const STREAM_WINDOW: u32 = 512 * 1024;
/// Bytes of one request that wait for the service.
const SEND_BYTES: usize = 64 * 1024;
/// Max size of a frame, as large as the reads of a response of HTTP/1.1.
const FRAME_BYTES: u32 = 64 * 1024;
/// Size of a head or of trailers (RFC 9113 §6.5.2) for which no service ends a connection: the
/// default of Netty.
pub(crate) const MAX_SHARED_FIELDS: usize = 8 * 1024;
/// Number of reset streams after which no stream begins on a connection. With the streams that are open then,
/// the connection stays below the 200 resets in half a minute after which Netty ends it.
const MAX_RESETS: usize = 50;
/// Time of a request without any part of a response on its connection, after which no other one begins there:
/// the service may be gone while the socket stays open.
const SILENCE: Duration = Duration::from_secs(5);

/// Part of a task's budget of 128 reads and writes that a connection does not use once it was busy: one
/// read may hold hundreds of frames.
const UNUSED_BUDGET: usize = 112;

/// Returns true for a head that may be sent on a shared connection.
pub(super) fn is_short(head: &Request<()>) -> bool {
    let uri = head.uri();
    let authority = uri.authority().map_or(0, |it| it.as_str().len());
    let target = uri.path_and_query().map_or(0, |it| it.as_str().len());
    authority + target + size_of(head.headers()) <= MAX_SHARED_FIELDS
}

/// Returns the size of fields as HTTP/2 counts it.
pub(crate) fn size_of(fields: &HeaderMap) -> usize {
    fields
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 32)
        .sum()
}

/// A connection that requests share.
pub(super) struct Shared {
    requests: SendRequest<Bytes>,
    /// The only holder of its requests, if it has one.
    pub(super) holder: Option<Holder>,
    /// Held by each request, so that its count shows the requests in flight.
    usage: Arc<Usage>,
}

/// State that the requests of one connection share.
#[derive(Default)]
pub(in crate::upstream) struct Usage {
    /// Number of requests that were reset.
    pub(in crate::upstream) resets: AtomicUsize,
    /// Held by each request whose body waits for the service, so that its count shows them.
    pub(in crate::upstream) stalled: Arc<()>,
    /// The start of the first request since a part of a response came; it may have ended since.
    unheard: Mutex<Option<Instant>>,
}

impl Usage {
    /// Notes the start of a request.
    pub(in crate::upstream) fn begun(&self, now: Instant) {
        self.unheard.lock().get_or_insert(now);
    }

    /// Notes a part of a response.
    pub(in crate::upstream) fn heard(&self) {
        *self.unheard.lock() = None;
    }

    fn is_silent(&self, now: Instant) -> bool {
        let unheard = *self.unheard.lock();
        unheard.is_some_and(|since| now.saturating_duration_since(since) >= SILENCE)
    }
}

impl Shared {
    /// Begins HTTP/2 on `stream`. A task moves its bytes, until the service ends the connection or no request
    /// and no pool uses it any more.
    pub(super) async fn begin(stream: Stream, holder: Option<Holder>) -> Result<Self, h2::Error> {
        let mut builder = Builder::new();
        builder
            // Pushed responses belong to no request of a client.
            .enable_push(false)
            .initial_max_send_streams(MAX_STREAMS as usize)
            .max_frame_size(FRAME_BYTES)
            .max_header_list_size(MAX_HEAD_BYTES as u32)
            .max_send_buffer_size(SEND_BYTES)
            .initial_window_size(STREAM_WINDOW)
            // A response that its client does not read must not stop the others.
            .initial_connection_window_size(MAX_STREAMS * STREAM_WINDOW);
        let (requests, connection) = builder.handshake(stream).await?;
        tokio::spawn(in_short_turns(connection));
        Ok(Self {
            requests,
            holder,
            usage: Arc::default(),
        })
    }

    /// Returns a place for a request.
    pub(super) fn slot(&self) -> Slot {
        Slot {
            requests: self.requests.clone(),
            usage: Arc::clone(&self.usage),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.usage) == 1
    }

    /// Returns true if another request may begin; `None` once the service has ended the connection, or may
    /// soon. While a body waits no request begins: most services have one window for all bodies.
    pub(super) fn has_room(&mut self, now: Instant) -> Option<bool> {
        if self.usage.resets.load(Ordering::Relaxed) >= MAX_RESETS {
            return None;
        }
        let is_stalled = Arc::strong_count(&self.usage.stalled) > 1 || self.usage.is_silent(now);
        let most = self
            .requests
            .current_max_send_streams()
            .min(MAX_STREAMS as usize);
        let mut context = Context::from_waker(Waker::noop());
        // Polled once: no request waits for a stream of this connection.
        match self.requests.poll_ready(&mut context) {
            Poll::Ready(Err(_)) => None,
            // The count includes the pool's own, so there is room for one more.
            Poll::Ready(Ok(())) => Some(!is_stalled && Arc::strong_count(&self.usage) <= most),
            Poll::Pending => Some(false),
        }
    }
}

/// Runs a connection. Once it was busy, other tasks have their turn after a few of its reads.
async fn in_short_turns(connection: impl Future) {
    let mut connection = pin!(connection);
    let mut was_busy = false;
    poll_fn(|cx| {
        let unused = if was_busy { UNUSED_BUDGET } else { 0 };
        spend_budget(unused, cx);
        let polled = connection.as_mut().poll(cx);
        // A poll that used up its budget shows a busy connection; it stays marked as busy.
        was_busy |= !has_budget_remaining();
        polled.map(drop)
    })
    .await;
}

/// The place of one request on a connection, which counts it until the slot is dropped.
pub(in crate::upstream) struct Slot {
    pub(in crate::upstream) requests: SendRequest<Bytes>,
    pub(in crate::upstream) usage: Arc<Usage>,
}

#[cfg(test)]
mod tests {
    use tokio::task::coop::poll_proceed;

    use super::*;

    #[test]
    fn a_request_without_a_response_leaves_its_connection_silent() {
        let (usage, began) = (Usage::default(), Instant::now());
        let later = began + SILENCE;
        assert!(!usage.is_silent(later));
        usage.begun(began);
        // A later one that waits, or that was taken back, is no response.
        usage.begun(later);
        assert!(!usage.is_silent(later - Duration::from_millis(1)));
        assert!(usage.is_silent(later));
        usage.heard();
        assert!(!usage.is_silent(later));
        usage.begun(later);
        assert!(!usage.is_silent(later));
    }

    #[tokio::test]
    async fn a_busy_connection_has_short_turns() {
        let (mut reads, mut turns) = (0, Vec::new());
        in_short_turns(poll_fn(|cx| {
            let before = reads;
            while let Poll::Ready(budget) = poll_proceed(cx) {
                budget.made_progress();
                reads += 1;
            }
            turns.push(reads - before);
            match turns.len() {
                3 => Poll::Ready(()),
                _ => Poll::Pending,
            }
        }))
        .await;
        assert_eq!(turns, [128, 16, 16]);
    }
}
