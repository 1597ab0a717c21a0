//! Hashes of an application's secrets.

use std::collections::{BTreeMap, BTreeSet};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::recorded_grant::RecordedGrant;
use crate::changed_by::ChangedBy;
use crate::grants::Grant;

/// Minimum length: secrets are stored as fast, unsalted hashes, which suits random text of this
/// length, not words.
pub(crate) const MIN_SECRET_LENGTH: usize = 32;

/// The member with the last change by a command, which is kept and authenticated as others of a
/// newer version are.
const CHANGED_BY: &str = "changedBy";

/// Enough to move a client from one secret to the next.
const MAX_VALID: usize = 2;

/// SHA-256 of a random secret of 32 bytes, in base64url; a slow hash is not needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct SecretHash([u8; SHA256_OUTPUT_LEN]);

#[derive(Debug, thiserror::Error)]
#[error("a secret's hash is SHA-256 in base64url")]
pub(crate) struct NotAHash;

impl SecretHash {
    pub(crate) fn of(secret: &str) -> Self {
        let mut hash = [0; SHA256_OUTPUT_LEN];
        hash.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
        Self(hash)
    }

    /// Compares in constant time.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl From<SecretHash> for String {
    fn from(SecretHash(bytes): SecretHash) -> Self {
        URL_SAFE_NO_PAD.encode(bytes)
    }
}

impl TryFrom<String> for SecretHash {
    type Error = NotAHash;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| NotAHash)?;
        bytes.try_into().map(Self).map_err(|_| NotAHash)
    }
}

/// The record of one application: up to two valid secrets, newest first, so that clients can change
/// without an interruption, and the dropped ones. Without a valid one it belongs to a removed
/// application.
///
/// Equality compares the secrets only, not the actor of the last change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SecretHashes {
    #[serde(rename = "secretSha256")]
    hashes: Vec<SecretHash>,
    /// Never valid again, and kept forever (43 bytes each): an older record (a failover, a restored
    /// backup) would bring a leaked secret back.
    #[serde(
        rename = "droppedSha256",
        default,
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    dropped: BTreeSet<SecretHash>,
    /// For tokens; an application without one only fetches keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grant: Option<RecordedGrant>,
    /// Authenticates the record in a store with a key-encryption key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
    /// Members of a newer version, kept unchanged and authenticated with the rest.
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

impl FromIterator<SecretHash> for SecretHashes {
    fn from_iter<I: IntoIterator<Item = SecretHash>>(hashes: I) -> Self {
        Self {
            hashes: hashes.into_iter().collect(),
            dropped: BTreeSet::new(),
            grant: None,
            mac: None,
            unknown: BTreeMap::new(),
        }
    }
}

impl PartialEq for SecretHashes {
    fn eq(&self, other: &Self) -> bool {
        self.has_same_secrets(other)
            && (&self.grant, &self.mac) == (&other.grant, &other.mac)
            && self.other_members().eq(other.other_members())
    }
}

impl Eq for SecretHashes {}

impl SecretHashes {
    /// Creates the record of a new application.
    pub(crate) fn of(secret: &str) -> Self {
        [SecretHash::of(secret)].into_iter().collect()
    }

    #[cfg(test)]
    pub(crate) fn none() -> Self {
        std::iter::empty().collect()
    }

    /// Adds a secret; the newest former one stays valid.
    pub(crate) fn with_new(&self, secret: &str) -> Self {
        let former = self.hashes.first().copied();
        self.with_only([SecretHash::of(secret)].into_iter().chain(former))
    }

    pub(crate) fn newest(&self) -> Self {
        self.with_only(self.hashes.first().copied())
    }

    /// Ends every secret and the grant, which must not come back with another registration.
    pub(crate) fn removed(&self) -> Self {
        let ended = self.with_only(None);
        match &self.grant {
            Some(_) => ended.with_grant(Grant::default()),
            None => ended,
        }
    }

    /// Replaces the grant.
    pub(crate) fn with_grant(self, grant: Grant) -> Self {
        Self {
            grant: Some(RecordedGrant::replacing(self.grant.as_ref(), grant)),
            mac: None,
            ..self
        }
    }

