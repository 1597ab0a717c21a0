//! The trusted keys of one moment: keys without names, or a JWK Set (RFC 7517).

use std::collections::BTreeSet;

use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey,
    jwk::{AlgorithmParameters, CommonParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse},
};
use serde_json::Value;

use super::{KeyError, KeyId, VerificationKey, algorithms};
use crate::strict_json;

/// The trusted keys of one moment.
#[derive(Debug, Clone)]
pub struct KeySet(Keys);

#[derive(Debug, Clone)]
enum Keys {
    /// Keys of the contract endpoint or a PEM file, which have no names: each is tried on every
    /// token, regardless of its `kid`.
    Nameless(Vec<VerificationKey>),
    /// A JWK Set: `kid` selects the key; a token without `kid` is tried against each.
    Named {
        keys: Vec<VerificationKey>,
        /// The algorithms that its keys may have, including those without a key at present.
        allowed: Vec<Algorithm>,
    },
}

impl KeySet {
    /// Creates a set of the single key of the contract endpoint (contract §4.3).
    pub fn nameless(key: VerificationKey) -> Self {
        Self::nameless_keys(vec![key])
    }

    /// Creates a set of keys without names, tried in this order.
    pub const fn nameless_keys(keys: Vec<VerificationKey>) -> Self {
        Self(Keys::Nameless(keys))
    }

    /// Creates a set of keys with names; tokens of other algorithms than theirs are rejected.
    pub fn named(keys: Vec<VerificationKey>) -> Self {
        let allowed = keys.iter().map(VerificationKey::algorithm).collect();
        Self(Keys::Named { keys, allowed })
    }

    /// Parses a JWK Set (RFC 7517 §5). Keys for other purposes, of unknown kinds or of algorithms
    /// outside `allowed` are left out; symmetric keys always are.
    ///
    /// # Errors
    /// [`KeyError::NotAJwkSet`], [`KeyError::PrivateKey`] if a key has its private half,
    /// [`KeyError::NoUsableKey`] if nothing is left.
    pub fn from_jwks(json: &[u8], allowed: &[Algorithm]) -> Result<Self, KeyError> {
        let set = strict_json::object(json).map_err(|_| KeyError::NotAJwkSet)?;
        let Some(Value::Array(members)) = set.get("keys") else {
            return Err(KeyError::NotAJwkSet);
        };
        if members.iter().any(|member| member.get("d").is_some()) {
            return Err(KeyError::PrivateKey);
        }
        let keys: Vec<_> = members
            .iter()
            .filter_map(|member| verification_key_from_jwk(member, allowed))
            .collect();
        if keys.is_empty() {
            return Err(no_usable_key(members, allowed));
        }
        let allowed = allowed.to_vec();
        Ok(Self(Keys::Named { keys, allowed }))
    }

    /// Parses a file of one or more PEM blocks `PUBLIC KEY`, or the base64 of one key's DER. Each
    /// key is used with the first of `allowed` that fits its kind.
    ///
    /// # Errors
    /// [`KeyError::PrivateKey`], [`KeyError::NotAPublicKey`] for any other block,
    /// [`KeyError::RsaTooSmall`], [`KeyError::NotAllowed`] if no algorithm fits.
    pub fn from_pem(text: &str, allowed: &[Algorithm]) -> Result<Self, KeyError> {
        let keys = pem_blocks(text)
            .map(|block| VerificationKey::of_any_type(block, allowed))
            .collect::<Result<_, _>>()?;
        Ok(Self::nameless_keys(keys))
    }

    /// Returns all keys, for status and logs.
    pub fn keys(&self) -> &[VerificationKey] {
        match &self.0 {
            Keys::Nameless(keys) | Keys::Named { keys, .. } => keys,
        }
    }

    /// Returns true if `kid` selects among the keys.
    pub const fn is_named(&self) -> bool {
        matches!(self.0, Keys::Named { .. })
    }

    /// Returns true if a token may be signed with this algorithm, by a present key or by a later
    /// one of the same source.
    pub fn allows(&self, algorithm: Algorithm) -> bool {
        match &self.0 {
            Keys::Nameless(keys) => keys.iter().any(|key| key.algorithm() == algorithm),
            Keys::Named { allowed, .. } => allowed.contains(&algorithm),
        }
    }
}

