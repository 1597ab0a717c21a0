//! The proofs that were used: each counts once (RFC 9449 §11.1).

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use super::proof::{MAX_AGE, ProofId, VerifiedProof};
use crate::invalid::InvalidProof;

/// Max number of remembered proofs of all users.
const MAX_PROOFS: usize = 200_000;

/// The used proofs of all users, for as long as they could be used again. Proofs are counted by user `U`,
/// because a user may have any number of keys.
#[derive(Debug)]
pub struct SeenProofs<U> {
    table: Mutex<Table<U>>,
    max_proofs: usize,
}

#[derive(Debug)]
struct Table<U> {
    /// The used proofs of all users, but those of one who gave way: a used one counts for no other user.
    ids: HashSet<ProofId>,
    by_user: HashMap<U, Used>,
    /// Which user holds how many, the largest last.
    by_count: BTreeSet<(usize, U)>,
    /// The ends of proofs, in seconds since the epoch and in their order, also of forgotten ones.
    ends: VecDeque<(i64, U, ProofId)>,
    /// The sum over all users.
    count: usize,
}

/// The proofs of one user.
#[derive(Debug)]
struct Used {
    ids: HashSet<ProofId>,
    /// The latest `iat` of all used proofs.
    latest: i64,
    /// Proofs up to this `iat` are rejected: some of them were used, and are forgotten.
    forgotten: i64,
}

impl<U> Default for SeenProofs<U> {
    fn default() -> Self {
        Self::bounded(MAX_PROOFS)
    }
}

impl<U> SeenProofs<U> {
    fn bounded(max_proofs: usize) -> Self {
        let table = Table {
            ids: HashSet::new(),
            by_user: HashMap::new(),
            by_count: BTreeSet::new(),
            ends: VecDeque::new(),
            count: 0,
        };
        Self {
            table: Mutex::new(table),
            max_proofs,
        }
    }
}

impl<U: Copy + Ord + Hash> SeenProofs<U> {
    /// Checks a proof that was verified, with the token of `user`, without entering it.
    ///
    /// # Errors
    /// Those of [`Self::enter`].
    pub fn check(&self, user: U, proof: &VerifiedProof, now: i64) -> Result<(), InvalidProof> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.forget_ended(now);
        table.check(user, proof)
    }

    /// Enters a proof that was verified, with the token of `user`, at `now`. Once the table is full, the
    /// user who holds most gives way: older proofs of that user are rejected, newer ones count.
    ///
    /// # Errors
    /// [`InvalidProof::Replayed`], [`InvalidProof::TooMany`].
    pub fn enter(
        &self,
        user: U,
        proof: &VerifiedProof,
        now: i64,
        leeway_seconds: u32,
    ) -> Result<(), InvalidProof> {
        // A proof of the near future counts until its own end.
        let end = now + MAX_AGE + i64::from(leeway_seconds);
        // Nothing panics while it is locked.
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.forget_ended(now);
        table.check(user, proof)?;
        if table.count >= self.max_proofs {
            table.make_room(end)?;
        }
        table.ids.insert(proof.id);
        let used = table.insert(user, proof.id, end);
        used.latest = used.latest.max(proof.issued_at);
        // Not for each user who gave way: a walk through all ends takes long.
        if table.ends.len() > 2 * self.max_proofs {
            table.drop_stale_ends();
        }
        Ok(())
    }
}

impl<U: Copy + Ord + Hash> Table<U> {
    fn check(&self, user: U, proof: &VerifiedProof) -> Result<(), InvalidProof> {
        if self.ids.contains(&proof.id) {
            return Err(InvalidProof::Replayed);
        }
        match self.by_user.get(&user) {
            Some(used) if proof.issued_at <= used.forgotten => Err(InvalidProof::TooMany),
            _ => Ok(()),
        }
    }

    fn insert(&mut self, user: U, id: ProofId, end: i64) -> &mut Used {
        let used = self.by_user.entry(user).or_insert_with(|| Used {
            ids: HashSet::new(),
            latest: i64::MIN,
            forgotten: i64::MIN,
        });
        self.by_count.remove(&(used.ids.len(), user));
        used.ids.insert(id);
        self.by_count.insert((used.ids.len(), user));
        self.count += 1;
        self.ends.push_back((end, user, id));
        used
    }

    /// Forgets the proofs of the user who holds most.
    fn make_room(&mut self, end: i64) -> Result<(), InvalidProof> {
        let Some(&(count @ 2.., user)) = self.by_count.last() else {
            return Err(InvalidProof::TooMany);
        };
        self.by_count.remove(&(count, user));
        self.count -= count;
        let Some(former) = self.by_user.remove(&user) else {
            return Err(InvalidProof::TooMany);
        };
        for id in &former.ids {
            self.ids.remove(id);
        }
        // One entry stays as long as the forgotten ones could be used again. Its end is its name, so
        // that it ends with no former one of the same user.
        let used = self.insert(user, i128::from(end).to_be_bytes(), end);
        used.latest = former.latest;
        used.forgotten = former.latest;
        Ok(())
    }

    fn forget_ended(&mut self, now: i64) {
        while let Some((_, user, id)) = self.ends.pop_front_if(|(end, ..)| *end < now) {
            let Some(used) = self.by_user.get_mut(&user) else {
                continue;
            };
            let count = used.ids.len();
            if !used.ids.remove(&id) {
                continue;
            }
            self.ids.remove(&id);
            self.count -= 1;
            self.by_count.remove(&(count, user));
            if count == 1 {
                self.by_user.remove(&user);
            } else {
                self.by_count.insert((count - 1, user));
            }
        }
    }

