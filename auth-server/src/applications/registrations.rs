//! The applications in memory, and what an appId with its appSecret is allowed.

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwapOption;

use super::failure_limit::FailureLimit;
use super::secret_hash::SecretHashes;
use super::{AppId, Applications};
use crate::attempts::TooSoon;

/// Who may fetch the verification key at present; nothing until the store was read once.
#[derive(Debug)]
pub(crate) struct Registrations {
    known: ArcSwapOption<Applications>,
    /// With hmac the key is the secret that mints tokens: nobody gets it unchecked.
    required: bool,
    failures: FailureLimit,
}

/// Why an application does not get the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The store was not read yet, or holds none where one is required: nobody knows yet whether
    /// pairs are to be checked.
    Undecided,
    /// The id is not registered, or the secret is wrong.
    Unknown,
    /// The same, too often.
    TooOften(TooSoon),
}

/// What a look into the store brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reconciled {
    /// Records that the store has lost (FLUSHALL, a failover to an empty replica), or holds as they were
    /// before a secret was dropped: to be put back.
    pub(crate) restored: Vec<Restored>,
    /// What others changed since the look before.
    pub(crate) events: Vec<(AppId, Event)>,
}

/// A record as the store should hold it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Restored {
    pub(crate) id: AppId,
    /// What the store holds in its place.
    pub(crate) stored: Option<SecretHashes>,
    pub(crate) record: SecretHashes,
}

/// What happened to an application, for the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Added,
    SecretsChanged,
    Removed,
}

impl Registrations {
    pub(crate) fn new(required: bool) -> Self {
        Self {
            known: ArcSwapOption::empty(),
            required,
            failures: FailureLimit::new(),
        }
    }

    /// Accepts any pair while no application is registered (contract §4.3 rule 2), unless
    /// registrations are required. A right secret is accepted whatever failed before.
    ///
    /// # Errors
    /// [`Denied`]; an unknown id and a wrong secret are one case.
    pub(crate) fn authorize(&self, id: &str, secret: &str, now: Instant) -> Result<(), Denied> {
        match self.known.load().as_deref() {
            None => Err(Denied::Undecided),
            Some(none) if none.is_empty() && self.required => Err(Denied::Undecided),
            Some(none) if none.is_empty() => Ok(()),
            Some(some) if some.admits(id, secret) => Ok(()),
            Some(_) => Err(match self.failures.failed(id, now) {
                Ok(()) => Denied::Unknown,
                Err(too_soon) => Denied::TooOften(too_soon),
            }),
        }
    }

    /// Takes over what the store holds and says what has to be put back into it.
    ///
    /// A record that memory has and the store has not was lost, because a removed application keeps
    /// one: it stays in force. So a lost store opens no check that was closed, whatever was written
    /// into it since. A secret that memory knows to be dropped stays dropped, whatever the store holds. One that became unreadable stays in force too, and stays as it is in the store.
    pub(crate) fn reconcile(&self, stored: Applications) -> Reconciled {
        let former = self.known.load_full();
        let Some(memory) = former.as_deref() else {
            self.known.store(Some(Arc::new(stored)));
            return Reconciled::default();
        };
        let mut all = stored.clone();
        let mut restored = Vec::new();
        for (id, mine) in memory.records() {
            let held = stored.record(id.as_str());
            let record = held.map_or_else(|| mine.clone(), |held| held.merged(mine));
            if held == Some(&record) {
                continue;
            }
            all.put(id.clone(), record.clone());
            if !stored.is_unreadable(id) {
                restored.push(Restored {
                    id: id.clone(),
                    stored: held.cloned(),
                    record,
                });
            }
        }
        let events = events(memory, &all);
        self.known.store(Some(Arc::new(all)));
        Reconciled { restored, events }
    }

    /// The ids whose stored records cannot be read.
    pub(crate) fn unreadable(&self) -> Vec<String> {
        let known = self.known.load();
        let unreadable = known.iter().flat_map(|known| known.unreadable());
        unreadable.map(str::to_owned).collect()
    }

    /// How many applications are registered; `None` until the store was read.
    pub(crate) fn count(&self) -> Option<usize> {
        let known = self.known.load();
        known.as_deref().map(|known| known.registered().count())
    }

    /// Whether an application has to be registered before the key may be used at all.
    pub(crate) fn are_missing(&self) -> bool {
        self.required && self.count().is_none_or(|count| count == 0)
    }

