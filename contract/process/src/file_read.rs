//! Reading files that may lie on a share that hangs: one read at a time, and no long wait for it.

use std::time::Duration;

use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout_at};

/// A share that is well answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// The read that is under way, if there is one.
#[derive(Debug)]
pub struct FileRead<T>(Option<UnderWay<T>>);

#[derive(Debug)]
struct UnderWay<T> {
    read: JoinHandle<T>,
    patience_ends: Instant,
}

/// Why there is nothing to be had now.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// The read goes on.
    #[error("reading takes longer than {} s", PATIENCE.as_secs())]
    Late,
    /// The thread that reads came to an end.
    #[error(transparent)]
    Ended(#[from] JoinError),
}

impl<T> Default for FileRead<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Send + 'static> FileRead<T> {
    /// What `read` brings, unless it takes too long. Then it is waited for no more, here or in the calls
    /// that follow, the first of which after its end takes its result in the place of a new one. A call
    /// that is given up halfway leaves it to the next one.
    ///
    /// # Errors
    /// [`Unread`], the former [`Unread::Late`] for as long as the read lasts.
    pub async fn outcome(
        &mut self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unread> {
        let under_way = self.0.get_or_insert_with(|| UnderWay {
            read: spawn_blocking(read),
            patience_ends: Instant::now() + PATIENCE,
        });
        let outcome = timeout_at(under_way.patience_ends, &mut under_way.read)
            .await
            .map_err(|_| Unread::Late)?;
        self.0 = None;
        Ok(outcome?)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// A read of `text` that ends when it is told to.
    fn hanging(text: &'static str) -> (Sender<()>, impl FnOnce() -> &'static str + Send) {
        let (end, ended) = channel();
        let read = move || {
            let _ = ended.recv();
            text
        };
        (end, read)
    }

    #[tokio::test]
    async fn what_is_read_in_time_is_read_anew_each_time() {
        let mut reading = FileRead::default();
        for text in ["one", "two"] {
            assert_eq!(reading.outcome(move || text).await.unwrap(), text);
        }
    }

    #[tokio::test]
    async fn a_read_that_hangs_is_the_only_one_and_its_result_is_not_lost() {
        let mut reading = FileRead::default();
        let (end, read) = hanging("late");
        let outcome = reading.outcome(read).await;
        assert!(matches!(outcome, Err(Unread::Late)), "{outcome:?}");
        let outcome = reading.outcome(|| "a second read").await;
        assert!(matches!(outcome, Err(Unread::Late)), "{outcome:?}");
        end.send(()).unwrap();
        let text = loop {
            match reading.outcome(|| "a second read").await {
                Ok(text) => break text,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        assert_eq!(text, "late");
        assert_eq!(reading.outcome(|| "anew").await.unwrap(), "anew");
    }

    #[tokio::test]
    async fn a_call_that_is_given_up_leaves_its_read_to_the_next() {
        let mut reading = FileRead::default();
        let (end, read) = hanging("begun before");
        let given_up = tokio::time::timeout(Duration::from_millis(1), reading.outcome(read));
        assert!(given_up.await.is_err());
        end.send(()).unwrap();
        assert_eq!(
            reading.outcome(|| "a second read").await.unwrap(),
            "begun before"
        );
    }
}
