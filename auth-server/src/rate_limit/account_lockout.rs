//! Limits guesses at the password of an account, existing or not.
//!
//! - **One address, one account**: the wait grows with each failure, up to a minute: some 1440
//!   guesses a day. Only that client waits.
//! - **Many addresses, one account**: a network has three free failures. After that all such
//!   networks together have one attempt a second: 86 400 a day, and three for each network.
//! - **The attacked user** is not rejected for failures elsewhere, unless there were three failures
//!   from the same network; from a client that has logged in before, not even then. A guesser
//!   behind the user's own address shares its waits with the user.
//!
//! One address guessing many accounts is limited by [`super::AddressLimit`]. The state belongs to
//! one process and is lost with it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use parking_lot::Mutex;
use postern_transport::net::client_prefix::ClientPrefix;

use super::failed_attempts::Failures;
use super::{Rate, RetryAfter, Table, TokenBucket, table};

/// Typing errors that a user may make while others guess elsewhere.
const FREE_FAILURES_PER_NETWORK: usize = 3;
/// Rate that all networks with more failures share. One address has one attempt a minute, so it
/// takes sixty addresses to use it up.
const SHARED_RATE: Rate = Rate {
    burst: 60,
    every: Duration::from_secs(1),
};

/// A digest in place of the account's name: it has a fixed length, and is safe to keep if a password was
/// typed as a name.
type Name = [u8; SHA256_OUTPUT_LEN];

/// Keys of one attempt: the account alone, with the network, and with the client.
#[derive(Debug, Clone, Copy)]
struct Names {
    account: Name,
    at_network: Name,
    at_client: Name,
}

#[derive(Debug)]
pub(crate) struct Attempt {
    names: Names,
    /// True once the attempt is counted among the failures of its client.
    is_counted: bool,
}

pub(crate) struct AccountLockout(Mutex<Tables>);

struct Tables {
    by_client: Table<Name, Failures>,
    by_network: Table<Name, Failures>,
    /// The bucket of each account, which the networks share that failed too often.
    buckets: Table<Name, TokenBucket>,
    /// Clients from which the account has logged in.
    known: Table<Name, ()>,
}

impl AccountLockout {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Tables {
            by_client: table(),
            by_network: table(),
            buckets: table(),
            known: table(),
        }))
    }

    /// Checks for an attempt without counting it.
    ///
    /// # Errors
    /// [`RetryAfter`] within the wait after a failure. A rejected attempt does not prolong the
    /// wait.
    pub(crate) fn check(
        &self,
        account: &str,
        client: IpAddr,
        now: Instant,
    ) -> Result<(), RetryAfter> {
        let names = Names::new(account, client);
        self.0.lock().check(&names, now).map(drop)
    }

    /// Returns true for a client from which the account has logged in.
    pub(crate) fn knows(&self, account: &str, client: IpAddr) -> bool {
        let names = Names::new(account, client);
        self.0.lock().known.contains(&names.at_client)
    }

    /// Begins an attempt. After a failure of its client the attempt counts as a failure until it succeeds, so
    /// that only one of many simultaneous guesses is verified; before the first failure any number may run at
    /// once.
    ///
    /// # Errors
    /// As [`AccountLockout::check`].
    pub(crate) fn begin(
        &self,
        account: &str,
        client: IpAddr,
        now: Instant,
    ) -> Result<Attempt, RetryAfter> {
        let names = Names::new(account, client);
        let mut tables = self.0.lock();
        // One lock for the check and the count: no other attempt is checked in between.
        if let Some(bucket) = tables.check(&names, now)? {
            tables.buckets.put(names.account, bucket);
        }
        // From the second try on the failure counts before the hash is computed: else many
        // simultaneous guesses would all be free.
        let is_counted = tables.by_client.contains(&names.at_client);
        if is_counted {
            count(&mut tables.by_client, names.at_client, now);
        }
        Ok(Attempt { names, is_counted })
    }

    pub(crate) fn failed(&self, attempt: &Attempt, now: Instant) {
        let mut tables = self.0.lock();
        if !attempt.is_counted {
            count(&mut tables.by_client, attempt.names.at_client, now);
        }
        // Counted here and not at the start, because success does not clear the failures of a network.
        count(&mut tables.by_network, attempt.names.at_network, now);
    }

    /// Clears the client's failures; the network's failures stay, as other clients in it may be guessing.
    pub(crate) fn succeeded(&self, attempt: &Attempt) {
        let mut tables = self.0.lock();
        tables.by_client.pop(&attempt.names.at_client);
        tables.known.put(attempt.names.at_client, ());
    }
}

