//! The entries of the log in memory, and what follows from them: the revoked tokens, and the list.

pub(super) mod bound;

use std::collections::{HashMap, HashSet};

use postern_token::revocations::{RevocationDigest, Revoked, RevokedTokens};

use super::Revocation;
use super::entry::{Entry, Fact, REMOVED_EVERY};
use super::list::List;
use crate::store::LogEntry;

/// Seconds before the end of an entry from which on a store may have removed it, by another clock.
const MARGIN: i64 = 60;

#[derive(Debug, Default)]
pub(crate) struct State {
    /// The entries in the order of their ids, without entries that others imply.
    entries: Vec<Entry>,
    /// The last entry that was read: a store that lacks it, or has another one with its id, is an older copy.
    pub(super) last: Option<LogEntry>,
    /// The largest id that was read.
    read: i64,
    /// The number of the list: the largest id that was read and that no fail-over can lose. It never becomes
    /// smaller, although the ids of an older copy are smaller.
    pub(crate) seq: i64,
    /// The number of entries that only a newer version knows.
    pub(super) unknown: usize,
    /// The tokens that the entries end.
    pub(super) revoked: RevokedTokens,
    pub(crate) list: List,
    /// The statements of other issuers that led to the entries, also to implied ones: by the digest of the
    /// `jti` the digest of the whole statement, and the end of the entry.
    statements: HashMap<RevocationDigest, (RevocationDigest, i64)>,
    /// The time up to which lines have ended; 0 before the first reading.
    removed: i64,
}

impl State {
    /// Returns the digest of the whole statement with this id, if that has ended something.
    pub(super) fn statement(&self, id: &RevocationDigest) -> Option<RevocationDigest> {
        self.statements.get(id).map(|(token, _)| *token)
    }

    /// Returns the largest number so far, which the id of the next entry has to exceed.
    pub(super) fn above(&self) -> i64 {
        self.last.as_ref().map_or(0, |last| last.id).max(self.seq)
    }

    /// Adds the entries after the last known one, unless another reading has taken them over meanwhile.
    /// `keep`: the seconds for which a token of this server may be valid.
    pub(super) fn extend(&mut self, read: &[LogEntry], now: i64, keep: i64) {
        let new = match &self.last {
            // No entry is known yet: all entries that were read are new.
            None => read,
            Some(last) => match read.iter().position(|it| it == last) {
                Some(index) => read.get(index + 1..).unwrap_or_default(),
                None => return,
            },
        };
        self.add(new, now, keep);
    }

    /// Returns the number that the list gets once it is confirmed; `None` if the list has that number.
    pub(super) fn unconfirmed_number(&self) -> Option<i64> {
        (self.read > self.seq).then_some(self.read)
    }

    /// Counts all entries up to this id in the number of the list: the store has confirmed them.
    pub(super) fn count_in_number(&mut self, id: i64) {
        self.seq = self.seq.max(id.min(self.read));
    }

    /// Counts all entries up to the last of these revocations that was read.
    pub(super) fn count_revocations_in_number(&mut self, revocations: &[Revocation]) {
        for one in revocations {
            // The last entries first: the revocations are new.
            let mut last_first = self.entries.iter().rev();
            if let Some(&Entry { id, .. }) = last_first.find(|it| it.fact == one.fact) {
                self.count_in_number(id);
            }
        }
    }

    /// Replaces all entries by the entries of an older copy of the store.
    pub(super) fn replace(&mut self, read: &[LogEntry], now: i64, keep: i64) {
        *self = Self {
            // The number stays: a list of the older copy must not have a smaller number than sidecars know.
            seq: self.seq,
            ..Self::default()
        };
        self.add(read, now, keep);
    }

