//! The applications that may fetch the verification key (contract §4.3), and obtain tokens where
//! they were given an audience.
//!
//! While no application is registered any pair is accepted (contract §4.3); afterwards every pair is checked.
//! Only hashes of secrets are stored.

pub(crate) mod command;
pub(crate) mod directory;
pub(crate) mod records;
pub(crate) mod registry;
pub(crate) mod secret_hash;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use self::secret_hash::{SecretHash, SecretHashes};
use crate::accounts::grants::Word;

/// The id of an application; longer ones would only fill logs.
pub(crate) type AppId = Word<128>;

/// The id and the secret of an application as a client sent them, not verified yet. Two readings of one request may
/// be compared; a secret is compared with the registered one by [`SecretHashes`] alone.
#[derive(PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) id: String,
    pub(crate) secret: Zeroizing<String>,
}

impl Credentials {
    pub(crate) fn new(id: &str, secret: &str) -> Self {
        Self {
            id: id.to_owned(),
            secret: Zeroizing::new(secret.to_owned()),
        }
    }
}

/// All applications by id: one document of the store, which counts as a whole. An application with a secret
/// is registered; a removed application stays without a secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Applications {
    /// The time of the first change, in seconds since the epoch; `None` before the first change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    began: Option<i64>,
    /// Raised by each change.
    #[serde(default)]
    generation: u64,
    #[serde(default)]
    applications: BTreeMap<AppId, SecretHashes>,
    /// Members of a newer version, kept unchanged.
    #[serde(flatten)]
    unknown: Map<String, Value>,
    /// True if the store has had a document that this server could not read: there may be more applications.
    #[serde(skip)]
    is_incomplete: bool,
}

impl Applications {
    /// Returns true while no application is registered, so that any client may fetch the key.
    pub(crate) fn is_empty(&self) -> bool {
        self.registered().next().is_none() && !self.is_incomplete
    }

    /// Returns true for an older copy of a document, and for a document that began anew after a store had
    /// lost the known one.
    fn is_older_than(&self, known: &Self) -> bool {
        // The document with the earlier `began` is the later one: a document that began anew lacks what was
        // lost. A document without `began` was never changed, and is older than all others.
        let age = |it: &Self| (it.began.map(Reverse), it.generation);
        age(self) < age(known)
    }

    /// Drops the secrets that `known` has dropped: in an older copy of the store, to which a command has
    /// written since, they are still valid. Returns true if there were such secrets.
    fn drop_those_of(&mut self, known: &Self) -> bool {
        let mut is_changed = false;
        for (id, secrets) in &mut self.applications {
            let known = known.applications.get(id);
            is_changed |= known.is_some_and(|known| secrets.drop_those_of(known));
        }
        // The drop counts as a change: every server has to take this document for the later one.
        self.generation = self.generation.saturating_add(is_changed.into());
        is_changed
    }

    /// Returns the applications that are not removed: a removed application has no secrets.
    pub(crate) fn registered(&self) -> impl Iterator<Item = (&AppId, &SecretHashes)> {
        self.all().filter(|(_, secrets)| !secrets.is_empty())
    }

    /// Returns all applications, including removed ones.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&AppId, &SecretHashes)> {
        self.applications.iter()
    }

    /// Returns an application, even a removed one.
    pub(crate) fn get(&self, id: &str) -> Option<&SecretHashes> {
        self.applications.get(id)
    }

    /// Returns the id as registered: the only way for an untrusted string to become a metric label.
    pub(crate) fn registered_id(&self, id: &str) -> Option<&AppId> {
        let (id, secrets) = self.applications.get_key_value(id)?;
        (!secrets.is_empty()).then_some(id)
    }

    /// Puts a record that was read or joined, without a new generation; [`changed`](Self::changed) makes one.
    pub(crate) fn put(&mut self, id: AppId, secrets: SecretHashes) {
        self.applications.insert(id, secrets);
    }

    /// Returns the document after a change of one application at `now`.
    pub(crate) fn changed(&self, id: AppId, secrets: SecretHashes, now: i64) -> Self {
        let mut next = self.clone();
        next.began.get_or_insert(now);
        next.generation = next.generation.saturating_add(1);
        next.put(id, secrets);
        next
    }

    pub(crate) fn hold_secret(&self, text: &str) -> bool {
        let hash = SecretHash::new(text);
        self.applications
            .values()
            .any(|secrets| secrets.knows(&hash))
    }

    /// Verifies a secret. An unknown id takes the same time as a known one.
    pub(crate) fn accepts(&self, id: &str, secret: &str) -> bool {
        let known = self.applications.get(id);
        let matches = known.unwrap_or(&SecretHashes::unknown()).match_any(secret);
        known.is_some() && matches
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn registered(applications: &[(&str, &[&str])]) -> Applications {
        let mut all = Applications::default();
        for (id, secrets) in applications {
            let hashes = secrets.iter().map(|secret| SecretHash::new(secret));
            all.put(id.parse().unwrap(), hashes.collect());
        }
        all
    }

    #[test]
    fn only_the_application_s_own_secrets_are_accepted() {
        let all = registered(&[
            ("orders", &["old", "new"]),
            ("stock", &["s"]),
            ("closed", &[]),
        ]);
        for (id, secret, expected) in [
            ("orders", "old", true),
            ("orders", "new", true),
            ("stock", "s", true),
            ("orders", "s", false),
            ("orders", "", false),
            ("Orders", "old", false),
            ("closed", "", false),
            ("nobody", "old", false),
            ("", "", false),
        ] {
            assert_eq!(all.accepts(id, secret), expected, "{id} {secret}");
        }
    }

    #[test]
    fn a_removed_application_is_recorded_and_not_registered() {
        let all = registered(&[("orders", &["s"]), ("closed", &[])]);
        let ids: Vec<_> = all.registered().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["orders"]);
        assert_eq!(all.registered_id("orders").unwrap().as_str(), "orders");
        assert_eq!(all.registered_id("closed"), None);
        assert!(all.get("closed").is_some());
        assert!(registered(&[("closed", &[])]).is_empty());
    }
}