    /// What a log may show of what was sent as an id: a secret sent there by mistake is none. Where no
    /// application is registered any id will do, and none can be told from a secret.
    pub(crate) fn shown_id<'t>(&self, sent: &'t str) -> &'t str {
        let known = self.known.load();
        let is_shown = sent.is_empty()
            || known.as_deref().is_some_and(|known| {
                let anyone = known.is_empty() && !self.required;
                anyone || known.record(sent).is_some()
            });
        if is_shown { sent } else { "[unknown]" }
    }

    /// The id, if one is registered under it: there are only as many of these as somebody registered.
    pub(crate) fn registered_id(&self, id: &str) -> Option<AppId> {
        self.known
            .load()
            .as_deref()
            .and_then(|known| known.registered_id(id).cloned())
    }
}

/// How the records of now differ from those before.
fn events(memory: &Applications, now: &Applications) -> Vec<(AppId, Event)> {
    now.records()
        .filter_map(|(id, secrets)| {
            let former = memory.record(id.as_str());
            let was_registered = former.is_some_and(|former| !former.is_empty());
            let event = match (was_registered, !secrets.is_empty()) {
                (false, true) => Event::Added,
                (true, false) => Event::Removed,
                (true, true) if former != Some(secrets) => Event::SecretsChanged,
                _ => return None,
            };
            Some((id.clone(), event))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn applications(records: &[(&str, SecretHashes)]) -> Applications {
        let mut all = Applications::default();
        for (id, secrets) in records {
            all.put(id.parse().unwrap(), secrets.clone());
        }
        all
    }

    fn orders() -> Applications {
        applications(&[("orders", SecretHashes::of("right"))])
    }

    fn authorize(registrations: &Registrations, id: &str, secret: &str) -> Result<(), Denied> {
        registrations.authorize(id, secret, Instant::now())
    }

    #[test]
    fn nothing_is_allowed_before_the_store_was_read() {
        let registrations = Registrations::new(false);
        assert_eq!(
            authorize(&registrations, "any", "pair"),
            Err(Denied::Undecided)
        );
        assert_eq!(registrations.count(), None);
    }

    #[test]
    fn contract_4_3_rule_2_without_registrations_any_pair_is_accepted() {
        let registrations = Registrations::new(false);
        let reconciled = registrations.reconcile(Applications::default());
        assert_eq!(reconciled, Reconciled::default());
        assert_eq!(authorize(&registrations, "any", "pair"), Ok(()));
        assert!(!registrations.are_missing());
    }

    #[test]
    fn where_registrations_are_required_none_means_closed() {
        let registrations = Registrations::new(true);
        assert!(registrations.are_missing());
        registrations.reconcile(Applications::default());
        assert_eq!(
            authorize(&registrations, "any", "pair"),
            Err(Denied::Undecided)
        );
        assert!(registrations.are_missing());
        registrations.reconcile(orders());
        assert_eq!(authorize(&registrations, "orders", "right"), Ok(()));
        assert!(!registrations.are_missing());
    }

    #[test]
    fn the_first_registration_closes_the_check() {
        let registrations = Registrations::new(false);
        registrations.reconcile(Applications::default());
        registrations.reconcile(orders());
        assert_eq!(authorize(&registrations, "orders", "right"), Ok(()));
        for (id, secret) in [("orders", "wrong"), ("any", "right")] {
            assert_eq!(authorize(&registrations, id, secret), Err(Denied::Unknown));
        }
    }

    #[test]
    fn a_store_that_lost_the_applications_gets_them_back_and_opens_nothing() {
        let registrations = Registrations::new(false);
        registrations.reconcile(orders());
        let reconciled = registrations.reconcile(Applications::default());
        let ids: Vec<_> = reconciled
            .restored
            .iter()
            .map(|it| it.id.as_str())
            .collect();
        assert_eq!(ids, ["orders"]);
        assert_eq!(
            authorize(&registrations, "any", "pair"),
            Err(Denied::Unknown)
        );
        assert_eq!(authorize(&registrations, "orders", "right"), Ok(()));
    }

    #[test]
    fn an_application_added_to_a_store_that_lost_all_does_not_displace_the_lost_ones() {
        let registrations = Registrations::new(false);
        registrations.reconcile(orders());
        let stock = applications(&[("stock", SecretHashes::of("new"))]);
        let reconciled = registrations.reconcile(stock);
        let lost = [Restored {
            id: "orders".parse().unwrap(),
            stored: None,
            record: SecretHashes::of("right"),
        }];
        assert_eq!(reconciled.restored, lost);
        assert_eq!(
            reconciled.events,
            [("stock".parse().unwrap(), Event::Added)]
        );
        for (id, secret) in [("orders", "right"), ("stock", "new")] {
            assert_eq!(authorize(&registrations, id, secret), Ok(()), "{id}");
        }
    }

    #[test]
    fn a_record_that_became_unreadable_stays_in_force_and_is_not_overwritten() {
        let unreadable = || {
            let json = r#"{"orders": "of a newer version", "stock": 1}"#;
            serde_json::from_str::<Applications>(json).unwrap()
        };
        let known = Registrations::new(false);
        known.reconcile(orders());
        assert_eq!(known.reconcile(unreadable()), Reconciled::default());
        assert_eq!(known.unreadable(), ["orders", "stock"]);
        let started = Registrations::new(false);
        started.reconcile(unreadable());
        let denied = Err(Denied::Unknown);
        assert_eq!(authorize(&known, "orders", "right"), Ok(()));
        assert_eq!(authorize(&started, "orders", "right"), denied);
        for registrations in [&known, &started] {
            assert_eq!(authorize(registrations, "stock", "1"), denied);
        }
        known.reconcile(orders());
        assert_eq!(known.unreadable(), [""; 0]);
    }

    #[test]
    fn a_log_shows_the_ids_that_somebody_registered_and_nothing_else_that_was_sent() {
        let registrations = Registrations::new(false);
        assert_eq!(registrations.shown_id("orders"), "[unknown]");
        registrations.reconcile(Applications::default());
        assert_eq!(registrations.shown_id("any"), "any");
        let closed = ("closed", SecretHashes::none());
        registrations.reconcile(applications(&[
            ("orders", SecretHashes::of("right")),
            closed,
        ]));
        for (sent, shown) in [
            ("orders", "orders"),
            ("closed", "closed"),
            ("right", "[unknown]"),
            ("any", "[unknown]"),
            ("", ""),
        ] {
            assert_eq!(registrations.shown_id(sent), shown, "{sent}");
        }
        let required = Registrations::new(true);
        required.reconcile(Applications::default());
        assert_eq!(required.shown_id("right"), "[unknown]");
    }

    #[test]
    fn a_removed_application_stays_removed() {
        let registrations = Registrations::new(false);
        let stock = ("stock", SecretHashes::of("s"));
        registrations.reconcile(applications(&[
            ("orders", SecretHashes::of("right")),
            stock.clone(),
        ]));
        let removed = applications(&[("orders", SecretHashes::none()), stock]);
        let expected = Reconciled {
            restored: Vec::new(),
            events: vec![("orders".parse().unwrap(), Event::Removed)],
        };
        assert_eq!(registrations.reconcile(removed), expected);
        assert_eq!(
            authorize(&registrations, "orders", "right"),
            Err(Denied::Unknown)
        );
    }

    #[test]
    fn a_dropped_secret_stays_dropped_when_an_older_record_is_back() {
        let registrations = Registrations::new(false);
        let leaked = SecretHashes::of("leaked");
        let dropped = leaked.with_new("next").newest();
        registrations.reconcile(applications(&[("orders", dropped.clone())]));
        let reconciled = registrations.reconcile(applications(&[("orders", leaked.clone())]));
        let expected = Restored {
            id: "orders".parse().unwrap(),
            stored: Some(leaked),
            record: dropped.clone(),
        };
        assert_eq!(reconciled.restored, [expected]);
        assert_eq!(reconciled.events, []);
        let leaked = authorize(&registrations, "orders", "leaked");
        assert_eq!(leaked, Err(Denied::Unknown));
        assert_eq!(authorize(&registrations, "orders", "next"), Ok(()));
        let healed = registrations.reconcile(applications(&[("orders", dropped)]));
        assert_eq!(healed, Reconciled::default());
    }

    #[test]
    fn secrets_that_changed_are_told_once() {
        let registrations = Registrations::new(false);
        registrations.reconcile(orders());
        let rotated = applications(&[("orders", SecretHashes::of("right").with_new("next"))]);
        let id: AppId = "orders".parse().unwrap();
        let events = registrations.reconcile(rotated.clone()).events;
        assert_eq!(events, [(id, Event::SecretsChanged)]);
        assert_eq!(registrations.reconcile(rotated).events, []);
    }

    #[test]
    fn after_too_many_failures_the_right_secret_is_still_accepted() {
        let registrations = Registrations::new(false);
        registrations.reconcile(orders());
        let now = Instant::now();
        let outcomes: Vec<_> = (0..100)
            .map(|_| registrations.authorize("orders", "wrong", now))
            .collect();
        assert_eq!(outcomes.first(), Some(&Err(Denied::Unknown)));
        assert!(matches!(outcomes.last(), Some(Err(Denied::TooOften(_)))));
        assert_eq!(registrations.authorize("orders", "right", now), Ok(()));
    }
}
