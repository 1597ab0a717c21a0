//! Revoked access tokens: single ones, those of a user or an application, or all. An entry stays
//! until no such token can be valid.
//!
//! Servers merge their entries as sets, so that a lost store, an older backup or a slow server
//! brings no token back.

mod bounds;
pub(crate) mod events;
pub(crate) mod queue;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use wire::token::claims::Claims;
use wire::token::revocations::{RevocationClaims, RevocationDigest};

/// Seconds beyond `exp` for which an entry stays: the largest leeway of a sidecar, and as much for
/// its clock.
pub(crate) const KEEP_AFTER_EXPIRY: i64 = 600;
/// Seconds for which ended entries wait to be removed together: each change is written and
/// published.
const FORGET_EVERY: i64 = 600;

/// The revocations of one installation. Equal ones have equal stored forms.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Revocations {
    /// Grows with each change, by the clock if that is ahead: also after the loss of everything it
    /// does not fall.
    seq: u64,
    #[serde(flatten)]
    entries: Entries,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Entries {
    /// By `jti`, or by the `sid` of a session.
    tokens: BTreeMap<String, RevokedToken>,
    /// By id.
    users: BTreeMap<String, NotBefore>,
    /// By id.
    applications: BTreeMap<String, NotBefore>,
    #[serde(skip_serializing_if = "Option::is_none")]
    everyone: Option<NotBefore>,
    /// Members of a newer version.
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

/// Times in seconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RevokedToken {
    /// Until then the token could be valid.
    until: i64,
    /// The user's id, unless only the `jti` was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// The time of a revocation that knew no more than the `jti`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<i64>,
}

/// Revokes tokens that were issued before a time. Times in seconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NotBefore {
    before: i64,
    /// Until then such a token could be valid.
    until: i64,
}

/// The revoked tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Revoked {
    /// The token with this `jti`, or the tokens of the session with this `sid`.
    Token { id: String, user: Option<String> },
    /// Those of the user with this id, issued before a time.
    User { id: String, before: i64 },
    /// Those of the application with this id, issued before a time.
    Application { id: String, before: i64 },
}

impl Revoked {
    /// Returns the `jti`, or the id of the user or the application.
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Token { id, .. } | Self::User { id, .. } | Self::Application { id, .. } => id,
        }
    }
}

/// One revocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Revocation {
    pub(crate) revoked: Revoked,
    /// Seconds since the epoch until which such a token could be valid.
    pub(crate) until: i64,
}

impl Revocation {
    /// Revokes the tokens of a user that were issued up to `now`, the last of which counts for `keep`
    /// seconds.
    pub(crate) fn of_user(id: String, now: i64, keep: i64) -> Self {
        let before = now.saturating_add(1);
        Self {
            revoked: Revoked::User { id, before },
            until: end_of_tokens(before, keep),
        }
    }

    /// Revokes the tokens of an application that were issued up to `now`, the last of which is valid
    /// for `keep` seconds.
    pub(crate) fn of_application(id: String, now: i64, keep: i64) -> Self {
        let before = now.saturating_add(1);
        Self {
            revoked: Revoked::Application { id, before },
            until: end_of_tokens(before, keep),
        }
    }
}

/// Returns the time until which an entry about tokens issued before `before` is kept.
pub(crate) fn end_of_tokens(before: i64, keep: i64) -> i64 {
    before
        .saturating_add(keep)
        .saturating_add(KEEP_AFTER_EXPIRY)
}

