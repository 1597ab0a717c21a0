//! The work that goes on as long as the server serves, and who hears of its end: a server whose keys are no
//! longer followed looks healthy and trusts what was revoked, so it has to stop and be started again.

use process::exit::Failure;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Starts tasks that nobody waits for; clones tell the same [`Ends`].
#[derive(Debug, Clone)]
pub(crate) struct Background(mpsc::UnboundedSender<Failure>);

/// Hears of the tasks that ended although nobody told them to.
#[derive(Debug)]
pub(crate) struct Ends(mpsc::UnboundedReceiver<Failure>);

pub(crate) fn background() -> (Background, Ends) {
    let (tell, told) = mpsc::unbounded_channel();
    (Background(tell), Ends(told))
}

impl Background {
    /// Work without an end.
    pub(crate) fn forever(
        &self,
        what: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.until_told(what, async {
            work.await;
            Err("it stopped by itself".to_owned())
        });
    }

    /// Work that is over, with `Ok`, once it was told to stop; whoever tells it may wait for that.
    pub(crate) fn until_told(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<(), String>> + Send + 'static,
    ) -> JoinHandle<()> {
        let ends = self.0.clone();
        let working = tokio::spawn(work);
        tokio::spawn(async move {
            let cause = match working.await {
                Ok(Ok(())) => return,
                Ok(Err(cause)) => cause,
                // The panic itself is in the log already; its text is for whoever reads the last line only.
                Err(error) => error.to_string(),
            };
            let _ = ends.send(Failure::Software(format!("{what} has ended: {cause}")));
        })
    }
}

impl Ends {
    /// The first one; pending for as long as all goes well.
    pub(crate) async fn next(&mut self) -> Failure {
        match self.0.recv().await {
            Some(failure) => failure,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::panic, reason = "a task that panics is what this is about")]
    use std::time::Duration;

    use super::*;

    async fn told(ends: &mut Ends) -> Option<String> {
        let next = tokio::time::timeout(Duration::from_secs(30), ends.next());
        next.await.ok().map(|failure| failure.to_string())
    }

    #[tokio::test]
    async fn work_that_panics_or_stops_by_itself_is_told_with_its_name() {
        let (background, mut ends) = background();
        background.forever("the upkeep", async { panic!("oh") });
        let line = told(&mut ends).await.unwrap_or_default();
        assert!(
            line.starts_with("the upkeep has ended: ") && line.contains("oh"),
            "{line}"
        );
        background.forever("the follower", async {});
        let line = told(&mut ends).await;
        assert_eq!(
            line.as_deref(),
            Some("the follower has ended: it stopped by itself")
        );
        background.until_told("the port", async { Err("no socket".to_owned()) });
        let line = told(&mut ends).await;
        assert_eq!(line.as_deref(), Some("the port has ended: no socket"));
    }

    #[tokio::test]
    async fn the_end_of_work_that_was_told_to_stop_is_no_news() {
        let (background, mut ends) = background();
        let working = background.until_told("the port", async { Ok(()) });
        assert!(working.await.is_ok());
        background.forever("the last", async {});
        let line = told(&mut ends).await.unwrap_or_default();
        assert!(line.starts_with("the last "), "{line}");
    }
}
