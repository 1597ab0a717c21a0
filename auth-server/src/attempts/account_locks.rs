//! The soft lock-out of accounts, whether or not there is such an account.
//!
//! Failures are counted per account, wherever they come from. Only a client that has logged in as
//! this account before is counted apart: so nobody keeps a user out by failing in his name.

use std::fmt;
use std::hash::RandomState;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use lru::LruCache;

use super::client::Client;
use super::failures::Failures;
use super::{MAX_ENTRIES, TooSoon};

/// A digest in the place of the name: it is as short as every other, and nobody finds in memory what
/// somebody typed into the wrong field.
type Name = [u8; SHA256_OUTPUT_LEN];
type Table<V> = LruCache<Name, V, RandomState>;

/// An attempt that was let through and has not ended yet.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// Under which its failure counts.
    name: Name,
    /// Account and client, known from its success on.
    owner: Name,
    /// Whether it stands among the failures already.
    is_counted: bool,
}

/// The failures in a row.
pub(crate) struct AccountLocks(Mutex<Tables>);

struct Tables {
    /// By account, or by account and client where that one is known.
    failures: Table<Failures>,
    /// Account and client of logins that succeeded.
    known: Table<()>,
}

impl fmt::Debug for AccountLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountLocks")
    }
}

impl AccountLocks {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Tables {
            failures: LruCache::with_hasher(MAX_ENTRIES, RandomState::new()),
            known: LruCache::with_hasher(MAX_ENTRIES, RandomState::new()),
        }))
    }

    /// # Errors
    /// [`TooSoon`] within the delay after the last failure. That an attempt was refused here does
    /// not count as another failure: nobody can keep a lock shut by knocking.
    pub(crate) fn check(&self, account: &str, client: IpAddr, now: Instant) -> Result<(), TooSoon> {
        let mut tables = self.tables();
        let name = tables.name(account, client);
        tables
            .failures
            .peek(&name)
            .map_or(Ok(()), |failures| failures.check(now))
    }

    /// Begins an attempt. After a failure it counts as another one until it turns out right: however
    /// many begin at once, one of them is judged. Before the first failure nobody has to wait for
    /// anybody, so that an account may log in from many places at the same moment.
    ///
    /// # Errors
    /// As [`AccountLocks::check`].
    pub(crate) fn begin(
        &self,
        account: &str,
        client: IpAddr,
        now: Instant,
    ) -> Result<Attempt, TooSoon> {
        let mut tables = self.tables();
        let name = tables.name(account, client);
        let former = tables.failures.peek(&name).copied();
        if let Some(failures) = former {
            failures.check(now)?;
            tables.failures.put(name, Failures::after(former, now));
        }
        Ok(Attempt {
            name,
            owner: name_of(account, Some(client)),
            is_counted: former.is_some(),
        })
    }

    pub(crate) fn failed(&self, attempt: &Attempt, now: Instant) {
        if attempt.is_counted {
            return;
        }
        let mut tables = self.tables();
        let former = tables.failures.peek(&attempt.name).copied();
        tables
            .failures
            .put(attempt.name, Failures::after(former, now));
    }

    pub(crate) fn succeeded(&self, attempt: &Attempt) {
        let mut tables = self.tables();
        tables.failures.pop(&attempt.name);
        tables.known.put(attempt.owner, ());
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // Every step leaves valid tables: a panic elsewhere is no reason to refuse all logins.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    /// Under which failures are counted.
    fn name(&mut self, account: &str, client: IpAddr) -> Name {
        let known = name_of(account, Some(client));
        match self.known.get(&known) {
            Some(()) => known,
            None => name_of(account, None),
        }
    }
}

