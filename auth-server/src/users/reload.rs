//! Follows the users file: polls every few seconds and at each SIGHUP.

use std::collections::BTreeSet;
use std::sync::Arc;

use runtime::files::file_watch::{FailureDedup, PollTimer, Transition, run_blocking};
use tokio::sync::Notify;
use tracing::{debug, error, warn};

use super::UserStore;
use super::file::{FileUsers, Reloaded};
use crate::applications::registry::ApplicationRegistry;
use crate::audit;
use crate::audit::events::{UserChange, UserChangeKind};
use crate::metrics::Metrics;
use crate::revocations::Revocation;
use crate::revocations::log::RevocationLog;
use crate::store::clock::StoreClock;

pub(crate) struct UsersReload {
    users: Arc<FileUsers>,
    metrics: Metrics,
    /// Logs an unusable file once, not at every poll.
    dedup: FailureDedup,
    revocations: Arc<RevocationLog>,
    registrations: Arc<ApplicationRegistry>,
    clock: Arc<StoreClock>,
    /// Notified after each change of the users.
    changed: Arc<Notify>,
}

impl UsersReload {
    /// Revokes the tokens of users who cannot log in any more, or only with other credentials.
    pub(crate) fn new(
        users: Arc<FileUsers>,
        metrics: Metrics,
        revocations: Arc<RevocationLog>,
        (registrations, clock): (Arc<ApplicationRegistry>, Arc<StoreClock>),
    ) -> Self {
        metrics.users(users.count(), users.uncommon());
        metrics.users_file_usable(true);
        Self {
            users,
            metrics,
            dedup: FailureDedup::default(),
            revocations,
            registrations,
            clock,
            changed: Arc::default(),
        }
    }

    pub(crate) fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
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
        let (replaced, reloaded) = match reloaded {
            Ok(reloaded) => (Ok(reloaded.is_some()), reloaded),
            Err(failure) => (Err(failure), None),
        };
        let Reloaded { changes, ended } = reloaded.unwrap_or_default();
        match self.dedup.transition(replaced) {
            Some(Transition::Replaced) => {
                audit::users_changed(count, &changes);
                for warning in self.users.warnings() {
                    warn!("{warning}");
                }
            }
            Some(Transition::Unusable(failure)) if !self.users.is_current() => {
                error!(%failure, "users file: no login succeeds until a restart");
            }
            Some(other) => other.log("users file"),
            None => {}
        }
        self.revoke(ended);
        self.revoke_applications(&changes);
        if let Err(error) = self.revocations.flush().await {
            debug!(%error, "revocations of users wait for the store");
        }
        if !changes.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Revokes every token that these users have.
    fn revoke(&self, ids: Vec<String>) {
        let now = self.clock.now();
        let revocations = ids.into_iter().map(|id| Revocation::of_user(id, now));
        self.revocations.note(revocations);
    }

    /// Revokes the tokens of applications that have the name of a new user: services could take them
    /// for the user's.
    fn revoke_applications(&self, changes: &[UserChange]) {
        let now = self.clock.now();
        let added = changes.iter().filter(|it| it.kind == UserChangeKind::Added);
        let names = added.flat_map(|it| {
            let id = self
                .users
                .present(&it.account)
                .map(|present| present.user.id);
            [Some(it.account.clone()), id]
        });
        let names: BTreeSet<_> = names.flatten().collect();
        let taken = names
            .iter()
            .filter_map(|name| self.registrations.registered_id(name));
        let revocations = taken.map(|id| Revocation::of_application(id.to_string(), now));
        self.revocations.note(revocations);
    }
}
