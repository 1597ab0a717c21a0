//! The revocation list in force, and the rule by which a fetched list takes its place.

use std::time::{Duration, Instant};

use http::StatusCode;
use wire::keys::{KeyId, KeySet};
use wire::token::revocations::{RevocationList, RevocationListError};

use super::current::FetchTime;
use super::http_client::{TransportError, Unexpected};

/// An auth server signs its list anew every ten minutes: an older signature is a replay, or of a
/// server whose clock is far behind.
const MAX_SIGNATURE_AGE: i64 = 3_600;
/// Seconds by which clocks may differ: a signature of a later time would be confirmed until then.
const MAX_AHEAD: i64 = 300;

/// A list, its fetch time, and the names of the keys in force at that time.
#[derive(Debug)]
pub(crate) struct Revocations {
    list: RevocationList,
    keys: Vec<KeyId>,
    fetched: FetchTime,
}

impl Revocations {
    pub(crate) fn new(list: RevocationList, keys: &KeySet, fetched: impl Into<FetchTime>) -> Self {
        Self {
            list,
            keys: names(keys).cloned().collect(),
            fetched: fetched.into(),
        }
    }

    /// Returns false once all keys of its time are gone, as after the loss of a store: numbers begin anew
    /// with the keys, and the tokens of the former ones are void.
    fn is_comparable(&self, keys: &KeySet) -> bool {
        names(keys).any(|name| self.keys.contains(name))
    }

    pub(crate) fn list(&self) -> &RevocationList {
        &self.list
    }

    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.fetched.age(now)
    }
}

/// The part of a fetch about the list.
#[derive(Debug, Default)]
pub(crate) enum FetchedList {
    /// No list was requested.
    #[default]
    NotRequested,
    /// The server publishes no list.
    Absent,
    /// A list, or the end of one, not verified yet.
    List(String),
    Failed(ListError),
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

/// The effect of a verified list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Replaced(RevocationList),
    /// The same lines, signed at another time.
    Unchanged(RevocationList),
    /// The list in force is newer: a server that has not read its store yet, or a replay.
    Older,
}

