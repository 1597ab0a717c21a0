//! Polls of files that may have changed, every two seconds and at SIGHUP, and the choice of results
//! to log.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tracing::{error, info};

/// Short for an operator who waits, and next to no work.
const INTERVAL: Duration = Duration::from_secs(2);

/// The reason for a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// The interval is over.
    Interval,
    /// SIGHUP was received.
    Sighup,
}

/// A timer of polls. SIGHUP is received from the moment this is made; several in the meantime count as
/// one.
#[derive(Debug)]
pub struct PollTimer(Signal);

impl PollTimer {
    /// Starts the timer.
    ///
    /// # Errors
    /// If the handler of SIGHUP cannot be installed.
    pub fn start() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Waits for the next poll.
    pub async fn next(&mut self) -> Trigger {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => Trigger::Interval,
            _ = self.0.recv() => Trigger::Sighup,
        }
    }
}

/// Runs `work` on a thread for work that may wait for files.
///
/// # Errors
/// The error of `work` as text.
pub async fn run_blocking<T, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, String>
where
    T: Send + 'static,
    E: Display + Send + 'static,
{
    match spawn_blocking(work).await {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// A result of a poll that was not reported before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    /// The new content is used from now on.
    Replaced,
    /// Unusable files have their former content again.
    Recovered,
    /// The files cannot be used, for this reason.
    Unusable(String),
}

impl Transition {
    /// Logs it, about these files.
    pub fn log(&self, files: &str) {
        match self {
            Self::Replaced => info!("{files}: the new content is used from now on"),
            Self::Recovered => info!("{files}: usable again"),
            Self::Unusable(failure) => {
                error!(%failure, "{files}: unusable, keeping the previous content");
            }
        }
    }
}

/// Polls with `reload`, which returns true for new content, for as long as the process lives.
pub async fn follow<E: Display + Send + 'static>(
    mut timer: PollTimer,
    reload: impl Fn() -> Result<bool, E> + Clone + Send + 'static,
    report: impl Fn(Transition),
) {
    let mut failures = FailureDedup::after_two_polls();
    loop {
        timer.next().await;
        let polled = run_blocking(reload.clone()).await;
        failures.transition(polled).into_iter().for_each(&report);
    }
}

/// The last reported failure, logged once and not at each poll.
#[derive(Debug, Default)]
pub struct FailureDedup {
    reported: Option<String>,
    /// A failure of the last poll alone.
    suspected: Option<String>,
    needs_two_polls: bool,
}

impl FailureDedup {
    /// Reports a failure once two polls in a row had it: files that belong together are replaced
    /// one after the other.
    #[must_use]
    pub fn after_two_polls() -> Self {
        Self {
            needs_two_polls: true,
            ..Self::default()
        }
    }

    /// Returns the part of `polled` to report; `Ok(true)` means new content.
    pub fn transition(&mut self, polled: Result<bool, String>) -> Option<Transition> {
        let suspected = self.suspected.take();
        let failure = match polled {
            Ok(replaced) => {
                let recovered = self.reported.take().is_some();
                return match replaced {
                    true => Some(Transition::Replaced),
                    false => recovered.then_some(Transition::Recovered),
                };
            }
            Err(failure) => failure,
        };
        if self.reported.as_ref() == Some(&failure) {
            return None;
        }
        if self.needs_two_polls && suspected.as_ref() != Some(&failure) {
            self.suspected = Some(failure);
            return None;
        }
        self.reported = Some(failure.clone());
        Some(Transition::Unusable(failure))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::process::signals::tests::send;

    #[tokio::test]
    async fn sighup_triggers_a_poll() {
        let mut timer = PollTimer::start().unwrap();
        send("HUP");
        let sighup = async { while timer.next().await != Trigger::Sighup {} };
        let received = tokio::time::timeout(Duration::from_secs(30), sighup).await;
        assert!(received.is_ok(), "the signal was lost");
    }

    fn failed(why: &str) -> Result<bool, String> {
        Err(why.to_owned())
    }

    fn unusable(why: &str) -> Option<Transition> {
        Some(Transition::Unusable(why.to_owned()))
    }

    #[test]
    fn a_failure_is_reported_once_until_it_changes_or_ends() {
        let mut failures = FailureDedup::default();
        for (polled, reported) in [
            (Ok(false), None),
            (Ok(true), Some(Transition::Replaced)),
            (failed("a"), unusable("a")),
            (failed("a"), None),
            (failed("b"), unusable("b")),
            (Ok(false), Some(Transition::Recovered)),
            (Ok(false), None),
            (failed("b"), unusable("b")),
            (Ok(true), Some(Transition::Replaced)),
            (Ok(false), None),
        ] {
            assert_eq!(failures.transition(polled.clone()), reported, "{polled:?}");
        }
    }

    #[test]
    fn a_failure_of_several_files_is_reported_if_it_stays() {
        let mut failures = FailureDedup::after_two_polls();
        for (polled, reported) in [
            (Ok(false), None),
            (failed("half"), None),
            (Ok(true), Some(Transition::Replaced)),
            (failed("half"), None),
            (failed("half"), unusable("half")),
            (failed("half"), None),
            (failed("other"), None),
            (failed("other"), unusable("other")),
            (Ok(false), Some(Transition::Recovered)),
            (Ok(false), None),
        ] {
            assert_eq!(failures.transition(polled.clone()), reported, "{polled:?}");
        }
    }
}
