//! Generates key pairs.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RsaKeyPair};
use wire::keys::signing_type::SigningType;

use super::pem;
use crate::keys::StoredKeyPair;

/// Generates a pair. RSA takes a noticeable part of a second: call it off the async workers.
pub(crate) fn generate(signing_type: SigningType) -> Result<StoredKeyPair, Unspecified> {
    match signing_type {
        SigningType::Rsa => {
            let key = RsaKeyPair::generate(KeySize::Rsa2048)?;
            stored_as_pem(key.as_der()?.as_ref(), key.public_key().as_der()?.as_ref())
        }
        SigningType::Ecdsa => {
            let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?;
            stored_as_pem(
                key.to_pkcs8v1()?.as_ref(),
                key.public_key().as_der()?.as_ref(),
            )
        }
        SigningType::Hmac => {
            let secret = crate::random::secret()?;
            Ok(StoredKeyPair {
                private: secret.clone(),
                public: secret,
            })
        }
    }
}

fn stored_as_pem(pkcs8: &[u8], spki: &[u8]) -> Result<StoredKeyPair, Unspecified> {
    Ok(StoredKeyPair {
        private: pem::encode("PRIVATE KEY", pkcs8),
        public: pem::encode("PUBLIC KEY", spki),
    })
}
