//! The private half, parsed once: `jsonwebtoken::EncodingKey` keeps the DER, and parses and checks an RSA
//! key for every signature.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use postern_token::keys::signing_type::SigningType;
use zeroize::Zeroizing;

use super::pem;

/// A private key with the one algorithm of its type.
pub(super) enum SigningKey {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
    Hmac(Box<hmac::Key>),
}

impl SigningKey {
    /// Parses a private key string and derives its public key string; `None` for a key of another type.
    pub(super) fn parse(
        signing_type: SigningType,
        private: &str,
    ) -> Option<(Self, Zeroizing<String>)> {
        match signing_type {
            SigningType::Rsa => {
                let key = RsaKeyPair::from_pkcs8(&pem::decode_pkcs8(private)?).ok()?;
                let spki = key.public_key().as_der().ok()?;
                Some((Self::Rsa(key), pem::encode("PUBLIC KEY", spki.as_ref())))
            }
            SigningType::Ecdsa => {
                let der = pem::decode_pkcs8(private)?;
                let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der).ok()?;
                let spki = key.public_key().as_der().ok()?;
                Some((Self::Ecdsa(key), pem::encode("PUBLIC KEY", spki.as_ref())))
            }
            SigningType::Hmac => {
                // The bytes of the string are the secret, as in the verifier.
                let secret = private.trim();
                if secret.contains(pem::ARMOUR) {
                    return None;
                }
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
                Some((Self::Hmac(Box::new(key)), Zeroizing::new(secret.to_owned())))
            }
        }
    }

    /// Signs a message with the algorithm of the key's type.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Unspecified> {
        // The function's signature requires a generator, as in ring; aws-lc-rs uses its own.
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)?;
                Ok(signature)
            }
            Self::Ecdsa(key) => Ok(key.sign(&random, message)?.as_ref().to_vec()),
            Self::Hmac(key) => Ok(hmac::sign(key, message).as_ref().to_vec()),
        }
    }
}