    fn drop_stale_ends(&mut self) {
        let by_user = &self.by_user;
        self.ends.retain(|(_, user, id)| match by_user.get(user) {
            Some(used) => used.ids.contains(id),
            None => false,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::sha256;

    const NOW: i64 = 1_800_000_000;

    fn proof(id: u32, issued_at: i64) -> VerifiedProof {
        let mut name = ProofId::default();
        name[..4].copy_from_slice(&id.to_be_bytes());
        VerifiedProof {
            key: sha256(b"key"),
            id: name,
            issued_at,
        }
    }

    /// Returns the number of users, and of proofs.
    fn held(proofs: &SeenProofs<u32>) -> [usize; 2] {
        let table = proofs.table.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(table.by_user.len(), table.by_count.len());
        assert!(table.ids.len() <= table.count);
        assert!((table.count..=2 * proofs.max_proofs).contains(&table.ends.len()));
        let counts = table.by_count.iter().map(|(count, _)| count);
        assert_eq!(counts.sum::<usize>(), table.count);
        [table.by_user.len(), table.count]
    }

    #[test]
    fn a_proof_counts_once_while_it_could_be_used() {
        let proofs = SeenProofs::default();
        let enter = |user: u32, id, now| proofs.enter(user, &proof(id, now), now, 30);
        assert_eq!(enter(1, 7, NOW), Ok(()));
        assert_eq!(enter(1, 7, NOW), Err(InvalidProof::Replayed));
        assert_eq!(enter(1, 8, NOW), Ok(()));
        // Also with a token of another user.
        assert_eq!(enter(2, 7, NOW), Err(InvalidProof::Replayed));
        assert_eq!(proofs.check(2, &proof(9, NOW), NOW), Ok(()));
        assert_eq!(
            proofs.check(2, &proof(7, NOW), NOW),
            Err(InvalidProof::Replayed)
        );
        assert_eq!(enter(1, 7, NOW + 90), Err(InvalidProof::Replayed));
        // By then its `iat` is too old, even if it was of the future.
        assert_eq!(enter(1, 7, NOW + 91), Ok(()));
        assert_eq!(held(&proofs), [1, 1]);
        // A clock that is set back forgets nothing.
        assert_eq!(enter(1, 7, NOW), Err(InvalidProof::Replayed));
    }

    #[test]
    fn the_user_who_holds_most_gives_way_and_no_other() {
        let proofs = SeenProofs::bounded(10);
        let enter = |user, id, at: i64| proofs.enter(user, &proof(100 * user + id, at), NOW + 1, 0);
        for id in 0..6 {
            assert_eq!(enter(1, id, NOW), Ok(()));
        }
        for user in 2..=5 {
            assert_eq!(enter(user, 0, NOW), Ok(()));
        }
        // The table is full, and the proofs of the first user are forgotten.
        assert_eq!(enter(6, 0, NOW), Ok(()));
        assert_eq!(held(&proofs), [6, 6]);
        for id in [0, 6] {
            assert_eq!(enter(1, id, NOW), Err(InvalidProof::TooMany), "{id}");
        }
        assert_eq!(enter(2, 0, NOW), Err(InvalidProof::Replayed));
        // What is made from then on counts, and once.
        assert_eq!(enter(1, 6, NOW + 1), Ok(()));
        assert_eq!(enter(1, 6, NOW + 1), Err(InvalidProof::Replayed));
        assert_eq!(enter(1, 0, NOW), Err(InvalidProof::TooMany));
    }

    #[test]
    fn a_mark_lasts_until_the_last_forgotten_proof_has_ended() {
        let proofs = SeenProofs::bounded(4);
        let enter = |id, now| proofs.enter(1, &proof(id, now), now, 0);
        // Alone in the table, a user gives way to itself.
        for at in 0..40 {
            assert_eq!(enter(u32::try_from(at).unwrap_or(0), NOW + at), Ok(()));
        }
        for at in 0..40 {
            let used = proof(u32::try_from(at).unwrap_or(0), NOW + at);
            assert!(proofs.enter(1, &used, NOW + at + 60, 0).is_err(), "{at}");
        }
        assert_eq!(enter(0, NOW + 200), Ok(()));
        assert_eq!(held(&proofs), [1, 1]);
    }

    #[test]
    fn many_users_hold_no_more_than_the_bound() {
        let proofs = SeenProofs::bounded(10);
        for user in 0..200 {
            for id in 0..2 {
                let _ = proofs.enter(user, &proof(2 * user + id, NOW), NOW, 0);
                assert!(held(&proofs).iter().all(|held| *held <= 10));
            }
        }
        // Each of ten users holds one, or the mark of two: there is room for no other user.
        let other = proofs.enter(200, &proof(400, NOW), NOW, 0);
        assert_eq!(other, Err(InvalidProof::TooMany));
        assert_eq!(proofs.enter(200, &proof(400, NOW), NOW + 61, 0), Ok(()));
        assert_eq!(held(&proofs), [1, 1]);
    }

    #[test]
    fn a_user_with_a_key_for_each_proof_shuts_no_other_out() {
        let proofs = SeenProofs::bounded(2_000);
        for id in 0..4_500 {
            // The attacker is rejected at times.
            let _ = proofs.enter(1, &proof(id, NOW), NOW, 30);
            if id % 10 == 0 {
                let good = proof(5_000 + id, NOW);
                assert_eq!(proofs.enter(2, &good, NOW, 30), Ok(()), "{id}");
                assert_eq!(proofs.enter(2, &good, NOW, 30), Err(InvalidProof::Replayed));
            }
        }
    }
}
