//! The revocation list: access tokens that end before their expiry.
//!
//! The auth server publishes it as a compact JWS of its current key. It names digests, because any
//! client may fetch it, and an id of a user or a token is not public.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::de::{Deserialize, Deserializer, Error};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::claims::Claims;
use super::verifier::verified_payload;
use crate::keys::KeySet;
use crate::rejection::Rejection;

/// `typ` of the list: no list passes for a token, and no token for a list.
pub const LIST_TYPE: &str = "postern-revocations+jwt";
/// Length of the longest list.
pub const MAX_LIST_BYTES: usize = 1024 * 1024;
/// Bytes of a digest: enough that no two of a million ids share one.
const DIGEST_BYTES: usize = 12;

/// The begin of the SHA-256 of an id and its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RevocationDigest([u8; DIGEST_BYTES]);

impl RevocationDigest {
    /// Returns the digest of a token's `jti`, or of the `sid` of all tokens of a session: no two share
    /// one.
    pub fn of_token(id: &str) -> Self {
        Self::of("token", id)
    }

    /// Returns the digest of a user's id.
    pub fn of_user(id: &str) -> Self {
        Self::of("user", id)
    }

    /// Returns the digest of an application's id.
    pub fn of_application(id: &str) -> Self {
        Self::of("application", id)
    }

    fn of(kind: &str, id: &str) -> Self {
        let digest = digest(&SHA256, format!("{kind}:{id}").as_bytes());
        let mut bytes = [0; DIGEST_BYTES];
        for (byte, of_digest) in bytes.iter_mut().zip(digest.as_ref()) {
            *byte = *of_digest;
        }
        Self(bytes)
    }
}

impl Serialize for RevocationDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl<'de> Deserialize<'de> for RevocationDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        struct Text<'t>(#[serde(borrow)] Cow<'t, str>);

        let Text(text) = Text::deserialize(deserializer)?;
        let mut bytes = [0; DIGEST_BYTES];
        match URL_SAFE_NO_PAD.decode_slice(&*text, &mut bytes) {
            Ok(DIGEST_BYTES) => Ok(Self(bytes)),
            _ => Err(D::Error::custom("not a digest")),
        }
    }
}

/// Takes the begin of a digest as it is: every part is as random as any other.
#[derive(Debug, Clone, Copy, Default)]
struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_ne_bytes(*first);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Digests = HashSet<RevocationDigest, BuildHasherDefault<DigestHasher>>;
/// With the time before which a revoked token was issued, in seconds since the epoch.
type NotBefore = HashMap<RevocationDigest, i64, BuildHasherDefault<DigestHasher>>;

/// The digests under which a list may name one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenDigests {
    token: Option<RevocationDigest>,
    session: Option<RevocationDigest>,
    user: RevocationDigest,
    application: Option<RevocationDigest>,
    /// In seconds since the epoch.
    issued_at: Option<i64>,
}

impl TokenDigests {
    /// Returns the digests of a verified token.
    pub fn of(claims: &Claims) -> Self {
        let application = claims.client_id.as_deref();
        Self {
            token: claims.token_id.as_deref().map(RevocationDigest::of_token),
            session: claims.session.as_deref().map(RevocationDigest::of_token),
            user: RevocationDigest::of_user(&claims.user_id),
            application: application.map(RevocationDigest::of_application),
            issued_at: claims.issued_at,
        }
    }
}

/// The claims of a list as the auth server writes them: the same bytes for the same revocations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RevocationClaims {
    /// Grows with each change, and never falls.
    pub seq: u64,
    /// Seconds since the epoch.
    #[serde(rename = "iat")]
    pub issued_at: i64,
    /// Single tokens and sessions.
    pub tokens: BTreeSet<RevocationDigest>,
    /// Users, each with the time before which their revoked tokens were issued.
    pub users: BTreeMap<RevocationDigest, i64>,
    /// Applications, likewise.
    pub applications: BTreeMap<RevocationDigest, i64>,
    /// The time before which every token was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub everyone: Option<i64>,
}

/// A verified list.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct RevocationList {
    seq: u64,
    #[serde(rename = "iat")]
    issued_at: i64,
    #[serde(default)]
    tokens: Digests,
    #[serde(default)]
    users: NotBefore,
    #[serde(default)]
    applications: NotBefore,
    #[serde(default)]
    everyone: Option<i64>,
}

/// The reason why a list is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RevocationListError {
    /// Its signature or its header.
    #[error("the revocation list is not signed by a key in force ({0})")]
    Signature(Rejection),
    /// Its content.
    #[error("the revocation list cannot be read")]
    Malformed,
}

impl RevocationList {
    /// Verifies a compact JWS with the keys in force.
    ///
    /// # Errors
    /// See [`RevocationListError`].
    pub fn verify(keys: &KeySet, jws: &str) -> Result<Self, RevocationListError> {
        let payload =
            verified_payload(keys, jws, check_type).map_err(RevocationListError::Signature)?;
        serde_json::from_slice(&payload).map_err(|_| RevocationListError::Malformed)
    }

