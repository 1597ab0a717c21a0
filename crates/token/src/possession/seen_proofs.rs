//! The proofs that were used: each counts once (RFC 9449 §11.1).

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use super::proof::MAX_AGE;
use super::{Digest, sha256};
use crate::invalid::InvalidProof;

/// The begin of the SHA-256 of a `jti`. Only the holder of the key could make two that share one, and
/// would lose by it.
type ProofId = [u8; 16];

/// Bounds on what is remembered: of all keys at most some 30 MB.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    proofs_of_a_key: usize,
    proofs: usize,
}

const BOUNDS: Bounds = Bounds {
    proofs_of_a_key: 100_000,
    proofs: 200_000,
};

/// The used proofs of all keys, for as long as they could be used again.
#[derive(Debug)]
pub struct SeenProofs {
    table: Mutex<Table>,
    bounds: Bounds,
}

impl Default for SeenProofs {
    fn default() -> Self {
        Self::bounded(BOUNDS)
    }
}

#[derive(Debug, Default)]
struct Table {
    by_key: HashMap<Digest, Used>,
    /// Which key holds how many, the largest last.
    by_count: BTreeSet<(usize, Digest)>,
    /// The ends of proofs, in seconds since the epoch and in their order, also of forgotten ones.
    ends: VecDeque<(i64, Digest, ProofId)>,
    /// The sum over all keys.
    count: usize,
}

#[derive(Debug, Default)]
struct Used {
    ids: HashSet<ProofId>,
    /// The end of a time in which all its proofs are rejected, because those before were forgotten.
    rejected_until: Option<i64>,
}

impl SeenProofs {
    fn bounded(bounds: Bounds) -> Self {
        Self {
            table: Mutex::default(),
            bounds,
        }
    }

    /// Enters a proof that was verified, with its token, at `now`. Once the table is full, those of the
    /// key that holds most are rejected, so that no flood shuts another key out.
    ///
    /// # Errors
    /// [`InvalidProof::Replayed`], [`InvalidProof::TooMany`].
    pub fn enter(
        &self,
        key: &Digest,
        id: &str,
        now: i64,
        leeway_seconds: u32,
    ) -> Result<(), InvalidProof> {
        // A proof of the near future counts until its own end.
        let end = now + MAX_AGE + i64::from(leeway_seconds);
        let digest = sha256(id.as_bytes());
        let id = digest.first_chunk().copied().unwrap_or_default();
        // Nothing panics while it is locked.
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.forget_ended(now);
        table.enter(self.bounds, *key, id, end)
    }
}

impl Table {
    fn enter(
        &mut self,
        bounds: Bounds,
        key: Digest,
        id: ProofId,
        end: i64,
    ) -> Result<(), InvalidProof> {
        let used = self.by_key.get(&key);
        if used.is_some_and(|used| used.ids.contains(&id)) {
            return Err(InvalidProof::Replayed);
        }
        let count = used.map_or(0, |used| used.ids.len());
        let is_rejected = used.is_some_and(|used| used.rejected_until.is_some());
        if is_rejected || count >= bounds.proofs_of_a_key {
            return Err(InvalidProof::TooMany);
        }
        if self.count >= bounds.proofs && !self.make_room(&key, end) {
            return Err(InvalidProof::TooMany);
        }
        self.by_count.remove(&(count, key));
        self.by_count.insert((count + 1, key));
        self.by_key.entry(key).or_default().ids.insert(id);
        self.count += 1;
        self.ends.push_back((end, key, id));
        // Not at each forgotten key: a walk through all ends takes long.
        if self.ends.len() > 2 * bounds.proofs {
            let by_key = &self.by_key;
            self.ends.retain(|(_, key, id)| {
                let used = by_key.get(key);
                used.is_some_and(|used| used.ids.contains(id))
            });
        }
        Ok(())
    }

    /// Forgets the proofs of the key that holds most, and rejects all of that key until they have
    /// ended. Returns false if no other key holds more than one.
    fn make_room(&mut self, requesting: &Digest, end: i64) -> bool {
        let Some((count, largest)) = self.by_count.last().copied() else {
            return false;
        };
        if count < 2 || largest == *requesting {
            return false;
        }
        self.by_count.remove(&(count, largest));
        self.count -= count - 1;
        // One entry stays, which ends that time.
        let mark = ProofId::default();
        let rejected = Used {
            ids: HashSet::from([mark]),
            rejected_until: Some(end),
        };
        self.by_key.insert(largest, rejected);
        self.ends.push_back((end, largest, mark));
        true
    }