fn count(failures: &mut Table<Name, Failures>, name: Name, now: Instant) {
    failures.put(name, Failures::after(failures.peek(&name).copied(), now));
}

impl Tables {
    /// Checks an attempt, and returns the account's bucket after it if the shared rate applies.
    fn check(&mut self, names: &Names, now: Instant) -> Result<Option<TokenBucket>, RetryAfter> {
        // The client's own wait first: an attempt that it rejects takes no token of the shared bucket.
        if let Some(failures) = self.by_client.peek(&names.at_client) {
            failures.check(now)?;
        }
        if !self.is_throttled(names, now) {
            return Ok(None);
        }
        // A copy of the bucket, which `begin` puts back: a mere check takes no token.
        let mut bucket = match self.buckets.peek(&names.account) {
            Some(bucket) => *bucket,
            None => TokenBucket::full(now),
        };
        bucket.take(SHARED_RATE, now)?;
        Ok(Some(bucket))
    }

    fn is_throttled(&mut self, names: &Names, now: Instant) -> bool {
        let failed_here = match self.by_network.peek(&names.at_network) {
            Some(failures) => failures.in_a_row(now),
            None => 0,
        };
        // `get`, not `peek`: a known client that needs its entry keeps it from being evicted.
        failed_here >= FREE_FAILURES_PER_NETWORK && self.known.get(&names.at_client).is_none()
    }
}

impl Names {
    fn new(account: &str, client: IpAddr) -> Self {
        Self {
            account: name_of(account, 0, None),
            at_network: name_of(account, 1, Some(ClientPrefix::network(client))),
            at_client: name_of(account, 2, Some(ClientPrefix::client(client))),
        }
    }
}

