//! The machine's clock, which may be before the epoch. Decisions get the time as an argument.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Returns the time of the machine's clock.
#[must_use]
pub fn now() -> SystemTime {
    #[cfg(feature = "simulation")]
    if let Some(simulated) = crate::simulation::now() {
        return simulated;
    }
    SystemTime::now()
}

/// Returns the time of the clock that is never set, for ages and pauses.
#[must_use]
pub fn instant() -> Instant {
    #[cfg(feature = "simulation")]
    return tokio::time::Instant::now().into_std();
    #[cfg(not(feature = "simulation"))]
    Instant::now()
}

/// Returns the seconds since the epoch.
#[must_use]
pub fn unix_now() -> i64 {
    unix_seconds(now())
}

/// Returns the seconds from the epoch to `now`, negative before it.
#[must_use]
pub fn unix_seconds(now: SystemTime) -> i64 {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match now.duration_since(UNIX_EPOCH) {
        Ok(since) => seconds(since),
        Err(before) => -seconds(before.duration()),
    }
}

/// Returns the duration until `time`, in seconds since the epoch; zero for a time in the past.
#[must_use]
pub fn until(time: i64) -> Duration {
    let time = Duration::from_secs(time.try_into().unwrap_or_default());
    let until = SystemTime::UNIX_EPOCH
        .checked_add(time)
        .map(|time| time.duration_since(now()));
    match until {
        Some(until) => until.unwrap_or_default(),
        None => Duration::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read_on_both_sides_of_the_epoch() {
        let second = Duration::from_secs(1);
        assert_eq!(unix_seconds(UNIX_EPOCH), 0);
        assert_eq!(unix_seconds(UNIX_EPOCH + second), 1);
        assert_eq!(unix_seconds(UNIX_EPOCH - second), -1);
    }
}