    /// Takes over the next entries, and makes the list anew where they change lines that it has.
    fn add(&mut self, read: &[LogEntry], now: i64, keep: i64) {
        // The full hour, the same on all servers: their lists stay byte for byte alike.
        let removed = now.saturating_sub(now.rem_euclid(REMOVED_EVERY));
        let mut is_anew = removed != self.removed;
        for stored in read {
            match Entry::parse(stored) {
                Some(entry) => {
                    // A fact that replaces others changes lines that are published already.
                    is_anew |= !self.only_adds(&entry);
                    if let Some(statement) = entry.fact.statement {
                        self.statements
                            .insert(statement.id, (statement.token, entry.ends));
                    }
                    self.entries.push(entry);
                    if !is_anew {
                        self.publish(&entry, keep);
                    }
                }
                // An entry of a newer version ends tokens that this one accepts, so `poll` reports it.
                None => self.unknown += 1,
            }
            // A list that lacks an entry must not have the number of one that has it.
            if self.unknown == 0 {
                self.read = self.read.max(stored.id);
            }
            self.last = Some(stored.clone());
        }
        if is_anew {
            self.removed = removed;
            self.begin_anew(keep);
        }
    }

    /// Returns true if the entry replaces no other entry, and no other entry implies it.
    fn only_adds(&self, entry: &Entry) -> bool {
        match &entry.fact.revokes {
            Revoked::Token(id) => {
                !self.revoked.has_token(id) && !is_implied(&self.revoked, &entry.fact)
            }
            // The first entry of a user, as each logout at an issuer without sessions makes one.
            Revoked::User(id, _) => {
                let is_of_user = |other: &Entry| other.fact.user == Some(*id);
                self.revoked.before_of_user(id).is_none()
                    && !is_implied(&self.revoked, &entry.fact)
                    && !self.entries.iter().any(is_of_user)
            }
            _ => false,
        }
    }

    fn begin_anew(&mut self, keep: i64) {
        self.statements.retain(|_, (_, ends)| *ends > self.removed);
        let mut times = RevokedTokens::default();
        // Servers that restore a store at the same time write the same facts.
        let mut facts = HashSet::new();
        self.entries
            .retain(|entry| entry.ends > self.removed && facts.insert(entry.fact));
        for entry in &self.entries {
            // First the times of all entries: a later entry may imply an earlier one.
            if !matches!(entry.fact.revokes, Revoked::Token(_)) {
                times.add(entry.fact.revokes);
            }
        }
        self.entries
            .retain(|entry| !is_implied(&times, &entry.fact));
        self.revoked = RevokedTokens::default();
        self.list = List::default();
        let entries = std::mem::take(&mut self.entries);
        // In the order of ids, so that each server's chained digest is the same.
        for entry in &entries {
            self.publish(entry, keep);
        }
        self.entries = entries;
    }

    fn publish(&mut self, entry: &Entry, keep: i64) {
        self.revoked.add(entry.fact.revokes);
        if entry.fact.listed_until(keep) > self.removed {
            self.list.push(entry.fact.revokes);
        }
    }

    /// Returns true for a fact that was not read, does not follow from others, and has not ended.
    pub(super) fn lacks(&self, fact: &Fact, ends: i64) -> bool {
        let is_known = |entry: &Entry| entry.fact == *fact;
        // The last entries first: most facts are new.
        ends > self.removed
            && !is_implied(&self.revoked, fact)
            && !self.entries.iter().rev().any(is_known)
    }

    /// Returns the entries that a store with this log lacks.
    pub(super) fn missing_in(&self, log: &[LogEntry], now: i64) -> Vec<Entry> {
        let mut facts = HashSet::new();
        let mut times = RevokedTokens::default();
        for entry in log.iter().filter_map(Entry::parse) {
            facts.insert(entry.fact);
            times.add(entry.fact.revokes);
        }
        let is_missing = |entry: &&Entry| {
            // An entry that is about to end may be missing because it has ended, by the store's clock.
            entry.ends > now.saturating_add(MARGIN)
                && !facts.contains(&entry.fact)
                && !is_implied(&times, &entry.fact)
        };
        self.entries.iter().filter(is_missing).copied().collect()
    }
}

/// Returns true if later times end all tokens that the fact ends.
fn is_implied(times: &RevokedTokens, fact: &Fact) -> bool {
    let by_owner = match &fact.revokes {
        Revoked::Token(_) => fact.user.and_then(|user| times.before_of_user(&user)),
        Revoked::User(id, _) => times.before_of_user(id),
        Revoked::Application(id, _) => times.before_of_application(id),
        Revoked::Everyone(_) => None,
    };
    let by_issuer = fact.issuer.and_then(|id| times.before_of_application(&id));
    // `None` is less than any time.
    Some(fact.latest()) < by_owner.max(by_issuer).max(times.before_of_everyone())
}