    fn forget_ended(&mut self, now: i64) {
        while let Some((_, key, id)) = self.ends.pop_front_if(|(end, ..)| *end < now) {
            let Some(used) = self.by_key.get_mut(&key) else {
                continue;
            };
            let count = used.ids.len();
            if !used.ids.remove(&id) {
                continue;
            }
            self.count -= 1;
            self.by_count.remove(&(count, key));
            match used.ids.is_empty() {
                true => drop(self.by_key.remove(&key)),
                false => drop(self.by_count.insert((count - 1, key))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;
    const SMALL: Bounds = Bounds {
        proofs_of_a_key: 6,
        proofs: 10,
    };

    fn key(name: u8) -> Digest {
        sha256(&[name])
    }

    /// Returns the number of keys, of keys that are not rejected, and of proofs.
    fn held(proofs: &SeenProofs) -> [usize; 3] {
        let table = proofs.table.lock().unwrap_or_else(PoisonError::into_inner);
        assert!((table.count..=2 * table.count.max(SMALL.proofs)).contains(&table.ends.len()));
        [table.by_key.len(), table.by_count.len(), table.count]
    }

    #[test]
    fn a_proof_counts_once_while_it_could_be_used() {
        let proofs = SeenProofs::default();
        let enter = |key: &Digest, id, now| proofs.enter(key, id, now, 30);
        assert_eq!(enter(&key(1), "a", NOW), Ok(()));
        assert_eq!(enter(&key(1), "a", NOW), Err(InvalidProof::Replayed));
        assert_eq!(enter(&key(1), "b", NOW), Ok(()));
        assert_eq!(enter(&key(2), "a", NOW), Ok(()));
        assert_eq!(enter(&key(1), "a", NOW + 90), Err(InvalidProof::Replayed));
        // By then its `iat` is too old, even if it was of the future.
        assert_eq!(enter(&key(1), "a", NOW + 91), Ok(()));
        assert_eq!(held(&proofs), [1, 1, 1]);
        // A clock that is set back forgets nothing.
        assert_eq!(enter(&key(1), "a", NOW), Err(InvalidProof::Replayed));
    }

    #[test]
    fn a_flood_of_one_key_shuts_no_other_out() {
        let proofs = SeenProofs::bounded(SMALL);
        let enter = |name, id: &str, now| proofs.enter(&key(name), id, now, 0);
        for id in 0..6 {
            assert_eq!(enter(1, &format!("{id}"), NOW), Ok(()));
        }
        assert_eq!(enter(1, "more", NOW), Err(InvalidProof::TooMany));
        for name in 2..=5 {
            assert_eq!(enter(name, "a", NOW), Ok(()));
        }
        // The table is full. The first key gives way, and is rejected: its proofs are forgotten.
        assert_eq!(enter(6, "a", NOW + 1), Ok(()));
        assert_eq!(enter(1, "0", NOW + 1), Err(InvalidProof::TooMany));
        assert_eq!(enter(2, "a", NOW + 1), Err(InvalidProof::Replayed));
        assert_eq!(enter(1, "0", NOW + 61), Err(InvalidProof::TooMany));
        assert_eq!(enter(1, "0", NOW + 62), Ok(()));
        assert_eq!(held(&proofs), [1, 1, 1]);
    }

    #[test]
    fn many_keys_hold_no_more_than_the_bound() {
        let proofs = SeenProofs::bounded(SMALL);
        for name in 0..200 {
            let _ = proofs.enter(&key(name), "a", NOW, 0);
            let _ = proofs.enter(&key(name), "b", NOW, 0);
            assert!(held(&proofs).iter().all(|held| *held <= SMALL.proofs));
        }
        assert_eq!(proofs.enter(&key(201), "a", NOW + 61, 0), Ok(()));
        assert_eq!(held(&proofs), [1, 1, 1]);
    }
}
