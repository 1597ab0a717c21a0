//! Creation of tokens from text: header and payload without changes, signed in any way.
//!
//! A forge holds the trusted key pair and a second, untrusted one.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::keys::{Algorithm, Salt, SigningKey, hmac_sha256};

/// Third part of a token. All kinds except `Good` are attacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Signature {
    /// By the trusted key, with its own algorithm.
    #[default]
    Good,
    /// By an untrusted key.
    OtherKey,
    /// Empty.
    Empty,
    /// HMAC with the public key's PEM as the secret (CVE-2015-9235, CVE-2016-5431).
    HmacPublicPem,
    /// HMAC with the public key's DER as the secret.
    HmacPublicDer,
    /// HMAC with an empty secret.
    HmacEmptySecret,
    /// The good signature without its last byte.
    Truncated,
    /// The good signature with a byte behind it.
    Lengthened,
    /// The good signature with a zero byte before it.
    ZeroPrefixed,
    /// The good signature with one bit changed.
    BitFlipped,
    /// As many zero bytes as the good signature has (CVE-2022-21449 for ECDSA).
    Zeroes,
    /// ECDSA with r = 0 and the good s.
    ZeroR,
    /// ECDSA with the good r and s = 0.
    ZeroS,
    /// With r and s both equal to the order of the curve; EdDSA with S equal to the base point's
    /// order.
    CurveOrder,
    /// With s + n: the same number modulo the order (for EdDSA, RFC 8032 §5.1.7 rejects it).
    SPlusOrder,
    /// EdDSA with the neutral point for R and S = 0: valid for every message under a small-order
    /// key.
    SmallOrderR,
    /// ECDSA in ASN.1 DER.
    Der,
    /// ECDSA with its two halves swapped.
    Swapped,
    /// PSS without a salt.
    NoSalt,
    /// PSS with the longest salt.
    LongestSalt,
    /// The good signature of another payload.
    OfAnotherPayload,
    /// By the trusted key with another algorithm of its family.
    #[serde(untagged)]
    As(Algorithm),
}

/// n of P-256 (FIPS 186-5), the most significant byte first, as in ECDSA's signatures.
const P256_ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xbc, 0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];

/// n of P-384 (FIPS 186-5).
const P384_ORDER: [u8; 48] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xc7, 0x63, 0x4d, 0x81, 0xf4, 0x37, 0x2d, 0xdf,
    0x58, 0x1a, 0x0d, 0xb2, 0x48, 0xb0, 0xa7, 0x7a, 0xec, 0xec, 0x19, 0x6a, 0xcc, 0xc5, 0x29, 0x73,
];

/// L of Ed25519 (RFC 8032 §5.1), the least significant byte first, as in its signatures.
const ED25519_ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

/// A trusted key and an attacker's.
#[derive(Debug)]
pub struct Forge {
    trusted: SigningKey,
    untrusted: SigningKey,
}

impl Forge {
    /// Generates two keys.
    pub fn new(algorithm: impl Into<Algorithm>) -> Self {
        let algorithm = algorithm.into();
        Self {
            trusted: SigningKey::generate(algorithm),
            untrusted: SigningKey::generate(algorithm),
        }
    }

    /// Returns a forge for another algorithm, with the same keys where they fit.
    #[must_use]
    pub fn meant_for(&self, algorithm: Algorithm) -> Self {
        Self {
            trusted: self.trusted.meant_for(algorithm),
            untrusted: self.untrusted.meant_for(algorithm),
        }
    }

    /// Returns the trusted key.
    pub const fn trusted(&self) -> &SigningKey {
        &self.trusted
    }

    /// Returns an untrusted key of the same type.
    pub const fn untrusted(&self) -> &SigningKey {
        &self.untrusted
    }

    /// Returns a header as other implementations write it: without `kid`.
    pub fn plain_header(&self) -> String {
        json!({"alg": self.trusted.algorithm().name(), "typ": "JWT"}).to_string()
    }

    /// Returns a token that every check accepts, with `changes` to its claims (null removes one).
    pub fn token(&self, now: i64, changes: &Value) -> String {
        self.token_signed_by(&self.trusted, now, changes)
    }

    /// Returns a token with the same claims, signed by an attacker.
    pub fn untrusted_token(&self, now: i64, changes: &Value) -> String {
        self.token_signed_by(&self.untrusted, now, changes)
    }

