//! Revocation lists: the latest, the former ones that still count, and the rule by which a fetched one takes the
//! place of another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postern_token::keys::{KeyId, KeySet};
use postern_token::revocations::{RevocationList, TokenDigests};
use serde::{Deserialize, Serialize};

pub(crate) mod fetched_list;
pub(crate) mod list_in_force;
pub(crate) mod refresh;

use self::fetched_list::ListError;
use super::fetch_time::FetchTime;

/// Former lists that count beside the latest: installations replace all keys at once rarely.
const MAX_FORMER: usize = 3;

/// The lists in force.
#[derive(Debug)]
pub(crate) struct Revocations {
    latest: Arc<NumberedList>,
    fetched: FetchTime,
    /// Lists of other keys. They still count: numbers begin anew with the keys of a new store, but also
    /// at a server that is cut off, and has keys that were revoked since.
    former: Vec<Arc<NumberedList>>,
}

/// A list as a file keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct CachedList {
    /// Seconds since the epoch.
    pub(super) fetched_at: i64,
    /// The largest number so far.
    pub(super) number: u64,
    /// The whole list as it was signed.
    pub(super) list: String,
}

/// A list, and the names of the keys in force at its fetch.
#[derive(Debug)]
struct NumberedList {
    list: RevocationList,
    /// The largest number of the list and of those before it.
    number: u64,
    keys: Vec<KeyId>,
}

impl NumberedList {
    fn new(list: RevocationList, keys: &KeySet) -> Self {
        Self {
            number: list.seq(),
            list,
            keys: names(keys).cloned().collect(),
        }
    }

    /// Returns false where all keys of the list's fetch are gone: the numbers have begun anew.
    fn is_comparable(&self, keys: &KeySet) -> bool {
        names(keys).any(|name| self.keys.contains(name))
    }

    /// Returns the list that follows this one. A list that only adds to it is never older, and leaves
    /// its number.
    fn followed_by(&self, next: Self) -> Result<Self, ListError> {
        if next.number < self.number && !next.list.extends(&self.list) {
            return Err(ListError::Older {
                number: next.number,
                known: self.number,
            });
        }
        Ok(Self {
            number: next.number.max(self.number),
            ..next
        })
    }
}

impl Revocations {
    /// Returns the list of a former process, which may be old.
    fn from_cached(list: RevocationList, number: u64, keys: &KeySet, fetched: FetchTime) -> Self {
        let latest = NumberedList {
            number: number.max(list.seq()),
            ..NumberedList::new(list, keys)
        };
        Self {
            latest: Arc::new(latest),
            fetched,
            former: Vec::new(),
        }
    }

    /// Puts a verified list in place of the one of `known` that has a key in common with it.
    ///
    /// # Errors
    /// [`ListError::Older`]: a server that has not read its store yet, or a replay.
    fn with_latest(
        known: Option<&Self>,
        list: RevocationList,
        keys: &KeySet,
        fetched: impl Into<FetchTime>,
    ) -> Result<Self, ListError> {
        let mut next = NumberedList::new(list, keys);
        let mut former = known.map(Self::all).unwrap_or_default();
        // Numbers are compared only with the list of the same keys; other lists stay beside the new one.
        if let Some(index) = former.iter().position(|known| known.is_comparable(keys)) {
            next = former.remove(index).followed_by(next)?;
        }
        former.truncate(MAX_FORMER);
        Ok(Self {
            latest: Arc::new(next),
            fetched: fetched.into(),
            former,
        })
    }

    /// Returns the lists in force, the latest first.
    fn all(&self) -> Vec<Arc<NumberedList>> {
        std::iter::once(&self.latest)
            .chain(&self.former)
            .cloned()
            .collect()
    }

    /// Returns true if one of the lists ends the token.
    pub(crate) fn revokes(&self, token: &TokenDigests) -> bool {
        std::iter::once(&self.latest)
            .chain(&self.former)
            .any(|known| known.list.revokes(token))
    }

    /// Returns true if the latest lists end the same tokens.
    pub(super) fn has_lines_of(&self, other: &Self) -> bool {
        self.list().count() == other.list().count() && self.list().extends(other.list())
    }

    /// Returns the latest list as a file keeps it.
    pub(super) fn cached(&self, fetched_at: i64) -> CachedList {
        CachedList {
            fetched_at,
            number: self.latest.number,
            list: self.list().to_string(),
        }
    }

    /// Returns the latest list.
    pub(crate) fn list(&self) -> &RevocationList {
        &self.latest.list
    }

    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.fetched.age(now)
    }
}

fn names(keys: &KeySet) -> impl Iterator<Item = &KeyId> {
    keys.keys().iter().map(|key| key.id())
}

#[cfg(test)]
impl Revocations {
    pub(crate) fn new(list: RevocationList, keys: &KeySet, fetched: impl Into<FetchTime>) -> Self {
        Self::from_cached(list, 0, keys, fetched.into())
    }
}