/// Splits at each END line. Text after the last one becomes a block of its own, which fails to
/// parse.
fn pem_blocks(text: &str) -> impl Iterator<Item = &str> {
    const END: &str = "-----END PUBLIC KEY-----";
    let mut rest = Some(text.trim_end());
    std::iter::from_fn(move || {
        let text = rest?;
        let end = text.find(END).map_or(text.len(), |at| at + END.len());
        let (block, after) = text.split_at(end);
        rest = Some(after).filter(|after| !after.is_empty());
        Some(block)
    })
}

fn no_usable_key(members: &[Value], allowed: &[Algorithm]) -> KeyError {
    let found: BTreeSet<String> = members.iter().map(kind).collect();
    let found: Vec<_> = found.into_iter().collect();
    let wanted: Vec<_> = allowed.iter().copied().map(algorithms::name).collect();
    KeyError::NoUsableKey {
        found: if found.is_empty() {
            "none".to_owned()
        } else {
            found.join(", ")
        },
        wanted: wanted.join(", "),
    }
}

const UNKNOWN_KIND: &str = "a key of an unknown kind";

/// Names the algorithm or the kind of a key, in words of the library alone.
fn kind(member: &Value) -> String {
    let Ok(jwk) = serde_json::from_value::<Jwk>(member.clone()) else {
        return UNKNOWN_KIND.to_owned();
    };
    let name = match (&jwk.common.key_algorithm, &jwk.algorithm) {
        (Some(algorithm), _) => algorithm.to_string(),
        (None, AlgorithmParameters::RSA(_)) => "RSA".to_owned(),
        (None, AlgorithmParameters::EllipticCurve(key)) => format!("EC {:?}", key.curve),
        (None, AlgorithmParameters::OctetKeyPair(key)) => format!("OKP {:?}", key.curve),
        (None, AlgorithmParameters::OctetKey(_)) => "a symmetric key".to_owned(),
        (None, _) => UNKNOWN_KIND.to_owned(),
    };
    match is_for_verifying(&jwk.common) {
        true => name,
        false => format!("{name} for another use"),
    }
}

