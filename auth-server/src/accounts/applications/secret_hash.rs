//! Hashes of an application's secrets.

use std::collections::{BTreeMap, BTreeSet};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use postern_token::digest::{Digest, sha256};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::accounts::grants::Grant;

/// Minimum length: secrets are stored as fast, unsalted hashes, which suits random text of this
/// length, not words.
pub(crate) const MIN_SECRET_LENGTH: usize = 32;

/// SHA-256 of a random secret of 32 bytes, in base64url; a slow hash is not needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct SecretHash(Digest);

const NOT_A_HASH: &str = "a secret's hash is SHA-256 in base64url";

impl SecretHash {
    pub(crate) fn new(secret: &str) -> Self {
        Self(sha256(secret))
    }

    /// Compares the hashes in constant time.
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
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| NOT_A_HASH)?;
        Ok(Self(bytes.try_into().map_err(|_| NOT_A_HASH)?))
    }
}

/// The record of one application: up to two valid secrets, newest first, so that clients can change without
/// an interruption, and the dropped secrets. Without a valid secret the application is a removed one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SecretHashes {
    #[serde(rename = "secretSha256")]
    hashes: Vec<SecretHash>,
    /// Secrets that are never valid again. They are kept forever (43 bytes each), because an older record (a
    /// failover, a restored backup) would bring a leaked secret back.
    #[serde(
        rename = "droppedSha256",
        default,
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    dropped: BTreeSet<SecretHash>,
    /// The grant for tokens; an application without a grant only fetches keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grant: Option<Grant>,
    /// The time of the last removal in seconds since the epoch, also after a new registration: until each server
    /// has read it, a former secret obtains tokens.
    #[serde(rename = "removedAt", default, skip_serializing_if = "Option::is_none")]
    removed: Option<i64>,
    /// Members of a newer version, kept unchanged.
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

impl FromIterator<SecretHash> for SecretHashes {
    fn from_iter<I: IntoIterator<Item = SecretHash>>(hashes: I) -> Self {
        Self {
            hashes: hashes.into_iter().collect(),
            ..Self::default()
        }
    }
}

impl SecretHashes {
    /// Adds a secret, also to the record of a new application; of the former secrets the newest stays valid.
    pub(crate) fn with_new(&self, secret: &str) -> Self {
        let former = self.hashes.first().copied();
        self.with_only([SecretHash::new(secret)].into_iter().chain(former))
    }

    pub(crate) fn newest(&self) -> Self {
        self.with_only(self.hashes.first().copied())
    }

    /// Ends every secret and the grant, which must not come back with another registration.
    pub(crate) fn removed(&self, now: i64) -> Self {
        Self {
            grant: None,
            // Not back with a clock.
            removed: self.removed.max(Some(now)),
            ..self.with_only(None)
        }
    }

    /// Replaces the grant.
    pub(crate) fn with_grant(self, grant: Grant) -> Self {
        Self {
            grant: Some(grant),
            ..self
        }
    }

    /// Returns the grant for the application's tokens; `None` if there never was one.
    pub(crate) fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref()
    }

    /// Returns the time of the last removal.
    pub(super) const fn removed_at(&self) -> Option<i64> {
        self.removed
    }

    /// Adds the secrets of a file, unless they were dropped.
    pub(super) fn with_mounted(mut self, mounted: &Self) -> Self {
        let also = mounted
            .hashes
            .iter()
            .filter(|it| !self.dropped.contains(it));
        self.hashes.extend(also);
        self
    }

    /// Keeps these secrets and drops the others.
    fn with_only(&self, hashes: impl IntoIterator<Item = SecretHash>) -> Self {
        let hashes: Vec<_> = hashes.into_iter().collect();
        let former = self.hashes.iter().filter(|hash| !hashes.contains(hash));
        Self {
            dropped: self.dropped.iter().chain(former).copied().collect(),
            hashes,
            ..self.clone()
        }
    }

    /// Drops the secrets that `known` has dropped; returns true if some of them were not dropped before.
    pub(super) fn drop_those_of(&mut self, known: &Self) -> bool {
        let before = self.dropped.len();
        self.dropped.extend(&known.dropped);
        self.hashes.retain(|hash| !self.dropped.contains(hash));
        self.removed = self.removed.max(known.removed);
        self.dropped.len() > before
    }

    /// Returns true for the hash of a secret that is or was valid.
    pub(super) fn knows(&self, hash: &SecretHash) -> bool {
        self.has(hash) || self.dropped.contains(hash)
    }

    pub(crate) fn is_dropped(&self, secret: &str) -> bool {
        self.dropped.contains(&SecretHash::new(secret))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Returns a stand-in for unknown applications: no secret has this hash.
    pub(super) fn unknown() -> Self {
        [SecretHash(Digest::default())].into_iter().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Compares with every secret, even after a match.
    pub(crate) fn match_any(&self, secret: &str) -> bool {
        self.has(&SecretHash::new(secret))
    }

    fn has(&self, presented: &SecretHash) -> bool {
        // `count`, not `any`: all hashes are compared, so that the time does not show which one matches.
        self.hashes
            .iter()
            .filter(|hash| hash.equals(presented))
            .count()
            > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_secret_leaves_the_one_before_it_valid_and_no_older_one() {
        let second = SecretHashes::default().with_new("first").with_new("second");
        let third = second.with_new("third");
        for (hashes, valid) in [
            (&second, ["first", "second"].as_slice()),
            (&third, &["second", "third"]),
            (&third.newest(), &["third"]),
            (&SecretHashes::default().with_new("first"), &["first"]),
            (&SecretHashes::default(), &[]),
        ] {
            let matching = |secret: &&str| hashes.match_any(secret);
            let all = ["first", "second", "third"];
            assert_eq!(all.into_iter().filter(matching).collect::<Vec<_>>(), valid);
            assert_eq!(hashes.len(), valid.len());
        }
    }

    #[test]
    fn a_grant_stays_with_its_secrets() {
        let grant = |scope: &str| Grant {
            scope: scope.parse().unwrap_or_default(),
            ..Grant::default()
        };
        let wide = SecretHashes::default()
            .with_new("first")
            .with_grant(grant("a b"));
        let narrow = wide.clone().with_grant(grant("a"));
        for changed in [
            narrow.with_new("second"),
            narrow.with_new("second").newest(),
        ] {
            assert_eq!(changed.grant(), Some(&grant("a")));
        }
        assert_eq!(narrow.removed(1).grant(), None);
    }

    #[test]
    fn members_of_a_newer_version_stay_where_they_are() {
        let json = r#"{"secretSha256":[],"droppedSha256":[],"owner":{"name":"ada"},"grant":{"scope":"a","resources":["x"]}}"#;
        let newer: SecretHashes =
            serde_json::from_str(json).unwrap_or_else(|_| SecretHashes::default());
        for changed in [newer.with_new("third"), newer.newest(), newer.removed(1)] {
            let written = serde_json::to_string(&changed).unwrap_or_default();
            assert!(written.contains(r#""owner":{"name":"ada"}"#), "{written}");
            let is_removed = changed.grant().is_none();
            assert_ne!(
                written.contains(r#""resources":["x"]"#),
                is_removed,
                "{written}"
            );
        }
    }
}
