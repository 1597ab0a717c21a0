//! Refresh tokens: `postern_rt_`, and in base64url the handle of the session and a secret that each
//! use replaces.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::error::Unspecified;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

use crate::applications::secret_hash::SecretHash;
use crate::keys::store::records::RecordId;
use crate::random;

/// Prefix by which scanners find leaked tokens; no access token starts like this.
const PREFIX: &str = "postern_rt_";
const HANDLE_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;
const TOKEN_BYTES: usize = HANDLE_BYTES + SECRET_BYTES;

/// A well-formed refresh token, verified or not.
pub(crate) struct RefreshToken {
    text: Zeroizing<String>,
    session: RecordId,
}

impl RefreshToken {
    /// Creates the first token of a new session.
    pub(crate) fn generate() -> Result<Self, Unspecified> {
        let bytes = random::bytes::<TOKEN_BYTES>()?;
        Self::of(&bytes).ok_or(Unspecified)
    }

    /// Creates the next token of the session.
    pub(crate) fn renewed(&self) -> Result<Self, Unspecified> {
        let mut bytes = self.bytes().ok_or(Unspecified)?;
        let secret = random::bytes::<SECRET_BYTES>()?;
        let slot = bytes.get_mut(HANDLE_BYTES..).ok_or(Unspecified)?;
        slot.copy_from_slice(secret.as_slice());
        Self::of(&bytes).ok_or(Unspecified)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = Zeroizing::new(text.to_owned());
        let bytes = decode(&text)?;
        Self::of(&bytes)
    }

    fn of(bytes: &[u8; TOKEN_BYTES]) -> Option<Self> {
        // A digest: names in the store and in logs are no part of a token.
        let handle = digest(&SHA256, bytes.get(..HANDLE_BYTES)?);
        let encoded = Zeroizing::new(URL_SAFE_NO_PAD.encode(bytes));
        Some(Self {
            text: Zeroizing::new(format!("{PREFIX}{}", *encoded)),
            session: RecordId::from_start(handle.as_ref())?,
        })
    }

    fn bytes(&self) -> Option<Zeroizing<[u8; TOKEN_BYTES]>> {
        decode(&self.text)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn session(&self) -> RecordId {
        self.session
    }

    /// Returns what the session's record holds of the token.
    pub(super) fn hash(&self) -> SecretHash {
        SecretHash::of(&self.text)
    }
}

fn decode(text: &str) -> Option<Zeroizing<[u8; TOKEN_BYTES]>> {
    let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX)?);
    let bytes = Zeroizing::new(bytes.ok()?);
    <[u8; TOKEN_BYTES]>::try_from(bytes.as_slice())
        .ok()
        .map(Zeroizing::new)
}

/// Returns the `jti` of an access token of a session, which names the session.
pub(crate) fn token_id(session: &RecordId) -> Result<String, Unspecified> {
    let unique = random::bytes::<{ RecordId::LENGTH }>()?;
    let both = [session.as_bytes().as_slice(), unique.as_slice()].concat();
    Ok(URL_SAFE_NO_PAD.encode(both))
}

/// Returns the session that a `jti` names; `None` for a token without one.
pub(crate) fn session_of(token_id: &str) -> Option<RecordId> {
    let bytes = URL_SAFE_NO_PAD.decode(token_id).ok()?;
    let is_whole = bytes.len() == 2 * RecordId::LENGTH;
    is_whole.then(|| RecordId::from_start(&bytes)).flatten()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_renewed_token_is_another_one_of_the_same_session() {
        let first = RefreshToken::generate().unwrap();
        let second = first.renewed().unwrap();
        assert_eq!(first.session(), second.session());
        assert_ne!(first.text(), second.text());
        assert!(!first.hash().equals(&second.hash()));
        assert_ne!(first.session(), RefreshToken::generate().unwrap().session());
        let read = RefreshToken::parse(second.text()).unwrap();
        assert_eq!(read.session(), second.session());
        assert!(read.hash().equals(&second.hash()));
    }

    #[test]
    fn only_the_whole_text_is_a_token() {
        let token = RefreshToken::generate().unwrap();
        let text = token.text();
        for broken in [
            "",
            PREFIX,
            &text[1..],
            &text[..text.len() - 1],
            &format!("{text}A"),
            &format!("{text}="),
            &text.replace(PREFIX, "POSTERN_RT_"),
            &format!(" {text}"),
        ] {
            assert!(RefreshToken::parse(broken).is_none(), "{broken}");
        }
    }

    #[test]
    fn a_token_id_names_its_session_and_others_name_none() {
        let session = RefreshToken::generate().unwrap().session();
        let (one, other) = (token_id(&session).unwrap(), token_id(&session).unwrap());
        assert_ne!(one, other);
        assert_eq!(session_of(&one), Some(session));
        for without in ["", "id", &random::token_id().unwrap(), &one[1..]] {
            assert_eq!(session_of(without), None, "{without}");
        }
    }
}