fn name_of(account: &str, kind: u8, source: Option<ClientPrefix>) -> Name {
    let mut digest = Context::new(&SHA256);
    // A prefix of fixed length: no account name can imitate it.
    digest.update(&[kind]);
    if let Some(source) = source {
        digest.update(&source.to_bytes());
    }
    digest.update(account.as_bytes());
    let mut name = [0; SHA256_OUTPUT_LEN];
    name.copy_from_slice(digest.finish().as_ref());
    name
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::super::MAX_ENTRIES;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: u32 = 60 * 60;
    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const NEXT_DOOR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
    const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

    impl AccountLockout {
        /// Makes an attempt with a wrong password; true if it was verified.
        fn guess(&self, account: &str, client: IpAddr, now: Instant) -> bool {
            let attempt = self.begin(account, client, now);
            attempt.is_ok_and(|attempt| {
                self.failed(&attempt, now);
                true
            })
        }

        /// Makes an attempt with the right password.
        fn log_in(&self, account: &str, client: IpAddr, now: Instant) -> Result<(), RetryAfter> {
            self.check(account, client, now)?;
            let attempt = self.begin(account, client, now)?;
            self.succeeded(&attempt);
            Ok(())
        }

        /// Guesses at `ada` from each client once a second, and counts the verified guesses.
        fn attack(&self, clients: &[IpAddr], start: Instant, seconds: u32) -> usize {
            let knocks = (0..seconds).flat_map(|second| {
                clients
                    .iter()
                    .map(move |client| (client, start + second * SECOND))
            });
            knocks
                .filter(|(client, now)| self.guess("ada", **client, *now))
                .count()
        }
    }

    /// Returns addresses, 256 to a network.
    fn neighbours(count: u32) -> Vec<IpAddr> {
        let first = Ipv4Addr::new(10, 0, 0, 0).to_bits();
        (0..count)
            .map(|n| Ipv4Addr::from_bits(first + n).into())
            .collect()
    }

    /// Returns addresses, each in a network of its own.
    fn scattered(count: u32) -> Vec<IpAddr> {
        let first = Ipv4Addr::new(10, 0, 0, 0).to_bits();
        (0..count)
            .map(|n| Ipv4Addr::from_bits(first + (n << 8)).into())
            .collect()
    }

    #[test]
    fn one_address_waits_longer_after_each_failure() {
        let (locks, mut now) = (AccountLockout::new(), Instant::now());
        for seconds in [1, 3, 5, 10, 20, 30, 60, 60, 60] {
            assert!(locks.guess("ada", ELSEWHERE, now));
            let wait = seconds * SECOND;
            let locked = locks.check("ada", ELSEWHERE, now);
            assert_eq!(locked, Err(RetryAfter(wait)));
            let just_before = now + wait - SECOND / 1000;
            let locked = locks.check("ada", ELSEWHERE, just_before);
            assert_eq!(locked, Err(RetryAfter(SECOND / 1000)));
            assert_eq!(locks.check("bob", ELSEWHERE, now), Ok(()));
            now += wait;
        }
    }

    #[test]
    fn one_address_gets_one_guess_a_minute_however_hard_it_knocks() {
        let (locks, start) = (AccountLockout::new(), Instant::now());
        let checked = locks.attack(&[ELSEWHERE], start, 2 * HOUR);
        // At 0, 1, 4, 9, 19, 39, 69 and 129 s, then every minute.
        assert_eq!(checked, 7 + (2 * 60 - 2));
    }

    #[test]
    fn a_user_is_never_rejected_for_thousands_elsewhere() {
        let (locks, start) = (AccountLockout::new(), Instant::now());
        let attackers = scattered(3000);
        for second in 0..60 {
            let now = start + second * SECOND;
            locks.attack(&attackers, now, 1);
            let home = Ipv4Addr::from_bits(Ipv4Addr::new(192, 0, 2, 0).to_bits() + second);
            let right = locks.log_in("ada", home.into(), now);
            assert_eq!(right, Ok(()), "a new address after {second} s");
        }
    }

    #[test]
    fn who_mistypes_under_attack_waits_for_himself_alone() {
        let (locks, start) = (AccountLockout::new(), Instant::now());
        let attackers = scattered(3000);
        locks.attack(&attackers, start, 60);
        let mut now = start + 60 * SECOND;
        for wait in [1, 3] {
            assert!(locks.guess("ada", HOME, now));
            assert_eq!(
                locks.check("ada", HOME, now),
                Err(RetryAfter(wait * SECOND))
            );
            now += wait * SECOND;
            locks.attack(&attackers, now, 1);
        }
        assert_eq!(locks.log_in("ada", HOME, now), Ok(()));
    }

    #[test]
    fn many_addresses_get_one_guess_a_second_and_three_each() {
        let (locks, start) = (AccountLockout::new(), Instant::now());
        let attackers = scattered(500);
        // All of them at 0, 1 and 4 s; at 9 s their free failures are used up.
        let checked = locks.attack(&attackers, start, 10);
        assert_eq!(checked, FREE_FAILURES_PER_NETWORK * 500 + 60);
        let checked = locks.attack(&attackers, start + 10 * SECOND, HOUR / 4);
        assert_eq!(checked, HOUR as usize / 4);
    }

    #[test]
    fn a_network_has_no_more_free_guesses_than_one_address() {
        let sites = 0x2001_0db8_0000_u128;
        let hosts = (0..1000_u128)
            .map(|n| Ipv6Addr::from_bits((sites << 80) | (n << 64) | 1).into())
            .collect::<Vec<_>>();
        for attackers in [neighbours(256), hosts] {
            let (locks, start) = (AccountLockout::new(), Instant::now());
            let checked = locks.attack(&attackers, start, 1);
            assert_eq!(checked, FREE_FAILURES_PER_NETWORK + 60);
            let checked = locks.attack(&attackers, start + SECOND, 60);
            assert_eq!(checked, 60);
            let next_day = start + (25 * HOUR) * SECOND;
            let checked = locks.attack(&attackers, next_day, 1);
            assert_eq!(
                checked,
                FREE_FAILURES_PER_NETWORK + 60,
                "forgotten after a day"
            );
        }
    }

    #[test]
    fn a_client_that_logged_in_before_keeps_its_own_pace() {
        let (locks, now) = (AccountLockout::new(), Instant::now());
        assert_eq!(locks.log_in("ada", HOME, now), Ok(()));
        let attackers = (3..=255).map(|n| IpAddr::V4(Ipv4Addr::new(192, 0, 2, n)));
        locks.attack(&attackers.collect::<Vec<_>>(), now, 1);
        let paced = locks.check("ada", NEXT_DOOR, now);
        assert_eq!(paced, Err(RetryAfter(SECOND)));
        assert_eq!(locks.check("ada", HOME, now), Ok(()));

        assert!(locks.guess("ada", HOME, now));
        assert_eq!(locks.check("ada", HOME, now), Err(RetryAfter(SECOND)));
        let now = now + SECOND;
        assert_eq!(locks.log_in("ada", HOME, now), Ok(()));
        assert!(locks.guess("ada", NEXT_DOOR, now), "there is one a second");
        assert!(
            locks.check("ada", NEXT_DOOR, now + SECOND / 2).is_err(),
            "her success is not theirs"
        );
    }

    #[test]
    fn a_few_neighbours_who_guess_keep_no_client_out() {
        let (locks, start) = (AccountLockout::new(), Instant::now());
        let attackers = (3..=52).map(|n| IpAddr::V4(Ipv4Addr::new(192, 0, 2, n)));
        locks.attack(&attackers.collect::<Vec<_>>(), start, HOUR);
        let end = start + HOUR * SECOND;
        assert_eq!(locks.log_in("ada", HOME, end), Ok(()));
    }

    #[test]
    fn a_success_forgets_the_failures_of_its_client() {
        let (locks, now) = (AccountLockout::new(), Instant::now());
        assert!(locks.guess("ada", HOME, now));
        let now = now + SECOND;
        assert_eq!(locks.log_in("ada", HOME, now), Ok(()));
        assert!(locks.guess("ada", HOME, now));
        let again = locks.check("ada", HOME, now);
        assert_eq!(again, Err(RetryAfter(SECOND)), "the row began anew");
    }

    #[test]
    fn after_a_failure_attempts_at_once_are_one() {
        let (locks, now) = (AccountLockout::new(), Instant::now());
        let first = locks.begin("ada", HOME, now).unwrap();
        let beside = locks.begin("ada", HOME, now).unwrap();
        locks.failed(&first, now);
        locks.failed(&beside, now);
        let now = now + 3 * SECOND;
        let second = locks.begin("ada", HOME, now).unwrap();
        let others = locks.begin("ada", HOME, now).err();
        assert_eq!(others, Some(RetryAfter(5 * SECOND)));
        locks.failed(&second, now);
        let locked = locks.check("ada", HOME, now);
        assert_eq!(locked, Err(RetryAfter(5 * SECOND)), "it counted once");
    }

    #[test]
    fn a_right_one_takes_back_that_it_was_counted() {
        let (locks, now) = (AccountLockout::new(), Instant::now());
        assert!(locks.guess("ada", HOME, now));
        let now = now + SECOND;
        let right = locks.begin("ada", HOME, now).unwrap();
        assert!(locks.begin("ada", HOME, now).is_err());
        locks.succeeded(&right);
        assert!(locks.begin("ada", HOME, now).is_ok());
    }

    #[test]
    fn floods_of_names_and_of_addresses_take_bounded_memory() {
        let (locks, now) = (AccountLockout::new(), Instant::now());
        let many = u32::try_from(MAX_ENTRIES.get()).unwrap() + 1000;
        for client in scattered(many) {
            let name = client.to_string();
            let _ = locks.log_in(&name, client, now);
            // The third uses up the free failures: from the fourth on the account has a bucket.
            for address in 1..=4 {
                let attacker = IpAddr::V4(Ipv4Addr::new(203, 0, 113, address));
                locks.guess(&name, attacker, now);
            }
        }
        let tables = locks.0.lock();
        for held in [
            tables.by_client.len(),
            tables.by_network.len(),
            tables.buckets.len(),
            tables.known.len(),
        ] {
            assert_eq!(held, MAX_ENTRIES.get());
        }
    }
}
