//! Follows the users file: polls every few seconds and at each SIGHUP.

use std::sync::Arc;

use postern_process::files::file_watch::{self, PolledFiles};
use postern_transport::admin::health::Condition;
use tracing::{error, warn};

use super::UserStore;
use super::recorded::RecordedUsers;
use super::users_file::Users;
use crate::telemetry::audit;
use crate::telemetry::metrics::{UsersFileMetrics, gauge};

/// Polls for as long as the process lives.
///
/// # Errors
/// Where SIGHUP cannot be received.
pub(crate) fn follow(
    recorded: Arc<RecordedUsers>,
    metrics: UsersFileMetrics,
    condition: Condition,
) -> std::io::Result<impl Future<Output = ()>> {
    let users = &recorded.users;
    // Begins with the users that were loaded at the start, so that the first poll finds no change.
    let mut file = PolledFiles::start(Ok(Arc::clone(&users.loaded().users)))?;
    metrics.users.set(gauge(users.count()));
    metrics.users_file_usable.set(1);
    Ok(async move {
        loop {
            let users = Arc::clone(&recorded.users);
            // No result: the users in the file are in use already, or the file may be half written.
            let Some(read) = file.poll(move || users.read()).await else {
                continue;
            };
            metrics.users_file_usable.set(read.is_ok().into());
            condition.reloaded(read.as_ref().err().map(String::as_str));
            match read {
                Ok(read) => replace(&recorded, &metrics, Arc::clone(read)),
                // The file was replaced under its mount: no later poll can read the new one.
                Err(failure) if !recorded.users.is_current() => {
                    error!(%failure, "users file: no login succeeds until a restart");
                }
                Err(failure) => file_watch::log("users file", &Err(failure.clone())),
            }
        }
    })
}

/// Uses these users from now on.
fn replace(recorded: &RecordedUsers, metrics: &UsersFileMetrics, read: Arc<Users>) {
    let users = &recorded.users;
    let Some(changed) = users.replace(read) else {
        return file_watch::log("users file", &Ok(false));
    };
    metrics.users.set(gauge(users.count()));
    audit::users_changed(users.count(), &changed);
    for warning in users.warnings() {
        warn!("{warning}");
    }
    // The text may differ in comments or in the order of users alone.
    if !changed.is_empty() {
        recorded.changed();
    }
}
