//! The record of a session, and the decision about its use.

use serde::{Deserialize, Serialize};

use super::EndCause;
use crate::applications::secret_hash::SecretHash;
use crate::revocations::{KEEP_AFTER_EXPIRY, Revocation, Revoked};
use crate::users::{PresentUser, User};

/// Tokens that end with their session; older ones end before. A client that refreshes with each page
/// has as many within hours, and each that ends is an entry of the revocation list.
const MAX_TOKENS: usize = 32;

/// Times in seconds since the epoch. Members of a newer version are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionRecord {
    /// Hash of the present refresh token.
    secret_sha256: SecretHash,
    pub(super) user_id: String,
    pub(super) account: String,
    /// See [`PresentUser::credentials`]: those of the login.
    credentials: String,
    /// The time of the login.
    began: i64,
    pub(super) ends: i64,
    /// The last access tokens, oldest first, with those that only a sidecar still accepts.
    tokens: Vec<IssuedToken>,
}

/// An access token of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IssuedToken {
    /// `jti`.
    pub(crate) id: String,
    /// `exp`.
    pub(crate) expires: i64,
}

impl SessionRecord {
    pub(super) fn new(
        secret_sha256: SecretHash,
        user: &User,
        credentials: String,
        (began, ends): (i64, i64),
        token: IssuedToken,
    ) -> Self {
        Self {
            secret_sha256,
            user_id: user.id.clone(),
            account: user.account.clone(),
            credentials,
            began,
            ends,
            tokens: vec![token],
        }
    }

    /// Returns the record after a use, whose end stays, and the revocations of tokens that it has no
    /// place for: nothing would end them with the session.
    pub(super) fn renewed(
        &self,
        secret_sha256: SecretHash,
        token: IssuedToken,
        now: i64,
    ) -> (Self, Vec<Revocation>) {
        let mut tokens: Vec<_> = self.accepted_tokens(now).cloned().collect();
        tokens.push(token);
        let surplus = tokens.len().saturating_sub(MAX_TOKENS);
        let surplus = tokens.drain(..surplus);
        let valid = surplus.filter(|token| token.expires > now);
        let revocations = valid.map(|token| self.revocation(&token)).collect();
        let renewed = Self {
            secret_sha256,
            tokens,
            ..self.clone()
        };
        (renewed, revocations)
    }

    /// Returns the revocations of all access tokens that a program may accept at `now`.
    pub(super) fn revocations(&self, now: i64) -> Vec<Revocation> {
        let tokens = self.accepted_tokens(now);
        tokens.map(|token| self.revocation(token)).collect()
    }

    pub(super) fn has_token(&self, id: &str) -> bool {
        self.tokens.iter().any(|token| token.id == id)
    }

    /// Returns the access tokens that a sidecar may accept: it may be more lenient than this server.
    fn accepted_tokens(&self, now: i64) -> impl Iterator<Item = &IssuedToken> {
        let end = |token: &IssuedToken| token.expires.saturating_add(KEEP_AFTER_EXPIRY);
        self.tokens.iter().filter(move |token| end(token) > now)
    }

    fn revocation(&self, token: &IssuedToken) -> Revocation {
        Revocation {
            until: token.expires.saturating_add(KEEP_AFTER_EXPIRY),
            revoked: Revoked::Token {
                id: token.id.clone(),
                user: Some(self.user_id.clone()),
            },
        }
    }

