//! Verified tokens: a repeated token costs a digest and a lookup instead of a signature check.
//!
//! A cache belongs to one set of keys ([`InstalledKeys`](crate::issuers::installed_keys::InstalledKeys)) and
//! goes with it: tokens of another set cannot be found. A found token was verified, but may have
//! expired since; the caller checks that.

use std::fmt;
use std::sync::Arc;

use postern_contract::rules::RuleVerdict;
use postern_token::claims::Validity;
use postern_token::digest::{Digest, sha256};
use postern_token::keys::KeySetIndex;
use postern_token::possession::Possession;
use postern_token::revocations::TokenDigests;
use postern_token::sources::bearer::Bearer;
use postern_transport::net::shares::Holder;
use prometheus_client::metrics::counter::Counter;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};

use crate::identity::user_header::Identity;
use crate::telemetry::metrics::TokenCacheCounters;

/// The result of a verified token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VerifiedToken {
    /// The identity that the service gets.
    pub(crate) identity: Identity,
    /// Checked at each use.
    pub(crate) validity: Validity,
    /// The user, who holds permits.
    pub(crate) holder: Holder,
    /// The keys that verified it.
    pub(crate) key_set: KeySetIndex,
    /// Checked at each use.
    pub(crate) digests: TokenDigests,
    /// Checked at each use: what the token is bound to.
    pub(crate) possession: Option<Box<Possession>>,
    /// The result of each rule, so that a repeated token is not parsed again.
    pub(crate) rule_verdicts: Box<[RuleVerdict]>,
    /// The generation of the rules at the verification.
    pub(crate) rules: u64,
}

/// The settings of the caches: one cache for each set of keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct TokenCacheConfig {
    /// Max. memory for the tokens of one set.
    pub(crate) bytes: usize,
    pub(crate) counters: TokenCacheCounters,
}

impl TokenCacheConfig {
    /// Returns an empty cache.
    pub(crate) fn empty(&self) -> TokenCache {
        TokenCache {
            cache: self.cache(),
            counters: self.counters.clone(),
        }
    }

    fn cache(&self) -> Option<BoundedCache> {
        let options = OptionsBuilder::new()
            .estimated_items_capacity(self.bytes / TYPICAL_BYTES)
            .weight_capacity(u64::try_from(self.bytes).unwrap_or(u64::MAX))
            .build()
            .ok()?;
        let evictions = Evictions(self.counters.token_cache_evictions.clone());
        Some(Cache::with_options(
            options,
            Bytes,
            DefaultHashBuilder::default(),
            evictions,
        ))
    }
}

/// The tokens that one set of keys has verified.
pub(crate) struct TokenCache {
    cache: Option<BoundedCache>,
    counters: TokenCacheCounters,
}

/// Scan-resistant: a token that is seen once is evicted before one that is used.
type BoundedCache = Cache<TokenDigest, Arc<VerifiedToken>, Bytes, DefaultHashBuilder, Evictions>;

/// SHA-256 of the whole token: two tokens with the same digest would break the signatures too,
/// which cover no more than a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TokenDigest(pub(crate) Digest);

impl TokenDigest {
    pub(crate) fn new(token: Bearer<'_>) -> Self {
        Self(sha256(token.as_str().as_bytes()))
    }
}

impl TokenCache {
    /// Finds this very token, byte for byte, under rules of this generation. Counts hits only, because the
    /// caches of several issuers are tried in turn. A lookup locks one shard, and allocates nothing.
    pub(crate) fn find(&self, digest: &TokenDigest, rules: u64) -> Option<Arc<VerifiedToken>> {
        let found = self.cache.as_ref()?.get(digest);
        // An entry of former rules counts as missing, and the next verification replaces it.
        let found = found.filter(|known| known.rules == rules)?;
        self.counters.token_cache_hits.inc();
        Some(found)
    }