impl Revocations {
    pub(crate) fn is_unused(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the numbers of entries: tokens, users, applications.
    pub(crate) fn counts(&self) -> [usize; 3] {
        let Entries {
            tokens,
            users,
            applications,
            ..
        } = &self.entries;
        [tokens.len(), users.len(), applications.len()]
    }

    /// Returns true if the token of these claims was revoked.
    pub(crate) fn revokes(&self, claims: &Claims) -> bool {
        let issued_before = |entry: Option<&NotBefore>| {
            entry.is_some_and(|entry| claims.issued_at.is_none_or(|at| at < entry.before))
        };
        let entries = &self.entries;
        let mut names = claims.token_id.iter().chain(&claims.session);
        let application = claims.client_id.as_ref();
        names.any(|id| entries.tokens.contains_key(id))
            || issued_before(entries.users.get(&claims.user_id))
            || issued_before(application.and_then(|id| entries.applications.get(id)))
            || issued_before(entries.everyone.as_ref())
    }

    /// Adds revocations at `now`.
    #[must_use]
    pub(crate) fn with(&self, revocations: &[Revocation], now: i64) -> Self {
        let mut entries = self.entries.clone();
        for revocation in revocations {
            entries.add(revocation.clone(), now);
        }
        entries.bound(now);
        let mut next = Self {
            seq: self.seq,
            entries,
        };
        if next.entries != self.entries {
            next.count(now);
        }
        next
    }

    /// Returns the entries of both that are not over at `now`. `keep`: the seconds for which a token of this
    /// server may be valid, where that is known: a command may have recorded an entry for less.
    /// Equal numbers mean equal entries, so a mixture gets the next one.
    #[must_use]
    pub(crate) fn merged(&self, other: &Self, now: i64, keep: Option<i64>) -> Self {
        let mut entries = self.entries.clone();
        entries.absorb(&other.entries, now);
        if let Some(keep) = keep {
            entries.outlast(keep);
        }
        if entries.is_due(now) {
            entries.forget(now);
        }
        entries.bound(now);
        let seq = self.seq.max(other.seq);
        let is_known = |side: &Self| side.seq < seq || side.entries == entries;
        let is_known = is_known(self) && is_known(other);
        let mut merged = Self { seq, entries };
        if !is_known {
            merged.count(now);
        }
        merged
    }

    /// Returns the claims of the published list.
    pub(crate) fn claims(&self, issued_at: i64) -> RevocationClaims {
        let before = |(id, entry): (RevocationDigest, &NotBefore)| (id, entry.before);
        let Entries {
            tokens,
            users,
            applications,
            everyone,
            ..
        } = &self.entries;
        RevocationClaims {
            seq: self.seq,
            issued_at,
            tokens: tokens
                .keys()
                .map(|id| RevocationDigest::of_token(id))
                .collect(),
            users: users
                .iter()
                .map(|(id, entry)| before((RevocationDigest::of_user(id), entry)))
                .collect(),
            applications: applications
                .iter()
                .map(|(id, entry)| before((RevocationDigest::of_application(id), entry)))
                .collect(),
            everyone: everyone.as_ref().map(|entry| entry.before),
        }
    }

    fn count(&mut self, now: i64) {
        let now = u64::try_from(now).unwrap_or_default();
        self.seq = self.seq.saturating_add(1).max(now);
    }
}

impl Entries {
    fn add(&mut self, Revocation { revoked, until }: Revocation, now: i64) {
        match revoked {
            Revoked::Token { id, user } => {
                let at = user.is_none().then_some(now);
                add_token(&mut self.tokens, id, RevokedToken { until, user, at });
            }
            Revoked::User { id, before } => {
                add_time(&mut self.users, id, NotBefore { before, until });
            }
            Revoked::Application { id, before } => {
                add_time(&mut self.applications, id, NotBefore { before, until });
            }
        }
    }

    /// Adds the entries of `other` that are not over at `now`.
    fn absorb(&mut self, other: &Self, now: i64) {
        let counts = |until: i64| until > now;
        let tokens = other.tokens.iter().filter(|(_, entry)| counts(entry.until));
        for (id, entry) in tokens {
            add_token(&mut self.tokens, id.clone(), entry.clone());
        }
        for (mine, theirs) in [
            (&mut self.users, &other.users),
            (&mut self.applications, &other.applications),
        ] {
            for (id, entry) in theirs.iter().filter(|(_, entry)| counts(entry.until)) {
                add_time(mine, id.clone(), entry.clone());
            }
        }
        if let Some(entry) = other.everyone.as_ref().filter(|it| counts(it.until)) {
            self.everyone = Some(match self.everyone.take() {
                Some(mine) => mine.joined(entry.clone()),
                None => entry.clone(),
            });
        }
    }

    /// Raises the ends of entries to those of the last tokens that they can mean.
    fn outlast(&mut self, keep: i64) {
        let times = self
            .users
            .values_mut()
            .chain(self.applications.values_mut());
        for entry in times.chain(&mut self.everyone) {
            entry.until = entry.until.max(end_of_tokens(entry.before, keep));
        }
        for entry in self.tokens.values_mut() {
            if let Some(at) = entry.at {
                entry.until = entry.until.max(end_of_tokens(at, keep));
            }
        }
    }

    fn ends(&self) -> impl Iterator<Item = i64> {
        let times = self.users.values().chain(self.applications.values());
        let times = times.chain(&self.everyone).map(|entry| entry.until);
        self.tokens.values().map(|entry| entry.until).chain(times)
    }

    /// Returns true if an entry is over for long enough.
    fn is_due(&self, now: i64) -> bool {
        let latest = now.saturating_sub(FORGET_EVERY);
        self.ends().any(|until| until <= latest)
    }

    fn forget(&mut self, now: i64) {
        self.tokens.retain(|_, entry| entry.until > now);
        self.users.retain(|_, entry| entry.until > now);
        self.applications.retain(|_, entry| entry.until > now);
        self.everyone.take_if(|entry| entry.until <= now);
    }
}

impl NotBefore {
    /// Returns the entry that revokes the tokens of both.
    fn joined(self, other: Self) -> Self {
        Self {
            before: self.before.max(other.before),
            until: self.until.max(other.until),
        }
    }
}

fn add_time(entries: &mut BTreeMap<String, NotBefore>, id: String, entry: NotBefore) {
    let entry = match entries.remove(&id) {
        Some(known) => known.joined(entry),
        None => entry,
    };
    entries.insert(id, entry);
}

/// Adds a token; of a known one only a later end counts.
fn add_token(tokens: &mut BTreeMap<String, RevokedToken>, id: String, entry: RevokedToken) {
    match tokens.get_mut(&id) {
        Some(known) => {
            known.until = known.until.max(entry.until);
            if known.user.is_none() {
                known.user = entry.user;
            }
        }
        None => {
            tokens.insert(id, entry);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
