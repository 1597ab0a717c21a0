//! Open connections to the service, for more requests.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pingora::protocols::Stream;
use postern_transport::net::shares::Holder;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::task::coop::unconstrained;

use super::conduct::Conduct;
use super::http2::{Shared, Slot};
use super::socket::Socket;
use super::{LastRequest, NextRequest};

/// Time after an acknowledgement, within which a service sends the bytes that waited for it. On a machine's
/// own network half a millisecond was always enough.
const REST: Duration = Duration::from_millis(3);
/// Time after which the kernel has acknowledged received bytes by itself.
const LONGEST_DELAY: Duration = Duration::from_millis(200);

/// Connections that no request uses, or that many share. The latest is used first, so that connections that
/// are not needed expire.
#[derive(Clone)]
pub(super) struct Pool {
    open: Arc<Mutex<Open>>,
    conduct: Arc<Conduct>,
    max_idle: usize,
    idle_timeout: Duration,
}

#[derive(Default)]
struct Open {
    entries: VecDeque<Entry>,
    /// True while a task closes expired connections.
    is_swept: bool,
}

struct Entry {
    kept: Kept,
    /// Key of the address and TLS settings: requests with an equal key may use the connection.
    key: u64,
    /// HTTP/1.1: the end of the connection's last request; HTTP/2: the start of its latest request.
    used: Instant,
}

/// A connection for more requests.
pub(super) enum Kept {
    Http1(Idle),
    Http2(Shared),
}

/// A connection of HTTP/1.1 whose last response was read to its exact end.
pub(super) struct Idle {
    pub(super) stream: Stream,
    /// The socket below the stream, if it is a TCP socket.
    pub(super) socket: Option<Socket>,
    pub(super) holder: Holder,
    pub(super) last: LastRequest,
    /// True once the connection was used again before its rest: a late response may still come on it.
    pub(super) is_exclusive: bool,
    /// The time of the acknowledgement that another holder has to wait for.
    pub(super) acknowledged: Option<Instant>,
}

/// State of a connection before its next request.
enum State {
    Silent,
    Closed,
    /// Bytes have arrived that belong to no response.
    Surplus,
}

impl Pool {
    pub(super) fn new(conduct: Arc<Conduct>, max_idle: usize, idle_timeout: Duration) -> Self {
        Self {
            open: Arc::default(),
            conduct,
            max_idle,
            idle_timeout,
        }
    }

    /// Takes a connection of HTTP/1.1 that is still open and silent: the last one of the request's holder, or
    /// else a connection that other holders have left in order.
    pub(super) fn take(&self, key: u64, next: NextRequest, now: Instant) -> Option<Idle> {
        while !self.conduct.has_sent_surplus() {
            // The lock ends before the socket is read, because a read is a system call.
            let entry = {
                let entries = &mut self.open.lock().entries;
                let at = position_of_own(entries, key, next, &self.conduct, now)
                    .or_else(|| position_of_rested(entries, key, now))?;
                entries.remove(at)?
            };
            let is_fresh = now.duration_since(entry.used) < self.idle_timeout;
            // `is_silent` before the age: surplus is noted on an expired connection too.
            if let Kept::Http1(mut idle) = entry.kept
                && self.is_silent(&mut idle)
                && is_fresh
            {
                // Used before the connection has rested: a late response to this holder may still come.
                idle.is_exclusive |= !idle.is_rested(entry.used, now);
                return Some(idle);
            }
        }
        None
    }

    /// Takes a place on a connection of HTTP/2 that has room for one more request. Once the service has broken
    /// one, each serves the holder alone for whom it was opened.
    pub(super) fn take_slot(
        &self,
        key: u64,
        next: Option<NextRequest>,
        now: Instant,
    ) -> Option<Slot> {
        let mut found = None;
        let are_shared = !self.conduct.has_broken_http_2();
        self.open.lock().entries.retain_mut(|entry| {
            let Kept::Http2(shared) = &mut entry.kept else {
                return true;
            };
            // Each connection is polled, so that connections that the service has ended are dropped.
            let room = shared.has_room(now);
            let is_own = next.is_some_and(|next| shared.holder == Some(next.holder));
            let has_room = (are_shared || is_own) && room == Some(true);
            if found.is_none() && entry.key == key && has_room {
                entry.used = now;
                found = Some(shared.slot());
            }
            room.is_some()
        });
        found
    }

