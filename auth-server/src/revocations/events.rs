//! Differences between two states of the revocations, for the audit lines of every server that
//! sees them.

use std::collections::BTreeMap;

use super::{NotBefore, Revocations};
use crate::audit::events::{RevocationEvent, RevocationEventKind};
use crate::changed_by::ChangedBy;

/// Lists the revocations that were added, the one of the note `by` with its actor.
pub(crate) fn events(
    before: &Revocations,
    after: &Revocations,
    by: Option<&ChangedBy>,
) -> Vec<RevocationEvent> {
    if before.seq == after.seq {
        return Vec::new();
    }
    let (before, after) = (&before.entries, &after.entries);
    let new_tokens = after
        .tokens
        .iter()
        .filter(|(id, _)| !before.tokens.contains_key(*id));
    let tokens = new_tokens.map(|(id, entry)| RevocationEvent {
        kind: RevocationEventKind::Token,
        id: id.clone(),
        user: entry.user.clone(),
        changed_by: None,
    });
    let users = new_times(RevocationEventKind::User, &before.users, &after.users);
    let applications = new_times(
        RevocationEventKind::Application,
        &before.applications,
        &after.applications,
    );
    let everyone = after.everyone.as_ref().filter(|entry| {
        let former = before.everyone.as_ref();
        former.is_none_or(|former| former.before < entry.before)
    });
    let everyone = everyone.map(|_| RevocationEvent {
        kind: RevocationEventKind::Everyone,
        id: String::new(),
        user: None,
        changed_by: None,
    });
    let events = tokens.chain(users).chain(applications).chain(everyone);
    let with_actor = |event: RevocationEvent| RevocationEvent {
        changed_by: by.filter(|by| by.is_of(&event.id)).cloned(),
        ..event
    };
    events.map(with_actor).collect()
}

fn new_times(
    kind: RevocationEventKind,
    before: &BTreeMap<String, NotBefore>,
    after: &BTreeMap<String, NotBefore>,
) -> impl Iterator<Item = RevocationEvent> {
    let is_new = |(id, entry): &(&String, &NotBefore)| {
        let former = before.get(*id);
        former.is_none_or(|former| former.before < entry.before)
    };
    after
        .iter()
        .filter(is_new)
        .map(move |(id, _)| RevocationEvent {
            kind,
            id: id.clone(),
            user: None,
            changed_by: None,
        })
        .collect::<Vec<_>>()
        .into_iter()
}
