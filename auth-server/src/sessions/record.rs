//! The record of a session, and the decision about its use.

use std::fmt;

use aws_lc_rs::error::Unspecified;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::EndCause;
use super::refresh_token::RefreshToken;
use crate::applications::secret_hash::SecretHash;
use crate::random;
use crate::revocations::{KEEP_AFTER_EXPIRY, Revocation, Revoked};
use crate::users::{PresentUser, User};

/// Tokens that end with their session; older ones end before. A client that refreshes with each page
/// has as many within hours, and each that ends is an entry of the revocation list.
const MAX_TOKENS: usize = 32;
/// Seconds for which the former refresh token gives the same pair again: the response to its first
/// use may be lost.
const REPEAT: i64 = 30;

/// Times in seconds since the epoch, by the store's clock.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionRecord {
    /// Makes the next refresh token, together with the present one; alone it makes none.
    secret: String,
    /// The number of renewals.
    counter: u64,
    /// Hash of the present refresh token.
    token_sha256: SecretHash,
    /// Hash of the one before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    former_sha256: Option<SecretHash>,
    /// The time of the last renewal, or of the login: `iat` of the last access token.
    renewed: i64,
    user_id: String,
    pub(super) account: String,
    /// See [`PresentUser::credentials`]: those of the login.
    credentials: String,
    /// The time of the login.
    began: i64,
    pub(super) ends: i64,
    /// The last access tokens, oldest first, with those that only a sidecar still accepts.
    tokens: Vec<IssuedToken>,
    /// Members of a newer version.
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

/// Redacted: it names a user, and holds a secret.
impl fmt::Debug for SessionRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionRecord([redacted])")
    }
}

/// An access token of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IssuedToken {
    /// `jti`.
    pub(crate) id: String,
    /// `exp`.
    pub(crate) expires: i64,
}

/// The use of a refresh token that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    First,
    /// Another one of the former token, soon after the first.
    Repeated,
}

/// The reason why a refresh token has no user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoUser {
    /// The session has to end.
    Over(EndCause),
    /// This server knows no such user, or other credentials of it.
    OtherUsers,
}

impl From<EndCause> for NoUser {
    fn from(cause: EndCause) -> Self {
        Self::Over(cause)
    }
}

impl SessionRecord {
    pub(super) fn new(
        token: &RefreshToken,
        user: &User,
        credentials: String,
        (began, ends): (i64, i64),
        issued: IssuedToken,
    ) -> Result<Self, Unspecified> {
        Ok(Self {
            secret: random::secret()?.to_string(),
            counter: 0,
            token_sha256: token.hash(),
            former_sha256: None,
            renewed: began,
            user_id: user.id.clone(),
            account: user.account.clone(),
            credentials,
            began,
            ends,
            tokens: vec![issued],
            unknown: Map::new(),
        })
    }

    /// Returns the record after a use of `token`, whose end stays, and the revocations of access tokens
    /// that it has no place for: nothing would end them with the session.
    pub(super) fn renewed(
        &self,
        token: &RefreshToken,
        issued: IssuedToken,
        now: i64,
    ) -> (Self, Vec<Revocation>) {
        let mut tokens: Vec<_> = self.accepted_tokens(now).cloned().collect();
        tokens.push(issued);
        let surplus = tokens.len().saturating_sub(MAX_TOKENS);
        let surplus = tokens.drain(..surplus);
        let valid = surplus.filter(|token| token.expires > now);
        let revocations = valid.map(|token| self.revocation(&token)).collect();
        let counter = self.counter.saturating_add(1);
        let renewed = Self {
            counter,
            token_sha256: token.next(&self.secret, counter).hash(),
            former_sha256: Some(self.token_sha256),
            renewed: now,
            tokens,
            ..self.clone()
        };
        (renewed, revocations)
    }

    /// Returns what the last use of a refresh token gave: the next refresh token, and the access token
    /// with the time of its issue. `used` is the former token.
    pub(super) fn given(&self, used: &RefreshToken) -> Option<(RefreshToken, IssuedToken, i64)> {
        let issued = self.tokens.last()?.clone();
        let next = used.next(&self.secret, self.counter);
        Some((next, issued, self.renewed))
    }

