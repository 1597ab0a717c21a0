//! The real clock, for tests that mint tokens relative to it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the seconds since the epoch.
///
/// # Panics
/// When the machine's clock stands before 1970.
pub fn now() -> i64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970");
    i64::try_from(elapsed.as_secs()).expect("a clock before the year 292 billion")
}

/// Runs `act` with the current second, again if the clock ticked meanwhile. A test can thus hit an
/// exact edge of `exp` or `nbf` without sleeping.
pub fn within_one_second<T>(mut act: impl FnMut(i64) -> T) -> T {
    loop {
        let second = now();
        let outcome = act(second);
        if now() == second {
            return outcome;
        }
    }
}
