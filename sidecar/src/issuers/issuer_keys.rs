//! The keys of all issuers: each verifies the tokens of its own issuer only.

use std::sync::Arc;
use std::time::Instant;

use postern_contract::rejection::Rejection;
use postern_token::keys::KeySetIndex;

use super::current::CurrentKeys;
use super::installed_keys::InstalledKeys;

/// The keys of all issuers, in the order of the configuration.
#[derive(Debug, Clone)]
pub(crate) struct IssuerKeys {
    issuers: Vec<Arc<CurrentKeys>>,
    /// The keys of an auth server whose revocation list alone is in use: they verify no token.
    list_signer: Option<Arc<CurrentKeys>>,
}

impl IssuerKeys {
    pub(crate) const fn new(
        issuers: Vec<Arc<CurrentKeys>>,
        list_signer: Option<Arc<CurrentKeys>>,
    ) -> Self {
        Self {
            issuers,
            list_signer,
        }
    }

    pub(crate) fn get(&self, key_set: KeySetIndex) -> Option<&Arc<CurrentKeys>> {
        self.issuers.get(key_set.0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<CurrentKeys>> {
        self.issuers.iter()
    }

    /// Returns the keys of the issuers, and then the keys that verify the list alone.
    pub(crate) fn fetched(&self) -> impl Iterator<Item = &Arc<CurrentKeys>> {
        self.issuers.iter().chain(&self.list_signer)
    }

    /// Returns the keys for a decision at `now`.
    pub(crate) const fn as_of(&self, now: Instant) -> KeysAt<'_> {
        KeysAt { issuers: self, now }
    }

    /// Returns the whole seconds until a fetch may bring the keys that a token lacks, at least 1, for
    /// `Retry-After`.
    pub(crate) fn seconds_until_next(&self, now: Instant) -> u64 {
        self.iter()
            .filter_map(|keys| keys.until_next(now))
            .min()
            .unwrap_or_default()
            .as_secs()
            + 1
    }
}

/// The keys by which one decision is made.
pub(crate) trait KeysByIssuer {
    /// Calls `action` with the keys of one issuer, or with the reason why it has none.
    fn with_keys<T>(
        &self,
        key_set: KeySetIndex,
        action: impl FnOnce(Result<&InstalledKeys, Rejection>) -> T,
    ) -> T;
}

/// The present keys of all issuers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeysAt<'k> {
    issuers: &'k IssuerKeys,
    now: Instant,
}

impl KeysByIssuer for KeysAt<'_> {
    fn with_keys<T>(
        &self,
        key_set: KeySetIndex,
        action: impl FnOnce(Result<&InstalledKeys, Rejection>) -> T,
    ) -> T {
        let Some(keys) = self.issuers.get(key_set) else {
            return action(Err(Rejection::AuthKeysUnavailable));
        };
        action(keys.trusted(keys.load().as_deref(), self.now))
    }
}
