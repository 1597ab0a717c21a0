//! The schedule of fetches, as a cron expression.
//!
//! The ticks come from `tokio-cron-scheduler`, which uses the wall clock. A watchdog in monotonic
//! time replaces ticks that a clock set back would delay, at a start or when a machine wakes up.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use postern_process::clock::{unix_now, until};
use tokio::sync::Notify;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};

/// Number of fields: seconds, minutes, hours, day, month, weekday. A seventh would be a year, after
/// which no tick comes.
const FIELDS: usize = 6;
/// The watchdog's timeout where the times of the ticks cannot be computed.
const TWO_MINUTES: Duration = Duration::from_secs(120);
/// The timeout of calls to the scheduler, which works in memory.
const SCHEDULER_TIMEOUT: Duration = Duration::from_secs(2);

/// A cron expression with seconds, in UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule(String);

/// The error of an unusable expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a cron expression of six fields, seconds first")]
pub(crate) struct ScheduleError;

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(expression: &str) -> Result<Self, ScheduleError> {
        let schedule = Self(expression.to_owned());
        let has_year = expression.split_whitespace().count() > FIELDS;
        // The 30th of February never comes.
        if has_year || schedule.until_next_two().is_none() {
            return Err(ScheduleError);
        }
        Ok(schedule)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Schedule {
    /// Starts the scheduler.
    ///
    /// # Errors
    /// [`JobSchedulerError`] when it cannot be started.
    pub(crate) async fn start(&self) -> Result<Ticks, JobSchedulerError> {
        let tick = Arc::new(Notify::new());
        let (scheduler, job) = (JobScheduler::new().await?, self.job(&tick)?);
        scheduler.add(job.clone()).await?;
        scheduler.start().await?;
        Ok(Ticks {
            schedule: self.clone(),
            scheduler,
            job,
            tick,
        })
    }

    /// Returns a job that wakes the waiters of `tick`.
    fn job(&self, tick: &Arc<Notify>) -> Result<Job, JobSchedulerError> {
        let tick = Arc::clone(tick);
        Job::new(self.0.as_str(), move |_, _| tick.notify_waiters())
    }

    /// Returns the time until the next tick, by the wall clock.
    pub(crate) fn until_next(&self) -> Duration {
        match self.until_next_two() {
            Some([next, _]) => next,
            None => TWO_MINUTES,
        }
    }

    /// Returns the times until the next two ticks.
    fn until_next_two(&self) -> Option<[Duration; 2]> {
        let mut job = self.job(&Arc::default()).ok()?;
        let schedule = job.job_data().ok()?.schedule()?;
        let now = DateTime::<Utc>::from_timestamp(unix_now(), 0)?;
        let next = schedule.iter_after(now).next()?;
        // From the next one on: the library's iterator leaves each other second out.
        let second = schedule.iter_after(next).next()?;
        Some([until(next.timestamp()), until(second.timestamp())])
    }
}

/// The end of a wait for a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tick {
    OnTime,
    /// By the watchdog: [`Ticks::begin_again`] is due.
    Overdue,
}

/// The running scheduler and its one job.
pub(crate) struct Ticks {
    schedule: Schedule,
    scheduler: JobScheduler,
    job: Job,
    tick: Arc<Notify>,
}

impl Ticks {
    /// Waits for the next tick, or until two intervals have passed without one. May be dropped
    /// while it waits.
    pub(crate) async fn next(&self) -> Tick {
        // Two intervals, not one: a tick that is a little late is no sign of a clock that was set back.
        let limit = match self.schedule.until_next_two() {
            Some([_, second]) => second,
            None => TWO_MINUTES,
        };
        match timeout(limit, self.tick.notified()).await {
            Ok(()) => Tick::OnTime,
            Err(_) => Tick::Overdue,
        }
    }

    /// Restarts the scheduler from the present wall-clock time. Not to be dropped half-way.
    pub(crate) async fn begin_again(&mut self) {
        tracing::warn!(
            "no fetch was due for two intervals, as after a clock was set back: the schedule begins anew"
        );
        if let Err(error) = self.replace_job().await {
            tracing::warn!(
                %error,
                "the schedule could not begin anew: keys are fetched after two intervals without a tick"
            );
        }
    }

    /// Replaces the job. The former job is removed last: an end half-way leaves two jobs, and a tick twice is
    /// harmless.
    async fn replace_job(&mut self) -> Result<(), ReplaceError> {
        let job = self.schedule.job(&self.tick)?;
        timeout(SCHEDULER_TIMEOUT, self.scheduler.add(job.clone())).await??;
        let former = std::mem::replace(&mut self.job, job).guid();
        timeout(SCHEDULER_TIMEOUT, self.scheduler.remove(&former)).await??;
        Ok(())
    }
}

/// The reason why the scheduler does not restart.
#[derive(Debug, thiserror::Error)]
enum ReplaceError {
    #[error(transparent)]
    Scheduler(#[from] JobSchedulerError),
    #[error("the scheduler does not respond")]
    Hangs(#[from] Elapsed),
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn the_watchdog_waits_two_intervals_at_most() {
        for (expression, interval) in [
            ("0 * * * * *", 60),
            ("* * * * * *", 1),
            ("*/5 * * * * *", 5),
            ("0 0 * * * *", 3600),
            ("0 0 0 29 2 *", 4 * 366 * 86_400),
        ] {
            let [next, second] = Schedule::from_str(expression)
                .unwrap()
                .until_next_two()
                .unwrap();
            let interval = Duration::from_secs(interval);
            assert!(next <= interval, "{expression}: {next:?}");
            assert!(second <= 2 * interval, "{expression}: {second:?}");
            assert!(second > next, "{expression}: {next:?} {second:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_dropped_leaves_the_scheduler_its_job() {
        const HOUR: Duration = Duration::from_secs(3600);
        let hourly = Schedule::from_str("0 0 * * * *").unwrap();
        let mut ticks = hourly.start().await.unwrap();
        let mut waits = Box::pin(ticks.next());
        for passed in [Duration::ZERO, 3 * HOUR] {
            tokio::time::advance(passed).await;
            let _ = timeout(Duration::ZERO, &mut waits).await;
        }
        drop(waits);
        tokio::time::sleep(HOUR).await;
        let job = ticks.job.guid();
        let next = ticks.scheduler.next_tick_for_job(job).await;
        assert!(next.unwrap().is_some());
    }

    /// To the scheduler a clock that is set back looks the same.
    #[tokio::test(start_paused = true)]
    async fn a_stopped_wall_clock_delays_no_fetch() {
        const HOUR: Duration = Duration::from_secs(3600);
        let hourly = Schedule::from_str("0 0 * * * *").unwrap();
        let mut ticks = hourly.start().await.unwrap();
        for _ in 0..3 {
            let job = ticks.job.guid();
            assert_eq!(timeout(2 * HOUR, ticks.next()).await, Ok(Tick::Overdue));
            ticks.begin_again().await;
            assert_ne!(ticks.job.guid(), job, "begins again");
            let former = ticks.scheduler.next_tick_for_job(job).await;
            assert_eq!(former.unwrap(), None, "removed");
        }
    }
}