    /// Returns what tokens it may obtain; `None` if nothing was ever granted.
    pub(crate) fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref().map(RecordedGrant::grant)
    }

    pub(crate) fn has_same_secrets(&self, other: &Self) -> bool {
        self.hashes == other.hashes && self.dropped == other.dropped
    }

    /// With the actor of the change that made it.
    pub(crate) fn with_change(mut self, by: &ChangedBy) -> Self {
        let by = serde_json::to_value(by).unwrap_or_default();
        self.unknown.insert(CHANGED_BY.to_owned(), by);
        self
    }

    /// Returns the last change by a command, where that is recorded.
    pub(crate) fn changed_by(&self) -> Option<ChangedBy> {
        let by = self.unknown.get(CHANGED_BY)?;
        serde_json::from_value(by.clone()).ok()
    }

    fn other_members(&self) -> impl Iterator<Item = (&String, &Value)> {
        let members = self.unknown.iter();
        members.filter(|(name, _)| *name != CHANGED_BY)
    }

    /// Keeps these secrets and drops the others.
    fn with_only(&self, hashes: impl IntoIterator<Item = SecretHash>) -> Self {
        let hashes: Vec<_> = hashes.into_iter().collect();
        let former = self.hashes.iter().filter(|hash| !hashes.contains(hash));
        Self {
            dropped: self.dropped.iter().chain(former).copied().collect(),
            hashes,
            grant: self.grant.clone(),
            mac: None,
            unknown: self.unknown.clone(),
        }
    }

    pub(crate) fn is_dropped(&self, secret: &str) -> bool {
        self.dropped.contains(&SecretHash::of(secret))
    }

    /// Merges this stored record with memory: if it lacks a dropped secret it is older, and the
    /// missing secrets are added; of two grants the later one counts. A removed application stays
    /// removed; of more than two secrets those in memory stay valid.
    pub(crate) fn merged(&self, memory: &Self) -> Self {
        let grant = RecordedGrant::latest(self.grant.as_ref(), memory.grant.as_ref());
        if memory.dropped.is_subset(&self.dropped) {
            let mac = self.mac.clone().filter(|_| grant == self.grant);
            return Self {
                grant,
                mac,
                ..self.clone()
            };
        }
        let dropped: BTreeSet<_> = self.dropped.union(&memory.dropped).copied().collect();
        let mut hashes = Vec::new();
        let stored = self.hashes.iter().filter(|_| !memory.is_empty());
        for hash in memory.hashes.iter().chain(stored) {
            if !dropped.contains(hash) && !hashes.contains(hash) {
                hashes.push(*hash);
            }
        }
        hashes.truncate(MAX_VALID);
        let repaired = Self {
            hashes,
            dropped,
            grant,
            mac: None,
            unknown: self.unknown.clone(),
        };
        match (self.changed_by(), memory.changed_by()) {
            (stored, Some(known)) if stored.as_ref().is_none_or(|it| known.is_after(it)) => {
                repaired.with_change(&known)
            }
            _ => repaired,
        }
    }

    pub(crate) fn mac(&self) -> Option<&str> {
        self.mac.as_deref()
    }

    pub(crate) fn with_mac(&self, mac: Option<String>) -> Self {
        Self {
            mac,
            ..self.clone()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Returns a stand-in for unknown applications: no secret has this hash.
    pub(super) fn unknown() -> Self {
        [SecretHash([0; SHA256_OUTPUT_LEN])].into_iter().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Compares with every secret, even after a match.
    pub(crate) fn match_any(&self, secret: &str) -> bool {
        let presented = SecretHash::of(secret);
        let matches = self.hashes.iter().filter(|hash| hash.equals(&presented));
        matches.count() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changed_by::tests::note;

    #[test]
    fn a_new_secret_leaves_the_one_before_it_valid_and_no_older_one() {
        let second = SecretHashes::of("first").with_new("second");
        let third = second.with_new("third");
        for (hashes, valid) in [
            (&second, ["first", "second"].as_slice()),
            (&third, &["second", "third"]),
            (&third.newest(), &["third"]),
            (&SecretHashes::none().with_new("first"), &["first"]),
            (&SecretHashes::none(), &[]),
        ] {
            let matching = |secret: &&str| hashes.match_any(secret);
            let all = ["first", "second", "third"];
            assert_eq!(all.into_iter().filter(matching).collect::<Vec<_>>(), valid);
            assert_eq!(hashes.len(), valid.len());
        }
    }

    #[test]
    fn an_older_record_is_repaired_by_what_memory_knows() {
        let one = SecretHashes::of("first");
        let two = one.with_new("second");
        let dropped = two.newest();
        let removed = two.removed();
        let forked = one.with_new("other");
        let three = two.with_new("third");
        for (stored, memory, valid) in [
            (&one, &one, ["first"].as_slice()),
            (&two, &one, &["first", "second"]),
            (&dropped, &two, &["second"]),
            (&one, &dropped, &["second"]),
            (&two, &dropped, &["second"]),
            (&forked, &dropped, &["second", "other"]),
            (&one, &removed, &[]),
            (&forked, &removed, &[]),
            (&forked, &three, &["second", "third"]),
            (&removed, &dropped, &[]),
            (&removed.with_new("other"), &dropped, &["other"]),
        ] {
            let merged = stored.merged(memory);
            let matching = |secret: &&str| merged.match_any(secret);
            let all = ["first", "second", "other", "third"];
            assert_eq!(all.into_iter().filter(matching).collect::<Vec<_>>(), valid);
            assert_eq!(merged.merged(memory), merged, "once is enough");
        }
        assert!(dropped.is_dropped("first") && !dropped.is_dropped("second"));
    }

    #[test]
    fn a_grant_stays_with_its_secrets_and_no_older_one_returns() {
        let grant = |scope: &str| Grant {
            scope: scope.parse().unwrap_or_default(),
            ..Grant::default()
        };
        let wide = SecretHashes::of("first").with_grant(grant("a b"));
        let narrow = wide.clone().with_grant(grant("a"));
        for changed in [
            narrow.with_new("second"),
            narrow.with_new("second").newest(),
            wide.merged(&narrow),
            narrow.merged(&wide),
            wide.merged(&narrow.with_new("second").newest()),
        ] {
            assert_eq!(changed.grant(), Some(&grant("a")));
        }
        let removed = narrow.removed();
        assert_eq!(removed.grant(), Some(&Grant::default()));
        assert_eq!(wide.merged(&removed).grant(), Some(&Grant::default()));
        assert_eq!(SecretHashes::of("first").removed().grant(), None);
        assert!(wide.has_same_secrets(&narrow));
        assert_ne!(wide, narrow);
    }

    #[test]
    fn the_actor_of_a_change_is_kept_and_never_compared() {
        let first = SecretHashes::of("first");
        let by = |by: &str, at| first.with_new("second").with_change(&note(by, at));
        let (ada, bob) = (by("ada@desk", 1), by("bob@desk", 2));
        assert_eq!(ada, bob);
        assert_eq!(ada, first.with_new("second"));
        assert_ne!(ada, first);
        assert_eq!(first.changed_by(), None);
        // An older record is corrected: the later change counts.
        let dropped = bob.newest().with_change(&note("eve@desk", 3));
        assert_eq!(ada.merged(&dropped).changed_by(), Some(note("eve@desk", 3)));
        let later = ada.clone().with_change(&note("ada@desk", 4));
        assert_eq!(
            later.merged(&dropped).changed_by(),
            Some(note("ada@desk", 4))
        );
    }

    #[test]
    fn members_of_a_newer_version_stay_where_they_are() {
        let json = r#"{"secretSha256":[],"droppedSha256":[],"owner":{"name":"ada"},"mac":"1:a:b"}"#;
        let newer: SecretHashes =
            serde_json::from_str(json).unwrap_or_else(|_| SecretHashes::none());
        let memory = SecretHashes::of("first").with_new("second").newest();
        for changed in [
            newer.with_new("third"),
            newer.newest(),
            newer.removed(),
            newer.merged(&memory),
            newer.with_mac(None),
        ] {
            let written = serde_json::to_string(&changed).unwrap_or_default();
            assert!(written.contains(r#""owner":{"name":"ada"}"#), "{written}");
        }
    }
}
