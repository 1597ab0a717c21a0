//! The entries of the log in memory, and what follows from them: the revoked tokens, and the list.

use std::collections::{HashMap, HashSet};

use wire::token::revocations::{RevocationDigest, Revoked, RevokedTokens};

use super::entry::{Entry, Fact};
use super::list::List;

/// Seconds for which ended lines wait to be removed together, on all servers at once: every sidecar then
/// reads the list whole.
const REMOVED_EVERY: i64 = 3_600;
/// Max bytes of the published lines: half of what a sidecar reads.
const MAX_PUBLISHED: usize = 1_000_000;
/// Bytes of the line of a single token.
const LINE: usize = 23;
/// Max entries of one user, some 5 MB.
const MAX_OF_USER: usize = 50_000;
/// Seconds before its end from which on a store may have removed an entry.
const MARGIN: i64 = 60;

#[derive(Debug, Default)]
pub(super) struct State {
    /// In the order of their ids; without those that others imply.
    entries: Vec<Entry>,
    /// The id of the last entry that was read; 0 before the first.
    cursor: i64,
    /// The tokens that the entries end.
    revoked: RevokedTokens,
    list: List,
    /// The time up to which lines have ended; 0 before the first reading.
    removed: i64,
}

/// Entries that one revocation of all tokens of a user, or of all, is to replace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Surplus {
    pub(super) user: Option<RevocationDigest>,
    pub(super) ids: Vec<i64>,
    pub(super) ends: i64,
}

impl State {
    pub(super) const fn cursor(&self) -> i64 {
        self.cursor
    }

    pub(super) const fn is_read(&self) -> bool {
        self.removed > 0
    }

    pub(super) const fn revoked(&self) -> &RevokedTokens {
        &self.revoked
    }

    pub(super) const fn list(&self) -> &List {
        &self.list
    }

    /// Returns the last entry that the store must have as well.
    pub(super) fn last_there(&self, now: i64) -> Option<Entry> {
        let mut last = self.entries.iter().rev();
        last.find(|entry| entry.ends > now.saturating_add(MARGIN))
            .copied()
    }

    /// Adds entries that were read, up to the id `last`; `keep`: the seconds for which a token of this
    /// server may be valid.
    pub(super) fn add(&mut self, read: &[Entry], last: i64, now: i64, keep: i64) {
        let cursor = self.cursor;
        let new = read.iter().filter(|entry| entry.id > cursor).copied();
        let first = self.entries.len();
        self.entries.extend(new);
        self.cursor = cursor.max(last);
        let removed = now.saturating_sub(now.rem_euclid(REMOVED_EVERY));
        let new = self.entries.get(first..).unwrap_or_default();
        let only_adds = removed == self.removed
            && new.iter().all(|entry| {
                matches!(entry.fact.revokes, Revoked::Token(_)) && !is_implied(&self.revoked, entry)
            });
        let begin = if only_adds { first } else { 0 };
        if !only_adds {
            self.removed = removed;
            self.begin_anew();
        }
        for entry in self.entries.get(begin..).unwrap_or_default() {
            self.revoked.add(entry.fact.revokes);
            if entry.fact.listed_until(keep) > removed {
                self.list.push(entry.fact.revokes);
            }
        }
    }

    /// Replaces all entries by what an older copy of the store has.
    pub(super) fn replace(&mut self, read: &[Entry], last: i64, now: i64, keep: i64) {
        let cursor = self.cursor;
        *self = Self::default();
        self.add(read, last, now, keep);
        self.cursor = self.cursor.max(cursor);
    }

    fn begin_anew(&mut self) {
        let mut times = RevokedTokens::default();
        self.entries.retain(|entry| entry.ends > self.removed);
        for entry in &self.entries {
            if !matches!(entry.fact.revokes, Revoked::Token(_)) {
                times.add(entry.fact.revokes);
            }
        }
        self.entries.retain(|entry| !is_implied(&times, entry));
        self.revoked = RevokedTokens::default();
        self.list = List::default();
    }

    /// Returns the entries that a store lacks, which has `there`.
    pub(super) fn missing_in(&self, there: &[Entry], now: i64) -> Vec<Entry> {
        let facts: HashSet<Fact> = there.iter().map(|entry| entry.fact).collect();
        let mut times = RevokedTokens::default();
        there.iter().for_each(|entry| times.add(entry.fact.revokes));
        let is_missing = |entry: &&Entry| {
            entry.ends > now && !facts.contains(&entry.fact) && !is_implied(&times, entry)
        };
        self.entries.iter().filter(is_missing).copied().collect()
    }

    /// Returns what a revocation of all tokens before a time is to replace where there is too much: the
    /// users with most entries first, down to half of the bound.
    pub(super) fn surplus(&self, before: i64) -> Vec<Surplus> {
        let implied = self.entries.iter();
        let implied: Vec<_> = implied.filter(|it| it.fact.latest() < before).collect();
        let mut by_user: HashMap<RevocationDigest, Vec<&Entry>> = HashMap::new();
        for entry in &implied {
            if let Some(user) = entry.fact.user {
                by_user.entry(user).or_default().push(entry);
            }
        }
        let mut by_user: Vec<_> = by_user.into_iter().collect();
        by_user.sort_by_key(|(user, entries)| (std::cmp::Reverse(entries.len()), *user));
        let is_full = self.list.bytes() > MAX_PUBLISHED;
        let (mut bytes, mut surplus) = (self.list.bytes(), Vec::new());
        for (user, entries) in by_user {
            let is_worth = entries.len() > 1 && is_full && bytes > MAX_PUBLISHED / 2;
            if !is_worth && entries.len() <= MAX_OF_USER {
                break;
            }
            bytes = bytes.saturating_sub(entries.len() * LINE);
            surplus.push(Surplus::of(Some(user), &entries));
        }
        if is_full && bytes > MAX_PUBLISHED && !implied.is_empty() {
            surplus = vec![Surplus::of(None, &implied)];
        }
        surplus
    }
}

impl Surplus {
    fn of(user: Option<RevocationDigest>, entries: &[&Entry]) -> Self {
        Self {
            user,
            ids: entries.iter().map(|entry| entry.id).collect(),
            ends: entries
                .iter()
                .map(|entry| entry.ends)
                .max()
                .unwrap_or_default(),
        }
    }
}

/// Returns true if later times end everything that the entry does.
fn is_implied(times: &RevokedTokens, Entry { fact, .. }: &Entry) -> bool {
    let is_before = |before: Option<i64>| before.is_some_and(|before| fact.latest() < before);
    let of_its_own = match &fact.revokes {
        Revoked::Token(_) => fact.user.and_then(|user| times.before_of_user(&user)),
        Revoked::User(id, _) => times.before_of_user(id),
        Revoked::Application(id, _) => times.before_of_application(id),
        Revoked::Everyone(_) => None,
    };
    is_before(of_its_own) || is_before(times.before_of_everyone())
}
