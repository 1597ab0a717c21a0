//! Waits for conditions. Each names its condition, which a timeout then reports.

use std::time::{Duration, Instant};

/// Timeout of any one condition: generous, because two cores run many processes at once. A healthy
/// run never comes near it.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Pause between two polls of a condition that sends no event.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Polls `probe` until it returns a value; panics with `what` at the timeout.
pub fn until<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    within(TIMEOUT, probe)
        .unwrap_or_else(|| panic!("timed out after {TIMEOUT:?} waiting for {what}"))
}

/// Polls `probe` until it returns a value or `limit` is over.
pub fn within<T>(limit: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = probe() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
