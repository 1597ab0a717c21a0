//! Follows the users file: polls every few seconds and at each SIGHUP.

use std::sync::Arc;

use runtime::file_watch::{FailureDedup, PollTimer, Transition, run_blocking};
use tracing::{error, info, warn};

use super::file::FileUsers;
use crate::audit;
use crate::metrics::Metrics;

pub(crate) struct UsersReload {
    users: Arc<FileUsers>,
    metrics: Metrics,
    /// Logs an unusable file once, not at every poll.
    dedup: FailureDedup,
}

impl UsersReload {
    pub(crate) fn new(users: Arc<FileUsers>, metrics: Metrics) -> Self {
        metrics.users(users.count(), users.uncommon());
        metrics.users_file_usable(true);
        Self {
            users,
            metrics,
            dedup: FailureDedup::default(),
        }
    }

    /// Polls for as long as the process lives.
    ///
    /// # Errors
    /// Where SIGHUP cannot be received.
    pub(crate) fn watch(mut self) -> std::io::Result<impl Future<Output = ()>> {
        let mut timer = PollTimer::start()?;
        Ok(async move {
            loop {
                timer.next().await;
                self.poll().await;
            }
        })
    }

    async fn poll(&mut self) {
        let users = Arc::clone(&self.users);
        let reloaded = run_blocking(move || users.reload()).await;
        self.metrics.users_file_usable(reloaded.is_ok());
        let count = self.users.count();
        self.metrics.users(count, self.users.uncommon());
        let (replaced, changes) = match reloaded {
            Ok(changes) => (Ok(changes.is_some()), changes.unwrap_or_default()),
            Err(failure) => (Err(failure), Vec::new()),
        };
        match self.dedup.transition(replaced) {
            Some(Transition::Replaced) => {
                audit::users_changed(count, &changes);
                if let Some(warning) = self.users.cost_warning() {
                    warn!("{warning}");
                }
            }
            Some(Transition::Recovered) => info!("the users file is usable again"),
            Some(Transition::Unusable(failure)) => {
                error!(%failure, "the users file is unusable; keeping the previous users");
            }
            None => {}
        }
    }
}
