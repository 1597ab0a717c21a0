//! Follows the file of users while the server runs: a look every few seconds, and one at each SIGHUP.

use std::sync::Arc;

use process::looks::Looks;
use tokio::task::spawn_blocking;
use tracing::{error, info};

use super::file::FileUsers;
use crate::audit;
use crate::metrics::Metrics;

/// The loop's state.
pub(crate) struct UsersReload {
    users: Arc<FileUsers>,
    metrics: Metrics,
    /// Said already: an unusable file is one line, and not one every two seconds.
    last_failure: Option<String>,
}

impl UsersReload {
    pub(crate) fn new(users: Arc<FileUsers>, metrics: Metrics) -> Self {
        metrics.users(users.count());
        metrics.users_file_usable(true);
        Self {
            users,
            metrics,
            last_failure: None,
        }
    }

    /// Looks for as long as the process lives.
    ///
    /// # Errors
    /// Where SIGHUP cannot be received.
    pub(crate) fn watch(mut self) -> std::io::Result<impl Future<Output = ()>> {
        let mut looks = Looks::begin()?;
        Ok(async move {
            loop {
                looks.next().await;
                self.look().await;
            }
        })
    }

    async fn look(&mut self) {
        let users = Arc::clone(&self.users);
        let reloaded = spawn_blocking(move || users.reload().map_err(|error| error.to_string()));
        match reloaded.await {
            Ok(Ok(changed)) => self.report_success(changed),
            Ok(Err(failure)) => self.report_failure(failure),
            Err(error) => self.report_failure(error.to_string()),
        }
    }

    fn report_success(&mut self, changed: bool) {
        let count = self.users.count();
        if changed {
            audit::users_changed(count);
        } else if self.last_failure.is_some() {
            info!("the users file can be used again");
        }
        self.last_failure = None;
        self.metrics.users(count);
        self.metrics.users_file_usable(true);
    }

    fn report_failure(&mut self, failure: String) {
        if self.last_failure.as_ref() != Some(&failure) {
            error!(%failure, "the users file cannot be used: the users stay as they were");
        }
        self.last_failure = Some(failure);
        self.metrics.users_file_usable(false);
    }
}
