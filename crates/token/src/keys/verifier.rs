//! The signature check of one key, which is parsed and validated once.

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters,
    VerificationAlgorithm,
};
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk};
use jsonwebtoken::{Algorithm, DecodingKey};

use super::KeyError;

/// Min size of an RSA key: RS256 with a smaller one is no protection (RFC 7518 §3.3).
const MIN_RSA_BITS: usize = 2048;
/// The library's limits. The smallest exponent has two bits: 3.
const MAX_RSA_BITS: usize = 8192;
const MAX_EXPONENT_BITS: usize = 33;

/// A key that is parsed once, which costs a third of a verification.
#[derive(Clone)]
pub(super) enum Verifier {
    Public(ParsedPublicKey),
    /// Boxed: twenty times as large as the other variant.
    Secret(Box<hmac::Key>),
}

impl Verifier {
    /// Parses a key and checks that it is usable: the right size, a point on the right curve.
    pub(super) fn new(algorithm: Algorithm, key: &DecodingKey) -> Result<Self, KeyError> {
        let bytes = || key.try_get_as_bytes().map_err(|_| KeyError::NotAPublicKey);
        let parsed = |verification: &'static dyn VerificationAlgorithm| {
            ParsedPublicKey::new(verification, bytes()?).map_err(|_| KeyError::NotAPublicKey)
        };
        match algorithm {
            Algorithm::HS256 => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, bytes()?);
                Ok(Self::Secret(Box::new(key)))
            }
            Algorithm::RS256 => parsed_rsa(key, &RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => parsed_rsa(key, &RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => parsed_rsa(key, &RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => parsed_rsa(key, &RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => parsed_rsa(key, &RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => parsed_rsa(key, &RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => parsed(&ECDSA_P256_SHA256_FIXED).map(Self::Public),
            Algorithm::ES384 => parsed(&ECDSA_P384_SHA384_FIXED).map(Self::Public),
            Algorithm::EdDSA => parsed(&ED25519).map(Self::Public),
            // Longer hashes of HMAC have no key here; `jsonwebtoken`'s list of algorithms may grow.
            _ => Err(KeyError::NotAPublicKey),
        }
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Public(key) => key.verify_sig(message, signature).is_ok(),
            Self::Secret(key) => hmac::verify(key, message, signature).is_ok(),
        }
    }
}

fn parsed_rsa(key: &DecodingKey, parameters: &'static RsaParameters) -> Result<Verifier, KeyError> {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

    // A JWK has the numbers of a key even if it was read as DER.
    let AlgorithmParameters::RSA(numbers) = Jwk::from_decoding_key(key, None)
        .map_err(|_| KeyError::NotAPublicKey)?
        .algorithm
    else {
        return Err(KeyError::NotAPublicKey);
    };
    let decode = |text: &str| {
        URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| KeyError::NotAPublicKey)
    };
    let modulus = decode(&numbers.n)?;
    let exponent = decode(&numbers.e)?;
    let bits = bit_length(&modulus);
    if bits < MIN_RSA_BITS {
        return Err(KeyError::RsaTooSmall { bits });
    }
    if !is_rsa(&modulus, &exponent) {
        return Err(KeyError::RsaImpossible);
    }
    aws_lc_rs::signature::RsaPublicKeyComponents {
        n: modulus.as_slice(),
        e: exponent.as_slice(),
    }
    .to_parsed_public_key(parameters)
    .map(Verifier::Public)
    .map_err(|_| KeyError::NotAPublicKey)
}

/// Returns true if signatures can verify with these numbers. The library fails only at each signature, too
/// late to keep an unusable key from replacing a good one.
fn is_rsa(modulus: &[u8], exponent: &[u8]) -> bool {
    let is_odd = |number: &[u8]| number.last().is_some_and(|byte| byte % 2 == 1);
    is_odd(modulus)
        && bit_length(modulus) <= MAX_RSA_BITS
        && is_odd(exponent)
        && (2..=MAX_EXPONENT_BITS).contains(&bit_length(exponent))
}

fn bit_length(big_endian: &[u8]) -> usize {
    let zeros = big_endian.iter().take_while(|&&b| b == 0).count();
    match big_endian.get(zeros) {
        None => 0,
        Some(first) => (big_endian.len() - zeros) * 8 - first.leading_zeros() as usize,
    }
}
