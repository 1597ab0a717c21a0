//! The applications in memory, and the decision about an appId with its appSecret.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use postern_contract::rejection::Rejection;

use super::secret_hash::SecretHashes;
use super::{AppId, Applications, Credentials};
use crate::accounts::grants::Grant;
use crate::telemetry::audit::events::ApplicationEvent;

/// Characters of an accepted id that is logged while no application is registered: a UUID has 36, a
/// refresh token 75.
const MAX_OPEN_ID: usize = 40;
/// Characters of any other unknown id that are logged.
const MAX_UNKNOWN_ID: usize = 8;

/// The applications in force; empty until the store was read.
#[derive(Debug)]
pub(crate) struct ApplicationRegistry {
    sources: Mutex<Sources>,
    /// The applications of both sources; `None` until the store was read.
    in_force: ArcSwapOption<Applications>,
    /// True if every pair is checked, even while no application is registered.
    always_checked: bool,
    /// True if a registered application is required: with hmac the key is the secret that signs tokens.
    required: bool,
}

#[derive(Debug)]
struct Sources {
    stored: Option<Applications>,
    /// Applications of `--applications-dir`, which are in no store.
    mounted: Applications,
}

impl Sources {
    /// Joins both sources into one record for each application.
    fn joined(&self) -> Option<Arc<Applications>> {
        // Before the store was read no application is in force: a removed one must not come back
        // by a file.
        let mut all = self.stored.clone()?;
        for (id, mounted) in self.mounted.all() {
            let stored = all.get(id.as_str()).cloned().unwrap_or_default();
            all.put(id.clone(), stored.with_mounted(mounted));
        }
        Some(Arc::new(all))
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reconciled {
    /// The document to write back: the store has lost it (FLUSHALL, a failover to an empty replica), or has
    /// an older one.
    pub(crate) restored: Option<Applications>,
    /// Applications that could obtain tokens and were removed, even if they are registered again.
    pub(crate) ended: Vec<AppId>,
}

impl ApplicationRegistry {
    /// `mounted`: the applications of a directory. With a directory every pair is checked, even if it is
    /// empty.
    pub(crate) fn new(required: bool, mounted: Option<Applications>) -> Self {
        Self {
            in_force: ArcSwapOption::empty(),
            always_checked: mounted.is_some(),
            required,
            sources: Mutex::new(Sources {
                stored: None,
                mounted: mounted.unwrap_or_default(),
            }),
        }
    }

    /// Replaces the directory's applications, and returns the changes.
    pub(crate) fn mount(&self, applications: Applications) -> Vec<(AppId, ApplicationEvent)> {
        let mut sources = self.sources.lock();
        // Under the lock, so that a poll of the store does not join the former applications meanwhile.
        let former = std::mem::replace(&mut sources.mounted, applications);
        self.in_force.store(sources.joined());
        let mounted = &sources.mounted;
        let mut ids = BTreeSet::new();
        for (id, _) in former.all().chain(mounted.all()) {
            ids.insert(id);
        }
        let mut changes = Vec::new();
        for id in ids {
            let event = match (former.get(id.as_str()), mounted.get(id.as_str())) {
                (None, _) => ApplicationEvent::Added,
                (_, None) => ApplicationEvent::Removed,
                (Some(before), Some(now)) if before == now => continue,
                _ => ApplicationEvent::SecretsChanged,
            };
            changes.push((id.clone(), event));
        }
        changes
    }

    /// Checks a pair. Accepts any pair while no application is registered (contract §4.3 rule 2), unless
    /// registrations are required.
    ///
    /// # Errors
    /// [`Rejection::StoreUnavailable`] before the store was read, or without an application where one
    /// is required; [`Rejection::ApplicationUnknown`] for an unknown id and a wrong secret alike.
    pub(crate) fn authorize(&self, id: &str, secret: &str) -> Result<(), Rejection> {
        let all = self
            .in_force
            .load_full()
            .ok_or(Rejection::StoreUnavailable)?;
        // No pair can be right until an operator registers one: a retry may help, another
        // secret does not.
        if all.is_empty() && self.required {
            return Err(Rejection::StoreUnavailable);
        }
        // `|` computes both operands, so that the time does not show if the id is registered.
        if all.accepts(id, secret) | self.are_open(&all) {
            Ok(())
        } else {
            Err(Rejection::ApplicationUnknown)
        }
    }

    /// Authenticates an application that requests a token, by the first right pair of `presented`, and
    /// returns its grant. While no application is registered no pair is right.
    ///
    /// # Errors
    /// As [`Self::authorize`].
    pub(crate) fn authenticate(
        &self,
        presented: &[Credentials],
    ) -> Result<(AppId, Grant), Rejection> {
        let all = self
            .in_force
            .load_full()
            .ok_or(Rejection::StoreUnavailable)?;
        for Credentials { id, secret } in presented {
            if all.accepts(id, secret)
                && let Some(id) = all.registered_id(id)
            {
                let grant = all.get(id.as_str()).and_then(SecretHashes::grant);
                return Ok((id.clone(), grant.cloned().unwrap_or_default()));
            }
        }
        Err(Rejection::ApplicationUnknown)
    }

    pub(crate) fn accepts_any(&self) -> bool {
        let all = self.in_force.load();
        all.as_ref().is_some_and(|all| self.are_open(all))
    }

    fn are_open(&self, all: &Applications) -> bool {
        all.is_empty() && !self.required && !self.always_checked
    }

    /// Takes over the stored document, `None` for a document that cannot be read.  An older or a missing
    /// document comes from an older copy of the store, or from a store that lost it: then the document in
    /// memory stays in force as a whole, so a lost store never disables a check. It stays in force beside an
    /// unreadable document too, which opens nothing.
    pub(crate) fn reconcile(&self, stored: Option<Applications>) -> Reconciled {
        let mut sources = self.sources.lock();
        let mut reconciled = Reconciled::default();
        match (sources.stored.take(), stored) {
            // Memory has no document yet that the stored one could be older than.
            (None, stored) => sources.stored = stored,
            (Some(mut memory), None) => {
                // The document in memory may lack records of the unreadable one.
                memory.is_incomplete = true;
                sources.stored = Some(memory);
            }
            (Some(memory), Some(stored)) if stored.is_older_than(&memory) => {
                // The store was rolled back or has lost the document: the caller writes memory's over it.
                reconciled.restored = Some(memory.clone());
                sources.stored = Some(memory);
            }
            (Some(memory), Some(mut stored)) => {
                for (id, secrets) in memory.all() {
                    if let Some(grant) = secrets.grant()
                        && !grant.audience.is_empty()
                        && is_removed(stored.get(id.as_str()), secrets)
                    {
                        reconciled.ended.push(id.clone());
                    }
                }
                // Without `began` this is an empty store, which has lost the unreadable document.
                stored.is_incomplete = memory.is_incomplete && stored.began.is_none();
                // A later document may still be a change of an older copy, with its leaked secrets.
                if stored.drop_those_of(&memory) {
                    reconciled.restored = Some(stored.clone());
                }
                sources.stored = Some(stored);
            }
        }
        self.in_force.store(sources.joined());
        reconciled
    }

    /// Returns false until the store was read.
    pub(crate) fn are_known(&self) -> bool {
        self.in_force.load().is_some()
    }

    /// Returns the last removal of each application that was removed, in seconds since the epoch.
    pub(crate) fn removals(&self) -> Vec<(AppId, i64)> {
        let all = self.in_force.load();
        let removal =
            |(id, secrets): (&AppId, &SecretHashes)| Some((id.clone(), secrets.removed_at()?));
        all.iter()
            .flat_map(|all| all.all())
            .filter_map(removal)
            .collect()
    }

    /// Counts the registered applications; 0 until the store was read.
    pub(crate) fn count(&self) -> usize {
        let all = self.in_force.load();
        all.iter().flat_map(|all| all.registered()).count()
    }

    /// Returns true if an application must be registered before the key may be used.
    pub(crate) fn are_missing(&self) -> bool {
        self.required && self.count() == 0
    }

    /// Returns the id as received, for a log (contract §4.3 rule 3), unless it is a secret or swapped with
    /// one. An id that is not registered is cut to a half, or if it was accepted to the longest usual id,
    /// because it may be a password or a token. Before the first poll of the store no id is returned.
    pub(crate) fn logged_id<'t>(
        &self,
        sent: &'t str,
        secret: &str,
        is_accepted: bool,
    ) -> Cow<'t, str> {
        if sent.is_empty() {
            return sent.into();
        }
        let Some(all) = self.in_force.load_full() else {
            return "[not known yet]".into();
        };
        let is_id = |text: &str| all.get(text).is_some();
        // A known id in the field of the secret: the two are swapped, and `sent` is the secret.
        if all.hold_secret(sent) || (is_id(secret) && !is_id(sent)) {
            return "[a secret]".into();
        }
        if is_id(sent) {
            return sent.into();
        }
        if is_accepted && self.are_open(&all) {
            return cut(sent, MAX_OPEN_ID);
        }
        // Half of a password or token is of no use, but shows an operator a misspelt id.
        cut(sent, MAX_UNKNOWN_ID.min(sent.chars().count() / 2))
    }

    /// Returns the id if it is registered: the number of registered ids is bounded.
    pub(crate) fn registered_id(&self, id: &str) -> Option<AppId> {
        self.in_force.load_full()?.registered_id(id).cloned()
    }
}

/// Returns true if a record was removed since, even if the application is registered again.
fn is_removed(stored: Option<&SecretHashes>, known: &SecretHashes) -> bool {
    stored.is_none_or(|stored| stored.is_empty() || stored.removed_at() > known.removed_at())
}

/// Cuts a text after its first characters that an id may have, `max` at most.
fn cut(sent: &str, max: usize) -> Cow<'_, str> {
    let is_usual = |c: char| c.is_alphanumeric() || "-_.:/@".contains(c);
    let end = sent.chars().take(max).take_while(|c| is_usual(*c));
    match sent.split_at_checked(end.map(char::len_utf8).sum()) {
        Some((start, rest)) if !rest.is_empty() => format!("{start}…").into(),
        _ => sent.into(),
    }
}

#[cfg(test)]
mod tests;
