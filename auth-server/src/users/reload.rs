//! Follows the file of users while the server runs: a look every few seconds, and one at each SIGHUP.

use std::sync::Arc;

use runtime::file_watch::{Looks, News, Told, aside};
use tracing::{error, info, warn};

use super::file::FileUsers;
use crate::audit;
use crate::metrics::Metrics;

/// The loop's state.
pub(crate) struct UsersReload {
    users: Arc<FileUsers>,
    metrics: Metrics,
    /// Said already: an unusable file is one line, and not one every two seconds.
    told: Told,
}

impl UsersReload {
    pub(crate) fn new(users: Arc<FileUsers>, metrics: Metrics) -> Self {
        metrics.users(users.count(), users.uncommon());
        metrics.users_file_usable(true);
        Self {
            users,
            metrics,
            told: Told::default(),
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
        let looked = aside(move || users.reload()).await;
        self.metrics.users_file_usable(looked.is_ok());
        let count = self.users.count();
        self.metrics.users(count, self.users.uncommon());
        let (replaced, changes) = match looked {
            Ok(changes) => (Ok(changes.is_some()), changes.unwrap_or_default()),
            Err(failure) => (Err(failure), Vec::new()),
        };
        match self.told.news(replaced) {
            Some(News::Replaced) => {
                audit::users_changed(count, &changes);
                if let Some(warning) = self.users.uneven_costs() {
                    warn!("{warning}");
                }
            }
            Some(News::Recovered) => info!("the users file can be used again"),
            Some(News::Unusable(failure)) => {
                error!(%failure, "the users file cannot be used: the users stay as they were");
            }
            None => {}
        }
    }
}
