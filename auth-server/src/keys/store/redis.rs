//! The shared key store, by the connections of [`crate::store::redis`].

mod records;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tracing::warn;
use zeroize::Zeroizing;

use super::{Entry, KeyStore, StoreError, unreadable_record, unusable_applications};
use crate::applications::secret_hash::SecretHashes;
use crate::applications::{AppId, Applications};
use crate::keys::{Half, StoredKeyPair, StoredKeys, StoredRing};
use crate::store::redis::{RedisStore, script};

const PRIVATE: &str = "{auth:user-token}:private";
const PUBLIC: &str = "{auth:user-token}:public";
const RING: &str = "{auth:user-token}:ring";
const APPLICATIONS: &str = "{auth:user-token}:applications";

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

/// Replaces an application's record if it is unchanged.
///
/// `ARGV`: the id, its new record, and the value read, encoded by [`argument`].
const SWAP_APPLICATION: &str = r"
local there = redis.call('HGET', KEYS[1], ARGV[1])
if (there and '+' .. there or '-') ~= ARGV[3] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
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

    async fn applications(&self) -> Result<Applications, StoreError> {
        let mut command = redis::cmd("HGETALL");
        let records: BTreeMap<Vec<u8>, Vec<u8>> =
            self.store.call(command.arg(APPLICATIONS)).await?;
        Ok(parse_records(&records))
    }

    async fn swap_application(
        &self,
        id: &AppId,
        expected: Option<&SecretHashes>,
        record: &SecretHashes,
    ) -> Result<bool, StoreError> {
        let json =
            serde_json::to_string(record).map_err(|error| unusable_applications(self, &error))?;
        // Compared as text by the store: another program may have written it differently.
        let mut swap = script(SWAP_APPLICATION, &[APPLICATIONS]);
        swap.arg(id.as_str()).arg(json);
        let mut read = redis::cmd("HGET");
        read.arg(APPLICATIONS).arg(id.as_str());
        let there: Option<String> = self.store.call(&read).await?;
        let parsed = there.as_deref().map(serde_json::from_str).transpose();
        let parsed: Option<SecretHashes> = parsed.map_err(|_| unreadable_record(self, id))?;
        if parsed.as_ref() != expected {
            return Ok(false);
        }
        swap.arg(argument(there.as_deref()).as_str());
        self.store.call_once(&swap).await
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
            Entry::Applications => format!("hash {APPLICATIONS}"),
        };
        format!("{} {keys}", self.store.redacted())
    }
}

/// Parses a hash of records by id, the values as in the file store.
fn parse_records(records: &BTreeMap<Vec<u8>, Vec<u8>>) -> Applications {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let held = records.iter().map(|(id, record)| {
        let json = serde_json::from_slice(record);
        (text(id), json.unwrap_or_else(|_| text(record).into()))
    });
    held.collect::<BTreeMap<_, _>>().into()
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
