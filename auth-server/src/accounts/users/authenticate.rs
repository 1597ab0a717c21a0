//! Authentication with rate limits: the only way to a user store.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::available_parallelism;

use postern_contract::login::LoginRequest;
use postern_process::clock::instant;
use postern_process::tasks;

use super::{PresentUser, UserStore};
use crate::rate_limit::{AccountLockout, Permits, RetryAfter};

/// Max checks of passwords at once. Each takes 19 MiB and a core for tens of milliseconds: more than cores
/// would be no faster, and with many cores the memory is the limit.
const MAX_CHECKS: usize = 16;

pub(crate) struct Authenticator {
    users: Arc<dyn UserStore>,
    locks: Arc<AccountLockout>,
    /// Permits of checks at once.
    checks: Permits,
    /// One more permit, for clients from which the account has logged in: a flood of others leaves it free.
    for_known: Permits,
    /// Makes log substitutes for names that are no accounts: equal names have equal substitutes, and no name
    /// can be guessed from one without this random key.
    unknown_names: RandomState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthenticationError {
    Failed,
    /// The attempt is within the wait after failures at this account.
    Locked(RetryAfter),
    Busy,
    Internal,
}

impl From<RetryAfter> for AuthenticationError {
    fn from(wait: RetryAfter) -> Self {
        Self::Locked(wait)
    }
}

impl Authenticator {
    pub(crate) fn new(users: Arc<dyn UserStore>) -> Self {
        Self {
            users,
            locks: Arc::new(AccountLockout::new()),
            checks: Permits::new(max_checks()),
            for_known: Permits::new(1),
            unknown_names: RandomState::new(),
        }
    }

    /// Returns the account as it may be logged: a digest if unknown, as it may be a mistyped
    /// password.
    pub(crate) fn loggable<'t>(&self, typed: &'t str) -> Cow<'t, str> {
        if typed.is_empty() || self.users.is_user(typed) {
            typed.into()
        } else {
            format!("[unknown {:016x}]", self.unknown_names.hash_one(typed)).into()
        }
    }

    pub(crate) async fn authenticate(
        &self,
        request: LoginRequest,
        client: IpAddr,
    ) -> Result<PresentUser, AuthenticationError> {
        // The built-in user takes any password: nothing to guess, and no slow check to bound.
        if !self.users.checks_passwords() {
            return self
                .users
                .authenticate(&request)
                .ok_or(AuthenticationError::Failed);
        }
        // Before a permit is taken: an attempt within its wait must not queue for a core.
        self.locks.check(&request.username, client, instant())?;
        let is_known = self.locks.knows(&request.username, client);
        // A known client waits in both queues. The wait that loses is dropped, and passes its
        // permit on.
        let permit = tokio::select! {
            permit = self.checks.take(Some(client)) => permit,
            permit = self.for_known.take(Some(client)), if is_known => permit,
        };
        let permit = permit.ok_or(AuthenticationError::Busy)?;
        // Checked again: other attempts of this client may have failed while this one waited.
        let attempt = self.locks.begin(&request.username, client, instant())?;

        let (users, locks) = (Arc::clone(&self.users), Arc::clone(&self.locks));
        // Counted inside the task, so that the failure of a client that hangs up counts too.
        let checked = tasks::blocking(move || {
            // The task holds the permit, which bounds all running checks, also those whose client has left.
            let _permit = permit;
            let user = users.authenticate(&request);
            match user {
                Some(_) => locks.succeeded(&attempt),
                None => locks.failed(&attempt, instant()),
            }
            user
        });
        match checked.await {
            Ok(user) => user.ok_or(AuthenticationError::Failed),
            // The check has panicked: neither `failed` nor `succeeded` ran, as its result is unknown.
            Err(_) => Err(AuthenticationError::Internal),
        }
    }
}

fn max_checks() -> usize {
    available_parallelism()
        .map_or(1, usize::from)
        .min(MAX_CHECKS)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::net::Ipv4Addr;

    use futures_util::future::join_all;

    use super::super::builtin::{ACCOUNT, BuiltinUser};
    use super::super::file::FileUsers;
    use super::super::file::tests::file_with;
    use super::*;

    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn of_a_file(accounts: &[&str]) -> Authenticator {
        let users = FileUsers::open(file_with(accounts).path().to_owned());
        Authenticator::new(Arc::new(users.unwrap()))
    }

    async fn log_in(
        authenticator: &Authenticator,
        username: &str,
        password: &str,
    ) -> Result<String, AuthenticationError> {
        let request = LoginRequest {
            username: username.into(),
            password: password.into(),
        };
        let verified = authenticator.authenticate(request, HOME).await?;
        Ok(verified.user.account)
    }

    #[tokio::test]
    async fn many_guesses_at_once_are_hardly_more_than_one() {
        let users = of_a_file(&["ada"]);
        let guesses: Vec<_> = (0..50).map(|n| n.to_string()).collect();
        let outcomes = join_all(guesses.iter().map(|guess| log_in(&users, "ada", guess))).await;
        let checked = |outcome: &&Result<_, _>| **outcome == Err(AuthenticationError::Failed);
        let checked = outcomes.iter().filter(checked).count();
        let at_once = available_parallelism().unwrap().get();
        assert!((1..=at_once).contains(&checked), "{checked} were checked");
    }

    #[tokio::test]
    async fn many_right_ones_at_once_are_all_let_in() {
        let users = of_a_file(&["ada"]);
        let logins = (0..100).map(|_| log_in(&users, "ada", "ada's"));
        assert!(join_all(logins).await.iter().all(Result::is_ok));
    }

    #[test]
    fn of_what_is_typed_as_an_account_only_accounts_are_logged() {
        let users = of_a_file(&["ada"]);
        for (typed, logged) in [("ada", "ada"), ("", "")] {
            assert_eq!(users.loggable(typed), logged);
        }
        let unknown = users.loggable("hush hush");
        assert!(unknown.starts_with("[unknown ") && !unknown.contains("hush"));
        assert_eq!(users.loggable("hush hush"), unknown, "the same name");
        assert_ne!(users.loggable("hush"), unknown, "another name");
        let elsewhere = of_a_file(&["ada"]);
        assert_ne!(elsewhere.loggable("hush hush"), unknown, "another process");
        let builtin = Authenticator::new(Arc::new(BuiltinUser));
        assert_eq!(builtin.loggable(ACCOUNT), ACCOUNT);
        assert!(builtin.loggable("hush hush").starts_with("[unknown "));
    }
}
