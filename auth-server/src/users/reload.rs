//! Follows the users file: polls every few seconds and at each SIGHUP.

use std::sync::Arc;

use runtime::clock::unix_now;
use runtime::file_watch::{FailureDedup, PollTimer, Transition, run_blocking};
use tracing::{error, info, warn};

use super::file::{FileUsers, Reloaded};
use crate::audit;
use crate::metrics::Metrics;
use crate::revocations::queue::RevocationQueue;
use crate::revocations::{Revocation, Revocations, Revoked, end_of_tokens};

/// Users in the revocation list up to which a start adds disabled ones: less than half of what it
/// holds, so that they do not end the tokens of everyone.
const MAX_AT_START: usize = 10_000;

pub(crate) struct UsersReload {
    users: Arc<FileUsers>,
    metrics: Metrics,
    /// Logs an unusable file once, not at every poll.
    dedup: FailureDedup,
    /// The way of revocations into the store, and the seconds for which a login may count.
    revocations: Option<(RevocationQueue, i64)>,
}

impl UsersReload {
    pub(crate) fn new(users: Arc<FileUsers>, metrics: Metrics) -> Self {
        metrics.users(users.count(), users.uncommon());
        metrics.users_file_usable(true);
        Self {
            users,
            metrics,
            dedup: FailureDedup::default(),
            revocations: None,
        }
    }

    /// Revokes the tokens of users who cannot log in any more, or only with other credentials.
    #[must_use]
    pub(crate) fn with_revocations(self, queue: RevocationQueue, login_lifetime: i64) -> Self {
        Self {
            revocations: Some((queue, login_lifetime)),
            ..self
        }
    }

    /// Polls for as long as the process lives; `known` is what the store had revoked at the start.
    ///
    /// # Errors
    /// Where SIGHUP cannot be received.
    pub(crate) fn watch(mut self, known: Revocations) -> std::io::Result<impl Future<Output = ()>> {
        let mut timer = PollTimer::start()?;
        Ok(async move {
            self.revoke_disabled(known).await;
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
        self.revoke(ended).await;
    }

    /// Revokes the disabled users: the file may have changed while no server ran.
    async fn revoke_disabled(&self, known: Revocations) {
        let disabled = self.users.disabled();
        let count = disabled.len();
        let (due, left_out) = due(disabled, &known, self.users.changed_at());
        drop(known);
        if left_out > 0 {
            warn!(
                "{left_out} of {count} disabled users are not revoked: the list has no room for more. Where one was \
                 disabled while no server ran, auth-server revoke --user ID ends the tokens"
            );
        }
        self.revoke(due).await;
    }

    /// Revokes every token that these users have.
    async fn revoke(&self, ids: Vec<String>) {
        let Some((queue, login_lifetime)) = &self.revocations else {
            return;
        };
        if ids.is_empty() {
            return;
        }
        let before = unix_now().saturating_add(1);
        let revocations = ids.into_iter().map(|id| Revocation {
            revoked: Revoked::User { id, before },
            until: end_of_tokens(before, *login_lifetime),
            changed_by: None,
        });
        queue.note(revocations.collect()).await;
    }
}

/// Selects the disabled users to revoke at a start, and counts those for whom there is no room. A user
/// who was revoked since the file changed at `changed_at` was disabled all the time since then.
fn due(
    disabled: Vec<String>,
    known: &Revocations,
    changed_at: Option<i64>,
) -> (Vec<String>, usize) {
    let is_over = |before: i64| changed_at.is_none_or(|changed_at| before <= changed_at);
    let (mut due, mut new) = (Vec::new(), Vec::new());
    for id in disabled {
        match known.user_before(&id) {
            None => new.push(id),
            Some(before) if is_over(before) => due.push(id),
            Some(_) => {}
        }
    }
    let [_, users, _] = known.counts();
    let room = MAX_AT_START.saturating_sub(users);
    let left_out = new.len().saturating_sub(room);
    // Sorted, so that every server selects the same users.
    new.sort_unstable();
    due.extend(new.into_iter().take(room));
    (due, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revocations::tests::user;

    const CHANGED: i64 = 1_800_000_000;

    fn known(users: &[(&str, i64)]) -> Revocations {
        let users: Vec<_> = users
            .iter()
            .map(|(id, before)| user(id, *before, CHANGED + 9_000))
            .collect();
        Revocations::default().with(&users, CHANGED)
    }

    fn ids(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|&id| id.to_owned()).collect()
    }

    #[test]
    fn disabled_users_are_revoked_unless_they_were_since_the_file_changed() {
        let known = known(&[("former", CHANGED), ("since", CHANGED + 1)]);
        let disabled = || ids(&["new", "former", "since"]);
        for (changed_at, expected) in [
            (Some(CHANGED), ids(&["former", "new"])),
            (Some(CHANGED - 1), ids(&["new"])),
            (None, ids(&["former", "since", "new"])),
        ] {
            assert_eq!(due(disabled(), &known, changed_at), (expected, 0));
        }
    }

    #[test]
    fn more_than_the_list_has_room_for_are_counted() {
        let many: Vec<_> = (0..MAX_AT_START + 5).map(|n| format!("{n:05}")).collect();
        let (first, left_out) = due(many.clone(), &Revocations::default(), Some(CHANGED));
        assert_eq!((first.len(), left_out), (MAX_AT_START, 5));
        assert_eq!(first, many[..MAX_AT_START]);
        let revoked: Vec<_> = first.iter().map(|id| (id.as_str(), CHANGED + 1)).collect();
        assert_eq!(
            due(many.clone(), &known(&revoked), Some(CHANGED)),
            (Vec::new(), 5)
        );
        let (again, left_out) = due(many, &known(&revoked), None);
        assert_eq!((again.len(), left_out), (MAX_AT_START, 5));
    }
}
