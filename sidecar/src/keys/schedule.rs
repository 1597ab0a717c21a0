//! When the keys are fetched, as a cron expression says.
//!
//! Only how long to wait comes from the clock on the wall. What is waited for is monotonic time, a minute of it at
//! most: a clock that is set back, at a start or when a machine wakes up, must not stop the fetches.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Utc};
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

/// What is further away is looked at anew.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A cron expression with seconds, in UTC.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Schedule(Cron);

/// The expression is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a cron expression of six fields, seconds first")]
pub(crate) struct ScheduleError;

impl Schedule {
    pub(crate) fn new(expression: &str) -> Result<Self, ScheduleError> {
        let parser = CronParser::builder()
            .seconds(Seconds::Required)
            .year(Year::Disallowed)
            .dom_and_dow(true)
            .build();
        let schedule = Self(parser.parse(expression).map_err(|_| ScheduleError)?);
        // The 30th of February never comes.
        let comes = schedule.until_next(UNIX_EPOCH).is_some();
        comes.then_some(schedule).ok_or(ScheduleError)
    }

    /// Returns at the next time that it names.
    pub(crate) async fn next(&self) {
        self.next_by(SystemTime::now).await;
    }

    async fn next_by(&self, clock: impl Fn() -> SystemTime) {
        loop {
            let wait = self.until_next(clock());
            let is_near = wait.filter(|wait| *wait <= LONGEST_WAIT);
            tokio::time::sleep(is_near.unwrap_or(LONGEST_WAIT)).await;
            if is_near.is_some() {
                return;
            }
        }
    }

    fn until_next(&self, now: SystemTime) -> Option<Duration> {
        let next = self
            .0
            .find_next_occurrence(&DateTime::<Utc>::from(now), false)
            .ok()?;
        // The library leaves the fraction of a second as it was.
        let next = UNIX_EPOCH + Duration::from_secs(next.timestamp().try_into().ok()?);
        next.duration_since(now).ok()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::cell::Cell;

    use super::*;

    #[test]
    fn it_has_six_fields_seconds_first_and_comes() {
        for expression in [
            "0 * * * * *",
            "* * * * * *",
            "*/5 * * * * *",
            "0 0 0 29 2 *",
        ] {
            assert!(Schedule::new(expression).is_ok(), "{expression}");
        }
        for expression in [
            "",
            "* * * * *",
            "60 * * * * *",
            "hourly",
            "0 * * * * * *",
            "0 0 0 30 2 *",
        ] {
            assert_eq!(
                Schedule::new(expression),
                Err(ScheduleError),
                "{expression}"
            );
        }
    }

    #[test]
    fn the_wait_is_to_the_next_time_and_never_none() {
        for (expression, now, wait) in [
            ("0 * * * * *", 0, 60),
            ("0 * * * * *", 59, 1),
            ("0 * * * * *", 61, 59),
            ("*/5 * * * * *", 7, 3),
            ("0 0 0 1 1 *", 0, 365 * 86_400),
        ] {
            let now = UNIX_EPOCH + Duration::from_secs(now);
            let until_next = Schedule::new(expression).unwrap().until_next(now);
            assert_eq!(until_next, Some(Duration::from_secs(wait)), "{expression}");
        }
        let half = UNIX_EPOCH + Duration::from_millis(1500);
        let until_next = Schedule::new("* * * * * *").unwrap().until_next(half);
        assert_eq!(until_next, Some(Duration::from_millis(500)));
    }

    /// How long it takes while the clock on the wall says these times, in seconds of the day; the last for ever.
    async fn takes(expression: &str, wall: &[u64]) -> u64 {
        let looks = Cell::new(0);
        let clock = || {
            let look = looks.replace(looks.get() + 1).min(wall.len() - 1);
            UNIX_EPOCH + Duration::from_secs(wall[look])
        };
        let began = tokio::time::Instant::now();
        let schedule = Schedule::new(expression).unwrap();
        let next = schedule.next_by(clock);
        let in_time = tokio::time::timeout(Duration::from_secs(7 * 86_400), next);
        assert!(in_time.await.is_ok(), "{expression}");
        began.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_holds_up_nothing() {
        assert_eq!(takes("0 * * * * *", &[30]).await, 30);
        // Set back by an hour while it waits: nobody looks.
        assert_eq!(takes("0 * * * * *", &[7200, 3600]).await, 60);
        // Set forward over the time, and shortly before it.
        assert_eq!(takes("0 0 * * * *", &[0, 3000, 7190]).await, 130);
        assert_eq!(takes("0 0 12 * * *", &[0, 43_195]).await, 65);
    }
}
