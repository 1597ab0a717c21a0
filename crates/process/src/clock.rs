//! The machine's clock, which may be before the epoch. Decisions get the time as an argument.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tracing::warn;

/// Between two reads of the clock.
const INTERVAL: Duration = Duration::from_secs(2);

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
    match SystemTime::UNIX_EPOCH.checked_add(time) {
        Some(time) => time.duration_since(now()).unwrap_or_default(),
        None => Duration::MAX,
    }
}

/// Seconds of a jump that have an effect: what ended stays for minutes.
const JUMP: u64 = 60;

/// Notices that the machine's clock was set, by comparison with the clock that is never set.
#[derive(Debug, Default)]
pub struct ClockWatch(Option<(i64, Instant)>);

impl ClockWatch {
    /// Returns the seconds by which the clock, which reads `now`, was set since the last call.
    pub fn jump(&mut self, now: i64, at: Instant) -> Option<i64> {
        let (before, last) = self.0.replace((now, at))?;
        let passed = at.saturating_duration_since(last).as_secs();
        let jump = now.saturating_sub(before.saturating_add_unsigned(passed));
        (jump.unsigned_abs() >= JUMP).then_some(jump)
    }
}

/// Logs each jump of the clock for as long as the process lives.
pub async fn watch() {
    let mut clock = ClockWatch::default();
    loop {
        if let Some(jump_seconds) = clock.jump(unix_now(), instant()) {
            warn!(
                jump_seconds,
                "this machine's clock was set, or the machine slept"
            );
        }
        tokio::time::sleep(INTERVAL).await;
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

    #[test]
    fn a_clock_that_is_set_is_noticed_in_both_directions() {
        let mut watch = ClockWatch::default();
        let start = Instant::now();
        for (now, seconds, jump) in [
            (1_000, 0, None),
            (1_030, 30, None),
            (1_090, 31, None),
            (1_092, 33, None),
            (692_292, 34, Some(691_199)),
            (1_096, 37, Some(-691_199)),
            (1_096, 97, Some(-60)),
        ] {
            let found = watch.jump(now, start + Duration::from_secs(seconds));
            assert_eq!(found, jump, "{now} after {seconds} s");
        }
    }
}
