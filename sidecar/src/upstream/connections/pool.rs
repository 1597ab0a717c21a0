//! Open connections to the service, for more requests.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pingora::protocols::Stream;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::task::coop::unconstrained;

use super::http2::{Shared, Slot};

/// Connections that no request uses, or that many share. The latest is used first, so that surplus
/// ones expire.
#[derive(Clone)]
pub(super) struct Pool {
    open: Arc<Mutex<Open>>,
    max_idle: usize,
    idle_timeout: Duration,
}

#[derive(Default)]
struct Open {
    entries: VecDeque<Entry>,
    /// True while a task closes the expired ones.
    is_swept: bool,
}

struct Entry {
    kept: Kept,
    /// Address and TLS settings of the requests that may use it.
    key: u64,
    /// The end of its last request, or the begin of the last one among others.
    used: Instant,
}

/// A connection for more requests.
pub(super) enum Kept {
    /// Its last response was read to its exact end.
    Http1(Stream),
    Http2(Shared),
}

impl Pool {
    pub(super) fn new(max_idle: usize, idle_timeout: Duration) -> Self {
        Self {
            open: Arc::default(),
            max_idle,
            idle_timeout,
        }
    }

    /// Takes a connection of HTTP/1.1 that is still open and silent.
    pub(super) fn take(&self, key: u64, now: Instant) -> Option<Stream> {
        let is_of_key = |entry: &Entry| entry.key == key && matches!(entry.kept, Kept::Http1(_));
        loop {
            let entry = {
                let entries = &mut self.open.lock().entries;
                let at = entries.iter().rposition(is_of_key)?;
                entries.remove(at)?
            };
            let is_fresh = now.duration_since(entry.used) < self.idle_timeout;
            if let Kept::Http1(mut stream) = entry.kept
                && is_fresh
                && is_silent(&mut stream)
            {
                return Some(stream);
            }
        }
    }

    /// Takes a place on a connection of HTTP/2 that has room for one more request.
    pub(super) fn take_slot(&self, key: u64, now: Instant) -> Option<Slot> {
        let mut found = None;
        self.open.lock().entries.retain_mut(|entry| {
            let Kept::Http2(shared) = &mut entry.kept else {
                return true;
            };
            let room = shared.has_room();
            if found.is_none() && entry.key == key && room == Some(true) {
                entry.used = now;
                found = Some(shared.slot());
            }
            room.is_some()
        });
        found
    }

    /// Keeps a connection for more requests of `key`.
    pub(super) fn put(&self, kept: Kept, key: u64, used: Instant) {
        let mut open = self.open.lock();
        let is_idle = |entry: &Entry| matches!(entry.kept, Kept::Http1(_));
        if open.entries.len() >= self.max_idle
            && let Some(oldest) = open.entries.iter().position(is_idle)
        {
            open.entries.remove(oldest);
        }
        open.entries.push_back(Entry { kept, key, used });
        let is_swept = std::mem::replace(&mut open.is_swept, true);
        drop(open);
        if !is_swept {
            tokio::spawn(self.clone().close_expired());
        }
    }

    /// Closes expired connections, until there are none. One task for all: with few connections the
    /// pool is empty between any two requests.
    async fn close_expired(self) {
        loop {
            tokio::time::sleep(self.idle_timeout).await;
            let now = Instant::now();
            let mut open = self.open.lock();
            open.entries.retain_mut(|entry| {
                let is_fresh = now.duration_since(entry.used) < self.idle_timeout;
                match &mut entry.kept {
                    Kept::Http1(_) => is_fresh,
                    Kept::Http2(shared) => {
                        shared.has_room().is_some() && (is_fresh || !shared.is_idle())
                    }
                }
            });
            if open.entries.is_empty() {
                open.is_swept = false;
                return;
            }
        }
    }
}

/// Returns false once the service has closed the connection, or sent unsolicited bytes.
fn is_silent(stream: &mut Stream) -> bool {
    let mut byte = [0];
    let mut buffer = ReadBuf::new(&mut byte);
    let mut context = Context::from_waker(Waker::noop());
    let read = poll_fn(|context| Pin::new(&mut *stream).poll_read(context, &mut buffer));
    // Nothing is ready for a task that has used up its budget, as a client's pipelined requests do.
    pin!(unconstrained(read)).poll(&mut context).is_pending()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use tokio::runtime::Handle;

    use super::*;

    const KEY: u64 = 7;
    const IDLE: Duration = Duration::from_secs(4);

    #[tokio::test(start_paused = true)]
    async fn one_task_closes_the_expired_connections() {
        let (stream, _service) = tokio::io::duplex(16);
        let pool = Pool::new(128, IDLE);
        let now = Instant::now();
        pool.put(Kept::Http1(Box::new(stream)), KEY, now);
        for _ in 0..100 {
            let stream = pool.take(KEY, now).unwrap();
            pool.put(Kept::Http1(stream), KEY, now);
            tokio::task::yield_now().await;
        }
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 1);
        assert!(pool.take(KEY, now).is_some());
        tokio::time::sleep(2 * IDLE).await;
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
    }

    #[tokio::test]
    async fn only_open_and_silent_connections_of_the_key_are_used() {
        let now = Instant::now();
        let pool = Pool::new(128, IDLE);
        let put = || {
            let (stream, service) = tokio::io::duplex(16);
            pool.put(Kept::Http1(Box::new(stream)), KEY, now);
            service
        };
        let _open = put();
        assert!(pool.take(KEY + 1, now).is_none());
        assert!(pool.take(KEY, now + IDLE).is_none());
        let mut speaking = put();
        tokio::io::AsyncWriteExt::write_all(&mut speaking, b"x")
            .await
            .unwrap();
        assert!(pool.take(KEY, now).is_none());
        drop(put());
        assert!(pool.take(KEY, now).is_none());
    }
}
