//! The entries of the log in memory, and what follows from them: the revoked tokens, and the list.

use std::collections::{HashMap, HashSet};

use postern_token::revocations::{RevocationDigest, Revoked, RevokedTokens};

use super::entry::{Entry, Fact};
use super::list::List;
use super::{Revocation, end_of_tokens};
use crate::store::LogEntry;

/// Interval in which ended lines are removed together, on all servers at once, in seconds: after a removal
/// every sidecar reads the whole list.
const REMOVED_EVERY: i64 = 3_600;
/// Max bytes of the published lines: a little less than half of what a sidecar reads.
const MAX_PUBLISHED: usize = 1_000_000;
/// Max bytes of a line for all tokens of an owner.
const OWNER_LINE: usize = 40;
/// Entries of one user that make a difference: more than sessions of a user at once.
const VERY_MANY: usize = 100;
/// Max entries of one user, some 5 MB.
const MAX_OF_USER: usize = 50_000;
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
    /// The statements of other issuers behind the entries, also behind implied ones: by the digest of the
    /// `jti` the digest of the whole statement, and the end of the entry.
    statements: HashMap<RevocationDigest, (RevocationDigest, i64)>,
    /// The time up to which lines have ended; 0 before the first reading.
    removed: i64,
}

/// Entries that one revocation of all tokens of an owner is to replace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Surplus {
    pub(super) owner: Owner,
    pub(super) ids: Vec<i64>,
    /// Bytes of their lines.
    pub(super) lines: usize,
    /// The latest end of the entries.
    pub(super) ends: i64,
    /// The time before which everything was issued that the entries end.
    pub(super) latest: i64,
    /// The issuer of the tokens, unless it is this installation.
    pub(super) issuer: Option<RevocationDigest>,
    /// The longest time for which a program may accept a token that was issued when it ended, if each entry
    /// has one.
    pub(super) lifetime: Option<i64>,
}

