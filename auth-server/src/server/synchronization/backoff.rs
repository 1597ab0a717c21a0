//! The pause before the next poll of the store.

use std::time::Duration;

/// Short, so that logins are rejected hardly longer than the store is unavailable.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// Returns the re-read period or, after failures, an exponential back-off of at most that. `jitter`
/// (0.0 ..= 1.0) takes off up to half, so that servers do not retry at the same moment.
///
/// `due_in` is the time until a key becomes due, which must not wait for the next poll.
pub(crate) fn next_poll(
    poll_interval: Duration,
    failures: u32,
    jitter: f64,
    due_in: Option<Duration>,
) -> Duration {
    let pause = match failures.checked_sub(1) {
        None => poll_interval,
        // Twenty doublings exceed every cap, far from an overflow.
        Some(doublings) => FIRST_RETRY
            .saturating_mul(1 << doublings.min(20))
            .min(LONGEST_RETRY)
            .min(poll_interval)
            .mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0),
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
    fn failures_are_retried_soon_then_later_within_the_poll() {
        let delays: Vec<_> = (0..8)
            .map(|n| next_poll(REREAD, n, 0.0, None).as_millis())
            .collect();
        assert_eq!(delays, [30_000, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(next_poll(REREAD, u32::MAX, 0.0, None), LONGEST_RETRY);
        assert_eq!(
            next_poll(Duration::from_secs(1), 9, 0.0, None),
            Duration::from_secs(1)
        );
    }

    #[test]
    fn jitter_takes_away_up_to_half() {
        assert_eq!(next_poll(REREAD, 2, 1.0, None), Duration::from_millis(200));
        assert_eq!(next_poll(REREAD, 2, 0.5, None), Duration::from_millis(300));
    }

    #[test]
    fn what_is_due_before_the_next_poll_brings_it_forward() {
        let soon = Duration::from_millis(50);
        for (failures, due_in, expected) in [
            (0, soon, soon),
            (0, Duration::ZERO, Duration::ZERO),
            (0, Duration::from_secs(31), REREAD),
            (1, soon, soon),
            (1, Duration::ZERO, FIRST_RETRY),
        ] {
            assert_eq!(next_poll(REREAD, failures, 0.0, Some(due_in)), expected);
        }
    }
}
