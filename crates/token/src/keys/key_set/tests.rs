//! JWK Sets as issuers write them, and the keys that are not used.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

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
    let outdated = |set: &KeySet, names_key| {
        use InvalidToken::{Algorithm, KeyUnknown, Signature};
        [KeyUnknown, Signature, Algorithm].map(|it| set.may_be_outdated(it, names_key))
    };
    assert_eq!(outdated(&named, true), [true, false, false]);
    for (set, names_key) in [(&named, false), (&set, true), (&set, false)] {
        assert_eq!(outdated(set, names_key), [true, true, false]);
    }
}

#[test]
fn members_of_a_point_are_read_in_each_spelling_of_its_bytes() {
    // 379 G of P-256, whose `x` begins with a zero: the usual spelling, without it, with another one, padded.
    let x = "AFVDiUrz0A7X10Cr29dclrBod7eH219w7qeLkKjXwAo";
    let y = "u0yFo9jqKe-q-iRAaRLdhNWxTcMr9lbvbGvVil2UP5I";
    let more = URL_SAFE_NO_PAD.encode([&[0], &*URL_SAFE_NO_PAD.decode(x).unwrap()].concat());
    let [padded_x, padded_y] = [x, y].map(|text| format!("{text}="));
    let read = |x: &str, y: &str| {
        let set = jwks(&json!([{"kty": "EC", "crv": "P-256", "x": x, "y": y}])).unwrap();
        set.keys()[0].thumbprint().clone()
    };
    let without = "VUOJSvPQDtfXQKvb11yWsGh3t4fbX3Dup4uQqNfACg";
    for (other_x, other_y) in [(without, y), (&more, y), (&padded_x, &padded_y)] {
        assert_eq!(read(other_x, other_y), read(x, y), "{other_x}");
    }
    let longer = URL_SAFE_NO_PAD.encode([1; 33]);
    assert!(jwks(&json!([{"kty": "EC", "crv": "P-256", "x": longer, "y": y}])).is_err());
}

#[test]
fn spellings_of_issuers_are_read_and_skipped_keys_are_named() {
    let n = URL_SAFE_NO_PAD.decode(RFC_7638_N).unwrap();
    // Plain base64, with a zero in front.
    let plain = STANDARD.encode([&[0], &*n].concat());
    assert!(plain.contains('+') && plain.contains('/'));
    let keys = json!([
        {"kty": "RSA", "n": plain, "e": "AQAB", "kid": ""},
        {"kty": "OKP", "crv": "Ed25519", "alg": "Ed25519", "kid": "d",
         "x": "Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE"},
        {"kty": "RSA", "n": RFC_7638_N, "e": "AQAB", "use": "enc", "kid": "e"},
    ]);
    let set = format!("\u{feff}{}", json!({ "keys": keys }));
    let allowed = [Algorithm::RS256, Algorithm::EdDSA];
    let set = KeySet::from_jwks(set.as_bytes(), &allowed).unwrap();
    let (rsa, ed) = (&set.keys()[0], &set.keys()[1]);
    assert_eq!(rsa.id().as_str(), RFC_7638_THUMBPRINT);
    assert_eq!((rsa.is_named(), ed.is_named()), (false, true));
    assert_eq!(
        set.skipped(),
        ["key 3 'e' (RSA): it is for another use, 'enc'"]
    );
    let chosen = |kid: Option<&str>| {
        let kid = kid.and_then(KeyId::new);
        set.named_by(kid.as_ref()).count()
    };
    assert_eq!([None, Some("d"), Some("new")].map(chosen), [2, 1, 1]);
}

/// Returns a modulus of so many bits with this last byte.
fn modulus(bits: usize, last: u8) -> String {
    let mut bytes = vec![0; bits / 8];
    bytes[0] = 0x80;
    bytes[bits / 8 - 1] |= last;
    URL_SAFE_NO_PAD.encode(bytes)
}

