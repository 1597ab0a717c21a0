//! Connections of HTTP/2 to the service, each shared by many requests.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use http::{HeaderMap, Request};
use parking_lot::Mutex;
use pingora::protocols::Stream;
use tokio::time::{Instant, timeout};

use crate::upstream::MAX_HEAD_BYTES;

/// The limit of most HTTP/2 servers; a lower one of the service applies.
const MAX_STREAMS: u32 = 100;
/// Window of one response. Larger ones, for each stream and for all of them together, would let one
/// client that does not read block all others; less would block more calls in which both sides only
/// send.
const STREAM_WINDOW: u32 = 512 * 1024;
/// Bytes of one request that wait for the service.
const SEND_BYTES: usize = 64 * 1024;
/// As large as the reads of a response of HTTP/1.1.
const FRAME_BYTES: u32 = 64 * 1024;
/// Size of a head or of trailers (RFC 9113 §6.5.2) for which no service ends a connection: the
/// default of Netty.
pub(crate) const MAX_SHARED_FIELDS: usize = 8 * 1024;
/// Streams that are reset before no more begin on their connection. With those that are open then it
/// stays below the 200 in half a minute after which Netty ends it.
const MAX_RESETS: usize = 50;

/// Returns true for a head that may be sent on a shared connection.
pub(super) fn is_short(head: &Request<()>) -> bool {
    let uri = head.uri();
    let authority = uri.authority().map_or(0, |it| it.as_str().len());
    let target = uri.path_and_query().map_or(0, |it| it.as_str().len());
    authority + target + size_of(head.headers()) <= MAX_SHARED_FIELDS
}

/// Returns the size of fields as HTTP/2 counts it.
pub(crate) fn size_of(fields: &HeaderMap) -> usize {
    let each = fields.iter();
    each.map(|(name, value)| name.as_str().len() + value.len() + 32)
        .sum()
}

/// The open connections.
#[derive(Clone)]
pub(super) struct Http2Connections {
    open: Arc<Mutex<Vec<Shared>>>,
    idle_timeout: Duration,
}

struct Shared {
    /// Address and TLS settings of the requests that may use it.
    key: u64,
    requests: SendRequest<Bytes>,
    /// Number of its resets; held by each request.
    resets: Arc<AtomicUsize>,
    used: Instant,
}

impl Shared {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.resets) == 1
    }

    /// Returns `None` once the service has ended the connection, or may soon.
    fn has_room(&mut self) -> Option<bool> {
        if self.resets.load(Ordering::Relaxed) >= MAX_RESETS {
            return None;
        }
        let most = self.requests.current_max_send_streams();
        let most = most.min(MAX_STREAMS as usize);
        let mut context = Context::from_waker(Waker::noop());
        match self.requests.poll_ready(&mut context) {
            Poll::Ready(Err(_)) => None,
            Poll::Ready(Ok(())) => Some(Arc::strong_count(&self.resets) <= most),
            Poll::Pending => Some(false),
        }
    }
}

/// One request on a connection, which counts while it lives.
pub(in crate::upstream) struct Slot {
    pub(in crate::upstream) requests: SendRequest<Bytes>,
    resets: Arc<AtomicUsize>,
}

impl Slot {
    /// Counts the reset of a request.
    pub(in crate::upstream) fn was_reset(&self) {
        self.resets.fetch_add(1, Ordering::Relaxed);
    }
}

impl Http2Connections {
    pub(super) fn new(idle_timeout: Duration) -> Self {
        Self {
            open: Arc::default(),
            idle_timeout,
        }
    }

    /// Takes a place on a connection of `key` that has room for one more request.
    pub(super) fn take(&self, key: u64) -> Option<Slot> {
        let mut open = self.open.lock();
        let mut found = None;
        open.retain_mut(|shared| {
            let room = shared.has_room();
            if found.is_none() && shared.key == key && room == Some(true) {
                shared.used = Instant::now();
                found = Some(Slot {
                    requests: shared.requests.clone(),
                    resets: Arc::clone(&shared.resets),
                });
            }
            room.is_some()
        });
        found
    }

    /// Begins HTTP/2 on `stream`, for the first of its requests; without a `key` for no other one.
    pub(super) async fn begin(&self, stream: Stream, key: Option<u64>) -> Result<Slot, h2::Error> {
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_max_send_streams(MAX_STREAMS as usize)
            .max_frame_size(FRAME_BYTES)
            .max_header_list_size(MAX_HEAD_BYTES as u32)
            .max_send_buffer_size(SEND_BYTES)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(MAX_STREAMS * STREAM_WINDOW);
        let (requests, connection) = builder.handshake(stream).await?;
        let resets = Arc::<AtomicUsize>::default();
        let slot = Slot {
            requests: requests.clone(),
            resets: Arc::clone(&resets),
        };
        self.open.lock().extend(key.map(|key| Shared {
            key,
            requests,
            resets,
            used: Instant::now(),
        }));
        tokio::spawn(self.clone().keep(connection));
        Ok(slot)
    }

    /// Moves the bytes of a connection, until the service ends it or it is idle.
    async fn keep(self, connection: Connection<Stream>) {
        let mut connection = pin!(connection);
        while timeout(self.idle_timeout, &mut connection).await.is_err() {
            self.sweep();
        }
        self.sweep();
    }

    /// Lets go of the connections that are idle or at their end.
    fn sweep(&self) {
        self.open.lock().retain_mut(|shared| {
            let is_idle = shared.is_idle() && shared.used.elapsed() >= self.idle_timeout;
            shared.has_room().is_some() && !is_idle
        });
    }
}
