//! Follows the users file: polls every few seconds and at each SIGHUP.

use std::collections::BTreeSet;
use std::sync::Arc;

use runtime::files::file_watch::{FailureDedup, PollTimer, Transition, run_blocking};
use tracing::{debug, error, warn};

use super::UserStore;
use super::recorded::RecordedUsers;
use crate::applications::registry::ApplicationRegistry;
use crate::audit;
use crate::audit::events::{UserChange, UserChangeKind};
use crate::metrics::{Metrics, gauge};
use crate::revocations::Revocation;

pub(crate) struct UsersReload {
    recorded: Arc<RecordedUsers>,
    metrics: Metrics,
    /// Logs an unusable file once, not at every poll.
    dedup: FailureDedup,
    registrations: Arc<ApplicationRegistry>,
}

impl UsersReload {
    pub(crate) fn new(
        recorded: Arc<RecordedUsers>,
        metrics: Metrics,
        registrations: Arc<ApplicationRegistry>,
    ) -> Self {
        let of_file = &metrics.users_file;
        of_file.users.set(gauge(recorded.users.count()));
        of_file.users_file_usable.set(1);
        Self {
            recorded,
            metrics,
            dedup: FailureDedup::default(),
            registrations,
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
        let users = Arc::clone(&self.recorded.users);
        let reloaded = run_blocking(move || users.reload()).await;
        let users = &self.recorded.users;
        let of_file = &self.metrics.users_file;
        of_file.users_file_usable.set(reloaded.is_ok().into());
        of_file.users.set(gauge(users.count()));
        let (replaced, changes) = match reloaded {
            Ok(changes) => (Ok(changes.is_some()), changes.unwrap_or_default()),
            Err(failure) => (Err(failure), Vec::new()),
        };
        match self.dedup.transition(replaced) {
            Some(Transition::Replaced) => {
                audit::users_changed(users.count(), &changes);
                for warning in users.warnings() {
                    warn!("{warning}");
                }
            }
            Some(Transition::Unusable(failure)) if !users.is_current() => {
                error!(%failure, "users file: no login succeeds until a restart");
            }
            Some(other) => other.log("users file"),
            None => {}
        }
        if !changes.is_empty() {
            self.recorded.changed();
        }
        self.revoke_applications(&changes);
        if let Err(error) = self.recorded.revocations.flush().await {
            debug!(%error, "revocations of applications wait for the store");
        }
    }

    /// Revokes the tokens of applications that have the name of a new user: services could take them
    /// for the user's.
    fn revoke_applications(&self, changes: &[UserChange]) {
        let now = self.recorded.clock.now();
        let added = changes.iter().filter(|it| it.kind == UserChangeKind::Added);
        let names = added.flat_map(|it| {
            let present = self.recorded.users.present(&it.account);
            let id = present.map(|present| present.user.id);
            [Some(it.account.clone()), id]
        });
        let names: BTreeSet<_> = names.flatten().collect();
        let taken = names
            .iter()
            .filter_map(|name| self.registrations.registered_id(name));
        let revocations = taken.map(|id| Revocation::of_application(id.to_string(), now));
        self.recorded.revocations.note(revocations);
    }
}