    /// Returns the revocations of all access tokens that a program may accept at `now`.
    pub(crate) fn revocations(&self, now: i64) -> Vec<Revocation> {
        let tokens = self.accepted_tokens(now);
        tokens.map(|token| self.revocation(token)).collect()
    }

    pub(crate) fn has_token(&self, id: &str) -> bool {
        self.tokens.iter().any(|token| token.id == id)
    }

    /// Lists the tokens that a sidecar may accept at `now`, by its own clock and leeway.
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

    /// Returns the user of a refresh token, as present at `now`, and the kind of this use; `is_revoked`
    /// is about a user's id, a time, and the ids of tokens.
    ///
    /// # Errors
    /// See [`NoUser`].
    pub(super) fn user(
        &self,
        presented: &RefreshToken,
        present: Option<PresentUser>,
        is_revoked: impl FnOnce(&str, i64, &[IssuedToken]) -> bool,
        now: i64,
    ) -> Result<(User, Use), NoUser> {
        let of_token = self.use_of(&presented.hash(), now).ok_or(EndCause::Reuse)?;
        if self.ends <= now {
            return Err(EndCause::Expiry.into());
        }
        // A renewal whose commit failed may have revoked the oldest of a full list.
        let surplus = usize::from(self.tokens.len() >= MAX_TOKENS);
        let tokens = self.tokens.get(surplus..).unwrap_or_default();
        if is_revoked(&self.user_id, self.began, tokens) {
            return Err(EndCause::Revocation.into());
        }
        let present = present.filter(|present| {
            present.user.id == self.user_id && present.credentials == self.credentials
        });
        let present = present.ok_or(NoUser::OtherUsers)?;
        Ok((present.user, of_token))
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
    use crate::users::UserStore;
    use crate::users::builtin::BuiltinUser;
    use crate::users::builtin::tests::builtin_user;

    fn issued(number: i64) -> IssuedToken {
        IssuedToken {
            id: number.to_string(),
            expires: 100 + number,
        }
    }

    /// Begins a session at 10; returns its first token.
    fn begun() -> (RefreshToken, SessionRecord) {
        let first = RefreshToken::generate("1").unwrap();
        let user = builtin_user();
        let record = SessionRecord::new(&first, &user, String::new(), (10, 1000), issued(0));
        (first, record.unwrap())
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
            (
                &first,
                present(),
                0,
                1000,
                Some(NoUser::Over(EndCause::Expiry)),
            ),
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
            let is_revoked = |user: &str, began: i64, tokens: &[IssuedToken]| {
                assert_eq!((user, tokens.len()), ("1", 1));
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
            let outcome = record.user(token, BuiltinUser.present(""), |_, _, _| false, now);
            outcome.map(|(_, of_token)| of_token)
        };
        let (renewed, _) = record.renewed(&first, issued(1), 50);
        let (second, token, at) = renewed.given(&first).unwrap();
        assert_eq!((&token, at), (&issued(1), 50));
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
        let (again, ..) = read.given(&first).unwrap();
        assert_eq!(again.text(), second.text());
        let (third, _) = read.renewed(&second, issued(2), 60);
        assert_eq!(of(&third, &first, 60), Err(NoUser::Over(EndCause::Reuse)));
    }

    #[test]
    fn a_renewed_record_keeps_end_last_tokens_and_unknown_members() {
        let ids = |revocations: &[Revocation]| -> Vec<String> {
            let ids = revocations.iter().filter_map(|it| match &it.revoked {
                Revoked::Token { id, .. } => Some(id.clone()),
                _ => None,
            });
            ids.collect()
        };
        let (mut token, mut renewed) = begun();
        renewed.unknown.insert("newer".into(), 1.into());
        let mut surplus = Vec::new();
        for number in 1..=44 {
            let now = if number < 44 { 20 } else { 112 };
            let (next, dropped) = renewed.renewed(&token, issued(number), now);
            (token, renewed) = (next.given(&token).unwrap().0, next);
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
        assert!(json.contains("\"newer\":1"), "{json}");
        let read: SessionRecord = serde_json::from_str(&json).unwrap();
        assert_eq!(read, renewed);
    }
}
