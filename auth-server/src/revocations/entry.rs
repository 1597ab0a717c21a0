//! An entry of the log. It holds digests, so that it needs no encryption and every server can read it.

use postern_token::revocations::{RevocationDigest, Revoked};
use serde::{Deserialize, Serialize};

use super::end_of_tokens;
use crate::random;
use crate::store::{Change, LogEntry, NewEntry, StoreError};

/// Interval in which ended lines are removed together, on all servers at once, in seconds: after a removal
/// every sidecar reads the whole list.
pub(super) const REMOVED_EVERY: i64 = 3_600;
/// Seconds by which clocks of servers may differ.
const SKEW: i64 = 5;

/// A revocation as it stands in the log. It never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Fact {
    pub(super) revokes: Revoked,
    /// The time of the revocation, in seconds since the epoch.
    pub(super) at: i64,
    /// Seconds since the epoch until which a program may accept such a token; if that is not known, each
    /// server counts with the lifetime of its own tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) live: Option<i64>,
    /// The user of a single token or a session, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<RevocationDigest>,
    /// The issuer of the tokens that end, unless it is this installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) issuer: Option<RevocationDigest>,
    /// The statement of that issuer from which the revocation follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) statement: Option<StatementDigests>,
}

/// A fact as it is written to the log. Servers recognize a store's history by the last entry that they know. The
/// nonce distinguishes two histories that got the same fact.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    fact: &'a Fact,
    nonce: String,
}

/// A statement of another issuer, which counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct StatementDigests {
    /// The digest of the statement's `jti`.
    pub(crate) id: RevocationDigest,
    /// The digest of the whole statement.
    pub(crate) token: RevocationDigest,
}

/// An entry as it was read from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(super) id: i64,
    pub(super) fact: Fact,
    pub(super) ends: i64,
}

impl Fact {
    /// Returns the time until which the revocation is listed; `keep`: the seconds for which a token of this
    /// server may be valid.
    pub(super) fn listed_until(&self, keep: i64) -> i64 {
        let time = match self.revokes {
            Revoked::Token(_) => self.at,
            Revoked::User(_, before)
            | Revoked::Application(_, before)
            | Revoked::Everyone(before) => before.max(self.at),
        };
        self.live.unwrap_or_else(|| end_of_tokens(time, keep))
    }

    /// Returns the time before which everything that this fact ends was issued.
    pub(super) fn latest(&self) -> i64 {
        match self.revokes {
            // The token was issued before, but perhaps by a server whose clock is ahead.
            Revoked::Token(_) => self.at.saturating_add(SKEW),
            Revoked::User(_, before)
            | Revoked::Application(_, before)
            | Revoked::Everyone(before) => before,
        }
    }

    /// Returns the longest time for which a program may accept such a token, if it is known.
    pub(super) fn lifetime(&self) -> Option<i64> {
        Some(self.live?.saturating_sub(self.at))
    }

    /// Parses the text of an entry; `None` for one that this version does not know.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the change that appends the fact to the log, with an id above `above`. It stays until the removal
    /// after `ends`: a server that starts before then has the same list as the others.
    pub(crate) fn append(&self, ends: i64, above: i64) -> Result<Change, StoreError> {
        let written = Written {
            fact: self,
            nonce: format!("{:x}", random::number()),
        };
        let latest = ends.saturating_add(REMOVED_EVERY - 1);
        Ok(Change::Append(NewEntry {
            value: serde_json::to_string(&written)?,
            ends: latest.saturating_sub(latest.rem_euclid(REMOVED_EVERY)),
            above,
        }))
    }
}

impl Entry {
    /// Parses an entry; `None` for an entry that this version does not know.
    pub(super) fn parse(stored: &LogEntry) -> Option<Self> {
        Some(Self {
            id: stored.id,
            fact: Fact::parse(&stored.value)?,
            ends: stored.ends,
        })
    }
}
