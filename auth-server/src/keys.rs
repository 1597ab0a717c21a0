//! The signing key pair and its ring: generated here, or read from the strings of the key store.
//!
//! The pair's strings are kept exactly as the store holds them, because the key endpoint hands the
//! public one out unchanged (contract §4.3) and a lost store gets back what it had. Nothing here
//! signs.

pub(crate) mod clock;
pub(crate) mod live;
pub(crate) mod pair;
pub(crate) mod published;
pub(crate) mod ring;
pub(crate) mod store;
pub(crate) mod sync;

use std::fmt;

use zeroize::Zeroizing;

/// The values under the two store keys (contract §2.6). In hmac mode both are the shared secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoredKeyPair {
    pub(crate) private: Zeroizing<String>,
    pub(crate) public: Zeroizing<String>,
}

/// Prints neither half: in hmac mode the public one is the secret too.
impl fmt::Debug for StoredKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredKeyPair([redacted])")
    }
}

/// What is known of the keys besides the pair, as `ring::record` writes it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoredRing(pub(crate) Zeroizing<String>);

/// The private half of the next key is in it.
impl fmt::Debug for StoredRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredRing([redacted])")
    }
}

/// All that a store holds of the keys at one moment; it changes only as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StoredKeys {
    /// The contract's two values, always of the *current* key; `None` where either half is missing
    /// (contract §1).
    pub(crate) pair: Option<StoredKeyPair>,
    /// `None` for as long as there is nothing to know besides the pair.
    pub(crate) ring: Option<StoredRing>,
}

/// One of the two stored values, for messages that have to name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    Private,
    Public,
}
