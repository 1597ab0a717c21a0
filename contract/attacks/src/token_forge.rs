//! Makes tokens from text: header and payload as they are written, signed in any way.
//!
//! It holds the key pair that is to be trusted, and a second one that is not.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::keys::{Neighbour, SigningKey, SigningType, hmac_sha256};

/// How a token's third part is made. Everything but `Good` is somebody's attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Signature {
    /// By the trusted key, as its algorithm wants it.
    #[default]
    Good,
    /// By a key that nobody trusts.
    OtherKey,
    /// None at all.
    Empty,
    /// HMAC with the public key's PEM as the secret (CVE-2015-9235, CVE-2016-5431).
    HmacPublicPem,
    /// HMAC with the public key's DER as the secret.
    HmacPublicDer,
    /// HMAC with an empty secret.
    HmacEmptySecret,
    /// The good one without its last byte.
    Truncated,
    /// The good one with a byte behind it.
    Lengthened,
    /// The good one with a zero byte before it.
    ZeroPrefixed,
    /// The good one with one bit changed.
    BitFlipped,
    /// As many zero bytes as the good one has (CVE-2022-21449 for ECDSA).
    Zeroes,
    /// ECDSA with r = 0 and the good s.
    ZeroR,
    /// ECDSA with the good r and s = 0.
    ZeroS,
    /// ECDSA with r and s both equal to the order of the curve.
    CurveOrder,
    /// ECDSA with s + n: the same number modulo the order.
    SPlusOrder,
    /// ECDSA in ASN.1 DER.
    Der,
    /// ECDSA with its two halves swapped.
    Swapped,
    /// RS384, HS384
    Sha384,
    /// RS512, HS512
    Sha512,
    /// PS256
    Pss,
    /// A good one, of another payload.
    OfAnotherPayload,
}

/// n of P-256 (FIPS 186-5).
const P256_ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xbc, 0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];

/// The trusted key and a stranger's.
#[derive(Debug)]
pub struct Forge {
    trusted: SigningKey,
    stranger: SigningKey,
}

impl Forge {
    /// Two fresh keys.
    pub fn new(signing_type: SigningType) -> Self {
        Self {
            trusted: SigningKey::generate(signing_type),
            stranger: SigningKey::generate(signing_type),
        }
    }

    /// The key that is to be trusted.
    pub const fn trusted(&self) -> &SigningKey {
        &self.trusted
    }

    /// A key of the same type that is not.
    pub const fn stranger(&self) -> &SigningKey {
        &self.stranger
    }

    /// A header as other implementations write it: no `kid`.
    pub fn plain_header(&self) -> String {
        json!({"alg": self.trusted.signing_type().algorithm(), "typ": "JWT"}).to_string()
    }

    /// A token that every check accepts, `changes` laid over its claims (null removes one).
    pub fn token(&self, now: i64, changes: &Value) -> String {
        self.token_signed_by(&self.trusted, now, changes)
    }

    /// The same claims, signed by a stranger.
    pub fn stranger_token(&self, now: i64, changes: &Value) -> String {
        self.token_signed_by(&self.stranger, now, changes)
    }

    fn token_signed_by(&self, key: &SigningKey, now: i64, changes: &Value) -> String {
        let input = signing_input(
            self.plain_header().as_bytes(),
            claims(now, changes).to_string().as_bytes(),
        );
        let signature = encode(&key.sign(input.as_bytes()));
        format!("{input}.{signature}")
    }

    /// A signature of the wanted kind over `header.payload`.
    pub fn sign(&self, kind: Signature, input: &str) -> Vec<u8> {
        let bytes = input.as_bytes();
        match kind {
            Signature::Good => self.trusted.sign(bytes),
            Signature::OtherKey => self.stranger.sign(bytes),
            Signature::Empty => Vec::new(),
            Signature::HmacPublicPem => hmac_sha256(self.trusted.served().as_bytes(), bytes),
            Signature::HmacPublicDer => hmac_sha256(&self.trusted.public_der(), bytes),
            Signature::HmacEmptySecret => hmac_sha256(b"", bytes),
            Signature::Der => self.trusted.sign_with_neighbour(Neighbour::Der, bytes),
            Signature::Sha384 => self.trusted.sign_with_neighbour(Neighbour::Sha384, bytes),
            Signature::Sha512 => self.trusted.sign_with_neighbour(Neighbour::Sha512, bytes),
            Signature::Pss => self.trusted.sign_with_neighbour(Neighbour::Pss, bytes),
            Signature::OfAnotherPayload => self.trusted.sign(format!("{input}AAAA").as_bytes()),
            deformed => deform(deformed, self.trusted.sign(bytes)),
        }
    }
}

/// The claims of a token that every check accepts.
pub fn claims(now: i64, changes: &Value) -> Value {
    let mut claims = json!({
        "iss": "auth", "sub": "10001", "iat": now, "nbf": now, "exp": now + 3600, "jti": "forged-1",
        "username": "alice", "nickName": "Alice", "userId": "10001", "extraInfo": {"userType": "member"},
    });
    lay_over(&mut claims, changes);
    claims
}

/// Base64url without padding.
pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// `header.payload`, both encoded.
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

fn deform(kind: Signature, mut good: Vec<u8>) -> Vec<u8> {
    let half = good.len() / 2;
    match kind {
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
        Signature::CurveOrder => good = [P256_ORDER, P256_ORDER].concat(),
        Signature::SPlusOrder => add_order(&mut good[half..]),
        Signature::Swapped => good.rotate_left(half),
        // Not made from the good one.
        _ => good.clear(),
    }
    good
}

/// s + n modulo 2^256. Where the sum overflows, what is left is another number: refused as well.
fn add_order(s: &mut [u8]) {
    let mut carry = 0;
    for (digit, order) in s.iter_mut().zip(P256_ORDER).rev() {
        let sum = u16::from(*digit) + u16::from(order) + carry;
        *digit = sum.to_be_bytes()[1];
        carry = sum >> 8;
    }
}
