//! Fair shares of request permits, or of bytes. One holder alone gets four fifths of the amount and never all
//! of it; each further holder gets four fifths of the rest.

mod queue;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use self::queue::{Position, Queue};
use super::client_prefix::ClientPrefix;

/// No holder may have more than this multiple of the free amount.
const MULTIPLE_OF_FREE: usize = 4;
/// Longest wait for a permit: a client notices a longer wait, and may well try again after a rejection.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// A user, an application or an address, as a keyed hash: no client can have the hash of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(u64);

impl Holder {
    /// Returns the holder for a user or an application, by its issuer and its subject.
    pub fn verified(issuer: Option<&str>, subject: &str) -> Self {
        Self::for_identity((issuer, subject))
    }

    /// Returns the holder for an address, or its /64.
    pub fn for_address(address: Option<IpAddr>) -> Self {
        Self::for_identity(address.map(ClientPrefix::client))
    }

    /// Returns the holder for one connection of a client, by its number, or for one client of a proxy.
    pub fn on_connection(number: u64, address: Option<IpAddr>) -> Self {
        Self::for_identity((number, address))
    }

    fn for_identity(identity: impl Hash) -> Self {
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
    /// The amounts that are held, without entries of holders of nothing.
    held: HashMap<Holder, usize, BuildHasherDefault<AsItIs>>,
    /// Requests whose holder held nothing on arrival, and for which there is no permit at present.
    waiting: Queue<oneshot::Sender<Share>>,
}

/// The hasher of a holder, which is a hash already.
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

/// A part of a holder's share, which is given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    of: Shares,
    holder: Holder,
    amount: usize,
}

impl Shares {
    /// Creates an amount that is free to take.
    pub fn new(amount: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: amount,
            held: HashMap::default(),
            waiting: Queue::default(),
        })))
    }

    /// Takes a permit; `None` if the holder has its share. A holder without a permit waits a moment for one,
    /// in turn with others, and leaves the queue when the future is dropped.
    pub async fn take(&self, holder: Holder) -> Option<Share> {
        let mut permit = self.nothing_for(holder);
        // One lock from the try to the queue: a permit that is given back in between is not missed.
        let (position, granted) = {
            let mut state = self.0.lock();
            if state.change(holder, 0, 1) {
                permit.amount = 1;
                return Some(permit);
            }
            // A holder that has permits already does not wait.
            if state.held.contains_key(&holder) {
                return None;
            }
            let (grant, granted) = oneshot::channel();
            (state.waiting.join(holder, grant)?, granted)
        };
        let _waiting = Waiting { of: self, position };
        // The channel breaks where an earlier turn takes this position in a full queue.
        timeout(MAX_WAIT, granted).await.ok()?.ok()
    }

    /// Returns an empty part of the holder's share, which may grow.
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
        // Without a change no lock is taken, and no waiting request gets a turn.
        if amount == self.amount {
            return true;
        }
        let mut state = self.of.0.lock();
        if !state.change(self.holder, self.amount, amount) {
            return false;
        }
        self.amount = amount;
        let granted = state.grant();
        // A permit whose receiver has left is given back, which takes the lock again.
        drop(state);
        for (holder, grant) in granted {
            let permit = Self {
                of: self.of.clone(),
                holder,
                amount: 1,
            };
            // Without a receiver the permit is dropped, which gives it back.
            let _ = grant.send(permit);
        }
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A position in the queue, which is left when this is dropped.
struct Waiting<'s> {
    of: &'s Shares,
    position: Position,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.of.0.lock().waiting.leave(self.position);
    }
}

impl State {
    /// Takes a permit for each waiting request that may have one now.
    fn grant(&mut self) -> Vec<(Holder, oneshot::Sender<Share>)> {
        let next = || {
            let free = self.free.checked_sub(1)?;
            let held = |holder| self.held.get(&holder).copied().unwrap_or_default();
            // A holder may have got permits since its request arrived.
            let may_take = |holder| !exceeds_its_share(held(holder), held(holder) + 1, free);
            let (holder, grant) = self.waiting.next(may_take)?;
            self.change(holder, 0, 1).then_some((holder, grant))
        };
        std::iter::from_fn(next).collect()
    }

