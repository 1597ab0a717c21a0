//! Generates key pairs.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RsaKeyPair};
use postern_token::keys::signing_type::SigningType;

use super::{SigningKeyPair, pem};

/// Generates a pair, for RSA in a noticeable part of a second: call this off the async workers.
pub(crate) fn generate(signing_type: SigningType) -> Result<SigningKeyPair, Unspecified> {
    let private = match signing_type {
        SigningType::Rsa => {
            let key = RsaKeyPair::generate(KeySize::Rsa2048)?;
            pem::encode("PRIVATE KEY", key.as_der()?.as_ref())
        }
        SigningType::Ecdsa => pem::encode("PRIVATE KEY", ecdsa_key()?.to_pkcs8v1()?.as_ref()),
        SigningType::Hmac => crate::random::secret()?,
    };
    SigningKeyPair::from_private(signing_type, private).map_err(|_| Unspecified)
}

#[cfg(not(feature = "simulation"))]
fn ecdsa_key() -> Result<EcdsaKeyPair, Unspecified> {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)
}

/// Makes the key of the next random number of the simulated world, as RFC 5915 writes it.
#[cfg(feature = "simulation")]
fn ecdsa_key() -> Result<EcdsaKeyPair, Unspecified> {
    const BEGIN: &[u8] = b"\x30\x31\x02\x01\x01\x04\x20";
    const P256: &[u8] = b"\xa0\x0a\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
    let der = [BEGIN, crate::random::bytes::<32>()?.as_slice(), P256].concat();
    EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, &der)
        .map_err(|_| Unspecified)
}
