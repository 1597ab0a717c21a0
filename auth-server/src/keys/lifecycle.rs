//! What to do about the key pair after a look into the store, and when to look again. Decisions
//! only; `upkeep` acts.

use std::time::Duration;

use contract::signing_type::SigningType;

use super::StoredKeyPair;
use super::key_pair::{KeyPairFault, SigningKeyPair};

/// The one thing to do next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Memory and store agree.
    Keep,
    /// The store holds another valid pair than memory: the store's counts.
    Adopt(Box<SigningKeyPair>),
    /// The store lost the pair (FLUSHALL, failover): it gets back the one in memory.
    Reinstall(StoredKeyPair),
    /// There is no pair anywhere yet.
    Generate,
}

/// Contract §1: a whole pair in the store is loaded, a missing half means a new pair; but a server
/// that has a pair puts that one back rather than invalidating every token in use.
///
/// # Errors
/// A stored pair that cannot be used. It is never overwritten, and memory keeps what it has.
pub(crate) fn next_step(
    signing_type: SigningType,
    memory: Option<&SigningKeyPair>,
    stored: Option<StoredKeyPair>,
) -> Result<Step, KeyPairFault> {
    match (memory, stored) {
        (None, None) => Ok(Step::Generate),
        (Some(pair), None) => Ok(Step::Reinstall(pair.stored().clone())),
        (Some(pair), Some(stored)) if *pair.stored() == stored => Ok(Step::Keep),
        (_, Some(stored)) => SigningKeyPair::parse(signing_type, stored)
            .map(Box::new)
            .map(Step::Adopt),
    }
}

/// Short enough that a login is refused for hardly longer than the store is away.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// The pause before the next look: the re-read period, or after failures in a row an exponential
/// back-off that is never longer. `jitter` (0.0 ..= 1.0) takes away up to half of it, so that the
/// servers of one store do not all come back at the same moment.
pub(crate) fn next_look(reread: Duration, failures: u32, jitter: f64) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else {
        return reread;
    };
    // Twenty doublings are past every cap and far from an overflow.
    let delay = FIRST_RETRY
        .saturating_mul(1 << doublings.min(20))
        .min(LONGEST_RETRY)
        .min(reread);
    delay.mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::super::key_pair::tests::pair;
    use super::*;

    const TYPE: SigningType = SigningType::Ecdsa;

    fn step(memory: Option<&SigningKeyPair>, stored: Option<&SigningKeyPair>) -> Step {
        next_step(TYPE, memory, stored.map(|pair| pair.stored().clone())).unwrap()
    }

    #[test]
    fn contract_1_an_empty_store_gets_a_new_pair_and_a_full_one_is_loaded() {
        assert!(matches!(step(None, None), Step::Generate));
        let theirs = pair(TYPE);
        assert!(matches!(step(None, Some(&theirs)), Step::Adopt(pair) if pair.id() == theirs.id()));
    }

    #[test]
    fn a_pair_in_memory_is_kept_put_back_or_replaced_by_the_store_s() {
        let (mine, theirs) = (pair(TYPE), pair(TYPE));
        assert!(matches!(step(Some(&mine), Some(&mine)), Step::Keep));
        assert!(matches!(step(Some(&mine), None), Step::Reinstall(pair) if pair == *mine.stored()));
        assert!(
            matches!(step(Some(&mine), Some(&theirs)), Step::Adopt(pair) if pair.id() == theirs.id())
        );
    }

    #[test]
    fn an_unusable_pair_in_the_store_is_a_fault_whatever_memory_holds() {
        let (mine, theirs) = (pair(TYPE), pair(TYPE));
        let mixed = StoredKeyPair {
            private: mine.stored().private.clone(),
            public: theirs.stored().public.clone(),
        };
        for memory in [None, Some(&mine)] {
            let fault = next_step(TYPE, memory, Some(mixed.clone())).unwrap_err();
            assert_eq!(fault, KeyPairFault::Mismatch);
        }
    }

    #[test]
    fn failures_are_retried_soon_then_ever_later_and_never_later_than_the_re_read() {
        let reread = Duration::from_secs(30);
        let delays: Vec<_> = (0..8)
            .map(|n| next_look(reread, n, 0.0).as_millis())
            .collect();
        assert_eq!(delays, [30_000, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(next_look(reread, u32::MAX, 0.0), LONGEST_RETRY);
        assert_eq!(
            next_look(Duration::from_secs(1), 9, 0.0),
            Duration::from_secs(1)
        );
    }

    #[test]
    fn jitter_takes_away_up_to_half() {
        let reread = Duration::from_secs(30);
        assert_eq!(next_look(reread, 2, 1.0), Duration::from_millis(200));
        assert_eq!(next_look(reread, 2, 0.5), Duration::from_millis(300));
    }
}
