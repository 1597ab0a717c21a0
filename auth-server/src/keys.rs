//! Signing keys: the current pair and its ring, generated here or read from the key store.
//!
//! Stored strings are kept verbatim: the key endpoint serves the public one unchanged (contract
//! §4.3), and a lost store is restored from them. Nothing here signs.

pub(crate) mod clock;
pub(crate) mod live;
pub(crate) mod pair;
pub(crate) mod published;
pub(crate) mod ring;
pub(crate) mod store;
pub(crate) mod sync;

use std::fmt;

use wire::keys::VerificationKey;
use wire::keys::signing_type::SigningType;
use zeroize::Zeroizing;

/// The values under the two store keys (contract §2.6). In hmac mode both are the shared secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoredKeyPair {
    pub(crate) private: Zeroizing<String>,
    pub(crate) public: Zeroizing<String>,
}

impl StoredKeyPair {
    /// Returns the type of the pair; for an unusable pair a type that fits none.
    pub(crate) fn signing_type(&self) -> SigningType {
        let fits = |signing_type: &SigningType| {
            VerificationKey::parse(*signing_type, &self.public).is_ok()
        };
        let mut asymmetric = [SigningType::Rsa, SigningType::Ecdsa].into_iter();
        match asymmetric.find(fits) {
            Some(signing_type) => signing_type,
            None if self.private == self.public => SigningType::Hmac,
            None => SigningType::default(),
        }
    }
}

/// Redacts both halves: in hmac mode the public one is the secret too.
impl fmt::Debug for StoredKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredKeyPair([redacted])")
    }
}

/// The ring besides the current pair, as serialized by `ring::record`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoredRing(pub(crate) Zeroizing<String>);

/// Redacted: it holds the private half of the next key.
impl fmt::Debug for StoredRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredRing([redacted])")
    }
}

/// A consistent snapshot of the keys in a store; it changes only as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StoredKeys {
    /// The contract's two values, always of the *current* key; `None` if either half is missing
    /// (contract §1).
    pub(crate) pair: Option<StoredKeyPair>,
    /// `None` if there is nothing to store besides the pair.
    pub(crate) ring: Option<StoredRing>,
}

/// One of the two stored values, named in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    Private,
    Public,
}
