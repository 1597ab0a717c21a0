//! Keys and the tokens that they have verified, one snapshot for a request, with the way to the revocation
//! list in force at this moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postern_contract::rejection::Rejection;
use postern_token::keys::KeySet;
use postern_token::revocations::TokenDigests;

use super::fetch_time::FetchTime;
use super::fingerprint::KeySetFingerprint;
use super::revocations::list_in_force::ListInForce;
use super::token_cache::TokenCache;

/// A key set in force, its fetch time, and the tokens that it has verified.
#[derive(Debug, Clone)]
pub(crate) struct InstalledKeys {
    pub(super) keys: KeySet,
    pub(super) names: KeySetFingerprint,
    /// Number of the key set, which changes with the keys.
    pub(super) generation: u64,
    /// The last successful fetch, also if it brought the same key.
    pub(super) fetched: FetchTime,
    /// The tokens that these keys have verified; empty for new keys.
    pub(super) verified: Arc<TokenCache>,
    pub(super) list: Arc<ListInForce>,
}

impl InstalledKeys {
    pub(crate) fn keys(&self) -> &KeySet {
        &self.keys
    }

    pub(crate) fn names(&self) -> &KeySetFingerprint {
        &self.names
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Checks that a verified token, from the cache or not, is not revoked.
    ///
    /// # Errors
    /// [`Rejection::TokenRevoked`].
    pub(crate) fn check_revoked(&self, token: &TokenDigests) -> Result<(), Rejection> {
        self.list.check(token)
    }

    /// Returns true if there is a revocation list. Once there is one, there always is.
    pub(crate) fn has_list(&self) -> bool {
        self.list.load().is_some()
    }

    pub(crate) fn verified_tokens(&self) -> &TokenCache {
        &self.verified
    }

    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.fetched.age(now)
    }

    /// Returns true for keys from a cache: this process has not fetched any yet.
    pub(crate) const fn is_cached(&self) -> bool {
        self.fetched.is_of_other_process()
    }
}
