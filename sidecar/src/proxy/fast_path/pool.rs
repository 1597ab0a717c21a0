//! Idle connections to the service.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pingora::protocols::Stream;
use tokio::io::{AsyncRead, ReadBuf};

/// Same as the size of Pingora's pool.
const MAX_IDLE: usize = 128;

/// Connections whose last response was read to its exact end. The latest is used first, so that
/// surplus ones expire.
#[derive(Clone)]
pub(super) struct Pool {
    idle: Arc<Mutex<VecDeque<Idle>>>,
    idle_timeout: Duration,
}

struct Idle {
    stream: Stream,
    /// Address and TLS settings of the requests that may use it.
    key: u64,
    since: Instant,
}

impl Pool {
    pub(super) fn new(idle_timeout: Duration) -> Self {
        Self {
            idle: Arc::default(),
            idle_timeout,
        }
    }

    /// Takes a connection that is still open and silent.
    pub(super) fn take(&self, key: u64, now: Instant) -> Option<Stream> {
        loop {
            let mut entry = {
                let mut idle = self.idle.lock();
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
        let mut idle = self.idle.lock();
        if idle.len() >= MAX_IDLE {
            idle.pop_front();
        }
        let is_first = idle.is_empty();
        idle.push_back(Idle {
            stream,
            key,
            since: now,
        });
        drop(idle);
        if is_first {
            tokio::spawn(self.clone().close_expired());
        }
    }

    /// Closes expired connections, until the pool is empty.
    async fn close_expired(self) {
        loop {
            tokio::time::sleep(self.idle_timeout).await;
            let now = Instant::now();
            let mut idle = self.idle.lock();
            idle.retain(|entry| now.duration_since(entry.since) < self.idle_timeout);
            if idle.is_empty() {
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
