//! Differences between two versions of the users file, for the audit lines.

use std::collections::BTreeMap;

use super::users_file::{KnownUser, Users};
use crate::audit::events::{UserChange, UserChangeKind};

/// The users who can log in: each id with the digest of the credentials.
pub(super) type EnabledUsers = BTreeMap<String, String>;

/// Lists the changes between two files, sorted by account.
pub(super) fn changes(before: &Users, after: &Users) -> Vec<UserChange> {
    let gone = before.accounts().filter(|&gone| !after.knows(gone));
    let mut accounts: Vec<_> = after.accounts().chain(gone).collect();
    accounts.sort_unstable();
    let of_account = |account: &String| {
        let kinds = kinds(before.known(account), after.known(account));
        let account = account.clone();
        kinds.into_iter().map(move |kind| UserChange {
            account: account.clone(),
            kind,
        })
    };
    accounts.into_iter().flat_map(of_account).collect()
}

/// Lists the ids of the users who could log in before and cannot any more, or only with another
/// password or second factor.
pub(super) fn ended(before: &EnabledUsers, after: &EnabledUsers) -> Vec<String> {
    let ended = before
        .iter()
        .filter(|(id, credentials)| after.get(*id) != Some(credentials));
    ended.map(|(id, _)| id.clone()).collect()
}

pub(super) fn enabled(users: &Users) -> EnabledUsers {
    let all = users
        .accounts()
        .filter_map(|account| users.present(account));
    all.map(|present| (present.user.id, present.credentials))
        .collect()
}

/// Lists the changes of one user, who is in at least one of the files.
fn kinds(before: Option<&KnownUser>, after: Option<&KnownUser>) -> Vec<UserChangeKind> {
    let (before, after) = match (before, after) {
        (None, _) => return vec![UserChangeKind::Added],
        (_, None) => return vec![UserChangeKind::Removed],
        (Some(before), Some(after)) => (before, after),
    };
    let switched = if after.disabled {
        UserChangeKind::Disabled
    } else {
        UserChangeKind::Enabled
    };
    [
        (before.disabled != after.disabled).then_some(switched),
        (before.password != after.password).then_some(UserChangeKind::PasswordChanged),
        (before.totp != after.totp).then_some(UserChangeKind::TotpChanged),
        (before.user != after.user).then_some(UserChangeKind::DetailsChanged),
    ]
    .into_iter()
    .flatten()
    .collect()
}