/// Verifies a fetched list at `now`, in seconds since the epoch.
///
/// # Errors
/// [`ListError::List`], [`ListError::TooOld`], [`ListError::Ahead`].
pub(crate) fn verified(
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

/// Compares a verified list with the one in force. One that only adds to it is never older.
pub(crate) fn take(known: Option<&Revocations>, keys: &KeySet, list: RevocationList) -> Taken {
    let Some(known) = known.filter(|known| known.is_comparable(keys)) else {
        return Taken::Replaced(list);
    };
    let known = known.list();
    match (list.extends(known), list.count() == known.count()) {
        (true, true) => Taken::Unchanged(list),
        (true, false) => Taken::Replaced(list),
        (false, _) if list.seq() < known.seq() => Taken::Older,
        (false, _) => Taken::Replaced(list),
    }
}

fn names(keys: &KeySet) -> impl Iterator<Item = &KeyId> {
    keys.keys().iter().map(|key| key.id())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use jsonwebtoken::{Algorithm, EncodingKey, crypto};
    use serde_json::json;
    use wire::keys::VerificationKey;
    use wire::keys::signing_type::SigningType;
    use wire::token::revocations::{Chain, LIST_TYPE, ListHead, RevocationDigest, Revoked};

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn secret(letter: char) -> String {
        letter.to_string().repeat(32)
    }

    fn keys(letter: char) -> KeySet {
        let key = VerificationKey::parse(SigningType::Hmac, &secret(letter));
        KeySet::nameless(key.unwrap())
    }

    /// Signs a list of these tokens.
    fn signed(letter: char, seq: u64, tokens: &[&str]) -> String {
        signed_with(&secret(letter), seq, tokens)
    }

    /// Returns a list of these tokens, signed with a shared secret.
    pub(crate) fn list_of(secret: &str, seq: u64, tokens: &[&str]) -> RevocationList {
        let key = VerificationKey::parse(SigningType::Hmac, secret).unwrap();
        let jws = signed_with(secret, seq, tokens);
        verified(&KeySet::nameless(key), &jws, None, NOW).unwrap()
    }

    fn signed_with(secret: &str, seq: u64, tokens: &[&str]) -> String {
        signed_list(secret, seq, NOW, tokens)
    }

    /// Signs an empty list at this time.
    pub(crate) fn signed_at(secret: &str, seq: u64, issued_at: i64) -> String {
        signed_list(secret, seq, issued_at, &[])
    }

    pub(crate) fn signed_list(secret: &str, seq: u64, issued_at: i64, tokens: &[&str]) -> String {
        let line = |id: &&str| Revoked::Token(RevocationDigest::of_token(id)).to_string();
        let lines: Vec<String> = tokens.iter().map(line).collect();
        let chain = lines
            .iter()
            .fold(Chain::default(), |chain, line| chain.next(line));
        let header = json!({"alg": "HS256", "typ": LIST_TYPE}).to_string();
        let payload = serde_json::to_string(&ListHead::of(&chain, seq, issued_at)).unwrap();
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let signed = format!("{}.{}", encode(&header), encode(&payload));
        let key = EncodingKey::from_secret(secret.as_bytes());
        let signature = crypto::sign(signed.as_bytes(), &key, Algorithm::HS256).unwrap();
        format!("{signed}.{signature}\n{}", lines.join("\n"))
    }

    fn list(letter: char, seq: u64, tokens: &[&str]) -> RevocationList {
        list_of(&secret(letter), seq, tokens)
    }

    #[test]
    fn numbers_never_go_back_but_for_what_only_adds() {
        let known = known("a");
        for (seq, tokens, replaced) in [
            (6, &["y"][..], None),
            (6, &[], None),
            (6, &["x", "y"], Some(2)),
            (7, &["x"], None),
            (7, &[], Some(0)),
            (8, &["y"], Some(1)),
        ] {
            let taken = take(Some(&known), &keys('a'), list('a', seq, tokens));
            match (taken, replaced) {
                (Taken::Replaced(list), Some(lines)) => assert_eq!(list.count(), lines),
                (Taken::Older, None) => assert_eq!(seq, 6),
                (Taken::Unchanged(_), None) => assert_eq!(seq, 7),
                other => unreachable!("{seq} {tokens:?}: {other:?}"),
            }
        }
        let first = take(None, &keys('a'), list('a', 1, &[]));
        assert!(matches!(first, Taken::Replaced(_)));
    }

    /// Returns a list of `a` with the number 7, of the time of these keys.
    fn known(letters: &str) -> Revocations {
        let all = letters.chars().map(|letter| {
            let key = VerificationKey::parse(SigningType::Hmac, &secret(letter));
            key.unwrap()
        });
        let keys = KeySet::named(all.collect());
        Revocations::new(list('a', 7, &["x"]), &keys, Instant::now())
    }

    #[test]
    fn numbers_begin_anew_once_all_keys_are_others() {
        for (former, taken) in [
            ("a", Taken::Replaced(list('b', 1, &[]))),
            ("ab", Taken::Older),
        ] {
            let known = known(former);
            let list = list('b', 1, &[]);
            assert_eq!(take(Some(&known), &keys('b'), list), taken, "{former}");
        }
    }

    #[test]
    fn a_list_of_another_key_or_another_day_is_not_trusted() {
        let jws = signed('a', 1, &[]);
        assert!(verified(&keys('b'), &jws, None, NOW).is_err());
        assert!(verified(&keys('a'), &jws, None, NOW + 3_600).is_ok());
        let error = verified(&keys('a'), &jws, None, NOW + 3_601).unwrap_err();
        assert_eq!(error.to_string(), "it was signed 3601 s ago");
        assert!(verified(&keys('a'), &jws, None, NOW - 300).is_ok());
        let error = verified(&keys('a'), &jws, None, NOW - 301).unwrap_err();
        assert!(error.to_string().contains("301 s ahead"), "{error}");
    }
}
