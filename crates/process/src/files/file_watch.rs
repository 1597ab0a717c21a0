//! Files that may have changed, polled every two seconds and at SIGHUP. Their content counts once
//! two polls have read the same: half a copy never counts, nor one of two files that belong together.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info};

use crate::tasks;

/// The time between polls: short for an operator who waits, and next to no work.
const INTERVAL: Duration = Duration::from_secs(2);
/// The time to the next poll after a SIGHUP, whose sender has written everything.
const INTERVAL_AFTER_SIGNAL: Duration = Duration::from_millis(200);

/// Files that are polled for as long as the process lives. SIGHUP is received from the moment this
/// is made; several signals between two polls count as one.
#[derive(Debug)]
pub struct PolledFiles<C> {
    sighup: Signal,
    interval: Duration,
    content: Settling<C>,
}

/// Content that counts once two polls in a row have read it.
#[derive(Debug)]
struct Settling<C> {
    last: C,
    /// True for content that is in use, or was returned to be used.
    counts: bool,
}

impl<C: PartialEq + Send + 'static> PolledFiles<C> {
    /// Starts with the content in use.
    ///
    /// # Errors
    /// If the handler of SIGHUP cannot be installed.
    pub fn start(in_use: C) -> io::Result<Self> {
        Ok(Self {
            sighup: signal(SignalKind::hangup())?,
            interval: INTERVAL,
            content: Settling {
                last: in_use,
                counts: true,
            },
        })
    }

    /// Starts again, with another set of files and their content in use.
    pub fn restart(&mut self, in_use: C) {
        (self.content.last, self.content.counts) = (in_use, true);
    }

    /// Waits for the next poll, and reads on a thread for work that may wait for files. Returns
    /// content that counts from now on; after SIGHUP also content that is in use already.
    pub async fn poll(&mut self, read: impl FnOnce() -> C + Send + 'static) -> Option<&C> {
        let is_signalled = tokio::select! {
            () = tokio::time::sleep(self.interval) => false,
            _ = self.sighup.recv() => true,
        };
        self.interval = if is_signalled {
            INTERVAL_AFTER_SIGNAL
        } else {
            INTERVAL
        };
        // The read fails only while the process ends.
        let read = tasks::blocking(read).await.ok()?;
        self.content.settled(read, is_signalled)
    }
}

impl<C: PartialEq> Settling<C> {
    fn settled(&mut self, read: C, is_signalled: bool) -> Option<&C> {
        let is_whole = read == self.last;
        let is_due = !self.counts || is_signalled;
        // Content that differs from the last poll's may be half written: the next poll decides.
        self.last = read;
        self.counts = is_whole;
        (is_whole && is_due).then_some(&self.last)
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
    match tasks::blocking(work).await {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Logs the outcome of using the content of files: `Ok(false)` if that content is in use already.
pub fn log(files: &str, outcome: &Result<bool, String>) {
    match outcome {
        Ok(true) => info!("{files}: the new content is used from now on"),
        Ok(false) => info!("{files}: read again, without a change"),
        Err(failure) => {
            error!(%failure, "{files}: unusable, keeping the previous content");
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::signals::tests::send;

    #[tokio::test]
    async fn sighup_triggers_a_poll() {
        let mut files = PolledFiles::start("in use").unwrap();
        send("HUP");
        let content = async {
            loop {
                if let Some(content) = files.poll(|| "in use").await {
                    return *content;
                }
            }
        };
        let counted = tokio::time::timeout(Duration::from_secs(30), content).await;
        assert_eq!(counted, Ok("in use"), "the signal was lost");
    }

    #[test]
    fn what_two_polls_have_read_counts_once() {
        let mut content = Settling {
            last: "a",
            counts: true,
        };
        for (read, is_signalled, counts) in [
            ("a", false, false),
            ("half", false, false),
            ("b", false, false),
            ("b", false, true),
            ("b", false, false),
            ("broken", false, false),
            ("broken", false, true),
            ("half", false, false),
            ("broken", false, false),
            ("broken", false, true),
            ("b", true, false),
            ("b", false, true),
            ("b", true, true),
            ("b", false, false),
        ] {
            let settled = content.settled(read, is_signalled);
            assert_eq!(settled.is_some(), counts, "{read} {is_signalled}");
        }
    }
}
