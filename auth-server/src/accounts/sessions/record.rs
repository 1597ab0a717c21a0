//! The record of a session, and the decision about its use.

use std::fmt;

use postern_token::possession::Binding;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::EndCause;
use super::refresh_token::{RefreshToken, SessionId};
use crate::accounts::applications::secret_hash::SecretHash;
use crate::accounts::users::PresentUser;
use crate::revocations::{KEEP_AFTER_EXPIRY, Revocation};

/// Number of the last access tokens that are recognized as tokens of their session.
const KNOWN_TOKENS: usize = 4096;
/// Seconds for which the former refresh token gives the same pair again: the response to its first
/// use may be lost.
const REPEAT: i64 = 30;

/// The record of a session. Times are in seconds since the epoch, by the store's clock.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionRecord {
    /// Makes the next refresh token, but only together with the present one; also makes the `jti` of each
    /// access token.
    secret: String,
    /// The number of renewals.
    counter: u64,
    /// Hash of the present refresh token.
    token_sha256: SecretHash,
    /// Hash of the refresh token before the present one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    former_sha256: Option<SecretHash>,
    /// The time of the last renewal, or of the login: `iat` of the last access token.
    pub(super) renewed: i64,
    user_id: String,
    pub(super) account: String,
    /// [`PresentUser::credentials`] at the login.
    credentials: String,
    /// The time of the login.
    began: i64,
    pub(super) ends: i64,
    /// `exp` of the last access token.
    pub(super) expires: i64,
    /// The latest `exp` of all access tokens.
    live_until: i64,
    /// The key and the certificate that the session's refresh tokens are bound to.
    #[serde(rename = "cnf", default, skip_serializing_if = "Option::is_none")]
    pub(super) binding: Option<Binding>,
    /// Members that a newer version has written.
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

/// Redacted: a record names a user, and holds a secret.
impl fmt::Debug for SessionRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionRecord([redacted])")
    }
}

/// The times of a session that begins.
pub(super) struct SessionTimes {
    pub(super) began: i64,
    pub(super) ends: i64,
    /// `exp` of its first access token.
    pub(super) expires: i64,
}

/// The use of a refresh token that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    First,
    /// Another use of the former token, soon after the first use.
    Repeated,
}

/// The reason why a refresh token has no user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoUser {
    /// The session has to end.
    Over(EndCause),
    /// The session has reached its end; its last access token stays valid.
    Expired,
    /// This server knows no such user, or the user has other credentials here.
    OtherUsers,
}

impl SessionRecord {
    /// Returns the record of a login, without an access token yet.
    pub(super) fn new(
        token: &RefreshToken,
        secret: &str,
        PresentUser {
            user, credentials, ..
        }: &PresentUser,
        times: SessionTimes,
        binding: Option<Binding>,
    ) -> Self {
        Self {
            secret: secret.to_owned(),
            counter: 0,
            token_sha256: token.hash(),
            former_sha256: None,
            renewed: times.began,
            user_id: user.id.clone(),
            account: user.account.clone(),
            credentials: credentials.clone(),
            began: times.began,
            ends: times.ends,
            expires: times.expires,
            live_until: times.expires,
            binding,
            unknown: Map::new(),
        }
    }

    /// Returns the record after a use of `token` at `now`. Its end stays; from now on it is bound to the key
    /// and certificate of this use.
    pub(super) fn renewed(
        &self,
        token: &RefreshToken,
        now: i64,
        expires: i64,
        binding: Option<Binding>,
    ) -> Self {
        // The number makes the next token and `jti`, so that a repeated use gives the same pair.
        let counter = self.counter.saturating_add(1);
        Self {
            counter,
            token_sha256: token.next(&self.secret, counter).hash(),
            // For a repetition alone: every other token of the session ends it as reuse.
            former_sha256: Some(self.token_sha256),
            renewed: now,
            expires,
            // A shorter `--token-lifetime` ends no token that was issued before.
            live_until: self.live_until.max(expires),
            binding,
            ..self.clone()
        }
    }

    /// Returns the refresh token that the last renewal gave; `used` is the token before it.
    pub(super) fn given(&self, used: &RefreshToken) -> RefreshToken {
        used.next(&self.secret, self.counter)
    }

