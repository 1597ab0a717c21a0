//! Waits for conditions. Each names its condition, which a timeout then reports.

use std::time::{Duration, Instant};

/// Timeout of any one condition: generous, because two cores run many processes at once. A healthy
/// run never comes near it.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Pause between two polls of a condition that sends no event.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Outcome of a poll: a value, or a condition that holds.
pub trait Outcome {
    /// Result of the wait.
    type Found;

    /// Returns the end of the wait, if this is one.
    fn found(self) -> Option<Self::Found>;
}

impl<T> Outcome for Option<T> {
    type Found = T;

    fn found(self) -> Option<T> {
        self
    }
}

impl Outcome for bool {
    type Found = ();

    fn found(self) -> Option<()> {
        self.then_some(())
    }
}

/// Polls `probe` until it holds or returns a value; panics with `what` at the timeout.
pub fn until<O: Outcome>(what: &str, probe: impl FnMut() -> O) -> O::Found {
    within(TIMEOUT, probe)
        .unwrap_or_else(|| panic!("timed out after {TIMEOUT:?} waiting for {what}"))
}

/// Polls `probe` until it holds or returns a value, or `limit` is over.
pub fn within<O: Outcome>(limit: Duration, mut probe: impl FnMut() -> O) -> Option<O::Found> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = probe().found() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
