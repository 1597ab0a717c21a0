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

/// Polls for as long as the process lives.
///
/// # Errors
/// Where SIGHUP cannot be received.
pub(crate) fn follow(
    recorded: Arc<RecordedUsers>,
    metrics: Metrics,
    registrations: Arc<ApplicationRegistry>,
) -> std::io::Result<impl Future<Output = ()>> {
    let mut timer = PollTimer::start()?;
    metrics.users_file.users.set(gauge(recorded.users.count()));
    metrics.users_file.users_file_usable.set(1);
    Ok(async move {
        // An unusable file is logged once, not at every poll.
        let mut dedup = FailureDedup::default();
        loop {
            timer.next().await;
            let changes = poll(&recorded, &metrics, &mut dedup).await;
            if !changes.is_empty() {
                recorded.changed();
            }
            revoke_applications(&recorded, &registrations, &changes);
            if let Err(error) = recorded.revocations.flush().await {
                debug!(%error, "revocations of applications wait for the store");
            }
        }
    })
}

/// Reads the file, and returns what has changed.
async fn poll(
    recorded: &RecordedUsers,
    metrics: &Metrics,
    dedup: &mut FailureDedup,
) -> Vec<UserChange> {
    let users = Arc::clone(&recorded.users);
    let reloaded = run_blocking(move || users.reload()).await;
    let users = &recorded.users;
    metrics
        .users_file
        .users_file_usable
        .set(reloaded.is_ok().into());
    metrics.users_file.users.set(gauge(users.count()));
    let (replaced, changes) = match reloaded {
        Ok(changes) => (Ok(changes.is_some()), changes.unwrap_or_default()),
        Err(failure) => (Err(failure), Vec::new()),
    };
    match dedup.transition(replaced) {
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
    changes
}

/// Revokes the tokens of applications that have the name of a new user: services could take them for
/// the user's.
fn revoke_applications(
    recorded: &RecordedUsers,
    registrations: &ApplicationRegistry,
    changes: &[UserChange],
) {
    let now = recorded.records.clock.now();
    let added = changes.iter().filter(|it| it.kind == UserChangeKind::Added);
    let names = added.flat_map(|it| {
        let present = recorded.users.present(&it.account);
        let id = present.map(|present| present.user.id);
        [Some(it.account.clone()), id]
    });
    let names: BTreeSet<_> = names.flatten().collect();
    let taken = names
        .iter()
        .filter_map(|name| registrations.registered_id(name));
    let revocations = taken.map(|id| Revocation::of_application(id.to_string(), now));
    recorded.revocations.note(revocations);
}
