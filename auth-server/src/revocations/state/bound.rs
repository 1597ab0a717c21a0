//! The bound of the list: the entries that one revocation replaces where there are too many.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use postern_token::revocations::{RevocationDigest, Revoked};

use super::State;
use crate::revocations::Revocation;
use crate::revocations::entry::{Entry, Fact};

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
        // An issuer whose clock is ahead would else have entries that only the last resort replaces.
        let is_ahead = |it: &Entry| it.fact.issuer.is_some() && it.fact.at > now;
        let is_listed = |it: &Entry| it.fact.listed_until(keep) > self.removed;
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.retain(|it| is_past(it) || is_ahead(it));
        let mut replaced = Replaced {
            is_full: self.is_full(),
            bytes: self.list.bytes(),
            surplus: Vec::new(),
        };
        for (user, mut entries) in largest_first(&entries, Owner::user_of) {
            if entries.len() > MAX_OF_USER {
                let mut surplus = Surplus::new(user, &entries);
                // Only listed entries have a line that a replacement saves.
                entries.retain(|it| is_listed(it));
                surplus.lines = bytes_of_lines(&entries);
                replaced.add(surplus);
            }
        }
        let mut listed = entries;
        listed.retain(|it| is_listed(it));
        replaced.add_users(&listed, VERY_MANY);
        for (issuer, entries) in largest_first(&listed, Owner::issuer_of) {
            replaced.add_users(&entries, 2);
            if issuer != Owner::Everyone && replaced.are_too_few() {
                replaced.add_issuer(issuer, &entries);
            }
        }
        // The last resort: one line that ends every token from before this moment.
        listed.retain(|it| is_past(it));
        if replaced.are_too_few() && !listed.is_empty() {
            return vec![Surplus::new(Owner::Everyone, &listed)];
        }
        replaced.surplus
    }
}

fn bytes_of_lines(listed: &[&Entry]) -> usize {
    listed
        .iter()
        .map(|entry| entry.fact.revokes.to_string().len() + 1)
        .sum()
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
    fn add_users(&mut self, listed: &[&Entry], least: usize) {
        let known: HashSet<_> = self.surplus.iter().map(|one| one.owner).collect();
        for (user, entries) in largest_first(listed, Owner::user_of) {
            let is_enough = self.bytes <= MAX_PUBLISHED / 2;
            if !self.is_full || is_enough || entries.len() < least {
                break;
            }
            if !known.contains(&user) {
                self.add(Surplus::new(user, &entries));
            }
        }
    }

    /// Adds all listed entries of another issuer in place of its users.
    fn add_issuer(&mut self, issuer: Owner, listed: &[&Entry]) {
        for one in std::mem::take(&mut self.surplus) {
            if one.issuer.map(Owner::Issuer) == Some(issuer) {
                // The lines of the user are not replaced alone any more, but with all others of the issuer.
                self.bytes = (self.bytes + one.lines).saturating_sub(OWNER_LINE);
            } else {
                self.surplus.push(one);
            }
        }
        self.add(Surplus::new(issuer, listed));
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
    let mut sorted: Vec<_> = by_owner.into_iter().collect();
    // The owner breaks ties, so that every server chooses the same.
    sorted.sort_by_key(|(owner, entries)| (Reverse(entries.len()), *owner));
    sorted
}

impl Owner {
    fn user_of(fact: &Fact) -> Option<Self> {
        fact.user.map(Self::User)
    }

    /// Returns the issuer of the tokens, or everyone for this installation.
    fn issuer_of(fact: &Fact) -> Option<Self> {
        Some(fact.issuer.map_or(Self::Everyone, Self::Issuer))
    }
}

impl Surplus {
    /// Makes the surplus of entries that are all listed.
    fn new(owner: Owner, entries: &[&Entry]) -> Self {
        let ends = entries.iter().map(|entry| entry.ends).max();
        let latest = entries.iter().map(|entry| entry.fact.latest()).max();
        let lifetimes: Option<Vec<_>> = entries.iter().map(|it| it.fact.lifetime()).collect();
        Self {
            owner,
            ids: entries.iter().map(|entry| entry.id).collect(),
            lines: bytes_of_lines(entries),
            ends: ends.unwrap_or_default(),
            latest: latest.unwrap_or_default(),
            issuer: match (owner, entries.first()) {
                (Owner::Everyone, _) | (_, None) => None,
                // All entries of a user, or of an issuer, are of one issuer.
                (_, Some(entry)) => entry.fact.issuer,
            },
            lifetime: lifetimes.and_then(|all| all.into_iter().max()),
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
        let mut revocation = match (self.owner, self.issuer) {
            (Owner::User(user), None) => Revocation::for_user(user.to_string(), time),
            (Owner::User(user), Some(issuer)) => {
                Revocation::for_foreign_user(issuer.to_string(), user.to_string(), time)
            }
            (Owner::Issuer(issuer), _) => Revocation::for_issuer(issuer.to_string(), time),
            (Owner::Everyone, _) => Revocation::for_everyone(time),
        };
        // Digests of digests would find no token: the known ones take their place.
        revocation.fact.revokes = match self.owner {
            Owner::User(user) => Revoked::User(user, before),
            Owner::Issuer(issuer) => Revoked::Application(issuer, before),
            Owner::Everyone => Revoked::Everyone(before),
        };
        revocation.fact.issuer = self.issuer;
        // As long as a revocation of this moment, so that one that is read later is implied too. For a user of
        // this installation no such line is made: other sessions of the user would outlive it.
        revocation.fact.live = match (self.issuer, self.lifetime) {
            (Some(_), Some(lifetime)) => Some(before.saturating_add(lifetime)),
            _ => None,
        };
        revocation.ends = self.ends.max(revocation.fact.listed_until(keep));
        revocation
    }
}