fn verification_key_from_jwk(member: &Value, allowed: &[Algorithm]) -> Option<VerificationKey> {
    let jwk: Jwk = serde_json::from_value(member.clone()).ok()?;
    let common = &jwk.common;
    let algorithm = jwk_algorithm(&jwk, allowed)?;
    if !is_for_verifying(common) || algorithm.family() == AlgorithmFamily::Hmac {
        return None;
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    let mut key = VerificationKey::named_by_thumbprint(algorithm, key).ok()?;
    if let Some(kid) = &common.key_id {
        key.id = KeyId::new(kid)?;
    }
    Some(key)
}

/// Returns true if the key's own `use` and `key_ops` allow verification (RFC 7517 §4.2, §4.3).
/// Certificates beside it (`x5c`) are not read.
fn is_for_verifying(common: &CommonParameters) -> bool {
    let purpose = common.public_key_use.as_ref();
    let operations = common.key_operations.as_ref();
    purpose.is_none_or(|purpose| *purpose == PublicKeyUse::Signature)
        && operations.is_none_or(|operations| operations.contains(&KeyOperations::Verify))
}

/// Returns the key's own `alg` if it has one, otherwise the first allowed algorithm that fits its
/// kind.
fn jwk_algorithm(jwk: &Jwk, allowed: &[Algorithm]) -> Option<Algorithm> {
    let fits = |algorithm: &Algorithm| match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => algorithm.family() == AlgorithmFamily::Rsa,
        AlgorithmParameters::EllipticCurve(parameters) => match parameters.curve {
            EllipticCurve::P256 => *algorithm == Algorithm::ES256,
            EllipticCurve::P384 => *algorithm == Algorithm::ES384,
            _ => false,
        },
        AlgorithmParameters::OctetKeyPair(_) => algorithm.family() == AlgorithmFamily::Ed,
        _ => false,
    };
    let stated = |algorithm: &Algorithm| {
        jwk.common
            .key_algorithm
            .is_none_or(|named| named == (*algorithm).into())
    };
    allowed.iter().copied().find(|a| fits(a) && stated(a))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use serde_json::json;

    use super::*;

    /// RFC 7638 §3.1: the example key and its thumbprint.
    const RFC_7638_N: &str = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
    const RFC_7638_THUMBPRINT: &str = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs";

    /// RFC 7517 appendix A.1: the EC example key.
    const RFC_7517_X: &str = "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4";
    const RFC_7517_Y: &str = "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM";

    fn jwks(keys: &Value) -> Result<KeySet, KeyError> {
        let allowed = [Algorithm::RS256, Algorithm::ES256];
        KeySet::from_jwks(json!({ "keys": keys }).to_string().as_bytes(), &allowed)
    }

    #[test]
    fn a_key_without_kid_is_named_by_its_rfc_7638_thumbprint() {
        let set = jwks(&json!([{"kty": "RSA", "n": RFC_7638_N, "e": "AQAB"}])).unwrap();
        assert_eq!(set.keys()[0].id().as_str(), RFC_7638_THUMBPRINT);
        assert_eq!(set.keys()[0].algorithm(), Algorithm::RS256);
        let named = json!([{"kty": "RSA", "n": RFC_7638_N, "e": "AQAB", "kid": "mine"}]);
        let named = jwks(&named).unwrap();
        assert_eq!(named.keys()[0].id().as_str(), "mine");
        assert_eq!(named.keys()[0].thumbprint(), set.keys()[0].thumbprint());
    }

    #[test]
    fn a_set_without_a_usable_key_names_what_it_has() {
        let ec = json!({"kty": "EC", "crv": "P-256", "x": RFC_7517_X, "y": RFC_7517_Y});
        let named =
            json!({"kty": "EC", "crv": "P-256", "x": RFC_7517_X, "y": RFC_7517_Y, "alg": "ES256"});
        let encryption = json!({"kty": "RSA", "n": RFC_7638_N, "e": "AQAB", "use": "enc"});
        for (keys, found) in [
            (json!([]), "it has none, and RS256, PS256 may be used"),
            (json!([ec, named, named]), "it has EC P256, ES256, and"),
            (json!([encryption]), "it has RSA for another use, and"),
            (
                json!([{"kty": "hush"}]),
                "it has a key of an unknown kind, and",
            ),
        ] {
            let set = json!({ "keys": keys }).to_string();
            let allowed = [Algorithm::RS256, Algorithm::PS256];
            let error = KeySet::from_jwks(set.as_bytes(), &allowed).unwrap_err();
            assert!(error.to_string().contains(found), "{error}");
        }
    }

    #[test]
    fn a_jwk_set_gives_only_what_may_verify_signatures() {
        let ec =
            json!({"kty": "EC", "crv": "P-256", "x": RFC_7517_X, "y": RFC_7517_Y, "kid": "ec"});
        let with = |name: &str, value: Value| {
            let mut key = ec.clone();
            key[name] = value;
            key
        };
        assert_eq!(jwks(&json!([ec])).unwrap().keys().len(), 1);
        for left_out in [
            with("use", json!("enc")),
            with("key_ops", json!(["sign"])),
            with("key_ops", json!([])),
            with("alg", json!("RSA-OAEP")),
            with("crv", json!("secp256k1")),
            with("alg", json!("ES384")),
            with("x", json!(RFC_7517_Y)),
            with("kid", json!("with space")),
            json!({"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}),
            json!({"kty": "RSA", "n": "AQAB", "e": "AQAB"}),
            json!({"kty": "XYZ"}),
            json!(5),
        ] {
            let error = jwks(&json!([left_out])).unwrap_err();
            assert!(matches!(error, KeyError::NoUsableKey { .. }), "{error}");
            assert_eq!(jwks(&json!([left_out, ec])).unwrap().keys().len(), 1);
        }
        assert_eq!(
            jwks(&json!([with("d", json!("AAAA"))])).unwrap_err(),
            KeyError::PrivateKey
        );
    }

    /// Returns a modulus of so many bits with this last byte.
    fn modulus(bits: usize, last: u8) -> String {
        let mut bytes = vec![0; bits / 8];
        bytes[0] = 0x80;
        bytes[bits / 8 - 1] |= last;
        URL_SAFE_NO_PAD.encode(bytes)
    }

    #[test]
    fn rsa_keys_that_verify_nothing_are_left_out() {
        let good = json!({"kty": "RSA", "n": RFC_7638_N, "e": "AQAB", "kid": "good"});
        for (name, n, e) in [
            ("e = 1", RFC_7638_N.to_owned(), "AQ"),
            ("e = 2", RFC_7638_N.to_owned(), "Ag"),
            ("e = 65536", RFC_7638_N.to_owned(), "AQAA"),
            ("e = 0", RFC_7638_N.to_owned(), "AA"),
            ("e of 34 bits", RFC_7638_N.to_owned(), "AwAAAAE"),
            ("e as long as n", RFC_7638_N.to_owned(), RFC_7638_N),
            ("an even n", modulus(2048, 0), "AQAB"),
            ("n of 2040 bits", modulus(2040, 1), "AQAB"),
            ("n of 8200 bits", modulus(8200, 1), "AQAB"),
            ("n of 16384 bits", modulus(16384, 1), "AQAB"),
        ] {
            let bad = json!({"kty": "RSA", "n": n, "e": e, "kid": "bad"});
            let alone = jwks(&json!([bad])).map(|_| ());
            assert!(matches!(alone, Err(KeyError::NoUsableKey { .. })), "{name}");
            assert_eq!(jwks(&json!([bad, good])).unwrap().keys().len(), 1, "{name}");
        }
        for (name, n, e) in [
            ("e = 3", RFC_7638_N.to_owned(), "Aw"),
            ("e of 33 bits", RFC_7638_N.to_owned(), "AQAAAAE"),
            ("n of 8192 bits", modulus(8192, 1), "AQAB"),
        ] {
            let usable = jwks(&json!([{"kty": "RSA", "n": n, "e": e}]));
            assert!(usable.is_ok(), "{name}");
        }
    }

    /// Rows: kind, first allowed algorithm, another algorithm of the same kind.
    #[test]
    fn the_key_fixes_the_algorithm_before_the_list() {
        use Algorithm::{ES256, ES384, EdDSA, PS256, RS256, RS512};
        let rsa = |alg: Value| json!([{"kty": "RSA", "n": RFC_7638_N, "e": "AQAB", "alg": alg}]);
        let ec = json!([{"kty": "EC", "crv": "P-256", "x": RFC_7517_X, "y": RFC_7517_Y}]);
        let p384 = json!([{"kty": "EC", "crv": "P-384",
            "x": "Oh0l29FmhIMQDFH7UHBuOlpyRNMWdICUzFWQg4z9YArTd0VumWNfaH5QzpDyFiLg",
            "y": "-GRUuho5iIWFvdF7w49PIFGTj3fMXjkYJmoU7Xdh_EpTWfqg7HpHo4iSSkeoMAXK"}]);
        let ed25519 = json!([{"kty": "OKP", "crv": "Ed25519",
            "x": "Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE"}]);
        for (keys, allowed, algorithm) in [
            (rsa(Value::Null), &[RS256, PS256][..], Some(RS256)),
            (rsa(Value::Null), &[ES256, PS256, RS256], Some(PS256)),
            (rsa(json!("RS512")), &[RS256, RS512], Some(RS512)),
            (rsa(json!("RS512")), &[RS256, PS256], None),
            (rsa(json!("ES256")), &[RS256, ES256], None),
            (rsa(json!("HS256")), &[RS256, ES256], None),
            (ec.clone(), &[RS256, ES384, ES256], Some(ES256)),
            (ec, &[RS256, ES384], None),
            (p384.clone(), &[RS256, ES256, ES384], Some(ES384)),
            (p384, &[RS256, ES256], None),
            (ed25519.clone(), &[RS256, ES256, EdDSA], Some(EdDSA)),
            (ed25519, &[RS256, ES256], None),
        ] {
            let set = json!({ "keys": keys }).to_string();
            let set = KeySet::from_jwks(set.as_bytes(), allowed).ok();
            let chosen = set.map(|set| set.keys()[0].algorithm());
            assert_eq!(chosen, algorithm, "{keys} {allowed:?}");
        }
    }

    #[test]
    fn what_is_no_jwk_set_is_rejected() {
        for text in ["", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":[],"keys":[]}"#] {
            let error = KeySet::from_jwks(text.as_bytes(), &[Algorithm::RS256]).unwrap_err();
            assert_eq!(error, KeyError::NotAJwkSet, "{text}");
        }
    }
}
