//! Follows the users file: polls every few seconds and at each SIGHUP.

use std::collections::BTreeSet;
use std::sync::Arc;

use runtime::files::file_watch::{self, PollTimer, Transition};
use tracing::{error, warn};

use super::UserStore;
use super::recorded::RecordedUsers;
use crate::applications::registry::ApplicationRegistry;
use crate::audit;
use crate::metrics::{UsersFileMetrics, gauge};
use crate::revocations::Revocation;

/// Polls for as long as the process lives.
///
/// # Errors
/// Where SIGHUP cannot be received.
pub(crate) fn follow(
    recorded: Arc<RecordedUsers>,
    metrics: UsersFileMetrics,
    registrations: Arc<ApplicationRegistry>,
) -> std::io::Result<impl Future<Output = ()>> {
    let timer = PollTimer::start()?;
    let users = Arc::clone(&recorded.users);
    metrics.users.set(gauge(users.count()));
    metrics.users_file_usable.set(1);
    let reload = move || reload(&recorded, &metrics, &registrations);
    Ok(file_watch::follow(timer, reload, move |reloaded| {
        match reloaded {
            // It has its audit lines.
            Transition::Replaced => {}
            Transition::Unusable(failure) if !users.is_current() => {
                error!(%failure, "users file: no login succeeds until a restart");
            }
            other => other.log("users file"),
        }
    }))
}

/// Reads the file, and returns true if its text is new.
fn reload(
    recorded: &RecordedUsers,
    metrics: &UsersFileMetrics,
    registrations: &ApplicationRegistry,
) -> Result<bool, String> {
    let users = &recorded.users;
    let reloaded = users.reload();
    metrics.users_file_usable.set(reloaded.is_ok().into());
    metrics.users.set(gauge(users.count()));
    let Some(changed) = reloaded? else {
        return Ok(false);
    };
    audit::users_changed(users.count(), &changed);
    for warning in users.warnings() {
        warn!("{warning}");
    }
    if !changed.is_empty() {
        revoke_applications(recorded, registrations, &changed);
        recorded.changed();
    }
    Ok(true)
}

/// Revokes the tokens of applications that have the name of a new user: services could take them for
/// the user's. It does no harm for a user who was there before: none got a token since.
fn revoke_applications(
    recorded: &RecordedUsers,
    registrations: &ApplicationRegistry,
    changed: &[String],
) {
    let now = recorded.store.clock.now();
    let names = changed.iter().flat_map(|account| {
        let id = recorded.users.present(account).map(|it| it.user.id);
        [Some(account.clone()), id]
    });
    let taken = names
        .flatten()
        .filter_map(|name| registrations.registered_id(&name));
    let taken: BTreeSet<_> = taken.collect();
    let revocations = taken
        .into_iter()
        .map(|id| Revocation::of_application(id.to_string(), now));
    recorded.revocations.note(revocations);
}