    /// Keeps a connection for more requests of `key`, unless no request would take it.
    pub(super) fn put(&self, kept: Kept, key: u64, used: Instant) {
        if matches!(kept, Kept::Http1(_)) && self.conduct.has_sent_surplus() {
            return;
        }
        let mut open = self.open.lock();
        // A connection of HTTP/2 in use does not give way.
        let is_idle = |entry: &Entry| match &entry.kept {
            Kept::Http1(_) => true,
            Kept::Http2(shared) => shared.is_idle(),
        };
        if open.entries.len() >= self.max_idle
            && let Some(oldest) = open.entries.iter().position(is_idle)
        {
            open.entries.remove(oldest);
        }
        open.entries.push_back(Entry { kept, key, used });
        // `is_swept` changes under the lock: of two callers only one begins the task.
        let is_swept = std::mem::replace(&mut open.is_swept, true);
        drop(open);
        if !is_swept {
            tokio::spawn(self.clone().close_expired());
        }
    }

    /// Closes expired connections, until the pool is empty. One task for all connections: with few
    /// connections the pool is empty between any two requests.
    async fn close_expired(self) {
        loop {
            tokio::time::sleep(self.idle_timeout).await;
            let now = Instant::now();
            let mut open = self.open.lock();
            open.entries.retain_mut(|entry| {
                let is_fresh = now.duration_since(entry.used) < self.idle_timeout;
                match &mut entry.kept {
                    // Surplus is noticed in a pool without requests too.
                    Kept::Http1(idle) => self.is_silent(idle) && is_fresh,
                    Kept::Http2(shared) => {
                        // A connection in use stays, however long ago its latest request began.
                        shared.has_room(now).is_some() && (is_fresh || !shared.is_idle())
                    }
                }
            });
            // `is_swept` changes under the lock: the next `put` begins a new task.
            if open.entries.is_empty() {
                open.is_swept = false;
                return;
            }
        }
    }

    /// Returns true for a connection on which nothing has arrived; notes surplus.
    fn is_silent(&self, idle: &mut Idle) -> bool {
        match check(&mut idle.stream) {
            State::Silent => true,
            State::Closed => false,
            State::Surplus => {
                self.conduct.surplus_after(&idle.last);
                false
            }
        }
    }
}

/// Returns the place of the latest connection of the same holder, which may only spoil its own requests.
fn position_of_own(
    entries: &VecDeque<Entry>,
    key: u64,
    next: NextRequest,
    conduct: &Conduct,
    now: Instant,
) -> Option<usize> {
    // In doubt only an idempotent request follows a body, because it can be sent again.
    let is_safe = next.is_idempotent || !conduct.may_leave_bodies(now);
    let may_follow_body = is_safe && !conduct.has_left_body();
    entries.iter().rposition(|entry| match &entry.kept {
        Kept::Http1(idle) => {
            entry.key == key
                && idle.holder == next.holder
                && (may_follow_body || !idle.last.has_body)
        }
        Kept::Http2(_) => false,
    })
}

/// Returns the place of the latest connection of any holder that may serve another one.
fn position_of_rested(entries: &mut VecDeque<Entry>, key: u64, now: Instant) -> Option<usize> {
    for (at, entry) in entries.iter_mut().enumerate().rev() {
        // A connection of HTTP/2 is found by `take_slot`, for any holder.
        let Kept::Http1(idle) = &mut entry.kept else {
            continue;
        };
        // Exclusive: a late response to the former holder may still come. A body that was left unread would be
        // a part of another holder's request.
        let may_be_shared = !idle.is_exclusive && !idle.last.has_body;
        // Last, for connections that may be taken at all: it may cost a packet.
        if entry.key == key && may_be_shared && idle.has_rested(entry.used, now) {
            return Some(at);
        }
    }
    None
}