    fn token_signed_by(&self, key: &SigningKey, now: i64, changes: &Value) -> String {
        let input = signing_input(
            self.plain_header().as_bytes(),
            claims(now, changes).to_string().as_bytes(),
        );
        let signature = encode(&key.sign(input.as_bytes()));
        format!("{input}.{signature}")
    }

    /// Returns a signature of this kind over `header.payload`.
    pub fn sign(&self, kind: Signature, input: &str) -> Vec<u8> {
        let bytes = input.as_bytes();
        match kind {
            Signature::Good => self.trusted.sign(bytes),
            Signature::OtherKey => self.untrusted.sign(bytes),
            Signature::Empty => Vec::new(),
            Signature::HmacPublicPem => hmac_sha256(self.trusted.served().as_bytes(), bytes),
            Signature::HmacPublicDer => hmac_sha256(&self.trusted.public_der(), bytes),
            Signature::HmacEmptySecret => hmac_sha256(b"", bytes),
            Signature::Der => self.trusted.sign_in_der(bytes),
            Signature::NoSalt => self.trusted.sign_with_salt(Salt::None, bytes),
            Signature::LongestSalt => self.trusted.sign_with_salt(Salt::Longest, bytes),
            Signature::As(algorithm) => self.trusted.sign_as(algorithm, bytes),
            Signature::OfAnotherPayload => self.trusted.sign(format!("{input}AAAA").as_bytes()),
            deformed => deform(deformed, self.trusted.algorithm(), self.trusted.sign(bytes)),
        }
    }
}

/// Returns the claims of a token that every check accepts, with `changes` (null removes one).
pub fn claims(now: i64, changes: &Value) -> Value {
    let mut claims = json!({
        "iss": "auth", "sub": "10001", "iat": now, "nbf": now, "exp": now + 3600, "jti": "forged-1",
        "username": "alice", "nickName": "Alice", "userId": "10001", "extraInfo": {"userType": "member"},
    });
    lay_over(&mut claims, changes);
    claims
}

/// Encodes as base64url without padding.
pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns `header.payload`, both encoded.
pub fn signing_input(header: &[u8], payload: &[u8]) -> String {
    format!("{}.{}", encode(header), encode(payload))
}

/// Sets the members of `changes`; a null removes the member.
pub fn lay_over(object: &mut Value, changes: &Value) {
    let (Some(object), Some(changes)) = (object.as_object_mut(), changes.as_object()) else {
        return;
    };
    for (name, value) in changes {
        if value.is_null() {
            object.remove(name);
        } else {
            object.insert(name.clone(), value.clone());
        }
    }
}

fn deform(kind: Signature, algorithm: Algorithm, mut good: Vec<u8>) -> Vec<u8> {
    let half = good.len() / 2;
    match kind {
        Signature::SmallOrderR => {
            good.fill(0);
            good[..1].fill(1);
        }
        Signature::CurveOrder if algorithm == Algorithm::EdDSA => {
            good[half..].copy_from_slice(&ED25519_ORDER);
        }
        Signature::SPlusOrder if algorithm == Algorithm::EdDSA => {
            add(good[half..].iter_mut().zip(ED25519_ORDER));
        }
        Signature::Truncated => drop(good.pop()),
        Signature::Lengthened => good.push(0),
        Signature::ZeroPrefixed => good.insert(0, 0),
        Signature::BitFlipped => good
            .iter_mut()
            .skip(half)
            .take(1)
            .for_each(|byte| *byte ^= 1),
        Signature::Zeroes => good.fill(0),
        Signature::ZeroR => good[..half].fill(0),
        Signature::ZeroS => good[half..].fill(0),
        Signature::CurveOrder => good = order_of_curve(algorithm).repeat(2),
        Signature::SPlusOrder => {
            let order = order_of_curve(algorithm).iter().copied();
            add(good[half..].iter_mut().zip(order).rev());
        }
        Signature::Swapped => good.rotate_left(half),
        // Not derived from the good signature.
        _ => good.clear(),
    }
    good
}

const fn order_of_curve(algorithm: Algorithm) -> &'static [u8] {
    match algorithm {
        Algorithm::ES384 => &P384_ORDER,
        _ => &P256_ORDER,
    }
}

/// Adds two numbers, the least significant digits first. An overflow leaves another number, which
/// is rejected as well.
fn add<'d>(digits: impl Iterator<Item = (&'d mut u8, u8)>) {
    let mut carry = 0;
    for (digit, more) in digits {
        let sum = u16::from(*digit) + u16::from(more) + carry;
        *digit = sum.to_be_bytes()[1];
        carry = sum >> 8;
    }
}
