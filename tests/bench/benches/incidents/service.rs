//! The service of the incidents: slower the more requests it has at a time, and slow, failing or
//! silent on command.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tests::socket_server::{Reply, SocketServer, response};

/// Time of a request that is alone, and what each further one adds.
const ALONE: Duration = Duration::from_millis(4);
const EACH_FURTHER: Duration = Duration::from_millis(2);

/// The service.
pub(crate) struct Service {
    server: SocketServer,
    mood: Arc<Mood>,
}

#[derive(Default)]
struct Mood {
    delay_ms: AtomicU64,
    /// One request in so many fails; 0 for none. The same for those without a response.
    failing: AtomicU64,
    silent: AtomicU64,
    present: AtomicU32,
    count: AtomicU64,
}

impl Service {
    pub(crate) fn start() -> Self {
        let mood = Arc::new(Mood::default());
        let of_server = Arc::clone(&mood);
        Self {
            server: SocketServer::start(move |_| of_server.reply()),
            mood,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// Lets each request wait this much longer.
    pub(crate) fn wait(&self, milliseconds: u64) {
        self.mood.delay_ms.store(milliseconds, Ordering::Relaxed);
    }

    /// Lets one request in `count` fail with 500; 0 ends that.
    pub(crate) fn fail_one_in(&self, count: u64) {
        self.mood.failing.store(count, Ordering::Relaxed);
    }

    /// Sends no response to one request in `count`; 0 ends that.
    pub(crate) fn ignore_one_in(&self, count: u64) {
        self.mood.silent.store(count, Ordering::Relaxed);
    }
}

impl Mood {
    fn reply(&self) -> Reply {
        let others = self.present.fetch_add(1, Ordering::Relaxed);
        let delay = Duration::from_millis(self.delay_ms.load(Ordering::Relaxed));
        thread::sleep(ALONE + EACH_FURTHER * others + delay);
        self.present.fetch_sub(1, Ordering::Relaxed);
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let hit = |one_in: &AtomicU64| {
            let one_in = one_in.load(Ordering::Relaxed);
            one_in > 0 && number.is_multiple_of(one_in)
        };
        if hit(&self.silent) {
            Reply::Silence
        } else if hit(&self.failing) {
            Reply::Bytes(response("500 Internal Server Error", &[], b"failed"))
        } else {
            Reply::Bytes(response("200 OK", &[], b"done"))
        }
    }
}
