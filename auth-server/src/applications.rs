//! The applications that may fetch the verification key (contract §4.3), and obtain tokens where
//! they were given an audience.
//!
//! While none is registered any pair is accepted (contract §4.3); afterwards every pair is checked.
//! Only hashes of secrets are stored.
//!
//! A removed application keeps a record without secrets. So a missing record was lost with the
//! store, and servers restore it.

pub(crate) mod command;
pub(crate) mod directory;
pub(crate) mod records;
pub(crate) mod registry;
pub(crate) mod secret_hash;

use std::collections::{BTreeMap, BTreeSet};

use self::secret_hash::SecretHashes;
use crate::grants::Word;
use crate::store::Version;

/// The id of an application; longer ones would only fill logs.
pub(crate) type AppId = Word<128>;

/// The record of every application, by id. An application with a secret is registered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Applications {
    records: BTreeMap<AppId, SecretHashes>,
    /// The ids, or the texts in their place, of records that this version cannot read, or that
    /// are not authentic: they authorize no client.
    unreadable: BTreeSet<String>,
    /// The versions of all records, as they were read.
    versions: BTreeMap<String, Version>,
}

impl Applications {
    /// Returns true while any client may fetch the key: no record is registered or unreadable.
    pub(crate) fn is_empty(&self) -> bool {
        self.registered().next().is_none() && self.unreadable.is_empty()
    }

    /// Returns the ids, or the texts in their place, of unreadable records.
    pub(crate) fn unreadable(&self) -> impl Iterator<Item = &str> {
        self.unreadable.iter().map(String::as_str)
    }

    pub(crate) fn keep_unreadable(&mut self, former: &Self) {
        let lost = former.unreadable.iter();
        let lost = lost.filter(|id| !self.records.contains_key(id.as_str()));
        self.unreadable.extend(lost.cloned());
    }

    pub(crate) fn is_unreadable(&self, id: &AppId) -> bool {
        self.unreadable.contains(id.as_str())
    }

    pub(crate) fn registered(&self) -> impl Iterator<Item = (&AppId, &SecretHashes)> {
        self.records().filter(|(_, secrets)| !secrets.is_empty())
    }

    /// Returns all records, including removed ones.
    pub(crate) fn records(&self) -> impl Iterator<Item = (&AppId, &SecretHashes)> {
        self.records.iter()
    }

    /// Returns the record of an id, even of a removed application.
    pub(crate) fn record(&self, id: &str) -> Option<&SecretHashes> {
        self.records.get(id)
    }

    /// Returns the id as registered: the only way for an untrusted string to become a metric label.
    pub(crate) fn registered_id(&self, id: &str) -> Option<&AppId> {
        let (id, secrets) = self.records.get_key_value(id)?;
        (!secrets.is_empty()).then_some(id)
    }

    pub(crate) fn put(&mut self, id: AppId, secrets: SecretHashes) {
        self.records.insert(id, secrets);
    }

    pub(crate) fn hold_secret(&self, text: &str) -> bool {
        let mut records = self.records.values();
        records.any(|secrets| secrets.match_any(text) || secrets.is_dropped(text))
    }

    /// Verifies a secret. An unknown id takes the same time as a known one.
    pub(crate) fn accepts(&self, id: &str, secret: &str) -> bool {
        let unknown = SecretHashes::unknown();
        let known = self.records.get(id);
        let matches = known.unwrap_or(&unknown).match_any(secret);
        known.is_some() && matches
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::secret_hash::SecretHash;
    use super::*;

    fn registered(applications: &[(&str, &[&str])]) -> Applications {
        let mut all = Applications::default();
        for (id, secrets) in applications {
            let hashes = secrets.iter().map(|secret| SecretHash::of(secret));
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
        assert!(all.record("closed").is_some());
        assert!(registered(&[("closed", &[])]).is_empty());
    }
}
