//! The bound of the list: the entries that one revocation replaces where there are too many.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use postern_token::revocations::{RevocationDigest, Revoked};

use super::State;
use crate::revocations::entry::{Entry, Fact};
use crate::revocations::{Revocation, end_of_tokens};

/// Max bytes of the published lines: a little less than half of what a sidecar reads.
const MAX_PUBLISHED: usize = 1_000_000;
/// Max bytes of a line for all tokens of an owner.
const OWNER_LINE: usize = 40;
/// Entries of one user that make a difference: more than sessions of a user at once.
const VERY_MANY: usize = 100;
/// Max entries of one user, some 5 MB.
const MAX_OF_USER: usize = 50_000;
/// Entries that one revocation of all tokens of an owner is to replace.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::revocations) struct Surplus {
    pub(in crate::revocations) owner: Owner,
    pub(in crate::revocations) ids: Vec<i64>,
    /// Bytes of their lines.
    pub(in crate::revocations) lines: usize,
    /// The latest end of the entries.
    pub(in crate::revocations) ends: i64,
    /// The time before which everything was issued that the entries end.
    pub(in crate::revocations) latest: i64,
    /// The issuer of the tokens, unless it is this installation.
    pub(in crate::revocations) issuer: Option<RevocationDigest>,
    /// The longest time for which a program may accept a token that was issued when it ended, if each entry
    /// has one.
    pub(in crate::revocations) lifetime: Option<i64>,
}

/// The owner of tokens that end together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::revocations) enum Owner {
    User(RevocationDigest),
    Issuer(RevocationDigest),
    Everyone,
}

impl State {
    /// Returns true where the published list is longer than it may be.
    pub(in crate::revocations) fn is_full(&self) -> bool {
        self.list.bytes() > MAX_PUBLISHED
    }

    /// Returns the entries that one revocation of all tokens up to `now` has to replace where there are too
    /// many lines, down to half of the bound: first users with very many of them, of any issuer; then the users
    /// with most lines of the issuer with most lines, this installation or another; then all lines of that
    /// other issuer; then the next issuer's; at last all. And users with too many entries, listed or not.
    pub(in crate::revocations) fn surplus(&self, now: i64, keep: i64) -> Vec<Surplus> {
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
    by_owner.sort_by_key(|(owner, entries)| (Reverse(entries.len()), *owner));
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
    pub(in crate::revocations) fn revocation(&self, now: i64, keep: i64) -> Revocation {
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
