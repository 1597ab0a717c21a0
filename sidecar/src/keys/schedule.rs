//! When the keys are fetched, as a cron expression says.
//!
//! The ticks come from `tokio-cron-scheduler`, which goes by the clock on the wall. A watch in monotonic time makes
//! up for the ticks that a clock set back would hold up: at a start, or when a machine wakes up.

use std::sync::Arc;
use std::time::Duration;

use runtime::clock::until;
use tokio::sync::Notify;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};

/// Seconds, minutes, hours, day, month and weekday. A seventh would be a year, after which no tick comes.
const FIELDS: usize = 6;
/// The watch's patience where the times of the ticks cannot be computed.
const TWO_MINUTES: Duration = Duration::from_secs(120);
/// With the scheduler, which only works in memory.
const PATIENCE: Duration = Duration::from_secs(2);

/// A cron expression with seconds, in UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule(String);

/// The expression cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a cron expression of six fields, seconds first")]
pub(crate) struct ScheduleError;

impl Schedule {
    pub(crate) fn new(expression: &str) -> Result<Self, ScheduleError> {
        let schedule = Self(expression.to_owned());
        let has_year = expression.split_whitespace().count() > FIELDS;
        // The 30th of February never comes.
        let comes = schedule.until_next_two().is_some();
        (comes && !has_year)
            .then_some(schedule)
            .ok_or(ScheduleError)
    }

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

    /// A job that wakes those who wait for `tick`.
    fn job(&self, tick: &Arc<Notify>) -> Result<Job, JobSchedulerError> {
        let tick = Arc::clone(tick);
        Job::new(self.0.as_str(), move |_, _| tick.notify_waiters())
    }

    /// How long it is until the next tick, by the clock on the wall.
    pub(crate) fn until_next(&self) -> Duration {
        self.until_next_two().map_or(TWO_MINUTES, |[next, _]| next)
    }

    /// The same, and how long it is until the tick after it.
    fn until_next_two(&self) -> Option<[Duration; 2]> {
        let mut job = self.job(&Arc::default()).ok()?;
        let data = job.job_data().ok()?;
        let next = data.next_tick_utc()?;
        let second = data.schedule()?.iter_after(next).next()?;
        Some([until(next.timestamp()), until(second.timestamp())])
    }
}

/// How a wait for a tick ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tick {
    OnTime,
    /// By the watch: [`Ticks::begin_again`] is due.
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
    /// Waits for the next tick, or until two intervals have passed without one. May be dropped while it waits.
    pub(crate) async fn next(&self) -> Tick {
        let two_intervals = self.schedule.until_next_two().map(|[_, second]| second);
        let patience = two_intervals.unwrap_or(TWO_MINUTES);
        match timeout(patience, self.tick.notified()).await {
            Ok(()) => Tick::OnTime,
            Err(_) => Tick::Overdue,
        }
    }

    /// Has the scheduler count from what the clock on the wall says now. Not to be dropped half-way.
    pub(crate) async fn begin_again(&mut self) {
        tracing::warn!("no tick of the schedule for two intervals, as when the clock is set back");
        if let Err(error) = self.replace_job().await {
            tracing::warn!(%error, "the schedule goes on with its watch alone");
        }
    }

    /// The former job goes last: an end half-way leaves two, and a tick twice is harmless.
    async fn replace_job(&mut self) -> Result<(), ReplaceError> {
        let job = self.schedule.job(&self.tick)?;
        timeout(PATIENCE, self.scheduler.add(job.clone())).await??;
        let former = std::mem::replace(&mut self.job, job).guid();
        timeout(PATIENCE, self.scheduler.remove(&former)).await??;
        Ok(())
    }
}

/// Why the scheduler does not count anew.
#[derive(Debug, thiserror::Error)]
enum ReplaceError {
    #[error(transparent)]
    Scheduler(#[from] JobSchedulerError),
    #[error("the scheduler does not answer")]
    Hangs(#[from] Elapsed),
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
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
    fn the_watch_waits_two_intervals_at_most() {
        for (expression, interval) in [
            ("0 * * * * *", 60),
            ("* * * * * *", 1),
            ("0 0 * * * *", 3600),
        ] {
            let [next, second] = Schedule::new(expression).unwrap().until_next_two().unwrap();
            let interval = Duration::from_secs(interval);
            assert!(next <= interval, "{expression}: {next:?}");
            assert!(second <= 2 * interval, "{expression}: {second:?}");
            assert!(second > next, "{expression}: {next:?} {second:?}");
        }
    }

    #[tokio::test]
    async fn the_scheduler_ticks() {
        let every_second = Schedule::new("* * * * * *").unwrap();
        let ticks = every_second.start().await.unwrap();
        for _ in 0..2 {
            let tick = timeout(Duration::from_secs(30), ticks.tick.notified());
            assert!(tick.await.is_ok());
        }
        assert!(timeout(Duration::from_secs(30), ticks.next()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_dropped_leaves_the_scheduler_its_job() {
        const HOUR: Duration = Duration::from_secs(3600);
        let hourly = Schedule::new("0 0 * * * *").unwrap();
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
    async fn a_clock_on_the_wall_that_stands_still_holds_up_nothing() {
        const HOUR: Duration = Duration::from_secs(3600);
        let hourly = Schedule::new("0 0 * * * *").unwrap();
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
