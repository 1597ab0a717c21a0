//! The shared key store, by the connections of [`crate::store::redis`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tracing::warn;
use zeroize::Zeroizing;

use super::{Entry, KeyStore, StoreError};
use crate::keys::{Half, StoredKeyPair, StoredKeys, StoredRing};
use crate::store::redis::{RedisStore, script};

const PRIVATE: &str = "{auth:user-token}:private";
const PUBLIC: &str = "{auth:user-token}:public";
const RING: &str = "{auth:user-token}:ring";

/// The keys of the scripts, in the same order everywhere.
const KEYS: [&str; 3] = [PRIVATE, PUBLIC, RING];

/// Reads a consistent snapshot. A script, because the client panics if a whole transaction is
/// rejected (redis 1.8.1, wrong credentials).
const LOAD: &str = "
return {redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3])}
";

/// Reads the clock of the server that holds the keys. Without the right to do so it returns
/// nothing, not an error: the keys do not depend on it.
const TIME: &str = "
local time = redis.pcall('TIME')
return time.err and {} or time
";

/// One script, because several commands would mix pairs when servers start at the same instant.
/// GET, not MGET: MGET treats a value of another type as missing, and SET would overwrite it.
///
/// `ARGV`: the three expected values, then the three new ones, each encoded by [`argument`]. The
/// private half is set first: a full or read-only store fails on it.
const COMPARE_AND_SWAP: &str = r"
local held = {redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3])}
if not (held[1] and held[2]) then
  held[1], held[2] = false, false
end
for i = 1, 3 do
  if (held[i] and '+' .. held[i] or '-') ~= ARGV[i] then
    return held
  end
end
for i = 1, 3 do
  local new = ARGV[i + 3]
  if new == '-' then
    redis.call('DEL', KEYS[i])
    held[i] = false
  else
    held[i] = string.sub(new, 2)
    redis.call('SET', KEYS[i], held[i])
  end
end
return held
";

#[derive(Debug)]
pub(super) struct RedisKeys {
    store: Arc<RedisStore>,
    /// True once a rejected query of its clock was logged.
    is_time_rejected: AtomicBool,
}

impl RedisKeys {
    pub(super) fn new(store: Arc<RedisStore>) -> Self {
        Self {
            store,
            is_time_rejected: AtomicBool::new(false),
        }
    }
}

#[async_trait]
impl KeyStore for RedisKeys {
    async fn load(&self) -> Result<StoredKeys, StoreError> {
        self.store.call(&script(LOAD, &KEYS)).await.map(stored)
    }

    async fn compare_and_swap(
        &self,
        expected: &StoredKeys,
        new: &StoredKeys,
    ) -> Result<StoredKeys, StoreError> {
        let mut command = script(COMPARE_AND_SWAP, &KEYS);
        for value in values(expected).into_iter().chain(values(new)) {
            command.arg(argument(value).as_str());
        }
        self.store.call(&command).await.map(stored)
    }

    async fn now(&self) -> Result<Option<i64>, StoreError> {
        let time: Vec<i64> = self.store.call(&script(TIME, &KEYS)).await?;
        if time.is_empty() && !self.is_time_rejected.swap(true, Ordering::Relaxed) {
            warn!(
                "{}: the user lacks the right +time: keys follow this machine's clock",
                self.store.redacted()
            );
        }
        Ok(time.first().copied())
    }

    fn location(&self, entry: Entry) -> String {
        let keys = match entry {
            Entry::Store => return self.store.redacted().to_owned(),
            Entry::KeyPair => format!("keys {PRIVATE} and {PUBLIC}"),
            Entry::Half(Half::Private) => format!("key {PRIVATE}"),
            Entry::Half(Half::Public) => format!("key {PUBLIC}"),
            Entry::Ring => format!("key {RING}"),
        };
        format!("{} {keys}", self.store.redacted())
    }
}

/// Returns the three values, in the order of [`KEYS`].
fn values(keys: &StoredKeys) -> [Option<&str>; 3] {
    let pair = keys.pair.as_ref();
    [
        pair.map(|pair| pair.private.as_str()),
        pair.map(|pair| pair.public.as_str()),
        keys.ring.as_ref().map(|StoredRing(ring)| ring.as_str()),
    ]
}

/// Encodes a value as `+` and the value, or `-` for none: an empty value is a value.
fn argument(value: Option<&str>) -> Zeroizing<String> {
    Zeroizing::new(value.map_or_else(|| "-".to_owned(), |value| format!("+{value}")))
}

type Reply = (Option<String>, Option<String>, Option<String>);

fn stored((private, public, ring): Reply) -> StoredKeys {
    StoredKeys {
        pair: private.zip(public).map(|(private, public)| StoredKeyPair {
            private: Zeroizing::new(private),
            public: Zeroizing::new(public),
        }),
        ring: ring.map(Zeroizing::new).map(StoredRing),
    }
}

#[cfg(test)]
mod tests;
