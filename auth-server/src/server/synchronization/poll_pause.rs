//! The pause before the next poll of the store.

use std::time::Duration;

use postern_process::pauses::Pauses;

use crate::store::RETRIES;

/// Returns the poll interval or, after failures, a pause of at most the interval. `chance` (0.0 up to 1.0)
/// takes off up to half of the pause.
///
/// `due_in` is the time until a key becomes due: such a key must not wait for the next poll.
pub(crate) fn next_poll(
    poll_interval: Duration,
    failures: u32,
    chance: f64,
    due_in: Option<Duration>,
) -> Duration {
    let retries = Pauses {
        last: RETRIES.last.min(poll_interval),
        ..RETRIES
    };
    let pause = match failures {
        0 => poll_interval,
        failures => retries.jittered(failures, chance),
    };
    match due_in {
        // An overdue step waits for the store, and must not make the retries spin.
        Some(Duration::ZERO) if failures > 0 => pause,
        Some(due_in) => pause.min(due_in),
        None => pause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REREAD: Duration = Duration::from_secs(30);

    #[test]
    fn failures_are_retried_within_the_poll_interval() {
        let second = Duration::from_secs(1);
        for (poll_interval, failures, expected) in [
            (REREAD, 0, REREAD),
            (REREAD, 1, RETRIES.first),
            (REREAD, 9, RETRIES.last),
            (second, 9, second),
        ] {
            let pause = next_poll(poll_interval, failures, 0.0, None);
            assert_eq!(pause, expected, "{failures}");
        }
    }

    #[test]
    fn what_is_due_before_the_next_poll_brings_it_forward() {
        let soon = Duration::from_millis(50);
        for (failures, due_in, expected) in [
            (0, soon, soon),
            (0, Duration::ZERO, Duration::ZERO),
            (0, Duration::from_secs(31), REREAD),
            (1, soon, soon),
            (1, Duration::ZERO, RETRIES.first),
        ] {
            assert_eq!(next_poll(REREAD, failures, 0.0, Some(due_in)), expected);
        }
    }
}
