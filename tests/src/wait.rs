//! Waiting on conditions. A test names what it waits for, so that a timeout explains itself.

use std::time::{Duration, Instant};

/// How long any one condition may take: generous, because two cores run many processes at once.
/// Nothing measures this time; a healthy run never comes near it.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The pause between two looks at a condition that cannot wake us.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Asks `probe` until it has an answer; panics with `what` when none comes in time.
pub fn until<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, probe).unwrap_or_else(|| panic!("waited {PATIENCE:?} in vain for {what}"))
}

/// Asks `probe` until it has an answer or `limit` is over.
pub fn within<T>(limit: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = probe() {
            return Some(answer);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