    /// Returns true if the list names this token.
    pub fn revokes(&self, token: &TokenDigests) -> bool {
        let issued_before = |time: Option<&i64>| {
            // A token without `iat` may have been issued at any time.
            time.is_some_and(|time| token.issued_at.is_none_or(|issued| issued < *time))
        };
        let application = token.application.as_ref();
        let mut names = token.token.iter().chain(&token.session);
        names.any(|id| self.tokens.contains(id))
            || issued_before(self.users.get(&token.user))
            || issued_before(application.and_then(|id| self.applications.get(id)))
            || issued_before(self.everyone.as_ref())
    }

    /// Returns the number that never falls.
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns the time of the signature in seconds since the epoch.
    pub const fn issued_at(&self) -> i64 {
        self.issued_at
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> usize {
        self.tokens.len()
            + self.users.len()
            + self.applications.len()
            + usize::from(self.everyone.is_some())
    }

    /// Returns true if both revoke the same tokens.
    pub fn revokes_same(&self, other: &Self) -> bool {
        self.tokens == other.tokens
            && self.users == other.users
            && self.applications == other.applications
            && self.everyone == other.everyone
    }

    /// Adds the entries of `other`; the later signature counts.
    #[must_use]
    pub fn joined(mut self, other: &Self) -> Self {
        self.issued_at = self.issued_at.max(other.issued_at);
        self.tokens.extend(&other.tokens);
        join(&mut self.users, &other.users);
        join(&mut self.applications, &other.applications);
        self.everyone = self.everyone.max(other.everyone);
        self
    }
}

fn join(times: &mut NotBefore, others: &NotBefore) {
    for (id, other) in others {
        let time = times.entry(*id).or_insert(*other);
        *time = (*time).max(*other);
    }
}

fn check_type(header: &Map<String, Value>) -> Result<(), Rejection> {
    let named = header.get("typ").and_then(Value::as_str);
    let is_list = named.is_some_and(|named| named.eq_ignore_ascii_case(LIST_TYPE));
    is_list.then_some(()).ok_or(Rejection::TokenHeader)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::hash::BuildHasher;

    use jsonwebtoken::{Algorithm, EncodingKey, crypto};
    use serde_json::json;

    use super::*;
    use crate::keys::VerificationKey;
    use crate::keys::signing_type::SigningType;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn keys(secret: &str) -> KeySet {
        KeySet::nameless(VerificationKey::parse(SigningType::Hmac, secret).unwrap())
    }

    fn signed(header: &Value, payload: &Value) -> String {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(header), encode(payload));
        let key = EncodingKey::from_secret(SECRET.as_bytes());
        let signature = crypto::sign(signed.as_bytes(), &key, Algorithm::HS256).unwrap();
        format!("{signed}.{signature}")
    }

    fn list(payload: &Value) -> RevocationList {
        let jws = signed(&json!({"alg": "HS256", "typ": LIST_TYPE}), payload);
        RevocationList::verify(&keys(SECRET), &jws).unwrap()
    }

    fn of(claims: &RevocationClaims) -> RevocationList {
        list(&serde_json::to_value(claims).unwrap())
    }

    fn token(id: &str, user: &str, issued_at: Option<i64>) -> TokenDigests {
        TokenDigests::of(&Claims {
            token_id: (!id.is_empty()).then(|| id.to_owned()),
            user_id: user.to_owned(),
            issued_at,
            ..Claims::default()
        })
    }

    #[test]
    fn each_kind_of_entry_ends_its_tokens_and_no_others() {
        let user = RevocationDigest::of_user("7");
        let by_token = RevocationClaims {
            tokens: [RevocationDigest::of_token("a")].into(),
            ..RevocationClaims::default()
        };
        let by_user = RevocationClaims {
            users: [(user, 100)].into(),
            ..RevocationClaims::default()
        };
        let by_time = RevocationClaims {
            everyone: Some(100),
            ..RevocationClaims::default()
        };
        let empty = RevocationClaims::default();
        for (claims, id, who, issued_at, revoked) in [
            (&by_token, "a", "7", Some(1), true),
            (&by_token, "b", "7", Some(1), false),
            (&by_token, "", "a", Some(1), false),
            (&by_user, "a", "7", Some(99), true),
            (&by_user, "a", "7", Some(100), false),
            (&by_user, "a", "7", None, true),
            (&by_user, "7", "8", Some(1), false),
            (&by_time, "a", "8", Some(99), true),
            (&by_time, "a", "8", Some(100), false),
            (&empty, "a", "7", None, false),
        ] {
            let is_revoked = of(claims).revokes(&token(id, who, issued_at));
            assert_eq!(is_revoked, revoked, "{id} {who} {issued_at:?}");
        }
    }