    /// Returns the `jti` of the last access token of the session, which is named `id`.
    pub(super) fn token_id(&self, id: SessionId) -> String {
        id.token_id(&self.secret, self.counter)
    }

    /// Returns the revocation of the session with all access tokens; `None` if the session is over at `now`,
    /// and no program accepts an access token, by its own clock and leeway.
    pub(crate) fn revocation(&self, id: SessionId, now: i64) -> Option<Revocation> {
        let live = self.live_until.saturating_add(KEEP_AFTER_EXPIRY);
        let revocation = Revocation::for_token(id.text(), Some(self.user_id.clone()), now)
            .not_before(self.last_issued())
            // Kept as long as an access token may be accepted anywhere, or the refresh token could
            // come back with an older copy.
            .until(live, self.ends);
        (revocation.ends > now).then_some(revocation)
    }

    /// Returns the time of issuance of the access token that is valid the longest: not the last one, where a
    /// clock was set back before that.
    fn last_issued(&self) -> i64 {
        let lifetime = self.expires.saturating_sub(self.renewed);
        self.renewed.max(self.live_until.saturating_sub(lifetime))
    }

    /// Returns the time until which the record is kept, so that the session can be ended: an access token may
    /// be valid for longer than its session.
    pub(super) fn kept_until(&self) -> i64 {
        self.ends
            .max(self.live_until.saturating_add(KEEP_AFTER_EXPIRY))
    }

    /// Returns true for the `jti` of an access token of the session, which is named `id`.
    pub(crate) fn has_token(&self, id: SessionId, token_id: &str) -> bool {
        // The latest token first: a logout nearly always has the present one.
        (0..=self.counter)
            .rev()
            .take(KNOWN_TOKENS)
            .any(|number| id.token_id(&self.secret, number) == token_id)
    }

    /// Returns the user of a refresh token, as present at `now`, and the kind of this use; `is_revoked` gets
    /// the user's id and the time of the login.
    ///
    /// # Errors
    /// See [`NoUser`].
    pub(super) fn user(
        &self,
        presented: &RefreshToken,
        present: Option<PresentUser>,
        is_revoked: impl FnOnce(&str, i64) -> bool,
        now: i64,
    ) -> Result<(PresentUser, Use), NoUser> {
        let token_use = self
            .use_of(&presented.hash(), now)
            .ok_or(NoUser::Over(EndCause::Reuse))?;
        if self.ends <= now {
            return Err(NoUser::Expired);
        }
        if is_revoked(&self.user_id, self.began) {
            return Err(NoUser::Over(EndCause::Revocation));
        }
        let present = present.ok_or(NoUser::OtherUsers)?;
        if present.user.id != self.user_id || present.credentials != self.credentials {
            return Err(NoUser::OtherUsers);
        }
        Ok((present, token_use))
    }