impl Idle {
    /// Returns true once all that the service sent with its last response, or a moment later, is here.
    fn is_rested(&self, used: Instant, now: Instant) -> bool {
        match (&self.socket, self.acknowledged) {
            // Sockets other than TCP delay no bytes for an acknowledgement.
            (None, _) => now.duration_since(used) >= REST,
            (Some(_), Some(acknowledged)) => now.duration_since(acknowledged) >= REST,
            (Some(_), None) => now.duration_since(used) >= LONGEST_DELAY,
        }
    }

    /// Returns true if the connection is rested; its rest begins with an acknowledgement. Only a holder
    /// without another connection causes one, because it costs a packet.
    fn has_rested(&mut self, used: Instant, now: Instant) -> bool {
        let is_rested = self.is_rested(used, now);
        if let (false, Some(socket), None) = (is_rested, &self.socket, self.acknowledged) {
            socket.acknowledge();
            // Not `now`, which its caller may have read before the last response came.
            self.acknowledged = Some(Instant::now());
        }
        is_rested
    }
}

fn check(stream: &mut Stream) -> State {
    let mut byte = [0];
    let mut buffer = ReadBuf::new(&mut byte);
    // Polled once, without a task to wake.
    let mut context = Context::from_waker(Waker::noop());
    let read = poll_fn(|context| Pin::new(&mut *stream).poll_read(context, &mut buffer));
    // `unconstrained`: nothing is ready for a task that has used up its budget, as pipelined requests do.
    match pin!(unconstrained(read)).poll(&mut context) {
        Poll::Pending => State::Silent,
        Poll::Ready(Ok(())) if !buffer.filled().is_empty() => State::Surplus,
        Poll::Ready(_) => State::Closed,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use tokio::runtime::Handle;

    use super::super::conduct::DOUBT;
    use super::*;

    const KEY: u64 = 7;
    const IDLE: Duration = Duration::from_secs(4);

    fn pool() -> Pool {
        Pool::new(Arc::default(), 128, IDLE)
    }

    fn of(user: &str) -> NextRequest {
        NextRequest {
            holder: Holder::verified(None, user),
            is_idempotent: true,
        }
    }

    fn own() -> NextRequest {
        of("ada")
    }

    fn other() -> NextRequest {
        of("eve")
    }

    /// Puts a connection that was used at `now`, after a body or not; returns the service's side.
    fn put(pool: &Pool, has_body: bool, now: Instant) -> tokio::io::DuplexStream {
        let (stream, service) = tokio::io::duplex(16);
        let idle = Idle {
            stream: Box::new(stream),
            socket: None,
            holder: own().holder,
            last: LastRequest::new(http::Method::GET, b"/", has_body),
            is_exclusive: false,
            acknowledged: None,
        };
        pool.put(Kept::Http1(idle), KEY, now);
        service
    }

    #[tokio::test(start_paused = true)]
    async fn one_task_closes_the_expired_connections() {
        let (pool, now) = (pool(), Instant::now());
        let _service = put(&pool, false, now);
        for _ in 0..100 {
            let idle = pool.take(KEY, own(), now).unwrap();
            pool.put(Kept::Http1(idle), KEY, now);
            tokio::task::yield_now().await;
        }
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 1);
        assert!(pool.take(KEY, own(), now).is_some());
        tokio::time::sleep(2 * IDLE).await;
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
    }

    #[tokio::test]
    async fn only_open_and_silent_connections_of_the_key_are_used() {
        let (pool, now) = (pool(), Instant::now());
        let _open = put(&pool, false, now);
        assert!(pool.take(KEY + 1, own(), now).is_none());
        assert!(pool.take(KEY, own(), now + IDLE).is_none());
        let mut speaking = put(&pool, false, now);
        tokio::io::AsyncWriteExt::write_all(&mut speaking, b"x")
            .await
            .unwrap();
        assert!(!pool.conduct.has_sent_surplus());
        assert!(pool.take(KEY, own(), now).is_none());
        assert!(pool.conduct.has_sent_surplus());
        drop(put(&pool, false, now));
        assert!(pool.take(KEY, own(), now).is_none());
    }

    #[tokio::test]
    async fn another_holder_gets_a_rested_connection_without_a_body() {
        for (has_body, next, rested, is_taken) in [
            (false, own(), Duration::ZERO, true),
            (false, other(), Duration::ZERO, false),
            (false, other(), REST, true),
            (true, own(), Duration::ZERO, true),
            (true, other(), REST, false),
        ] {
            let (pool, now) = (pool(), Instant::now());
            let _service = put(&pool, has_body, now);
            let taken = pool.take(KEY, next, now + rested);
            assert_eq!(taken.is_some(), is_taken, "{has_body} {next:?} {rested:?}");
        }
    }

    /// A surplus response within the rest would be its next one, and the slow real one another holder's.
    #[tokio::test]
    async fn one_that_was_used_before_its_rest_is_its_holder_s_for_good() {
        for (pause, is_shared) in [(Duration::ZERO, false), (REST, true)] {
            let (pool, now) = (pool(), Instant::now());
            let _service = put(&pool, false, now);
            let again = now + pause;
            let idle = pool.take(KEY, own(), again).unwrap();
            pool.put(Kept::Http1(idle), KEY, again);
            let later = again + REST;
            let taken = pool.take(KEY, other(), later);
            assert_eq!(taken.is_some(), is_shared, "{pause:?}");
            assert_eq!(
                pool.take(KEY, own(), later).is_some(),
                !is_shared,
                "{pause:?}"
            );
        }
    }

    #[tokio::test]
    async fn in_doubt_only_idempotent_requests_follow_a_body() {
        let (pool, now) = (pool(), Instant::now());
        let _service = put(&pool, true, now);
        pool.conduct.body_may_be_left(now);
        let once = NextRequest {
            is_idempotent: false,
            ..own()
        };
        assert!(pool.take(KEY, once, now).is_none());
        assert!(pool.take(KEY, own(), now).is_some());
    }

    #[tokio::test]
    async fn a_doubt_ends_without_any_idempotent_request() {
        let (pool, began) = (pool(), Instant::now());
        let post = NextRequest {
            is_idempotent: false,
            ..own()
        };
        let again = began + DOUBT / 2;
        for failed in [began, again] {
            pool.conduct.body_may_be_left(failed);
        }
        for (at, is_taken) in [
            (began + DOUBT, false),
            (again + DOUBT - Duration::from_nanos(1), false),
            (again + DOUBT, true),
        ] {
            let _service = put(&pool, true, at);
            assert_eq!(
                pool.take(KEY, post, at).is_some(),
                is_taken,
                "{:?}",
                at - began
            );
        }
    }

    #[tokio::test]
    async fn surplus_and_unread_bodies_end_the_reuse() {
        let (pool, now) = (pool(), Instant::now());
        let _services = [put(&pool, false, now), put(&pool, true, now)];
        pool.conduct
            .body_was_left(&LastRequest::new(http::Method::GET, b"/", true));
        let taken = pool.take(KEY, own(), now).unwrap();
        assert!(!taken.last.has_body);
        assert!(pool.take(KEY, own(), now).is_none());
        let _service = put(&pool, false, now);
        pool.conduct
            .surplus_after(&LastRequest::new(http::Method::GET, b"/", false));
        assert!(pool.take(KEY, own(), now + REST).is_none());
        let before = pool.open.lock().entries.len();
        drop(put(&pool, false, now));
        assert_eq!(
            pool.open.lock().entries.len(),
            before,
            "kept for no request"
        );
    }
}