    #[test]
    fn the_tokens_of_an_application_are_those_with_its_client_id() {
        let application = RevocationDigest::of_application("orders");
        let claims = RevocationClaims {
            applications: [(application, 100)].into(),
            ..RevocationClaims::default()
        };
        for (client_id, issued_at, revoked) in [
            (Some("orders"), 99, true),
            (Some("orders"), 100, false),
            (Some("stock"), 99, false),
            (None, 99, false),
        ] {
            let token = TokenDigests::of(&Claims {
                user_id: "orders".to_owned(),
                client_id: client_id.map(ToOwned::to_owned),
                issued_at: Some(issued_at),
                ..Claims::default()
            });
            assert_eq!(of(&claims).revokes(&token), revoked, "{client_id:?}");
        }
    }

    #[test]
    fn only_a_list_signed_by_a_key_in_force_counts() {
        let payload = json!({"seq": 1, "iat": 5});
        let of_type = |name: &str| json!({"alg": "HS256", "typ": name});
        let good = signed(&of_type(LIST_TYPE), &payload);
        assert!(RevocationList::verify(&keys(SECRET), &good).is_ok());
        let other = keys("another secret of thirty-two bytes");
        assert_eq!(
            RevocationList::verify(&other, &good).unwrap_err(),
            RevocationListError::Signature(Rejection::TokenSignature)
        );
        for header in [of_type("JWT"), of_type("at+jwt"), json!({"alg": "HS256"})] {
            assert_eq!(
                RevocationList::verify(&keys(SECRET), &signed(&header, &payload)).unwrap_err(),
                RevocationListError::Signature(Rejection::TokenHeader)
            );
        }
        for bad in [
            json!({"iat": 5}),
            json!({"seq": 1}),
            json!({"seq": -1, "iat": 5}),
            json!({"seq": 1, "iat": 5, "tokens": ["short"]}),
            json!({"seq": 1, "iat": 5, "users": {"short": 1}}),
        ] {
            let jws = signed(&of_type(LIST_TYPE), &bad);
            assert_eq!(
                RevocationList::verify(&keys(SECRET), &jws).unwrap_err(),
                RevocationListError::Malformed,
                "{bad}"
            );
        }
    }

    #[test]
    fn two_lists_join_to_all_entries_of_both() {
        let user = RevocationDigest::of_user("7");
        let one = of(&RevocationClaims {
            tokens: [RevocationDigest::of_token("a")].into(),
            users: [(user, 100)].into(),
            ..RevocationClaims::default()
        });
        let other = of(&RevocationClaims {
            tokens: [RevocationDigest::of_token("b")].into(),
            users: [(user, 50)].into(),
            everyone: Some(10),
            ..RevocationClaims::default()
        });
        let joined = one.clone().joined(&other);
        assert!(joined.revokes_same(&other.joined(&one)));
        assert_eq!(joined.entries(), 4);
        assert!(joined.revokes(&token("", "7", Some(99))));
    }

    #[test]
    fn digests_are_spread_by_their_hashes() {
        let digests = (0..100).map(|id| RevocationDigest::of_token(&id.to_string()));
        let hashes = digests.map(|digest| Digests::default().hasher().hash_one(digest));
        assert_eq!(hashes.collect::<BTreeSet<u64>>().len(), 100);
    }

    #[test]
    fn a_list_has_its_number_and_its_time() {
        let list = list(&json!({"seq": 7, "iat": 5}));
        assert_eq!((list.seq(), list.issued_at()), (7, 5));
    }

    #[test]
    fn lists_revoke_the_same_only_if_every_kind_agrees() {
        let user = RevocationDigest::of_user("7");
        let empty = RevocationClaims::default();
        let lists = [
            empty.clone(),
            RevocationClaims {
                tokens: [RevocationDigest::of_token("a")].into(),
                ..empty.clone()
            },
            RevocationClaims {
                users: [(user, 100)].into(),
                ..empty.clone()
            },
            RevocationClaims {
                applications: [(user, 100)].into(),
                ..empty.clone()
            },
            RevocationClaims {
                everyone: Some(100),
                ..empty
            },
        ];
        for (at, one) in lists.iter().enumerate() {
            for (index, other) in lists.iter().enumerate() {
                let same = of(one).revokes_same(&of(other));
                assert_eq!(same, at == index, "{at} {index}");
            }
            assert_eq!(of(one).entries(), usize::from(at > 0), "{at}");
        }
    }

    #[test]
    fn forty_thousand_tokens_fit_into_the_longest_list() {
        let claims = RevocationClaims {
            tokens: (0..40_000)
                .map(|number| RevocationDigest::of_token(&format!("token {number}")))
                .collect(),
            ..RevocationClaims::default()
        };
        let jws = signed(
            &json!({"alg": "HS256", "typ": LIST_TYPE}),
            &serde_json::to_value(&claims).unwrap(),
        );
        assert!(jws.len() <= MAX_LIST_BYTES, "{}", jws.len());
        let list = RevocationList::verify(&keys(SECRET), &jws).unwrap();
        let entry = size_of::<RevocationDigest>() + 1;
        assert!(list.tokens.capacity() * 8 / 7 * entry < 3_000_000);
        assert!(list.revokes(&token("token 39999", "", None)));
        assert!(!list.revokes(&token("token 40000", "", None)));
    }
}