    fn use_of(&self, presented: &SecretHash, now: i64) -> Option<Use> {
        if self.token_sha256.equals(presented) {
            return Some(Use::First);
        }
        let former = self.former_sha256.as_ref()?;
        let is_soon = now.saturating_sub(self.renewed) < REPEAT;
        (is_soon && former.equals(presented)).then_some(Use::Repeated)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::accounts::users::UserStore;
    use crate::accounts::users::builtin::BuiltinUser;

    /// Begins a session at 10; returns its first token.
    fn begun() -> (RefreshToken, SessionRecord) {
        let first = RefreshToken::generate("1").unwrap();
        let user = BuiltinUser.present("").unwrap();
        let times = SessionTimes {
            began: 10,
            ends: 1000,
            expires: 100,
        };
        let record = SessionRecord::new(&first, "secret", &user, times, None);
        (first, record)
    }

    #[test]
    fn each_reason_to_end_a_session_is_seen() {
        let (first, record) = begun();
        let other = RefreshToken::generate("1").unwrap();
        let present = || BuiltinUser.present("");
        let with = |change: fn(&mut PresentUser)| {
            let mut present = present().unwrap();
            change(&mut present);
            Some(present)
        };
        for (token, present, revoked_before, now, expected) in [
            (&first, present(), 10, 999, None),
            (
                &other,
                present(),
                0,
                20,
                Some(NoUser::Over(EndCause::Reuse)),
            ),
            (&other, None, 99, 2000, Some(NoUser::Over(EndCause::Reuse))),
            (&first, present(), 0, 1000, Some(NoUser::Expired)),
            (&first, None, 0, 20, Some(NoUser::OtherUsers)),
            (
                &first,
                with(|it| it.user.id = "2".into()),
                0,
                20,
                Some(NoUser::OtherUsers),
            ),
            (
                &first,
                with(|it| it.credentials = "other".into()),
                0,
                20,
                Some(NoUser::OtherUsers),
            ),
            (
                &first,
                None,
                11,
                20,
                Some(NoUser::Over(EndCause::Revocation)),
            ),
            (
                &first,
                present(),
                11,
                20,
                Some(NoUser::Over(EndCause::Revocation)),
            ),
        ] {
            let is_revoked = |user: &str, began: i64| {
                assert_eq!(user, "1");
                began < revoked_before
            };
            let outcome = record.user(token, present, is_revoked, now);
            assert_eq!(outcome.err(), expected, "at {now}");
        }
    }

    #[test]
    fn the_former_token_gives_the_same_again_for_half_a_minute() {
        let (first, record) = begun();
        let of = |record: &SessionRecord, token: &RefreshToken, now| {
            let outcome = record.user(token, BuiltinUser.present(""), |_, _| false, now);
            outcome.map(|(_, token_use)| token_use)
        };
        let renewed = record.renewed(&first, 50, 90, None);
        let second = renewed.given(&first);
        assert_eq!((renewed.expires, renewed.renewed), (90, 50));
        for (presented, now, expected) in [
            (&first, 49, Ok(Use::Repeated)),
            (&first, 79, Ok(Use::Repeated)),
            (&first, 80, Err(NoUser::Over(EndCause::Reuse))),
            (&second, 80, Ok(Use::First)),
        ] {
            assert_eq!(of(&renewed, presented, now), expected, "{now}");
        }
        let json = serde_json::to_string(&renewed).unwrap();
        for token in [&first, &second] {
            assert!(!json.contains(&token.text()[11..40]), "{json}");
        }
        let read: SessionRecord = serde_json::from_str(&json).unwrap();
        assert_eq!(read, renewed);
        assert_eq!(read.given(&first).text(), second.text());
        let third = read.renewed(&second, 60, 100, None);
        assert_eq!(of(&third, &first, 60), Err(NoUser::Over(EndCause::Reuse)));
    }

    #[test]
    fn a_renewed_record_keeps_end_tokens_and_unknown_members() {
        let (token, mut record) = begun();
        record.unknown.insert("newer".into(), 1.into());
        let renewed = record.renewed(&token, 20, 90, None);
        assert_eq!(renewed.ends, 1000);
        let id = token.session();
        for number in 0..=1 {
            assert!(renewed.has_token(id, &id.token_id("secret", number)));
        }
        for forged in [id.token_id("secret", 2), id.token_id("other", 0), id.text()] {
            assert!(!renewed.has_token(id, &forged));
        }
        // The token of the login outlives the next one, and the session both.
        let revoked = Revocation::for_token(id.text(), Some("1".to_owned()), 999);
        let revoked = revoked.until(100 + KEEP_AFTER_EXPIRY, 1000);
        assert_eq!(renewed.revocation(id, 999), Some(revoked));
        assert_eq!(renewed.revocation(id, 1000), None);
        // A clock was set back before the renewal: the token of the login is later.
        let (first, begun) = begun();
        let back = begun.renewed(&first, -40, 50, None);
        let revoked = Revocation::for_token(id.text(), Some("1".to_owned()), 10);
        let revoked = revoked.until(100 + KEEP_AFTER_EXPIRY, 1000);
        assert_eq!(back.revocation(id, -30), Some(revoked));
        let json = serde_json::to_string(&renewed).unwrap();
        assert!(json.contains("\"newer\":1"), "{json}");
        let read: SessionRecord = serde_json::from_str(&json).unwrap();
        assert_eq!(read, renewed);
    }
}
