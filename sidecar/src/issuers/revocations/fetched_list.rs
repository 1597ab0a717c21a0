//! A fetched revocation list, and the checks before it counts.

use std::time::Duration;

use http::StatusCode;
use postern_token::keys::KeySet;
use postern_token::revocations::{RevocationList, RevocationListError, SIGNED_EVERY};
use postern_transport::http_client::{TransportError, Unexpected};

/// An older signature is a replay, or of a server whose clock is far behind.
const MAX_SIGNATURE_AGE: i64 = 3_600;
/// Seconds by which clocks may differ: a signature of a later time would be confirmed until then.
const MAX_AHEAD: i64 = 300;

/// The list of a fetch.
#[derive(Debug)]
pub(crate) enum FetchedList {
    /// Not requested: the issuer has none, or no server has responded yet.
    NotRequested,
    /// The whole list or its end, not verified yet.
    Received(String),
    Failed(ListError),
}

impl From<Result<String, ListError>> for FetchedList {
    fn from(received: Result<String, ListError>) -> Self {
        match received {
            Ok(list) => Self::Received(list),
            Err(error) => Self::Failed(error),
        }
    }
}

/// The reason why there is no list.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("the auth server responded with {}", Unexpected(*.0))]
    Status(StatusCode),
    #[error(transparent)]
    List(#[from] RevocationListError),
    #[error("it was signed {0} s ago")]
    TooOld(i64),
    #[error("it was signed {0} s ahead of now: compare the clocks")]
    Ahead(i64),
    #[error(
        "its number {number} is below {known} of the list in force, as after a restore of the store; \
         auth-server revoke --jti none gives it a later one"
    )]
    Older { number: u64, known: u64 },
    #[error("the auth server publishes none")]
    Absent,
}

/// Returns the age of a list at `now`: from its fetch, or from the time at which its server should have signed it
/// again, if that was earlier: it may be a replay.
pub(super) fn age_of_list(issued_at: i64, fetched_at: i64, now: i64) -> Duration {
    let overdue_at = issued_at.saturating_add(SIGNED_EVERY + MAX_AHEAD);
    let age = now.saturating_sub(fetched_at.min(overdue_at));
    // Fetched ahead of our clock it counts as fetched now.
    Duration::from_secs(u64::try_from(age).unwrap_or_default())
}

/// Verifies a fetched list at `now`, in seconds since the epoch.
pub(crate) fn verify_fetched(
    keys: &KeySet,
    response: &str,
    known: Option<&RevocationList>,
    now: i64,
) -> Result<RevocationList, ListError> {
    let list = RevocationList::verify(keys, response, known)?;
    let age = now.saturating_sub(list.issued_at());
    if age > MAX_SIGNATURE_AGE {
        return Err(ListError::TooOld(age));
    }
    if age < -MAX_AHEAD {
        return Err(ListError::Ahead(age.saturating_neg()));
    }
    Ok(list)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use jsonwebtoken::{Algorithm, EncodingKey, crypto};
    use postern_token::keys::VerificationKey;
    use postern_token::keys::signing_type::SigningType;
    use postern_token::revocations::{Chain, LIST_TYPE, ListHead, RevocationDigest, Revoked};
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    pub(crate) fn secret(letter: char) -> String {
        letter.to_string().repeat(32)
    }

    pub(crate) fn keys(letters: &str) -> KeySet {
        let key = |letter| VerificationKey::parse(SigningType::Hmac, &secret(letter)).unwrap();
        KeySet::named(letters.chars().map(key).collect())
    }

    /// Returns a list of these tokens, signed with a shared secret.
    pub(crate) fn list_of(secret: &str, seq: u64, tokens: &[&str]) -> RevocationList {
        let key = VerificationKey::parse(SigningType::Hmac, secret).unwrap();
        let jws = signed(secret, seq, NOW, tokens);
        verify_fetched(&KeySet::nameless(key), &jws, None, NOW).unwrap()
    }

    pub(crate) fn signed(secret: &str, seq: u64, issued_at: i64, tokens: &[&str]) -> String {
        let line = |id: &&str| Revoked::Token(RevocationDigest::for_token(id)).to_string();
        let lines: Vec<String> = tokens.iter().map(line).collect();
        let chain = lines
            .iter()
            .fold(Chain::default(), |chain, line| chain.next(line));
        let header = json!({"alg": "HS256", "typ": LIST_TYPE}).to_string();
        let payload = serde_json::to_string(&ListHead::new(&chain, seq, issued_at)).unwrap();
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let signed = format!("{}.{}", encode(&header), encode(&payload));
        let key = EncodingKey::from_secret(secret.as_bytes());
        let signature = crypto::sign(signed.as_bytes(), &key, Algorithm::HS256).unwrap();
        format!("{signed}.{signature}\n{}", lines.join("\n"))
    }

    #[test]
    fn a_list_of_another_key_or_another_day_is_not_trusted() {
        let jws = signed(&secret('a'), 1, NOW, &[]);
        assert!(verify_fetched(&keys("b"), &jws, None, NOW).is_err());
        assert!(verify_fetched(&keys("a"), &jws, None, NOW + 3_600).is_ok());
        let error = verify_fetched(&keys("a"), &jws, None, NOW + 3_601).unwrap_err();
        assert_eq!(error.to_string(), "it was signed 3601 s ago");
        assert!(verify_fetched(&keys("a"), &jws, None, NOW - 300).is_ok());
        let error = verify_fetched(&keys("a"), &jws, None, NOW - 301).unwrap_err();
        assert!(error.to_string().contains("301 s ahead"), "{error}");
    }

    #[test]
    fn a_list_is_fresh_until_its_next_signature_is_overdue() {
        for (signed_ago, fetched_ago, expected) in [
            (0, 0, 0),
            (900, 0, 0),
            (901, 0, 1),
            (3_600, 0, 2_700),
            (600, 5, 5),
            (905, 5, 5),
            (906, 5, 6),
            (600, 7_200, 7_200),
            (0, -5, 0),
            (3_600, -5, 2_700),
        ] {
            let (issued_at, fetched_at) = (NOW - signed_ago, NOW - fetched_ago);
            let age = age_of_list(issued_at, fetched_at, NOW).as_secs();
            assert_eq!(age, expected, "{signed_ago} {fetched_ago}");
        }
    }
}
