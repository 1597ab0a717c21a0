//! The laws of keys: all servers sign with one, none signs unannounced, and each stays listed.

use std::time::Duration;

use auth_server::simulation::Keys;
use tokio::time::Instant;

use super::Laws;
use crate::BETWEEN_CHECKS;
use crate::model::{Ended, TOKEN_LIFETIME, Token};
use crate::world::World;

/// Of the settings of the servers.
const ROTATION_LEAD: Duration = Duration::from_secs(150);

/// The keys of a server at a check.
pub(super) struct Known {
    keys: Keys,
    /// The begin of its last poll that succeeded.
    polled: Option<Instant>,
}

impl Laws {
    pub(super) fn check_keys(&mut self, world: &World) {
        self.check_stored_keys(world);
        let now = Instant::now();
        for (number, server) in world.running_servers() {
            let Some(keys) = server.keys() else {
                self.keyless = Some(now);
                continue;
            };
            let known = Known {
                keys: keys.clone(),
                polled: server.polls().succeeded,
            };
            if let Some(former) = self.keys.insert(number, known)
                && former.keys != keys
            {
                self.check_change(number, &former, &keys);
            }
            self.signed.insert(keys.current, now);
            for key in keys.listed {
                self.keys_seen.entry(key).or_insert(now);
            }
        }
        if self.has_lost() {
            // What servers write back counts from then on.
            let seen = self.keys_seen.iter_mut();
            let lost = seen.filter(|(id, _)| !world.all_list(id));
            lost.for_each(|(_, seen)| *seen = now);
        }
    }

    /// A server that has polled has the keys of the store; it may have promoted the next one since.
    fn check_stored_keys(&mut self, world: &World) {
        let stored = world.store.keys();
        let known = self.stored_keys.take();
        let Some(stored) = stored else { return };
        if let Some(next) = &stored.next {
            let announced = self.announced.entry(next.clone());
            announced.or_insert_with(Instant::now);
        }
        let known = known.filter(|(known, _)| *known == stored);
        let (stored, seen) = known.unwrap_or_else(|| (stored, Instant::now()));
        for (number, server) in world.running_servers() {
            let has_polled = world.polled(number).is_some_and(|begun| begun > seen);
            let Some(keys) = server.keys().filter(|_| has_polled) else {
                continue;
            };
            let signs =
                [Some(&stored.current), stored.next.as_ref()].contains(&Some(&keys.current));
            let lists_next = stored.next.iter().all(|next| keys.listed.contains(next));
            // A server drops an expired key also while the store is away.
            let mut differing = keys.listed.symmetric_difference(&stored.listed);
            let lists_all = differing.all(|id| self.may_have_expired(id));
            self.require(signs && lists_next && lists_all, || {
                format!("server {number} has other keys than the store")
            });
        }
        self.stored_keys = Some((stored, seen));
    }

    /// The keys of a server have changed.
    fn check_change(&mut self, number: usize, former: &Known, keys: &Keys) {
        self.check_listed(number, &former.keys, keys);
        // The key of a server that was revoked is replaced at once by any other.
        if former.keys.revoked == keys.revoked {
            self.check_lead(number, &former.keys, keys);
            self.check_signer(number, former, keys);
        }
    }

    /// A key stays listed while tokens may need it.
    fn check_listed(&mut self, number: usize, was: &Keys, keys: &Keys) {
        // In a later history another next key, or none, replaces its own.
        let is_later = keys.generation > was.generation;
        let may_go = |id| {
            let is_next = was.next.as_ref() == Some(id);
            keys.revoked.contains(id) || is_next && is_later || self.may_have_expired(id)
        };
        let mut gone = was.listed.difference(&keys.listed);
        let gone = gone.find(|id| !may_go(id));
        self.require(gone.is_none(), || {
            format!("server {number} does not list the key {gone:?} any more")
        });
    }

    /// The next key signs once the store has had it for the lead.
    fn check_lead(&mut self, number: usize, was: &Keys, keys: &Keys) {
        let current = &keys.current;
        let announced = self.announced.get(current);
        // It may have been there for some seconds before that.
        let has_lead = announced.is_none_or(|at| at.elapsed() + BETWEEN_CHECKS > ROTATION_LEAD);
        let is_promoted = was.next.as_ref() == Some(current);
        let may_be_early = !is_promoted || self.has_lost() || self.sets_clocks;
        self.require(has_lead || may_be_early, || {
            format!("server {number} signs with {current} too early")
        });
    }

    /// A server signs with the key that it announced.
    fn check_signer(&mut self, number: usize, former: &Known, keys: &Keys) {
        let (was, current) = (&former.keys, &keys.current);
        // Of another history, which is later than its own.
        let learns = !keys.listed.is_subset(&was.listed);
        let is_next = was.next.as_ref() == Some(current) || *current == was.current;
        // A clock that was ahead has promoted its own one too early.
        let is_early = keys.next.as_ref() == Some(&was.current);
        let is_known = was.listed.contains(current);
        // Without `?wait=` two histories may go on side by side after a loss: all take over the later one.
        let may_fork = self.has_lost() && !self.waits;
        let is_later = keys.generation > was.generation;
        let may_return = learns || may_fork && is_later && self.is_stored(current);
        self.require(is_next || is_early || !is_known || may_return, || {
            format!("server {number} signs with {current} again")
        });
        // A server that found no keys has made some, and one that was cut off has missed the announcement.
        let is_first = self.keyless >= former.polled;
        let is_late = former
            .polled
            .is_none_or(|begun| begun.elapsed() > ROTATION_LEAD);
        // In an older copy a revoked key is revoked once more.
        let is_repeated = self.has_lost() && !keys.revoked.is_empty();
        let is_seen = is_known || self.keys_seen.contains_key(current);
        self.require(is_first || is_late || is_repeated || is_seen, || {
            format!("server {number} signs with {current}, which was not announced")
        });
    }

    /// Returns true for a key by which the store has servers sign, now or next.
    fn is_stored(&self, key: &str) -> bool {
        let stored = self.stored_keys.as_ref().map(|(keys, _)| keys);
        stored.is_some_and(|it| it.current == key || it.next.as_deref() == Some(key))
    }

    /// Returns true for a key that has signed no token in use.
    fn may_have_expired(&self, key: &str) -> bool {
        let seen = self.signed.get(key).or(self.keys_seen.get(key));
        let lifetime = Duration::from_secs(TOKEN_LIFETIME.unsigned_abs());
        seen.is_some_and(|at| at.elapsed() > lifetime)
    }

    /// Returns true where the revocation of a key was requested.
    pub(super) fn may_be_revoked(&self, key: &str) -> bool {
        let mut ends = self.ends.iter();
        ends.any(|end| matches!(&end.ended, Ended::Key(id) if id == key))
    }

    /// Returns true where a key is lost with the store: a server has not written it back.
    pub(super) fn is_lost(&self, world: &World, key: &str) -> bool {
        self.has_lost() && !world.all_list(key)
    }

    /// Returns true for a token that every sidecar has to accept.
    #[must_use]
    pub fn must_count(&self, world: &World, token: &Token) -> bool {
        let is_live = token.is_of_this_time(world.sky.world_now());
        is_live && !self.may_be_ended(token) && !self.is_lost(world, &token.key)
    }
}
