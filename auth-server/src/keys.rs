//! The signing key pair: generated here, or read from the two strings of the key store.
//!
//! Both strings are kept exactly as the store holds them, because the key endpoint hands the public
//! one out unchanged (contract §4.3) and a lost store gets back what it had. Nothing here signs.

pub(crate) mod current;
mod generation;
pub(crate) mod key_pair;
mod lifecycle;
mod pem;
mod signing_key;
pub(crate) mod store;
pub(crate) mod upkeep;

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

/// One of the two stored values, for messages that have to name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    Private,
    Public,
}
