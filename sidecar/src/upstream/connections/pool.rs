//! Idle connections to the service.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pingora::protocols::Stream;
use tokio::io::{AsyncRead, ReadBuf};

/// Connections whose last response was read to its exact end. The latest is used first, so that
/// surplus ones expire.
#[derive(Clone)]
pub(super) struct Pool {
    connections: Arc<Mutex<Connections>>,
    max_idle: usize,
    idle_timeout: Duration,
}

#[derive(Default)]
struct Connections {
    idle: VecDeque<Idle>,
    /// True while a task closes the expired ones.
    is_swept: bool,
}

struct Idle {
    stream: Stream,
    /// Address and TLS settings of the requests that may use it.
    key: u64,
    since: Instant,
}

impl Pool {
    pub(super) fn new(max_idle: usize, idle_timeout: Duration) -> Self {
        Self {
            connections: Arc::default(),
            max_idle,
            idle_timeout,
        }
    }

    /// Takes a connection that is still open and silent.
    pub(super) fn take(&self, key: u64, now: Instant) -> Option<Stream> {
        loop {
            let mut entry = {
                let idle = &mut self.connections.lock().idle;
                let at = idle.iter().rposition(|entry| entry.key == key)?;
                idle.remove(at)?
            };
            let is_fresh = now.duration_since(entry.since) < self.idle_timeout;
            if is_fresh && is_silent(&mut entry.stream) {
                return Some(entry.stream);
            }
        }
    }

    /// Keeps `stream` for the next request of `key`.
    pub(super) fn put(&self, stream: Stream, key: u64, now: Instant) {
        let mut connections = self.connections.lock();
        if connections.idle.len() >= self.max_idle {
            connections.idle.pop_front();
        }
        connections.idle.push_back(Idle {
            stream,
            key,
            since: now,
        });
        let is_swept = std::mem::replace(&mut connections.is_swept, true);
        drop(connections);
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
            let mut connections = self.connections.lock();
            let is_fresh = |entry: &Idle| now.duration_since(entry.since) < self.idle_timeout;
            connections.idle.retain(is_fresh);
            if connections.idle.is_empty() {
                connections.is_swept = false;
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
    Pin::new(stream)
        .poll_read(&mut context, &mut buffer)
        .is_pending()
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
        pool.put(Box::new(stream), KEY, now);
        for _ in 0..100 {
            let stream = pool.take(KEY, now).unwrap();
            pool.put(stream, KEY, now);
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
            pool.put(Box::new(stream), KEY, now);
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
