//! Generates key pairs.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RsaKeyPair};
use postern_token::keys::signing_type::SigningType;

use super::{SigningKeyPair, pem};

/// Generates a pair. RSA takes a noticeable part of a second: call it off the async workers.
pub(crate) fn generate(signing_type: SigningType) -> Result<SigningKeyPair, Unspecified> {
    let private = match signing_type {
        SigningType::Rsa => {
            let key = RsaKeyPair::generate(KeySize::Rsa2048)?;
            pem::encode("PRIVATE KEY", key.as_der()?.as_ref())
        }
        SigningType::Ecdsa => {
            let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?;
            pem::encode("PRIVATE KEY", key.to_pkcs8v1()?.as_ref())
        }
        SigningType::Hmac => crate::random::secret()?,
    };
    SigningKeyPair::from_private(signing_type, private).map_err(|_| Unspecified)
}
