//! What may be done to a registered application: decisions on its record, for the store to swap in.

use super::secret_hash::SecretHashes;
use super::{AppId, Applications};

/// One step of an application's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// Registers it with its first secret.
    Add { secret: &'a str },
    /// Makes another secret valid; the one before it stays so.
    Rotate { secret: &'a str },
    /// Makes this secret valid, whatever is there: registers the application, gives it another
    /// secret, or changes nothing. Whoever holds the secrets elsewhere may say it any number of times.
    Ensure { secret: &'a str },
    /// Ends the validity of all secrets but the newest. A single one may be the very secret that is to
    /// go, brought back by a failover.
    DropOld,
    /// Takes its registration away; that of the last one only where this is said: from then on any
    /// pair is accepted.
    Remove { last: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("this application is registered already")]
    Registered,
    #[error("no such application is registered")]
    NotRegistered,
    #[error("this secret was dropped, and a dropped one never becomes valid again; make another")]
    Dropped,
    #[error(
        "nothing to drop (rotate-secret, then --drop-old, ends a leaked secret): only one secret is valid"
    )]
    NothingToDrop,
    #[error(
        "without it every appId with any appSecret gets the key (register the next one first, or say --last): \
         no other application is registered"
    )]
    Last,
}

impl Change<'_> {
    /// The record after the change.
    ///
    /// # Errors
    /// [`Refused`] where the application is not there, or for [`Change::Add`], is, and where nothing is to be dropped.
    pub(crate) fn apply(self, record: Option<&SecretHashes>) -> Result<SecretHashes, Refused> {
        let registered = record.filter(|secrets| !secrets.is_empty());
        // What a removed application leaves behind says which secrets were dropped.
        let first = |secret| {
            record.map_or_else(
                || SecretHashes::of(secret),
                |removed| removed.with_new(secret),
            )
        };
        match (self, registered) {
            (Self::Add { secret }, None) => Ok(first(secret)),
            (Self::Add { .. }, Some(_)) => Err(Refused::Registered),
            (Self::Ensure { secret }, _) if record.is_some_and(|it| it.is_dropped(secret)) => {
                Err(Refused::Dropped)
            }
            (Self::Ensure { secret }, None) => Ok(first(secret)),
            (Self::Ensure { secret }, Some(secrets)) if secrets.match_any(secret) => {
                Ok(secrets.clone())
            }
            (Self::Ensure { secret }, Some(secrets)) => Ok(secrets.with_new(secret)),
            (_, None) => Err(Refused::NotRegistered),
            (Self::Rotate { secret }, Some(secrets)) => Ok(secrets.with_new(secret)),
            (Self::DropOld, Some(secrets)) if secrets.len() < 2 => Err(Refused::NothingToDrop),
            (Self::DropOld, Some(secrets)) => Ok(secrets.newest()),
            (Self::Remove { .. }, Some(secrets)) => Ok(secrets.removed()),
        }
    }

    /// The registration that has to stand unchanged while this one changes: of two that are removed
    /// at the same moment each is the other's.
    ///
    /// # Errors
    /// [`Refused::Last`] where there is none and one is needed.
    pub(crate) fn relies_on<'t>(
        self,
        id: &AppId,
        there: &'t Applications,
    ) -> Result<Option<(&'t AppId, &'t SecretHashes)>, Refused> {
        if self != (Self::Remove { last: false }) {
            return Ok(None);
        }
        let other = there.registered().find(|(other, _)| *other != id);
        other.map(Some).ok_or(Refused::Last)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn an_application_s_life() {
        let (add, rotate) = (Change::Add { secret: "a" }, Change::Rotate { secret: "b" });
        let (one, removed) = (SecretHashes::of("a"), SecretHashes::none());
        let two = one.with_new("b");
        let dropped_a = two.newest();
        let (ensure_a, ensure_b) = (
            Change::Ensure { secret: "a" },
            Change::Ensure { secret: "b" },
        );
        for (change, record, expected) in [
            (add, None, Ok(&one)),
            (add, Some(&removed), Ok(&one)),
            (add, Some(&two), Err(Refused::Registered)),
            (rotate, Some(&one), Ok(&two)),
            (rotate, None, Err(Refused::NotRegistered)),
            (rotate, Some(&removed), Err(Refused::NotRegistered)),
            (ensure_a, None, Ok(&one)),
            (ensure_a, Some(&removed), Ok(&one)),
            (ensure_a, Some(&one), Ok(&one)),
            (ensure_a, Some(&two), Ok(&two)),
            (ensure_b, Some(&one), Ok(&two)),
            (Change::DropOld, Some(&two), Ok(&dropped_a)),
            (ensure_a, Some(&dropped_a), Err(Refused::Dropped)),
            (ensure_b, Some(&dropped_a), Ok(&dropped_a)),
            (ensure_a, Some(&two.removed()), Err(Refused::Dropped)),
            (Change::DropOld, Some(&one), Err(Refused::NothingToDrop)),
            (Change::DropOld, None, Err(Refused::NotRegistered)),
            (
                Change::Remove { last: true },
                Some(&two),
                Ok(&two.removed()),
            ),
            (
                Change::Remove { last: true },
                Some(&removed),
                Err(Refused::NotRegistered),
            ),
            (
                Change::Remove { last: true },
                None,
                Err(Refused::NotRegistered),
            ),
        ] {
            assert_eq!(
                change.apply(record).as_ref(),
                expected.as_ref().copied(),
                "{change:?}"
            );
        }
    }

    #[test]
    fn only_the_removal_of_one_of_several_relies_on_another() {
        let (orders, stock): (AppId, AppId) = ("orders".parse().unwrap(), "stock".parse().unwrap());
        let (mut one, removed) = (Applications::default(), SecretHashes::none());
        one.put(orders.clone(), SecretHashes::of("a"));
        one.put(stock.clone(), removed);
        let mut two = one.clone();
        two.put(stock.clone(), SecretHashes::of("b"));
        for (change, there, expected) in [
            (Change::Remove { last: false }, &one, Err(Refused::Last)),
            (Change::Remove { last: false }, &two, Ok(Some(&stock))),
            (Change::Remove { last: true }, &one, Ok(None)),
            (Change::DropOld, &one, Ok(None)),
        ] {
            let relies_on = change.relies_on(&orders, there);
            let relies_on = relies_on.map(|other| other.map(|(id, _)| id));
            assert_eq!(relies_on, expected, "{change:?}");
        }
    }
}
