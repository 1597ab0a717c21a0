//! Changes of an application, as functions of its record; the store swaps the result in.

use super::secret_hash::SecretHashes;
use crate::accounts::grants::Grant;
use crate::telemetry::audit::events::ApplicationEvent;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// Registers the application with its first secret, and with a grant for its tokens.
    Add { secret: &'a str, grant: &'a Grant },
    /// Replaces the grant for the application's tokens.
    Grant { grant: &'a Grant },
    /// Adds a secret; the previous one stays valid.
    Rotate { secret: &'a str },
    /// Makes this secret valid, idempotently: registers the application, adds the secret, or
    /// changes nothing.
    Ensure { secret: &'a str },
    /// Drops all secrets but the newest. Not a single one: it may be the leaked secret, restored by
    /// a failover.
    DropOld,
    /// Unregisters the application.
    Remove,
}

const REGISTERED: &str =
    "this application is registered already (rotate-secret prints another secret)";
const NOT_REGISTERED: &str = "no such application is registered";
const DROPPED: &str =
    "this secret was dropped, and a dropped one never becomes valid again; make another";
const NOTHING_TO_DROP: &str = "nothing to drop (rotate-secret, then --drop-old, ends a leaked secret): only one secret is valid";

impl Change<'_> {
    /// Returns the audit event of this change; `record` is `None` before the first registration.
    pub(crate) fn event(self, record: Option<&SecretHashes>) -> ApplicationEvent {
        match self {
            Self::Grant { .. } => ApplicationEvent::GrantChanged,
            Self::Remove => ApplicationEvent::Removed,
            _ if record.is_none_or(SecretHashes::is_empty) => ApplicationEvent::Added,
            _ => ApplicationEvent::SecretsChanged,
        }
    }

    /// Returns the record changed at `now`.
    ///
    /// # Errors
    /// If the application does not exist (for [`Change::Add`]: exists), or nothing can be dropped.
    pub(crate) fn apply(
        self,
        record: Option<&SecretHashes>,
        now: i64,
    ) -> Result<SecretHashes, &'static str> {
        // The record of a removed application has no valid secret, but the dropped ones.
        let held = record.cloned().unwrap_or_default();
        let is_registered = !held.is_empty();
        match self {
            Self::Add { .. } if is_registered => Err(REGISTERED),
            Self::Add { secret, grant } => Ok(with_new_grant(held.with_new(secret), grant)),
            // Before the arm that would make a dropped secret valid again, also for a removed application.
            Self::Ensure { secret } if held.is_dropped(secret) => Err(DROPPED),
            Self::Ensure { secret } if held.match_any(secret) => Ok(held),
            Self::Ensure { secret } => Ok(held.with_new(secret)),
            _ if !is_registered => Err(NOT_REGISTERED),
            Self::Grant { grant } => Ok(with_new_grant(held, grant)),
            Self::Rotate { secret } => Ok(held.with_new(secret)),
            Self::DropOld if held.len() < 2 => Err(NOTHING_TO_DROP),
            Self::DropOld => Ok(held.newest()),
            Self::Remove => Ok(held.removed(now)),
        }
    }
}

/// Replaces the grant unless it is the same; an application without any keeps none.
fn with_new_grant(record: SecretHashes, grant: &Grant) -> SecretHashes {
    if record.grant().unwrap_or(&Grant::default()) == grant {
        return record;
    }
    record.with_grant(grant.clone())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn an_application_s_life() {
        let (none, some) = (
            Grant::default(),
            Grant {
                scope: "read".parse().unwrap(),
                ..Grant::default()
            },
        );
        let add = Change::Add {
            secret: "a",
            grant: &none,
        };
        let rotate = Change::Rotate { secret: "b" };
        let grant = Change::Grant { grant: &some };
        let withdraw = Change::Grant { grant: &none };
        let (one, removed) = (
            SecretHashes::default().with_new("a"),
            SecretHashes::default(),
        );
        let again = removed.with_new("a");
        let two = one.with_new("b");
        let dropped_a = two.newest();
        let granted = one.clone().with_grant(some.clone());
        let withdrawn = granted.clone().with_grant(none.clone());
        let (ensure_a, ensure_b) = (
            Change::Ensure { secret: "a" },
            Change::Ensure { secret: "b" },
        );
        for (change, record, expected) in [
            (add, None, Ok(&one)),
            (add, Some(&removed), Ok(&again)),
            (add, Some(&two), Err(REGISTERED)),
            (grant, None, Err(NOT_REGISTERED)),
            (grant, Some(&removed), Err(NOT_REGISTERED)),
            (grant, Some(&one), Ok(&granted)),
            (grant, Some(&granted), Ok(&granted)),
            (withdraw, Some(&granted), Ok(&withdrawn)),
            (withdraw, Some(&one), Ok(&one)),
            (rotate, Some(&one), Ok(&two)),
            (rotate, None, Err(NOT_REGISTERED)),
            (rotate, Some(&removed), Err(NOT_REGISTERED)),
            (ensure_a, None, Ok(&one)),
            (ensure_a, Some(&removed), Ok(&again)),
            (ensure_a, Some(&one), Ok(&one)),
            (ensure_a, Some(&two), Ok(&two)),
            (ensure_b, Some(&one), Ok(&two)),
            (Change::DropOld, Some(&two), Ok(&dropped_a)),
            (ensure_a, Some(&dropped_a), Err(DROPPED)),
            (ensure_b, Some(&dropped_a), Ok(&dropped_a)),
            (ensure_a, Some(&two.removed(1)), Err(DROPPED)),
            (Change::DropOld, Some(&one), Err(NOTHING_TO_DROP)),
            (Change::DropOld, None, Err(NOT_REGISTERED)),
            (Change::Remove, Some(&two), Ok(&two.removed(1))),
            (Change::Remove, Some(&removed), Err(NOT_REGISTERED)),
            (Change::Remove, None, Err(NOT_REGISTERED)),
        ] {
            assert_eq!(
                change.apply(record, 1).as_ref(),
                expected.as_ref().copied(),
                "{change:?}"
            );
        }
    }
}
