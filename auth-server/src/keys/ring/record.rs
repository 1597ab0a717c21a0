//! Stored form of the ring, beside the contract's two values:
//! `{"current": {"kid", "since"}, "next": {"private", "public", "signsFrom"},
//! "retired": [{"public", "until"}], "revoked": ["kid"], "beingEncrypted": true, "epoch": 1, "generation": 1, "version": 1}`, times in seconds since the epoch.
//!
//! During an upgrade servers of two versions share one store: unknown members are kept, and a change
//! that older servers must not overwrite gets a new `version`.

use std::fmt;

use postern_token::keys::KeyId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::KeyRingError;

/// Version of the format; a ring without one has the first.
const VERSION: u32 = 1;

/// Members that a newer version has written.
pub(super) type Unknown = Map<String, Value>;

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::keys) struct RingRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<u32>,
    /// The current key and the start of its signing; unknown for a pair that was never part of a rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) current: Option<CurrentRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<NextRecord>,
    pub(super) retired: Vec<RetiredRecord>,
    pub(super) revoked: Vec<String>,
    /// True until the other records of the store are encrypted as the ring is.
    #[serde(rename = "beingEncrypted", skip_serializing_if = "std::ops::Not::not")]
    pub(super) being_encrypted: bool,
    #[serde(flatten)]
    pub(in crate::keys) generation: Generation,
    /// Unknown members, which are written back unchanged.
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

/// Redacted: a ring may hold the private half of the next key.
impl fmt::Debug for RingRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RingRecord").field(&self.generation).finish()
    }
}

/// The number of a state: a later state replaces an earlier one whole. The first ring of an installation is
/// later than all rings of a former installation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::keys) struct Generation {
    /// The time of the first generation, in seconds since the epoch.
    epoch: i64,
    generation: u64,
}

impl Generation {
    pub(super) const fn numbers(self) -> (i64, u64) {
        (self.epoch, self.generation)
    }

    pub(super) fn next(self, now: i64) -> Self {
        let is_first = self == Self::default();
        Self {
            epoch: if is_first { now } else { self.epoch },
            generation: self.generation.saturating_add(1),
        }
    }
}

/// The start of a key's signing. The record names the key, because software that does not know the ring may
/// replace the pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::keys) struct CurrentRecord {
    pub(in crate::keys) kid: String,
    pub(in crate::keys) since: i64,
    #[serde(flatten)]
    unknown: Unknown,
}

impl CurrentRecord {
    pub(in crate::keys) fn new(kid: &KeyId, since: i64) -> Self {
        Self {
            kid: kid.to_string(),
            since,
            unknown: Unknown::new(),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NextRecord {
    pub(super) private: Zeroizing<String>,
    pub(super) public: Zeroizing<String>,
    pub(super) signs_from: i64,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RetiredRecord {
    pub(super) public: String,
    pub(super) until: i64,
    #[serde(flatten)]
    pub(super) unknown: Unknown,
}

impl RingRecord {
    /// Parses the record; no record is an empty ring.
    pub(super) fn parse(stored: Option<&Zeroizing<String>>) -> Result<Self, KeyRingError> {
        let Some(text) = stored else {
            return Ok(Self::default());
        };
        // Only the position of the error is kept: the parser's text may quote a key.
        let ring: Self =
            serde_json::from_str(text).map_err(|error| KeyRingError::MalformedRing {
                line: error.line(),
                column: error.column(),
            })?;
        match ring.version {
            Some(newer) if newer > VERSION => Err(KeyRingError::NewerRing(newer)),
            _ => Ok(Self {
                // Without the version an empty ring is equal to a missing one.
                version: None,
                ..ring
            }),
        }
    }

    pub(super) fn into_stored(mut self) -> Result<Zeroizing<String>, serde_json::Error> {
        self.version = Some(VERSION);
        serde_json::to_string(&self).map(Zeroizing::new)
    }
}