    /// Counts a token that no cache has.
    pub(crate) fn count_miss(&self) {
        if self.cache.is_some() {
            self.counters.token_cache_misses.inc();
        }
    }

    /// Remembers a token whose signature this set of keys has verified.
    pub(crate) fn remember(&self, digest: TokenDigest, verified: Arc<VerifiedToken>) {
        if let Some(cache) = &self.cache {
            // The buffers are copied when a token is cached, so that a hit copies nothing.
            verified.identity.pre_share_buffers();
            cache.insert(digest, verified);
        }
    }

    /// Returns the memory of the tokens.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }
}

/// Prints neither tokens nor users.
impl fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenCache")
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// The size of a token besides its header values: its entry in the tables, which double when they
/// grow and keep half as many evicted tokens, and three allocations.
const OVERHEAD_BYTES: usize = 528;
/// The size of a claim besides its value: its entry, and two allocations.
const CLAIM_BYTES: usize = 112;
/// The size of a binding, with the parsed key of its proofs, the largest of RSA.
const BINDING_BYTES: usize = 4096;
/// The unused part of an allocation.
const ALLOCATION_BYTES: usize = 64;
/// Typical size of a token of the auth server.
const TYPICAL_BYTES: usize = OVERHEAD_BYTES + 112;

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<TokenDigest, Arc<VerifiedToken>> for Bytes {
    fn weight(&self, _: &TokenDigest, token: &Arc<VerifiedToken>) -> u64 {
        let identity = &token.identity;
        // An empty box has no allocation.
        let rule_bytes = match token.rule_verdicts.len() {
            0 => 0,
            rules => rules + ALLOCATION_BYTES,
        };
        let claim_bytes = identity.claims() * CLAIM_BYTES;
        let binding_bytes = match token.possession {
            Some(_) => BINDING_BYTES,
            None => 0,
        };
        let bytes =
            OVERHEAD_BYTES + claim_bytes + binding_bytes + identity.value_bytes() + rule_bytes;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

#[derive(Debug, Clone)]
struct Evictions(Counter);

impl Lifecycle<TokenDigest, Arc<VerifiedToken>> for Evictions {
    type RequestState = ();

    fn before_evict(&self, (): &mut (), _: &TokenDigest, _: &mut Arc<VerifiedToken>) {
        self.0.inc();
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use http::{HeaderMap, HeaderValue, header};
    use postern_token::claims::Claims;
    use postern_token::claims::user_details::CurrentUserDetails;
    use postern_token::sources::bearer;
    use postern_token::strict_json::Value;

    use super::*;
    use crate::identity::user_header::UserHeader;

    fn cache_of(bytes: usize) -> TokenCache {
        let counters = TokenCacheCounters::default();
        TokenCacheConfig { bytes, counters }.empty()
    }

    fn with<T>(token: &str, action: impl FnOnce(Bearer<'_>) -> T) -> T {
        let field = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, field)]);
        action(
            bearer::from_headers(&headers, 1000, false)
                .unwrap()
                .unwrap(),
        )
    }

    fn remember(cache: &TokenCache, token: &str) {
        remember_as(cache, token, &format!("user of {token}"));
    }

    fn remember_as(cache: &TokenCache, token: &str, user: &str) {
        remember_with(cache, token, user, &[], 0);
    }

    fn remember_with(
        cache: &TokenCache,
        token: &str,
        user: &str,
        claims: &[Option<Value>],
        rules: usize,
    ) {
        let verified = VerifiedToken {
            identity: identity(user, claims),
            key_set: KeySetIndex(0),
            holder: Holder::for_address(None),
            validity: Validity {
                not_before: None,
                expires_at: None,
            },
            digests: TokenDigests::from_claims(&Claims::default()),
            possession: None,
            rule_verdicts: vec![RuleVerdict::Holds; rules].into(),
            rules: 0,
        };
        let digest = with(token, TokenDigest::new);
        cache.remember(digest, Arc::new(verified));
    }

    fn identity(user: &str, claims: &[Option<Value>]) -> Identity {
        let user = CurrentUserDetails {
            id: Some(user.to_owned()),
            ..CurrentUserDetails::default()
        };
        let header = UserHeader::new("X-Current-User", usize::MAX).unwrap();
        header.identity(&user, KeySetIndex(0), claims).unwrap()
    }

    fn knows(cache: &TokenCache, token: &str) -> bool {
        let found = cache.find(&with(token, TokenDigest::new), 0);
        found.is_some_and(|known| known.identity == identity(&format!("user of {token}"), &[]))
    }

    #[test]
    fn only_the_very_same_token_is_found() {
        let (cache, token) = (cache_of(100_000), "aaaa.bbbb.cccc");
        remember(&cache, token);
        assert!(knows(&cache, token));
        for at in 0..token.len() {
            let mut flipped = token.to_owned().into_bytes();
            flipped[at] ^= 1;
            // 'a' becomes '`' at times, which is no byte of a token.
            let flipped = String::from_utf8(flipped).unwrap().replace(['`', '/'], "_");
            assert!(!knows(&cache, &flipped), "{flipped}");
            assert!(!knows(&cache, &token[..=at]) || at + 1 == token.len());
        }
        assert!(!knows(&cache, "aaaa.bbbb.ccccc"));
        assert!(!knows(&cache, "AAAA.bbbb.cccc"));
    }

    const BYTES: usize = 1_000_000;
    const PEOPLE: usize = 200;

    fn work(cache: &TokenCache) -> usize {
        let at_work = (0..PEOPLE).filter(|n| {
            let token = format!("person{n}");
            let known = knows(cache, &token);
            if !known {
                remember(cache, &token);
            }
            known
        });
        at_work.count()
    }

    fn flood(cache: &TokenCache, from: usize) {
        for n in from..from + 20_000 {
            remember(cache, &format!("flood{n}"));
            assert!(cache.bytes() <= BYTES as u64);
        }
    }

    #[test]
    fn a_flood_of_tokens_used_once_evicts_no_token_in_use() {
        let cache = cache_of(BYTES);
        work(&cache);
        assert_eq!(work(&cache), PEOPLE);
        flood(&cache, 0);
        assert!(cache.counters.token_cache_evictions.get() > 15_000);
        assert_eq!(work(&cache), PEOPLE);
    }

    #[test]
    fn tokens_after_a_flood_are_remembered() {
        let cache = cache_of(BYTES);
        flood(&cache, 0);
        for _ in 0..3 {
            work(&cache);
        }
        flood(&cache, 100_000);
        assert_eq!(work(&cache), PEOPLE);
    }

    #[test]
    fn a_user_larger_than_the_cache_is_not_remembered() {
        let cache = cache_of(1000);
        remember(&cache, &"a".repeat(900));
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn the_bound_holds_for_allocated_memory() {
        for (user, claims, rules) in [
            (1, 0, 0),
            (100, 0, 0),
            (1000, 0, 0),
            (1, 1, 0),
            (100, 5, 0),
            (1, 40, 0),
            (1, 0, 1),
            (1, 0, 100),
            (100, 5, 256),
        ] {
            let mut cache = None;
            let claims = vec![Some(Value::from("c")); claims];
            let allocated = allocation_counter::measure(|| {
                let cache = cache.insert(cache_of(BYTES));
                let evictions = &cache.counters.token_cache_evictions;
                for n in (0..).take_while(|_| evictions.get() < 500) {
                    let user = "u".repeat(user);
                    remember_with(cache, &format!("flood{n}"), &user, &claims, rules);
                }
            });
            let kept = cache.unwrap().bytes();
            assert!(kept > BYTES as u64 / 10 * 9, "{kept}");
            let (max, claims) = (allocated.bytes_max, claims.len());
            let of = format!("{max} for users of {user} bytes with {claims} claims");
            assert!(max <= BYTES as u64, "{of}");
        }
    }
}
