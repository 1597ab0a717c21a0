//! The applications in memory, and what an appId with its appSecret is allowed.

use std::sync::Arc;
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};

use super::failure_limit::FailureLimit;
use super::secret_hash::SecretHashes;
use super::{AppId, Applications};
use crate::changed_by::ChangedBy;
use crate::rate_limit::RetryAfter;

/// Who may fetch the verification key at present; nothing until the store was read once.
#[derive(Debug)]
pub(crate) struct Registrations {
    known: ArcSwapOption<Applications>,
    /// Those of `--applications-dir`, which no store holds.
    mounted: ArcSwap<Applications>,
    /// Checks every pair, even while no application is registered.
    always_checked: bool,
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
    TooOften(RetryAfter),
}

/// What a look into the store brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reconciled {
    /// Records that the store has lost (FLUSHALL, a failover to an empty replica), or holds as they were
    /// before a secret was dropped: to be put back.
    pub(crate) restored: Vec<Restored>,
    /// What others changed since the look before.
    pub(crate) events: Vec<ApplicationEvent>,
}

/// A record as the store should hold it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Restored {
    pub(crate) id: AppId,
    /// What the store holds in its place.
    pub(crate) stored: Option<SecretHashes>,
    pub(crate) record: SecretHashes,
}

/// A change of an application, for the audit log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ApplicationEvent {
    pub(crate) id: AppId,
    pub(crate) event: Event,
    /// The actor, where a command recorded one with this very change.
    pub(crate) changed_by: Option<ChangedBy>,
}

/// What happened to an application.
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
            mounted: ArcSwap::default(),
            always_checked: false,
            required,
            failures: FailureLimit::new(),
        }
    }

    /// With the applications of a directory. Who has one wants pairs to be checked, also while it is empty.
    pub(crate) fn with_directory(self, applications: Applications) -> Self {
        Self {
            mounted: ArcSwap::from_pointee(applications),
            always_checked: true,
            ..self
        }
    }

    /// Takes over what the directory holds now, and returns what changed.
    pub(crate) fn mount(&self, applications: Applications) -> Vec<ApplicationEvent> {
        let now = Arc::new(applications);
        let former = self.mounted.swap(Arc::clone(&now));
        let is_gone = |id: &AppId| now.record(id.as_str()).is_none();
        let removed = former.registered().filter(|(id, _)| is_gone(id));
        let removed = removed.map(|(id, _)| ApplicationEvent {
            id: id.clone(),
            event: Event::Removed,
            changed_by: None,
        });
        events(&former, &now).into_iter().chain(removed).collect()
    }

    /// Accepts any pair while no application is registered (contract §4.3 rule 2), unless
    /// registrations are required. A right secret is accepted whatever failed before.
    ///
    /// # Errors
    /// [`Denied`]; an unknown id and a wrong secret are one case.
    pub(crate) fn authorize(&self, id: &str, secret: &str, now: Instant) -> Result<(), Denied> {
        let (known, mounted) = (self.known.load(), self.mounted.load());
        let Some(known) = known.as_deref() else {
            return Err(Denied::Undecided);
        };
        if known.is_empty() && mounted.is_empty() && self.required {
            return Err(Denied::Undecided);
        }
        // Both are compared, so that the time does not tell where an application is registered.
        let is_dropped = known.record(id).is_some_and(|it| it.is_dropped(secret));
        let is_mounted = mounted.admits(id, secret) && !is_dropped;
        if known.admits(id, secret) | is_mounted | self.are_open(known, &mounted) {
            return Ok(());
        }
        Err(match self.failures.failed(id, now) {
            Ok(()) => Denied::Unknown,
            Err(too_soon) => Denied::TooOften(too_soon),
        })
    }

    /// Returns whether any pair is accepted at present.
    pub(crate) fn admit_anybody(&self) -> bool {
        let (known, mounted) = (self.known.load(), self.mounted.load());
        let known = known.as_deref();
        known.is_some_and(|known| self.are_open(known, &mounted))
    }

    fn are_open(&self, known: &Applications, mounted: &Applications) -> bool {
        let is_always_checked = self.required || self.always_checked;
        known.is_empty() && mounted.is_empty() && !is_always_checked
    }

    /// Takes over what the store holds and says what has to be put back into it.
    ///
    /// A record that memory has and the store has not was lost, because a removed application keeps
    /// one: it stays in force. So a lost store opens no check that was closed, whatever was written
    /// into it since. A secret that memory knows to be dropped stays dropped, whatever the store holds.
    /// A record that became unreadable stays in force and as it is in the store; one that was not
    /// authentic stays in force, and is not put back.
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
            let is_authentic = match (memory.is_authentic(id), stored.is_authentic(id)) {
                (true, from_store) => record == *mine || from_store,
                (false, from_store) => from_store && held == Some(&record),
            };
            all.mark(id, is_authentic);
            if held == Some(&record) {
                continue;
            }
            all.put(id.clone(), record.clone());
            // Putting a record back authenticates it.
            if is_authentic && !stored.is_unreadable(id) {
                restored.push(Restored {
                    id: id.clone(),
                    stored: held.cloned(),
                    record,
                });
            }
        }
        // Somebody was registered there, though nobody can read who.
        if all.is_empty() {
            all.keep_unreadable(memory);
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
        let known = known.as_deref()?;
        let mounted = self.mounted.load();
        let only_mounted = mounted
            .registered()
            .filter(|(id, _)| known.registered_id(id.as_str()).is_none());
        Some(known.registered().count() + only_mounted.count())
    }

    /// Whether an application has to be registered before the key may be used at all.
    pub(crate) fn are_missing(&self) -> bool {
        self.required && self.count().is_none_or(|count| count == 0)
    }

    /// Returns the id as it was sent, for a log (contract §4.3 rule 3), unless it is a secret, or has
    /// changed places with one. Before the first look into the store nobody can tell.
    pub(crate) fn shown_id<'t>(&self, sent: &'t str, secret: &str) -> &'t str {
        let known = self.known.load();
        let Some(known) = known.as_deref().filter(|_| !sent.is_empty()) else {
            return if sent.is_empty() {
                sent
            } else {
                "[not known yet]"
            };
        };
        let mounted = self.mounted.load();
        let is_id = |text: &str| known.record(text).or(mounted.record(text)).is_some();
        let is_secret = known.hold_secret(sent) || mounted.hold_secret(sent);
        if is_secret || (is_id(secret) && !is_id(sent)) {
            "[a secret]"
        } else {
            sent
        }
    }

    /// The id, if one is registered under it: there are only as many of these as somebody registered.
    pub(crate) fn registered_id(&self, id: &str) -> Option<AppId> {
        let known = self.known.load();
        let stored = known
            .as_deref()
            .and_then(|known| known.registered_id(id).cloned());
        stored.or_else(|| self.mounted.load().registered_id(id).cloned())
    }
}

/// How the records of now differ from those before.
fn events(memory: &Applications, now: &Applications) -> Vec<ApplicationEvent> {
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
            let known = former.and_then(SecretHashes::changed_by);
            let changed_by = secrets.changed_by();
            Some(ApplicationEvent {
                id: id.clone(),
                event,
                changed_by: changed_by.filter(|by| known.as_ref() != Some(by)),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
