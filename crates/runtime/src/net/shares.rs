//! Fair shares of request permits, or of bytes. One holder alone gets four fifths and never all;
//! each further one gets four fifths of the rest.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use super::client_prefix::ClientPrefix;

/// No holder may have more than this multiple of what is free.
const MULTIPLE_OF_FREE: usize = 4;

/// A user, an application or an address, as a keyed hash: no client can look like another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holder(u64);

impl Holder {
    /// Returns the holder for a user or an application, by its issuer and its subject.
    pub fn verified(issuer: Option<&str>, subject: &str) -> Self {
        Self::of((issuer, subject))
    }

    /// Returns the holder for an address, or its /64.
    pub fn at(address: Option<IpAddr>) -> Self {
        Self::of(address.map(ClientPrefix::client))
    }

    /// Returns the holder for one connection of a client, by its number, or for one client of a proxy.
    pub fn on_connection(number: u64, address: Option<IpAddr>) -> Self {
        Self::of((number, address))
    }

    fn of(identity: impl Hash) -> Self {
        static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(KEYS.hash_one(identity))
    }
}

/// An amount of which each holder may take a share. Clones share it.
#[derive(Debug, Clone)]
pub struct Shares(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    free: usize,
    /// Without those that hold nothing.
    held: HashMap<Holder, usize, BuildHasherDefault<AsItIs>>,
}

/// The hash of a holder, which is one already.
#[derive(Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A part of a holder's share, given back on drop.
#[derive(Debug)]
pub struct Share {
    of: Shares,
    holder: Holder,
    amount: usize,
}

impl Shares {
    /// Makes this amount free to take.
    pub fn of(amount: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: amount,
            held: HashMap::default(),
        })))
    }

    /// Takes a permit; `None` if all are taken or the holder has its share.
    pub fn take(&self, holder: Holder) -> Option<Share> {
        let mut permit = self.nothing_for(holder);
        permit.set(1).then_some(permit)
    }

    /// Returns an empty part, which may grow.
    pub fn nothing_for(&self, holder: Holder) -> Share {
        Share {
            of: self.clone(),
            holder,
            amount: 0,
        }
    }

    /// Returns the amount that is not held.
    pub fn free(&self) -> usize {
        self.0.lock().free
    }
}

impl Share {
    /// Takes or gives back the difference to `amount`; returns false, and changes nothing, if the
    /// holder may not take as much.
    pub fn set(&mut self, amount: usize) -> bool {
        let is_set =
            amount == self.amount || self.of.0.lock().change(self.holder, self.amount, amount);
        if is_set {
            self.amount = amount;
        }
        is_set
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl State {
    /// Changes a part that a holder has.
    fn change(&mut self, holder: Holder, from: usize, to: usize) -> bool {
        let entry = self.held.entry(holder);
        let before = match &entry {
            Entry::Occupied(held) => *held.get(),
            Entry::Vacant(_) => 0,
        };
        let Some(free) = (self.free + from).checked_sub(to) else {
            return false;
        };
        let held = before - from + to;
        if to > from && exceeds_its_share(before, held, free) {
            return false;
        }
        self.free = free;
        match entry {
            Entry::Occupied(entry) if held == 0 => {
                entry.remove();
            }
            Entry::Occupied(mut entry) => *entry.get_mut() = held,
            Entry::Vacant(entry) => {
                entry.insert(held);
            }
        }
        true
    }
}

/// Returns true for a holder that may not hold as much while so much would be `free`. The last
/// permit is for a holder of none.
pub(super) const fn exceeds_its_share(before: usize, held: usize, free: usize) -> bool {
    before > 0 && held > free.saturating_mul(MULTIPLE_OF_FREE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: &str) -> Holder {
        Holder::verified(None, id)
    }

    fn take_all(shares: &Shares, holder: Holder) -> Vec<Share> {
        std::iter::from_fn(|| shares.take(holder)).collect()
    }

    #[test]
    fn one_alone_gets_four_fifths_and_another_as_much_of_the_rest() {
        for (permits, holders) in [
            (0, &[0][..]),
            (1, &[1, 0]),
            (2, &[1, 1, 0]),
            (4, &[3, 1, 0]),
            (5, &[4, 1, 0]),
            (200, &[160, 32, 6, 1, 1, 0]),
            (16_384, &[13_107, 2_621, 524, 105, 21, 4, 1, 1, 0]),
        ] {
            let shares = Shares::of(permits);
            let ids = (0..holders.len()).map(|number| number.to_string());
            let taken: Vec<_> = ids.map(|id| take_all(&shares, user(&id))).collect();
            let counts: Vec<_> = taken.iter().map(Vec::len).collect();
            assert_eq!(counts, holders, "{permits}");
            drop(taken);
            assert_eq!(shares.free(), permits);
            assert!(shares.0.lock().held.is_empty());
        }
    }

    #[test]
    fn a_holder_with_its_share_gets_more_once_more_is_free() {
        let shares = Shares::of(10);
        let (mut first, second) = (take_all(&shares, user("1")), shares.take(user("2")));
        assert_eq!((first.len(), second.is_some()), (8, true));
        assert!(shares.take(user("1")).is_none());
        first.truncate(2);
        assert!(shares.take(user("1")).is_some());
    }

    #[test]
    fn a_part_of_bytes_grows_within_the_share_and_shrinks() {
        let shares = Shares::of(100);
        let (mut one, mut other) = (shares.nothing_for(user("1")), shares.nothing_for(user("1")));
        assert!(one.set(40) && other.set(40));
        assert!(!one.set(41));
        assert!(one.set(10) && other.set(70));
        let mut other_user = shares.nothing_for(user("2"));
        assert!(!other_user.set(21) && other_user.set(16));
        drop((one, other));
        assert_eq!(shares.free(), 84);
    }

    #[test]
    fn a_holder_is_an_identity_of_an_issuer_an_address_or_a_64() {
        let at = |address: &str| Holder::at(address.parse().ok());
        for (one, other, is_same) in [
            (at("192.0.2.1"), at("::ffff:192.0.2.1"), true),
            (at("192.0.2.1"), at("192.0.2.2"), false),
            (at("2001:db8::1"), at("2001:db8::2"), true),
            (at("2001:db8::1"), at("2001:db8:0:1::1"), false),
            (user("1"), Holder::verified(None, "1"), true),
            (user("1"), Holder::verified(Some("a"), "1"), false),
            (
                Holder::verified(Some("a"), "b1"),
                Holder::verified(Some("ab"), "1"),
                false,
            ),
        ] {
            assert_eq!(one == other, is_same, "{one:?} {other:?}");
        }
    }
}
