//! A key pair, parsed from its two strings and verified to match.

pub(crate) mod generation;
mod pem;
mod signing_key;

use std::fmt;

use aws_lc_rs::error::Unspecified;
use postern_token::keys::signing_type::SigningType;
use postern_token::keys::{KeyError, KeyId, VerificationKey};
use zeroize::Zeroizing;

use self::signing_key::SigningKey;
use super::StoredKeyPair;

/// Key pair error. The texts hold neither string.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyPairError {
    #[error(
        "no {0} private key: expected PKCS#8, as PEM \"PRIVATE KEY\" or the base64 of its DER; for hmac a random \
         string of at least 32 bytes"
    )]
    PrivateHalf(SigningType),
    #[error("no usable public half: {0}")]
    PublicHalf(KeyError),
    #[error(
        "a key pair of type {found}, but --signing-type is {expected}: add --signing-type {found}, or the --config of the server"
    )]
    OtherType {
        found: SigningType,
        expected: SigningType,
    },
    #[error("the private and the public half do not belong together")]
    Mismatch,
}

/// A parsed pair with matching halves.
pub(crate) struct SigningKeyPair {
    stored: StoredKeyPair,
    signing_key: SigningKey,
    verification_key: VerificationKey,
}

/// Compares the stored strings, which determine everything else.
impl PartialEq for SigningKeyPair {
    fn eq(&self, other: &Self) -> bool {
        self.stored == other.stored
    }
}

impl Eq for SigningKeyPair {}

impl fmt::Debug for SigningKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKeyPair")
            .field("id", self.id())
            .finish_non_exhaustive()
    }
}

impl SigningKeyPair {
    pub(crate) fn parse(
        signing_type: SigningType,
        stored: StoredKeyPair,
    ) -> Result<Self, KeyPairError> {
        match parse_as(signing_type, &stored) {
            Ok((signing_key, verification_key)) => Ok(Self {
                stored,
                signing_key,
                verification_key,
            }),
            Err(error) => Err(match Self::type_of(&stored) {
                // Another type is the likeliest mistake.
                Some(found) => KeyPairError::OtherType {
                    found,
                    expected: signing_type,
                },
                None => error,
            }),
        }
    }

    /// Returns the type of a pair; `None` for one that is unusable.
    pub(crate) fn type_of(stored: &StoredKeyPair) -> Option<SigningType> {
        let mut types = SigningType::ALL.into_iter();
        types.find(|of| parse_as(*of, stored).is_ok())
    }

    /// Parses a private half, and derives the public half.
    pub(crate) fn from_private(
        signing_type: SigningType,
        private: Zeroizing<String>,
    ) -> Result<Self, KeyPairError> {
        let (_, public) = SigningKey::parse(signing_type, &private)
            .ok_or(KeyPairError::PrivateHalf(signing_type))?;
        Self::parse(signing_type, StoredKeyPair { private, public })
    }

    /// Returns the RFC 7638 thumbprint of the public half: the `kid` of tokens signed with this
    /// pair.
    pub(crate) fn id(&self) -> &KeyId {
        self.verification_key.id()
    }

    pub(crate) fn stored(&self) -> &StoredKeyPair {
        &self.stored
    }

    /// Returns the string that the key endpoint serves.
    pub(crate) fn public_key_string(&self) -> &str {
        &self.stored.public
    }

    pub(crate) fn verification_key(&self) -> &VerificationKey {
        &self.verification_key
    }

    /// Signs a message, for the token issuer only.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Unspecified> {
        self.signing_key.sign(message)
    }
}

fn parse_as(
    signing_type: SigningType,
    stored: &StoredKeyPair,
) -> Result<(SigningKey, VerificationKey), KeyPairError> {
    let (signing_key, own_public) = SigningKey::parse(signing_type, &stored.private)
        .ok_or(KeyPairError::PrivateHalf(signing_type))?;
    let public =
        VerificationKey::parse(signing_type, &stored.public).map_err(KeyPairError::PublicHalf)?;
    // Halves are compared by thumbprint, so that both encodings of a key (PEM, bare base64) are equal.
    match VerificationKey::parse(signing_type, &own_public) {
        Ok(own) if own.id() == public.id() => Ok((signing_key, public)),
        _ => Err(KeyPairError::Mismatch),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::generation::generate;
    use super::*;

    /// Returns a fresh pair.
    pub(crate) fn pair(signing_type: SigningType) -> SigningKeyPair {
        generate(signing_type).unwrap()
    }

    /// Returns a fresh pair of the type that is generated fastest.
    pub(crate) fn fresh() -> Arc<SigningKeyPair> {
        Arc::new(pair(SigningType::Ecdsa))
    }

    fn halves(private: &str, public: &str) -> StoredKeyPair {
        StoredKeyPair {
            private: Zeroizing::new(private.to_owned()),
            public: Zeroizing::new(public.to_owned()),
        }
    }

    fn bare(pem: &str) -> String {
        pem.lines()
            .filter(|line| !line.starts_with("-----"))
            .collect()
    }

    #[test]
    fn a_generated_pair_of_each_type_is_parsed_as_written() {
        for signing_type in SigningType::ALL {
            let pair = pair(signing_type);
            let read = SigningKeyPair::parse(signing_type, pair.stored().clone()).unwrap();
            assert_eq!((read.stored(), read.id()), (pair.stored(), pair.id()));
            assert_eq!(pair.id().as_str().len(), 43, "{signing_type}");
        }
    }

    #[test]
    fn the_bare_base64_of_other_implementations_is_read() {
        for signing_type in [SigningType::Rsa, SigningType::Ecdsa] {
            let written = pair(signing_type);
            let stored = halves(
                &bare(&written.stored().private),
                &bare(&written.stored().public),
            );
            let read = SigningKeyPair::parse(signing_type, stored.clone()).unwrap();
            assert_eq!(read.id(), written.id());
            assert_eq!(read.public_key_string(), &*stored.public);
        }
    }

    #[test]
    fn halves_of_two_pairs_do_not_match() {
        for signing_type in SigningType::ALL {
            let (one, other) = (pair(signing_type), pair(signing_type));
            let mixed = halves(&one.stored().private, &other.stored().public);
            assert_eq!(
                SigningKeyPair::parse(signing_type, mixed).unwrap_err(),
                KeyPairError::Mismatch
            );
        }
    }

    #[test]
    fn a_pair_of_another_type_is_named_as_such() {
        for found in SigningType::ALL {
            for expected in SigningType::ALL
                .into_iter()
                .filter(|expected| *expected != found)
            {
                let error =
                    SigningKeyPair::parse(expected, pair(found).stored().clone()).unwrap_err();
                assert_eq!(error, KeyPairError::OtherType { found, expected });
            }
        }
    }

    #[test]
    fn debug_prints_no_key() {
        let pair = pair(SigningType::Hmac);
        let text = format!("{pair:?} {:?}", pair.stored());
        assert!(!text.contains(&*pair.stored().private), "{text}");
    }
}