    /// Returns the user of a refresh token with this hash, as present at `now`; `is_revoked` is about
    /// a user's id, a time, and the ids of tokens.
    ///
    /// # Errors
    /// The reason why the session has to end.
    pub(super) fn user(
        &self,
        presented: &SecretHash,
        present: Option<PresentUser>,
        is_revoked: impl FnOnce(&str, i64, &[IssuedToken]) -> bool,
        now: i64,
    ) -> Result<User, EndCause> {
        if !self.secret_sha256.equals(presented) {
            return Err(EndCause::Reuse);
        }
        if self.ends <= now {
            return Err(EndCause::Expiry);
        }
        let present = present.filter(|present| present.user.id == self.user_id);
        let present = present.ok_or(EndCause::UserGone)?;
        if present.credentials != self.credentials {
            return Err(EndCause::CredentialsChanged);
        }
        if is_revoked(&self.user_id, self.began, &self.tokens) {
            return Err(EndCause::Revocation);
        }
        Ok(present.user)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::users::UserStore;
    use crate::users::builtin::BuiltinUser;
    use crate::users::builtin::tests::builtin_user;

    fn token(number: i64) -> IssuedToken {
        IssuedToken {
            id: number.to_string(),
            expires: 100 + number,
        }
    }

    fn record() -> SessionRecord {
        let hash = SecretHash::of("first");
        SessionRecord::new(hash, &builtin_user(), String::new(), (10, 1000), token(0))
    }

    #[test]
    fn each_reason_to_end_a_session_is_seen() {
        let present = || BuiltinUser.present("");
        let with = |change: fn(&mut PresentUser)| {
            let mut present = present().unwrap();
            change(&mut present);
            Some(present)
        };
        for (secret, present, revoked_before, now, expected) in [
            ("first", present(), 10, 999, None),
            ("other", present(), 0, 20, Some(EndCause::Reuse)),
            ("other", None, 99, 2000, Some(EndCause::Reuse)),
            ("first", present(), 0, 1000, Some(EndCause::Expiry)),
            ("first", None, 0, 20, Some(EndCause::UserGone)),
            (
                "first",
                with(|it| it.user.id = "2".into()),
                0,
                20,
                Some(EndCause::UserGone),
            ),
            (
                "first",
                with(|it| it.credentials = "other".into()),
                0,
                20,
                Some(EndCause::CredentialsChanged),
            ),
            ("first", present(), 11, 20, Some(EndCause::Revocation)),
        ] {
            let is_revoked = |user: &str, began: i64, tokens: &[IssuedToken]| {
                assert_eq!((user, tokens.len()), ("1", 1));
                began < revoked_before
            };
            let outcome = record().user(&SecretHash::of(secret), present, is_revoked, now);
            assert_eq!(outcome.err(), expected, "{secret} at {now}");
        }
    }

    #[test]
    fn a_renewed_record_keeps_its_end_and_its_last_tokens() {
        let ids = |revocations: &[Revocation]| -> Vec<String> {
            let ids = revocations.iter().filter_map(|it| match &it.revoked {
                Revoked::Token { id, .. } => Some(id.clone()),
                _ => None,
            });
            ids.collect()
        };
        let (mut renewed, mut surplus) = (record(), Vec::new());
        for number in 1..=44 {
            let now = if number < 44 { 20 } else { 112 };
            let (next, dropped) = renewed.renewed(SecretHash::of("next"), token(number), now);
            renewed = next;
            surplus.extend(ids(&dropped));
        }
        assert_eq!(renewed.ends, 1000);
        let numbers = |range: std::ops::Range<i64>| -> Vec<_> {
            let numbers = range.map(|number| number.to_string());
            numbers.collect()
        };
        assert_eq!(ids(&renewed.revocations(20)), numbers(13..45));
        let until = 100 + 43 + KEEP_AFTER_EXPIRY;
        assert_eq!(ids(&renewed.revocations(until - 1)), ["43", "44"]);
        assert_eq!(ids(&renewed.revocations(until)), ["44"]);
        // The next one had expired when its place was needed.
        assert_eq!(surplus, numbers(0..12));
        let json = serde_json::to_string(&renewed).unwrap();
        let read: SessionRecord = serde_json::from_str(&json).unwrap();
        assert_eq!(read, renewed);
        let outcome = read.user(
            &SecretHash::of("first"),
            BuiltinUser.present(""),
            |_, _, _| false,
            20,
        );
        assert_eq!(outcome.err(), Some(EndCause::Reuse));
    }
}