/// The owner of tokens that end together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Owner {
    User(RevocationDigest),
    Issuer(RevocationDigest),
    Everyone,
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

    /// Adds the entries behind the last known one, unless another reading has taken them over meanwhile.
    /// `keep`: the seconds for which a token of this server may be valid.
    pub(super) fn extend(&mut self, read: &[LogEntry], now: i64, keep: i64) {
        let known = match &self.last {
            // No entry is known yet: all entries that were read are new.
            None => Some(0),
            Some(last) => read.iter().position(|it| it == last).map(|at| at + 1),
        };
        if let Some(new) = known.and_then(|known| read.get(known..)) {
            self.add(new, now, keep);
        }
    }

    /// Returns the number that the list gets once it is confirmed; `None` if the list has that number.
    pub(super) fn unconfirmed(&self) -> Option<i64> {
        (self.read > self.seq).then_some(self.read)
    }

    /// Counts all entries up to this id in the number of the list: the store has confirmed them.
    pub(super) fn confirm(&mut self, id: i64) {
        self.seq = self.seq.max(id.min(self.read));
    }

    /// Counts all entries up to the last of these revocations that was read.
    pub(super) fn confirm_facts(&mut self, revocations: &[Revocation]) {
        for one in revocations {
            // The last entries first: the revocations are new.
            let found = self.entries.iter().rev().find(|it| it.fact == one.fact);
            if let Some(id) = found.map(|entry| entry.id) {
                self.confirm(id);
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
                        let known = (statement.token, entry.ends);
                        self.statements.insert(statement.id, known);
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
        entries.iter().for_each(|entry| self.publish(entry, keep));
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

    /// Returns the entries that a store lacks whose log is `there`.
    pub(super) fn missing_in(&self, there: &[LogEntry], now: i64) -> Vec<Entry> {
        let there: Vec<_> = there.iter().filter_map(Entry::parse).collect();
        let facts: HashSet<Fact> = there.iter().map(|entry| entry.fact).collect();
        let mut times = RevokedTokens::default();
        there.iter().for_each(|entry| times.add(entry.fact.revokes));
        let is_missing = |entry: &&Entry| {
            // An entry that is about to end may be missing because it has ended, by the store's clock.
            entry.ends > now.saturating_add(MARGIN)
                && !facts.contains(&entry.fact)
                && !is_implied(&times, &entry.fact)
        };
        self.entries.iter().filter(is_missing).copied().collect()
    }

    /// Returns true where the published list is longer than it may be.
    pub(super) fn is_full(&self) -> bool {
        self.list.bytes() > MAX_PUBLISHED
    }

    /// Returns the entries that one revocation of all tokens up to `now` has to replace where there are too
    /// many lines, down to half of the bound: first users with very many of them, of any issuer; then the users
    /// with most lines of the issuer with most lines, this installation or another; then all lines of that
    /// other issuer; then the next issuer's; at last all. And users with too many entries, listed or not.
    pub(super) fn surplus(&self, now: i64, keep: i64) -> Vec<Surplus> {
        let is_past = |it: &Entry| it.fact.latest() <= now;
        let is_listed = |it: &Entry| it.fact.listed_until(keep) > self.removed;
        // An issuer whose clock is ahead would else have entries that only the last resort replaces.
        let is_ahead = |it: &Entry| it.fact.issuer.is_some() && it.fact.at > now;
        let entries = self.entries.iter();
        let entries: Vec<_> = entries.filter(|it| is_past(it) || is_ahead(it)).collect();
        let mut replaced = Replaced {
            is_full: self.is_full(),
            bytes: self.list.bytes(),
            surplus: Vec::new(),
        };
        let users = largest_first(&entries, |fact| fact.user.map(Owner::User));
        for (user, entries) in users {
            if entries.len() > MAX_OF_USER {
                let listed = entries.iter().copied().filter(|it| is_listed(it));
                replaced.add(Surplus::new(user, &entries, lines(listed)));
            }
        }
        let listed = entries.iter().copied().filter(|it| is_listed(it));
        let listed: Vec<_> = listed.collect();
        replaced.users(&listed, VERY_MANY);
        let issuer = |fact: &Fact| Some(fact.issuer.map_or(Owner::Everyone, Owner::Issuer));
        for (issuer, entries) in largest_first(&listed, issuer) {
            replaced.users(&entries, 2);
            if issuer != Owner::Everyone && replaced.are_too_few() {
                replaced.issuer(issuer, &entries);
            }
        }
        // The last resort: one line that ends every token from before this moment.
        let past: Vec<_> = listed.into_iter().filter(|it| is_past(it)).collect();
        if replaced.are_too_few() && !past.is_empty() {
            return vec![Surplus::new(Owner::Everyone, &past, 0)];
        }
        replaced.surplus
    }
}

/// Returns the bytes of the lines of these entries.
fn lines<'e>(listed: impl Iterator<Item = &'e Entry>) -> usize {
    let line = |entry: &Entry| entry.fact.revokes.to_string().len() + 1;
    listed.map(line).sum()
}

/// The entries that are to be replaced so far.
struct Replaced {
    is_full: bool,
    /// Bytes of the list without them.
    bytes: usize,
    surplus: Vec<Surplus>,
}

impl Replaced {
    const fn are_too_few(&self) -> bool {
        self.is_full && self.bytes > MAX_PUBLISHED
    }

    /// Adds users with at least so many of these listed entries, the largest first.
    fn users(&mut self, listed: &[&Entry], least: usize) {
        let known: HashSet<_> = self.surplus.iter().map(|one| one.owner).collect();
        for (user, entries) in largest_first(listed, |fact| fact.user.map(Owner::User)) {
            let is_enough = self.bytes <= MAX_PUBLISHED / 2;
            if !self.is_full || is_enough || entries.len() < least {
                break;
            }
            if !known.contains(&user) {
                self.add(Surplus::new(user, &entries, lines(entries.iter().copied())));
            }
        }
    }

    /// Adds all listed entries of another issuer in place of its users.
    fn issuer(&mut self, issuer: Owner, listed: &[&Entry]) {
        let (of_users, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.surplus)
            .into_iter()
            .partition(|one| one.issuer.map(Owner::Issuer) == Some(issuer));
        self.surplus = others;
        for user in of_users {
            self.bytes = (self.bytes + user.lines).saturating_sub(OWNER_LINE);
        }
        self.add(Surplus::new(issuer, listed, lines(listed.iter().copied())));
    }

    fn add(&mut self, one: Surplus) {
        self.bytes = (self.bytes + OWNER_LINE).saturating_sub(one.lines);
        self.surplus.push(one);
    }
}

/// Returns the entries of each owner, owners with most entries first.
fn largest_first<'e>(
    entries: &[&'e Entry],
    owner: impl Fn(&Fact) -> Option<Owner>,
) -> Vec<(Owner, Vec<&'e Entry>)> {
    let mut by_owner: HashMap<Owner, Vec<&Entry>> = HashMap::new();
    for entry in entries {
        if let Some(owner) = owner(&entry.fact) {
            by_owner.entry(owner).or_default().push(entry);
        }
    }
    let mut by_owner: Vec<_> = by_owner.into_iter().collect();
    // The owner breaks ties, so that every server chooses the same.
    by_owner.sort_by_key(|(owner, entries)| (std::cmp::Reverse(entries.len()), *owner));
    by_owner
}

impl Surplus {
    /// `lines`: the bytes of the entries in the list.
    fn new(owner: Owner, entries: &[&Entry], lines: usize) -> Self {
        let ends = entries.iter().map(|entry| entry.ends).max();
        let latest = entries.iter().map(|entry| entry.fact.latest()).max();
        let issuer = match owner {
            Owner::Everyone => None,
            // All entries of a user, or of an issuer, are of one issuer.
            _ => entries.first().and_then(|entry| entry.fact.issuer),
        };
        let lives = entries.iter().map(|entry| {
            let Fact { live, at, .. } = entry.fact;
            Some(live?.saturating_sub(at))
        });
        let lives: Option<Vec<_>> = lives.collect();
        Self {
            owner,
            ids: entries.iter().map(|entry| entry.id).collect(),
            lines,
            ends: ends.unwrap_or_default(),
            latest: latest.unwrap_or_default(),
            issuer,
            lifetime: lives.and_then(|lives| lives.into_iter().max()),
        }
    }

    /// Returns the revocation of all tokens of the owner up to `now`.
    pub(super) fn revocation(&self, now: i64, keep: i64) -> Revocation {
        // Where the issuer's clock is ahead, up to the last entry: the line has to imply it.
        let time = match self.issuer {
            Some(_) => now.max(self.latest),
            None => now,
        };
        let before = time.saturating_add(1);
        // Made with digests for ids: the ids themselves are not known.
        let (mut revocation, revokes) = match (self.owner, self.issuer) {
            (Owner::User(user), None) => (
                Revocation::for_user(user.to_string(), time),
                Revoked::User(user, before),
            ),
            (Owner::User(user), Some(issuer)) => (
                Revocation::for_foreign_user(issuer.to_string(), user.to_string(), time),
                Revoked::User(user, before),
            ),
            (Owner::Issuer(issuer), _) => (
                Revocation::for_issuer(issuer.to_string(), time),
                Revoked::Application(issuer, before),
            ),
            (Owner::Everyone, _) => (Revocation::for_everyone(time), Revoked::Everyone(before)),
        };
        revocation.fact.revokes = revokes;
        revocation.fact.issuer = self.issuer;
        // As long as an end of this moment: such a one, read later, is implied too. Other sessions of a user of
        // this installation would outlive such a line.
        let lifetime = self.lifetime.filter(|_| self.issuer.is_some());
        revocation.fact.live = lifetime.map(|lifetime| before.saturating_add(lifetime));
        let live = revocation.fact.live;
        let live = live.unwrap_or_else(|| end_of_tokens(before, keep));
        revocation.ends = self.ends.max(live);
        revocation
    }
}

/// Returns true if later times end all tokens that the fact ends.
fn is_implied(times: &RevokedTokens, fact: &Fact) -> bool {
    let is_before = |before: Option<i64>| before.is_some_and(|before| fact.latest() < before);
    let of_its_own = match &fact.revokes {
        Revoked::Token(_) => fact.user.and_then(|user| times.before_of_user(&user)),
        Revoked::User(id, _) => times.before_of_user(id),
        Revoked::Application(id, _) => times.before_of_application(id),
        Revoked::Everyone(_) => None,
    };
    let of_issuer = fact.issuer.and_then(|id| times.before_of_application(&id));
    is_before(of_its_own) || is_before(of_issuer) || is_before(times.before_of_everyone())
}
