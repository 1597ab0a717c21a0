//! Signing keys: the current pair and its ring, generated here or read from the store.
//!
//! Stored strings are kept verbatim: the key endpoint serves the public string unchanged (contract §4.3), and
//! a lost store is restored from these strings. Nothing here signs.

pub(crate) mod pair;
pub(crate) mod plan;
pub(crate) mod published;
pub(crate) mod records;
pub(crate) mod ring;
pub(crate) mod update;

use std::fmt;

use zeroize::Zeroizing;

/// The values under the two store keys (contract §2.6). In hmac mode both are the shared secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoredKeyPair {
    pub(crate) private: Zeroizing<String>,
    pub(crate) public: Zeroizing<String>,
}

/// Redacts both halves: in hmac mode the public half is the secret too.
impl fmt::Debug for StoredKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredKeyPair([redacted])")
    }
}

/// The keys in a store at one moment; they change only as a whole.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct StoredKeys {
    /// The contract's two values, always of the *current* key; `None` if either half is missing
    /// (contract §1).
    pub(crate) pair: Option<StoredKeyPair>,
    /// The ring as `ring::record` serializes it; `None` beside a pair that only other software wrote.
    pub(crate) ring: Option<Zeroizing<String>>,
}

/// Redacted: a ring holds the private half of the next key.
impl fmt::Debug for StoredKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredKeys([redacted])")
    }
}
