//! Tasks that run as long as a program serves. The first end of a task stops the program: a program whose
//! keys are no longer refreshed looks healthy and trusts revoked keys.
//!
//! Retried errors are fine; a panic or an early return is an end.

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::exit::ExitError;

/// The cause of a task that ended without an error.
pub const STOPPED_UNEXPECTEDLY: &str = "it stopped by itself";

/// Starts tasks; clones report to the same [`FirstFailure`].
#[derive(Debug, Clone)]
pub struct Supervisor(watch::Sender<Option<ExitError>>);

/// Receives the first unexpected end of a task.
#[derive(Debug, Clone)]
pub struct FirstFailure(watch::Receiver<Option<ExitError>>);

/// Creates the starting half and the receiving half.
#[must_use]
pub fn supervisor() -> (Supervisor, FirstFailure) {
    let (sender, receiver) = watch::channel(None);
    (Supervisor(sender), FirstFailure(receiver))
}

impl Supervisor {
    /// Starts work that must not end, on the caller's runtime.
    pub fn spawn_critical(
        &self,
        what: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        self.spawn_critical_until_shutdown(what, async {
            work.await;
            Err(STOPPED_UNEXPECTEDLY.to_owned())
        })
    }

    /// Starts work that ends with `Ok` at the shutdown; the caller may wait for that.
    pub fn spawn_critical_until_shutdown(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<(), String>> + Send + 'static,
    ) -> JoinHandle<()> {
        let background = self.clone();
        // Run the work as a task of its own, whose panic the task below sees.
        let working = tokio::spawn(work);
        tokio::spawn(async move {
            let cause = match working.await {
                Ok(Ok(())) => return,
                Ok(Err(cause)) => cause,
                // The log has the panic already; this text is for the program's last line.
                Err(error) => error.to_string(),
            };
            background.ended(format!("{what} has ended: {cause}"));
        })
    }

    /// Records only the first end: later ones may be its consequences.
    fn ended(&self, line: String) {
        self.0.send_if_modified(|first| {
            if first.is_some() {
                return false;
            }
            *first = Some(ExitError::Software(line));
            true
        });
    }
}

impl FirstFailure {
    /// Waits for the first end and returns the work and its cause.
    pub async fn first(&self) -> ExitError {
        let first = match self.0.clone().wait_for(Option::is_some).await {
            Ok(first) => first.clone(),
            Err(_) => None,
        };
        match first {
            Some(failure) => failure,
            // All senders are gone with the program's end, so no failure can follow.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::panic, reason = "a task that panics is what this is about")]
    use std::time::Duration;

    use super::*;

    async fn reported(ends: &FirstFailure) -> String {
        let first = tokio::time::timeout(Duration::from_secs(30), ends.first()).await;
        first.map_or_else(|_| String::new(), |failure| failure.to_string())
    }

    #[tokio::test]
    async fn work_that_panics_or_stops_by_itself_is_reported_by_name() {
        let (background, ends) = supervisor();
        background.spawn_critical("the upkeep", async { panic!("oh") });
        let line = reported(&ends).await;
        let is_named = line.starts_with("the upkeep has ended: ");
        assert!(is_named && line.contains("oh"), "{line}");

        let (background, ends) = supervisor();
        background.spawn_critical("the follower", async {});
        let line = "the follower has ended: it stopped by itself";
        assert_eq!(reported(&ends).await, line);

        let (background, ends) = supervisor();
        background.spawn_critical_until_shutdown("the port", async { Err("no socket".to_owned()) });
        assert_eq!(reported(&ends).await, "the port has ended: no socket");
        // Later callers get the same failure.
        let later = background.spawn_critical("the follower", async {});
        assert!(later.await.is_ok());
        let found = reported(&ends.clone()).await;
        assert_eq!(found, "the port has ended: no socket");
    }

    #[tokio::test]
    async fn the_end_of_work_that_was_stopped_is_not_reported() {
        let (background, ends) = supervisor();
        let working = background.spawn_critical_until_shutdown("the port", async { Ok(()) });
        assert!(working.await.is_ok());
        background.spawn_critical("the last", async {});
        let line = reported(&ends).await;
        assert!(line.starts_with("the last "), "{line}");
    }
}
