//! Revoked tokens: single ones, those of a session, a user or an application, or all. Each revocation
//! is an entry of a log in the store; servers read it from where they know it, and publish a list.

pub(crate) mod entry;
pub(crate) mod list;
pub(crate) mod log;
mod state;

use wire::token::revocations::{RevocationDigest, Revoked};

use self::entry::Fact;
use crate::audit;
use crate::audit::events::RevocationEventKind;

/// Seconds beyond `exp` for which a token is listed: the largest leeway of a sidecar, and as much for
/// its clock.
pub(crate) const KEEP_AFTER_EXPIRY: i64 = 600;

/// Thirty days, in seconds. Users and applications are listed as long: a session must not outlive the
/// revocation of its user.
pub(crate) const MAX_SESSION_LIFETIME: u32 = 2_592_000;
/// Seconds: the longest `--token-lifetime`.
const MAX_TOKEN_LIFETIME: i64 = 31_536_000;

/// One revocation, with the ids that clients and operators use. Times in seconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Revocation {
    pub(crate) fact: Fact,
    /// The time until which the store keeps it: as long as what it ends could live.
    pub(crate) ends: i64,
    /// The `jti`, user and application in the audit line.
    named: [Option<String>; 3],
}

impl Revocation {
    /// Revokes the token with this `jti`, or the tokens of the session with this `sid`.
    pub(crate) fn of_token(id: String, user: Option<String>, now: i64) -> Self {
        let revokes = Revoked::Token(RevocationDigest::of_token(&id));
        let mut revocation = Self::of(revokes, [Some(id), user, None], now);
        let user = revocation.named[1].as_deref();
        revocation.fact.user = user.map(RevocationDigest::of_user);
        revocation
    }

    /// Revokes the tokens of a user that were issued up to `now`.
    pub(crate) fn of_user(id: String, now: i64) -> Self {
        let revokes = Revoked::User(RevocationDigest::of_user(&id), now.saturating_add(1));
        Self::of(revokes, [None, Some(id), None], now)
    }

    /// Revokes the tokens of an application that were issued up to `now`.
    pub(crate) fn of_application(id: String, now: i64) -> Self {
        let digest = RevocationDigest::of_application(&id);
        let revokes = Revoked::Application(digest, now.saturating_add(1));
        Self::of(revokes, [None, None, Some(id)], now)
    }

    /// Revokes all tokens that were issued up to `now`.
    pub(crate) fn of_everyone(now: i64) -> Self {
        Self::of(
            Revoked::Everyone(now.saturating_add(1)),
            [const { None }; 3],
            now,
        )
    }

    /// Revokes what was issued up to `now`, whatever its lifetime.
    fn of(revokes: Revoked, named: [Option<String>; 3], now: i64) -> Self {
        Self {
            fact: Fact {
                revokes,
                at: now,
                live: None,
                user: None,
            },
            ends: end_of_tokens(now.saturating_add(1), MAX_TOKEN_LIFETIME),
            named,
        }
    }

    /// Returns the `jti` or `sid` of a single one.
    pub(crate) fn token_id(&self) -> Option<&str> {
        self.named[0].as_deref()
    }

    /// Limits it to tokens that no program accepts from `live` on; the store keeps it at least until `ends`.
    pub(crate) fn until(mut self, live: i64, ends: i64) -> Self {
        self.fact.live = Some(live);
        let ends = live.max(ends);
        Self { ends, ..self }
    }
}

/// Bounds the audit lines of many revocations at once.
const MAX_LINES: usize = 1000;

/// Writes the audit lines; `by` is the actor of a command.
pub(crate) fn log_revocations(revocations: &[Revocation], by: Option<&str>) {
    for Revocation { fact, named, .. } in revocations.iter().take(MAX_LINES) {
        let kind = match fact.revokes {
            Revoked::Token(_) => RevocationEventKind::Token,
            Revoked::User(..) => RevocationEventKind::User,
            Revoked::Application(..) => RevocationEventKind::Application,
            Revoked::Everyone(_) => RevocationEventKind::Everyone,
        };
        audit::revocation(kind, named.each_ref().map(Option::as_deref), by);
    }
}

/// Returns the time from which on no program accepts a token that was issued at `time` for `lifetime`
/// seconds.
pub(crate) fn end_of_tokens(time: i64, lifetime: i64) -> i64 {
    time.saturating_add(lifetime)
        .saturating_add(KEEP_AFTER_EXPIRY)
}

#[cfg(test)]
pub(crate) mod tests;