    /// Changes a part of a holder's share; returns false, without a change, if the share would be too large.
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
        // Checked only for a larger part: giving back is always possible.
        if to > from && exceeds_its_share(before, held, free) {
            return false;
        }
        self.free = free;
        // An entry without an amount is removed: for `take` an entry means that the holder has permits.
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

    fn take(shares: &Shares, holder: Holder) -> Option<Share> {
        let mut permit = shares.nothing_for(holder);
        permit.set(1).then_some(permit)
    }

    fn take_all(shares: &Shares, holder: Holder) -> Vec<Share> {
        std::iter::from_fn(|| take(shares, holder)).collect()
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
            let shares = Shares::new(permits);
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
        let shares = Shares::new(10);
        let (mut first, second) = (take_all(&shares, user("1")), take(&shares, user("2")));
        assert_eq!((first.len(), second.is_some()), (8, true));
        assert!(take(&shares, user("1")).is_none());
        first.truncate(2);
        assert!(take(&shares, user("1")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_of_nothing_alone_waits_for_the_next_permit() {
        let shares = Shares::new(2);
        let (first, second) = (take(&shares, user("1")), take(&shares, user("2")));
        assert!(first.is_some() && shares.take(user("1")).await.is_none());
        let started = tokio::time::Instant::now();
        let (third, fourth, again) =
            tokio::join!(shares.take(user("3")), shares.take(user("4")), async {
                drop(first);
                // The permit is taken already, by one that waits.
                (take(&shares, user("5")), drop(second))
            });
        assert!(third.is_some() && fourth.is_some() && again.0.is_none());
        assert!(started.elapsed().is_zero());
        assert!(shares.take(user("5")).await.is_none());
        assert_eq!(started.elapsed(), MAX_WAIT);
        drop((third, fourth));
        assert_eq!(shares.free(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_second_request_of_a_waiting_holder_obeys_the_share() {
        let shares = Shares::new(5);
        let mut taken = take_all(&shares, user("1"));
        taken.extend(take(&shares, user("2")));
        let (one, other) = (shares.take(user("3")), shares.take(user("3")));
        let (one, other, ()) = tokio::join!(one, other, async {
            taken.pop();
            tokio::task::yield_now().await;
            // Two of the holder need one that stays free.
            taken.pop();
            assert_eq!(shares.free(), 1);
            taken.pop();
        });
        assert!(one.is_some() && other.is_some());
        assert_eq!(shares.free(), 1);
    }

    /// Each way to stop waiting: the client leaves, the time is over, or both meet the permit.
    #[tokio::test(start_paused = true)]
    async fn no_permit_is_lost_with_those_that_wait() {
        let shares = Shares::new(1);
        for round in 0..200_u64 {
            let mut held = take(&shares, user("holder"));
            assert!(held.is_some(), "{round}");
            let mut waiting = tokio::task::JoinSet::new();
            for number in 0..round % 7 {
                let (shares, holder) = (shares.clone(), user(&number.to_string()));
                waiting.spawn(async move { shares.take(holder).await.is_some() });
            }
            tokio::time::sleep(MAX_WAIT * (round % 3) as u32 / 2).await;
            if round % 2 == 0 {
                held = None;
            }
            if round % 5 == 0 {
                waiting.abort_all();
            }
            drop(held);
            while let Some(ended) = waiting.join_next().await {
                let is_granted = ended.unwrap_or(false);
                assert!(is_granted || round % 3 == 2 || round % 5 == 0, "{round}");
            }
            assert_eq!(shares.free(), 1, "{round}");
            assert!(shares.0.lock().held.is_empty(), "{round}");
        }
    }

    #[test]
    fn a_part_of_bytes_grows_within_the_share_and_shrinks() {
        let shares = Shares::new(100);
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
        let at = |address: &str| Holder::for_address(address.parse().ok());
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
