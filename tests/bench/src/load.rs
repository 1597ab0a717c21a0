//! Load generators: an exact number of given requests, or a fixed rate that does not wait for
//! responses.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::keep_alive::KeepAlive;
use crate::statistics::percentile;

/// Number of responses by status.
pub type Statuses = BTreeMap<u16, u64>;

/// Sends requests 0 to `count` over `connections`, each exactly once, as quickly as the responses
/// arrive.
///
/// # Panics
/// When a connection fails.
pub fn each_once<R: AsRef<[u8]>>(
    address: SocketAddr,
    connections: usize,
    count: usize,
    request: impl Fn(usize) -> R + Sync,
) -> Statuses {
    let next = AtomicUsize::new(0);
    let one = || {
        let mut connection = connect(address);
        let mut statuses = Statuses::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return statuses;
            }
            let status = exchange(&mut connection, request(number).as_ref());
            *statuses.entry(status).or_default() += 1;
        }
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..connections).map(|_| scope.spawn(one)).collect();
        let mut sum = Statuses::new();
        for thread in all {
            for (status, count) in thread.join().expect("a connection that worked") {
                *sum.entry(status).or_default() += count;
            }
        }
        sum
    })
}

/// A fixed number of requests a second.
#[derive(Debug, Clone, Copy)]
pub struct OpenLoop {
    /// Requests a second, over all connections.
    pub rate: f64,
    /// Connections; each has its own evenly spaced times.
    pub connections: usize,
    /// Duration of the load.
    pub length: Duration,
}

/// Latencies of an open loop in microseconds, from the time at which a request was due. The wait
/// for an earlier response counts (no coordinated omission).
#[derive(Debug, Clone)]
pub struct Latencies {
    sorted: Vec<u32>,
}

impl Latencies {
    /// Returns the value that `share` of all requests do not exceed.
    pub fn percentile(&self, share: f64) -> f64 {
        f64::from(percentile(&self.sorted, share))
    }
}

impl OpenLoop {
    /// Sends `request` at this rate.
    ///
    /// # Panics
    /// When a connection fails or a response is not 200.
    pub fn run(&self, address: SocketAddr, request: &[u8]) -> Latencies {
        // Time for every thread to connect.
        let start = Instant::now() + Duration::from_millis(200);
        let one = |number| move || self.one_connection(address, request, start, number);
        let mut sorted = thread::scope(|scope| {
            let all: Vec<_> = (0..self.connections)
                .map(|number| scope.spawn(one(number)))
                .collect();
            let all = all.into_iter().map(|thread| thread.join());
            all.flat_map(|latencies| latencies.expect("a connection that worked"))
                .collect::<Vec<_>>()
        });
        sorted.sort_unstable();
        Latencies { sorted }
    }

    fn one_connection(
        &self,
        address: SocketAddr,
        request: &[u8],
        start: Instant,
        number: usize,
    ) -> Vec<u32> {
        wake_punctually();
        let mut connection = connect(address);
        let mut latencies = Vec::new();
        for due in self.times(number) {
            let due = start + due;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let status = exchange(&mut connection, request);
            assert_eq!(status, 200, "a response of the open loop");
            let latency = due.elapsed().as_micros();
            latencies.push(u32::try_from(latency).unwrap_or(u32::MAX));
        }
        latencies
    }

    /// Returns the due times of a connection's requests, counted from the start. The connections
    /// take turns.
    fn times(&self, number: usize) -> impl Iterator<Item = Duration> {
        let (connections, rate, length) = (self.connections, self.rate, self.length);
        let due = move |turn: usize| {
            #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 requests")]
            let position = (turn * connections + number) as f64;
            Duration::from_secs_f64(position / rate)
        };
        (0..).map(due).take_while(move |due| *due < length)
    }
}

/// Turns off the kernel's timer slack of 50 µs. Without the right to do so it stays on, for every
/// contestant alike.
fn wake_punctually() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

fn connect(address: SocketAddr) -> KeepAlive {
    KeepAlive::connect(address).unwrap_or_else(|error| panic!("connect to {address}: {error}"))
}

fn exchange(connection: &mut KeepAlive, request: &[u8]) -> u16 {
    connection
        .exchange(request)
        .unwrap_or_else(|error| panic!("no response: {error}"))
}
