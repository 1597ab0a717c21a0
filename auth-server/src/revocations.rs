//! Revoked tokens: a single token, the tokens of a session, a user or an application, or all tokens; of this
//! installation, and of other issuers that report their ends. Each revocation is an entry of a log in the
//! store; servers read the log on from their last known entry, and publish a list.

pub(crate) mod entry;
pub(crate) mod foreign;
pub(crate) mod list;
pub(crate) mod log;
mod state;

use postern_token::revocations::statement::Ended;
use postern_token::revocations::{RevocationDigest, Revoked};

use self::entry::{Fact, StatementDigests};
use crate::telemetry::audit;
use crate::telemetry::audit::events::RevocationEvent;

/// Seconds beyond `exp` for which a token is listed: the largest leeway of a sidecar, and as much for
/// its clock.
pub(crate) const KEEP_AFTER_EXPIRY: i64 = 600;

/// Thirty days, in seconds. Users and applications are listed at least as long: a session must not outlive
/// the revocation of its user.
pub(crate) const MAX_SESSION_LIFETIME: u32 = 2_592_000;
/// The longest `--token-lifetime`, in seconds.
const MAX_TOKEN_LIFETIME: i64 = 31_536_000;

/// A revocation, with the ids that clients and operators use. Times in seconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Revocation {
    pub(crate) fact: Fact,
    /// The time until which the store keeps the revocation: as long as what it revokes could live.
    pub(crate) ends: i64,
    pub(crate) event: RevocationEvent,
}

impl Revocation {
    /// Revokes the token with this `jti`, or the tokens of the session with this `sid`.
    pub(crate) fn for_token(id: String, user: Option<String>, now: i64) -> Self {
        Self::from_event(RevocationEvent::Token { id, user }, now)
    }

    /// Revokes the tokens of a user that were issued up to `now`.
    pub(crate) fn for_user(id: String, now: i64) -> Self {
        Self::from_event(RevocationEvent::User(id), now)
    }

    /// Revokes the tokens of an application that were issued up to `now`.
    pub(crate) fn for_application(id: String, now: i64) -> Self {
        Self::from_event(RevocationEvent::Application(id), now)
    }

    /// Revokes the tokens that another issuer gave up to `now`.
    pub(crate) fn for_issuer(issuer: String, now: i64) -> Self {
        Self::from_event(RevocationEvent::Issuer(issuer), now)
    }

    /// Revokes all tokens that were issued up to `now`.
    pub(crate) fn for_everyone(now: i64) -> Self {
        Self::from_event(RevocationEvent::Everyone, now)
    }

    /// Revokes what has ended by the statement of another issuer: a session, or the tokens of a user that
    /// were issued up to `now`.
    pub(crate) fn for_statement(
        issuer: String,
        ended: Ended,
        statement: StatementDigests,
        now: i64,
    ) -> Self {
        let mut revocation = Self::from_event(RevocationEvent::Foreign { issuer, ended }, now);
        revocation.fact.statement = Some(statement);
        revocation
    }

    /// Revokes the tokens that another issuer gave a user, by the `sub` there, up to `now`.
    pub(crate) fn for_foreign_user(issuer: String, user: String, now: i64) -> Self {
        let ended = Ended::User(user);
        Self::from_event(RevocationEvent::Foreign { issuer, ended }, now)
    }

    /// Revokes the tokens of the event that were issued up to `now`, whatever their lifetime.
    fn from_event(event: RevocationEvent, now: i64) -> Self {
        let before = now.saturating_add(1);
        let (mut fact_user, mut fact_issuer) = (None, None);
        let revokes = match &event {
            RevocationEvent::Token { id, user } => {
                fact_user = user.as_deref().map(RevocationDigest::for_user);
                Revoked::Token(RevocationDigest::for_token(id))
            }
            RevocationEvent::User(id) => Revoked::User(RevocationDigest::for_user(id), before),
            RevocationEvent::Application(id) => {
                Revoked::Application(RevocationDigest::for_application(id), before)
            }
            RevocationEvent::Foreign { issuer, ended } => {
                let user_digest = |user: &String| RevocationDigest::for_foreign_user(issuer, user);
                fact_issuer = Some(RevocationDigest::for_issuer(issuer));
                match ended {
                    Ended::Session { session, user } => {
                        fact_user = user.as_ref().map(user_digest);
                        Revoked::Token(RevocationDigest::for_foreign_session(issuer, session))
                    }
                    Ended::User(user) => Revoked::User(user_digest(user), before),
                }
            }
            RevocationEvent::Issuer(issuer) => {
                Revoked::Application(RevocationDigest::for_issuer(issuer), before)
            }
            RevocationEvent::Everyone => Revoked::Everyone(before),
        };
        Self {
            fact: Fact {
                revokes,
                at: now,
                live: None,
                user: fact_user,
                issuer: fact_issuer,
                statement: None,
            },
            ends: end_of_tokens(before, MAX_TOKEN_LIFETIME),
            event,
        }
    }

    /// Moves its time to the issuance of the last token that it ends, where that is later: this server's
    /// clock may have been set back, and a revocation of the user between the two would seem to do what
    /// this one does.
    pub(crate) fn not_before(mut self, issued: i64) -> Self {
        self.fact.at = self.fact.at.max(issued);
        self
    }

    /// Returns the revocation, for its whole length, of what was issued up to `now`; `None` where that ends nothing
    /// more.
    pub(crate) fn moved_to(&self, now: i64) -> Option<Self> {
        let ends_up_to_a_time = !matches!(self.fact.revokes, Revoked::Token(_));
        let ends_more = ends_up_to_a_time && now > self.fact.at;
        ends_more.then(|| Self::from_event(self.event.clone(), now))
    }

    /// Limits the revocation to tokens that no program accepts from `live` on, and has the store keep it at
    /// least until `ends`.
    pub(crate) fn until(mut self, live: i64, ends: i64) -> Self {
        self.fact.live = Some(live);
        let ends = live.max(ends);
        Self { ends, ..self }
    }
}

/// Max number of audit lines for many revocations at once.
const MAX_LINES: usize = 1000;

/// Writes the audit lines; `by` is the actor of a command.
pub(crate) fn log_revocations(revocations: &[Revocation], by: Option<&str>) {
    for revocation in revocations.iter().take(MAX_LINES) {
        audit::revocation(&revocation.event, by);
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