#[test]
fn a_jwk_set_gives_only_what_may_verify_signatures() {
    let ec = json!({"kty": "EC", "crv": "P-256", "x": RFC_7517_X, "y": RFC_7517_Y, "kid": "ec"});
    let with = |name: &str, value: Value| {
        let mut key = ec.clone();
        key[name] = value;
        key
    };
    let rsa = |n: &str, e: &str| json!({"kty": "RSA", "n": n, "e": e});
    let (other_use, impossible) = ("it is for another use", "the RSA key has");
    for (left_out, why) in [
        (with("use", json!("enc")), "'ec' (P-256): it is for another"),
        (with("key_ops", json!(["sign"])), other_use),
        (with("alg", json!("RSA-OAEP")), "its algorithm"),
        (with("alg", json!("ES256K")), "'ec' (ES256K): its algorithm"),
        (with("alg", json!("ES384")), "not among the allowed"),
        (with("crv", json!("secp256k1")), "of an unknown kind"),
        (with("x", json!(RFC_7517_Y)), "its members are no public"),
        (with("kid", json!("with space")), "not of 1 to 128 visible"),
        (with("kid", json!(7)), "its `kid` is a number, and not text"),
        (
            json!({"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}),
            "a secret is never used",
        ),
        (
            with("crv", json!("P-521")),
            "'EC P-521': RSA, P-256, P-384 and Ed25519 are supported",
        ),
        (json!({"kty": "XYZ"}), "key 1 (XYZ): a key of an unknown"),
        (json!(5), "key 1 (of no kind): it is a number"),
        (rsa("AQAB", "AQAB"), "key 1 (RSA): the RSA modulus has 17"),
        (rsa("AQAB=", "AQAB"), "its `n` is no base64url"),
        // An exponent of 1, 2, 65536, 0, 34 bits, and as long as the modulus.
        (rsa(RFC_7638_N, "AQ"), impossible),
        (rsa(RFC_7638_N, "Ag"), impossible),
        (rsa(RFC_7638_N, "AQAA"), impossible),
        (rsa(RFC_7638_N, "AA"), impossible),
        (rsa(RFC_7638_N, "AwAAAAE"), impossible),
        (rsa(RFC_7638_N, RFC_7638_N), impossible),
        (rsa(&modulus(2048, 0), "AQAB"), impossible),
        (rsa(&modulus(2040, 1), "AQAB"), "the RSA modulus has 2040"),
        (rsa(&modulus(8200, 1), "AQAB"), impossible),
        (rsa(&modulus(16384, 1), "AQAB"), impossible),
    ] {
        let error = jwks(&json!([left_out])).unwrap_err();
        assert!(matches!(error, KeyError::NoUsableKey { .. }), "{error}");
        assert!(error.to_string().contains(why), "{why}: {error}");
        assert_eq!(jwks(&json!([left_out, ec])).unwrap().keys().len(), 1);
    }
    // An exponent of 3 and one of 33 bits, and the longest modulus.
    for (n, e) in [
        (RFC_7638_N, "Aw"),
        (RFC_7638_N, "AQAAAAE"),
        (&modulus(8192, 1), "AQAB"),
    ] {
        assert!(jwks(&json!([rsa(n, e)])).is_ok(), "{n:.9} {e}");
    }
    let none = jwks(&json!([])).unwrap_err().to_string();
    assert!(none.contains("it has none, and RS256, ES256 may"), "{none}");
    let both = json!([{"kty": "hush"}, with("use", json!("enc"))]);
    let both = jwks(&both).unwrap_err().to_string();
    assert!(
        both.contains(
            "'hush': RSA, P-256, P-384 and Ed25519 are supported; key 2 'ec' (P-256): it is for"
        ),
        "{both}"
    );
    let private = jwks(&json!([with("d", json!("AAAA"))]));
    let private = private.unwrap_err().to_string();
    assert!(
        private.contains("key 1 'ec' (P-256): this is a private key"),
        "{private}"
    );
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
fn a_single_jwk_is_a_set_of_one() {
    let jwk = json!({"kty": "EC", "crv": "P-256", "x": RFC_7517_X, "y": RFC_7517_Y, "kid": "a"});
    let parse = |jwk: &Value| KeySet::from_file(jwk.to_string().as_bytes(), &[Algorithm::ES256]);
    assert_eq!(parse(&jwk).unwrap().keys()[0].id().as_str(), "a");
    let mut private = jwk;
    private["d"] = json!("AAAA");
    let private = parse(&private).unwrap_err().to_string();
    assert!(
        private.contains("key 1 'a' (P-256): this is a private key"),
        "{private}"
    );
}

#[test]
fn what_is_no_jwk_set_is_named_with_line_and_column() {
    let map = r#"{"1": "-----BEGIN CERTIFICATE-----"}"#;
    let certificates = "certificates by name: the issuer has another address for its JWK Set";
    let twice = "JSON that cannot be read: a member twice";
    let cut_off = "PEM that is cut off, or has other characters than base64";
    let list = "a list: {\"keys\": […]} has to be around it";
    for (text, found) in [
        ("", "nothing"),
        ("[]", list),
        (r#"[{"kty":"RSA"}]"#, list),
        ("{}", "an object without keys"),
        (r#"{"keys":{}}"#, "a member keys that is no list"),
        (r#"{"keys":[],"keys":[]}"#, twice),
        (
            "{\"keys\": [\n  {},\n]}",
            "JSON that cannot be read: trailing comma at line 3 column 1",
        ),
        (
            r#"{"keys":["#,
            "JSON that cannot be read: EOF while parsing a list at line 1 column 9",
        ),
        (
            r#"{"jwks_uri":""}"#,
            "a discovery document: --issuer-url takes its issuer, --jwks its jwks_uri",
        ),
        (map, certificates),
        ("<html>", "HTML"),
        ("-----BEGIN PUBLIC KEY-----", cut_off),
        ("\u{1f}", "something else"),
    ] {
        let error = KeySet::from_jwks(text.as_bytes(), &[Algorithm::RS256]).unwrap_err();
        let words = format!("and found {found}");
        assert!(error.to_string().contains(&words), "{text}: {error}");
    }
}
