//! The activity of a connection, which its tasks publish and the port reads: one word, no lock.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use super::Port;
use super::queues::{Wait, WaitsFor};

/// Set if bytes have arrived, or a request is in flight.
const BUSY: u64 = 1;
/// Set if a request has begun since the last wait.
const SERVED: u64 = 1 << 1;
/// Set if the port has polled the connection while it was busy: it is in no queue until it waits.
const PARKED: u64 = 1 << 2;
/// Set if the wait is for the rest of a head or a handshake.
const UNFINISHED: u64 = 1 << 3;
/// The bits above count the milliseconds from the port's start to the start of the wait.
const SINCE_BIT: u32 = 4;

/// The activity of one connection.
#[derive(Debug, Clone, Default)]
pub struct Activity(Arc<State>);

#[derive(Debug, Default)]
struct State {
    word: AtomicU64,
    /// Open streams of HTTP/2.
    streams: AtomicUsize,
    is_http_2: AtomicBool,
    port: Weak<Port>,
    id: u64,
}

/// An open stream of HTTP/2, until it is dropped.
#[derive(Debug)]
pub struct OpenStream(Activity);

impl Activity {
    /// Begins with an unfinished handshake or head.
    pub(super) fn new(port: &Arc<Port>, id: u64, now: u64) -> Self {
        Self(Arc::new(State {
            // A new connection waits for its first request, or for its handshake.
            word: AtomicU64::new(now << SINCE_BIT | UNFINISHED),
            port: Arc::downgrade(port),
            id,
            ..State::default()
        }))
    }

    /// Records bytes of a client: a request may be among them.
    pub fn received(&self) {
        self.0.word.fetch_or(BUSY, Ordering::AcqRel);
    }

    /// Records the start of a request.
    pub fn serves(&self) {
        self.0.word.fetch_or(BUSY | SERVED, Ordering::AcqRel);
    }

    /// Records the wait for the next request, without one in flight. The wait begins with the end of the last
    /// request, whatever bytes have arrived since.
    pub fn waits_for_request(&self) {
        self.waits(0);
    }

    /// Records the wait for the rest of a head.
    pub fn waits_for_rest(&self) {
        self.waits(UNFINISHED);
    }

    /// Records that the connection speaks HTTP/2, whose requests are streams.
    pub fn speaks_http_2(&self) {
        self.0.is_http_2.store(true, Ordering::Relaxed);
    }

    /// Counts a stream until the guard is dropped.
    pub fn stream(&self) -> OpenStream {
        // The count comes first, because a wait that is being published reads it.
        self.0.streams.fetch_add(1, Ordering::SeqCst);
        self.serves();
        OpenStream(self.clone())
    }

    pub(super) fn is_http_2(&self) -> bool {
        self.0.is_http_2.load(Ordering::Relaxed)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.has_streams() || self.0.word.load(Ordering::Acquire) & BUSY != 0
    }

    /// Returns the present wait. A busy connection reports its next one to the port.
    pub(super) fn wait(&self) -> Option<Wait> {
        // The update fails for a connection that waits, and returns its word.
        let word = self
            .0
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                // A busy connection is marked, so that its next wait reports to the port.
                (word & BUSY != 0).then_some(word | PARKED)
            })
            .err()?;
        Some(Wait {
            reason: if word & UNFINISHED == 0 {
                WaitsFor::Request
            } else {
                WaitsFor::Rest
            },
            since: word >> SINCE_BIT,
            id: self.0.id,
        })
    }

    fn has_streams(&self) -> bool {
        self.0.streams.load(Ordering::SeqCst) > 0
    }

    fn waits(&self, unfinished: u64) {
        let word = self.0.word.load(Ordering::Acquire);
        let is_same = word & UNFINISHED == unfinished && word & SERVED == 0;
        // The wait has not changed, so its position in the queue stays; with open streams there is no wait.
        if is_same && word & BUSY == 0 || self.has_streams() {
            return;
        }
        let Some(port) = self.0.port.upgrade() else {
            return;
        };
        // Bytes that were no request do not make a wait younger.
        let since = if is_same {
            word >> SINCE_BIT
        } else {
            port.now()
        };
        let next = since << SINCE_BIT | unfinished;
        // The port has polled the connection while it was busy, and has to queue it again.
        if self.0.word.swap(next, Ordering::AcqRel) & PARKED != 0 {
            port.waits_again(self.0.id);
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let Activity(state) = &self.0;
        if state.streams.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.waits_for_request();
            if self.0.has_streams() {
                // Another stream has begun meanwhile.
                self.0.serves();
            }
        }
    }
}
