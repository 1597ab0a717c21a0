//! Revoked tokens: single ones, those of a session, a user or an application, or all. Each revocation
//! is an entry of a log in the store; servers read it from where they know it, and publish a list.

pub(crate) mod entry;
pub(crate) mod list;
pub(crate) mod log;
mod state;

use wire::token::revocations::{self, RevocationDigest};

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

/// The revoked tokens, by the ids that clients and operators use. Times in seconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Revoked {
    /// The token with this `jti`, or the tokens of the session with this `sid`.
    Token { id: String, user: Option<String> },
    /// Those of the user with this id, issued before a time.
    User { id: String, before: i64 },
    /// Those of the application with this id, issued before a time.
    Application { id: String, before: i64 },
    /// All that were issued before a time.
    Everyone { before: i64 },
}

impl Revoked {
    fn digests(&self) -> revocations::Revoked {
        match self {
            Self::Token { id, .. } => revocations::Revoked::Token(RevocationDigest::of_token(id)),
            Self::User { id, before } => {
                revocations::Revoked::User(RevocationDigest::of_user(id), *before)
            }
            Self::Application { id, before } => {
                revocations::Revoked::Application(RevocationDigest::of_application(id), *before)
            }
            Self::Everyone { before } => revocations::Revoked::Everyone(*before),
        }
    }
}

/// Bounds the audit lines of many revocations at once.
const MAX_LINES: usize = 1000;

/// Writes the audit lines; `by` is the actor of a command.
pub(crate) fn log_revocations(revocations: &[Revocation], by: Option<&str>) {
    use RevocationEventKind::{Application, Everyone, Token, User};
    for Revocation { revoked, .. } in revocations.iter().take(MAX_LINES) {
        let (kind, named) = match revoked {
            Revoked::Token { id, user } => (Token, [Some(id.as_str()), user.as_deref(), None]),
            Revoked::User { id, .. } => (User, [None, Some(id.as_str()), None]),
            Revoked::Application { id, .. } => (Application, [None, None, Some(id.as_str())]),
            Revoked::Everyone { .. } => (Everyone, [None; 3]),
        };
        audit::revocation(kind, named, by);
    }
}

/// One revocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Revocation {
    pub(crate) revoked: Revoked,
    /// Seconds since the epoch until which a program may accept such a token; where that is not known,
    /// each server counts with the lifetime of its own.
    pub(crate) live: Option<i64>,
    /// Seconds since the epoch until which the store keeps it: as long as what it ends could live.
    pub(crate) ends: i64,
}

impl Revocation {
    /// Revokes the tokens of a user that were issued up to `now`.
    pub(crate) fn of_user(id: String, now: i64) -> Self {
        let before = now.saturating_add(1);
        Self::of_time(Revoked::User { id, before }, before)
    }

    /// Revokes the tokens of an application that were issued up to `now`.
    pub(crate) fn of_application(id: String, now: i64) -> Self {
        let before = now.saturating_add(1);
        Self::of_time(Revoked::Application { id, before }, before)
    }

    /// Revokes tokens that were issued up to a time, whatever their lifetime.
    pub(crate) fn of_time(revoked: Revoked, time: i64) -> Self {
        Self {
            revoked,
            live: None,
            ends: end_of_tokens(time, MAX_TOKEN_LIFETIME),
        }
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