fn name_of(account: &str, client: Option<IpAddr>) -> Name {
    let mut digest = Context::new(&SHA256);
    // In front and of a fixed length: no account can be written so that it looks like it.
    match client {
        Some(client) => {
            digest.update(&[1]);
            digest.update(&Client::from(client).to_bytes());
        }
        None => digest.update(&[0]),
    }
    digest.update(account.as_bytes());
    let mut name = [0; SHA256_OUTPUT_LEN];
    name.copy_from_slice(digest.finish().as_ref());
    name
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    impl AccountLocks {
        fn fail(&self, account: &str, client: IpAddr, now: Instant) {
            self.failed(&uncounted(account, client, self), now);
        }

        fn succeed(&self, account: &str, client: IpAddr) {
            self.succeeded(&uncounted(account, client, self));
        }
    }

    /// Of many that began at the same moment.
    fn uncounted(account: &str, client: IpAddr, locks: &AccountLocks) -> Attempt {
        Attempt {
            name: locks.tables().name(account, client),
            owner: name_of(account, Some(client)),
            is_counted: false,
        }
    }

    const SECOND: Duration = Duration::from_secs(1);
    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

    #[test]
    fn a_failure_locks_its_own_account_for_a_while_and_a_success_forgets_it() {
        let (locks, now) = (AccountLocks::new(), Instant::now());
        locks.fail("ada", HOME, now);
        assert_eq!(locks.check("ada", HOME, now), Err(TooSoon(SECOND)));
        assert_eq!(locks.check("bob", HOME, now), Ok(()));
        assert_eq!(locks.check("ada", HOME, now + SECOND), Ok(()));

        locks.fail("ada", HOME, now + SECOND);
        locks.succeed("ada", HOME);
        assert_eq!(locks.check("ada", HOME, now + SECOND), Ok(()));
        locks.fail("ada", HOME, now + SECOND);
        let again = locks.check("ada", HOME, now + SECOND);
        assert_eq!(again, Err(TooSoon(SECOND)), "the row began anew");
    }

    #[test]
    fn many_clients_share_the_failures_of_an_account() {
        let (locks, now) = (AccountLocks::new(), Instant::now());
        locks.fail("ada", ELSEWHERE, now);
        locks.fail("ada", HOME, now);
        for client in [HOME, ELSEWHERE] {
            assert_eq!(locks.check("ada", client, now), Err(TooSoon(3 * SECOND)));
        }
    }

    #[test]
    fn a_client_that_has_logged_in_before_is_not_kept_out_by_strangers() {
        let (locks, now) = (AccountLocks::new(), Instant::now());
        locks.succeed("ada", HOME);
        for _ in 0..10 {
            locks.fail("ada", ELSEWHERE, now);
        }
        assert!(locks.check("ada", ELSEWHERE, now).is_err());
        assert_eq!(locks.check("ada", HOME, now), Ok(()));

        locks.fail("ada", HOME, now);
        assert_eq!(locks.check("ada", HOME, now), Err(TooSoon(SECOND)));
        locks.succeed("ada", HOME);
        let strangers = locks.check("ada", ELSEWHERE, now);
        assert!(strangers.is_err(), "her success is not theirs");
    }

    #[test]
    fn after_a_failure_attempts_at_once_are_one() {
        let (locks, now) = (AccountLocks::new(), Instant::now());
        let first = locks.begin("ada", HOME, now).unwrap();
        let beside = locks.begin("ada", HOME, now).unwrap();
        locks.failed(&first, now);
        locks.failed(&beside, now);
        let now = now + 3 * SECOND;
        let second = locks.begin("ada", HOME, now).unwrap();
        for client in [HOME, ELSEWHERE] {
            let others = locks.begin("ada", client, now).err();
            assert_eq!(others, Some(TooSoon(5 * SECOND)));
        }
        locks.failed(&second, now);
        assert_eq!(locks.check("ada", HOME, now), Err(TooSoon(5 * SECOND)));
    }

    #[test]
    fn a_right_one_takes_back_that_it_was_counted() {
        let (locks, now) = (AccountLocks::new(), Instant::now());
        locks.fail("ada", HOME, now);
        let now = now + SECOND;
        let right = locks.begin("ada", HOME, now).unwrap();
        assert!(locks.begin("ada", HOME, now).is_err());
        locks.succeeded(&right);
        assert!(locks.begin("ada", HOME, now).is_ok());
    }

    #[test]
    fn knocking_at_a_locked_account_does_not_prolong_the_lock() {
        let (locks, start) = (AccountLocks::new(), Instant::now());
        locks.fail("ada", HOME, start);
        for millisecond in 0..1000 {
            let now = start + Duration::from_millis(millisecond);
            assert!(locks.check("ada", HOME, now).is_err());
        }
        assert_eq!(locks.check("ada", HOME, start + SECOND), Ok(()));
    }

    #[test]
    fn a_flood_of_invented_names_takes_bounded_memory() {
        let (locks, now) = (AccountLocks::new(), Instant::now());
        for n in 0..MAX_ENTRIES.get() + 1000 {
            locks.fail(&n.to_string(), HOME, now);
        }
        assert_eq!(locks.tables().failures.len(), MAX_ENTRIES.get());
    }
}
