//! Refresh tokens: `postern_rt_`, and in base64url the owner and the handle of the session and a
//! secret that each use replaces.

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use postern_token::digest::sha256;
use zeroize::Zeroizing;

use crate::accounts::applications::secret_hash::SecretHash;
use crate::random;
use crate::store::{Key, Kind};

/// Prefix by which scanners find leaked tokens; no access token starts like this.
pub(crate) const PREFIX: &str = "postern_rt_";
/// A multiple of three, so that the text of a session's name begins with the text of its owner.
const OWNER_BYTES: usize = 9;
const HANDLE_BYTES: usize = 12;
const NAME_BYTES: usize = OWNER_BYTES + HANDLE_BYTES;
const SECRET_BYTES: usize = 27;
const TOKEN_BYTES: usize = NAME_BYTES + SECRET_BYTES;
/// Bytes of a `jti` after the name of its session.
const UNIQUE_BYTES: usize = 12;

/// A well-formed refresh token, verified or not.
#[derive(Clone)]
pub(crate) struct RefreshToken(Zeroizing<[u8; TOKEN_BYTES]>);

/// The name of a session: a digest of its user's id, then a digest of a part of its refresh tokens, which
/// cannot be made from the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionId([u8; NAME_BYTES]);

impl RefreshToken {
    /// Creates the first token of a new session of this user.
    pub(crate) fn generate(user_id: &str) -> Result<Self, Unspecified> {
        let mut token = Self(random::bytes()?);
        let owner = sha256(format!("postern sessions of {user_id}"));
        for (byte, owner_byte) in token.0.iter_mut().take(OWNER_BYTES).zip(owner) {
            *byte = owner_byte;
        }
        Ok(token)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let decoded = Zeroizing::new(URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX)?).ok()?);
        Some(Self(Zeroizing::new(decoded.as_slice().try_into().ok()?)))
    }

    /// Returns the next token. It is always the same for this token and the session's secret; both are needed
    /// to make it.
    pub(super) fn next(&self, session_secret: &str, counter: u64) -> Self {
        let mut next = self.clone();
        let key = hmac::Key::new(HMAC_SHA256, session_secret.as_bytes());
        let message = Zeroizing::new([self.0.as_slice(), &counter.to_be_bytes()].concat());
        let secret = hmac::sign(&key, &message);
        // The name of the session stays, and the secret after it is another one.
        for (byte, secret_byte) in next.0.iter_mut().skip(NAME_BYTES).zip(secret.as_ref()) {
            *byte = *secret_byte;
        }
        next
    }

    pub(crate) fn text(&self) -> Zeroizing<String> {
        let encoded = Zeroizing::new(URL_SAFE_NO_PAD.encode(self.0.as_slice()));
        Zeroizing::new(format!("{PREFIX}{}", *encoded))
    }

    pub(crate) fn session(&self) -> SessionId {
        let mut name = [0; NAME_BYTES];
        let (named, _) = self.0.split_at(NAME_BYTES);
        let owner = named.iter().take(OWNER_BYTES);
        // A digest: names in the store and in logs are no part of a token.
        for (to, from) in name.iter_mut().zip(owner.chain(&sha256(named))) {
            *to = *from;
        }
        SessionId(name)
    }

    /// Returns the hash that the session's record holds.
    pub(super) fn hash(&self) -> SecretHash {
        SecretHash::new(&self.text())
    }
}

impl SessionId {
    /// Returns the session that a `jti` names; `None` for a token without one.
    pub(crate) fn from_token_id(token_id: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(token_id).ok()?;
        if bytes.len() != NAME_BYTES + UNIQUE_BYTES {
            return None;
        }
        bytes.first_chunk().copied().map(Self)
    }

    /// Returns the `jti` of the access token after `counter` renewals. By the session's secret it can be
    /// distinguished from a forged one.
    pub(super) fn token_id(self, session_secret: &str, counter: u64) -> String {
        let key = hmac::Key::new(HMAC_SHA256, session_secret.as_bytes());
        let code = hmac::sign(&key, format!("access token {counter}").as_bytes());
        let unique = code.as_ref().iter().take(UNIQUE_BYTES);
        let bytes: Vec<u8> = self.0.iter().chain(unique).copied().collect();
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Parses the id of a record, which is the `sid` of access tokens.
    pub(crate) fn parse(id: &str) -> Option<Self> {
        URL_SAFE_NO_PAD.decode(id).ok()?.try_into().ok().map(Self)
    }

    /// Returns the `sid` of the access tokens.
    pub(super) fn text(self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Returns the key of the record.
    pub(super) fn key(self) -> Key {
        Key {
            kind: Kind::Session,
            id: self.text(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn the_next_token_is_always_the_same_one_of_the_session() {
        let first = RefreshToken::generate("ada").unwrap();
        let second = first.next("secret", 1);
        assert_eq!(first.session(), second.session());
        assert_eq!(second.text(), first.next("secret", 1).text());
        let read = RefreshToken::parse(&second.text()).unwrap();
        assert_eq!(read.session(), second.session());
        assert!(read.hash().equals(&second.hash()));
        let other = RefreshToken::generate("ada").unwrap();
        for token in [
            &first,
            &first.next("secret", 2),
            &first.next("another", 1),
            &second.next("secret", 1),
            &other.next("secret", 1),
        ] {
            assert!(!token.hash().equals(&second.hash()));
        }
    }

    #[test]
    fn the_sessions_of_a_user_are_one_group() {
        let token = |user| RefreshToken::generate(user).unwrap().session().key();
        let (one, other) = (token("ada"), token("ada"));
        assert_ne!(one.id, other.id);
        assert_eq!(one.group(), other.group());
        assert_ne!(one.group(), token("eve").group());
        assert_eq!(SessionId::parse(&one.id).unwrap().key(), one);
    }

    #[test]
    fn only_the_whole_text_is_a_token() {
        let text = RefreshToken::generate("ada").unwrap().text();
        for broken in [
            "",
            PREFIX,
            &text[1..],
            &text[..text.len() - 1],
            &format!("{}A", *text),
            &format!("{}=", *text),
            &text.replace(PREFIX, "POSTERN_RT_"),
            &format!(" {}", *text),
        ] {
            assert!(RefreshToken::parse(broken).is_none(), "{broken}");
        }
    }

    #[test]
    fn a_token_id_names_its_session_and_others_name_none() {
        let session = RefreshToken::generate("ada").unwrap().session();
        let (one, other) = (session.token_id("x", 0), session.token_id("x", 1));
        assert_ne!(one, other);
        assert_ne!(one, session.token_id("y", 0));
        assert_eq!(SessionId::from_token_id(&one), Some(session));
        for without in ["", "id", &random::token_id().unwrap(), &one[1..]] {
            assert_eq!(SessionId::from_token_id(without), None, "{without}");
        }
    }
}
