//! The shared store: Redis or a compatible server, for any number of servers.
//!
//! One hash tag keeps the keys in one cluster slot, so that a script may change all of them at
//! once. Every call makes its own connection: calls are rare (one per poll), and no connection
//! state can be spoilt by a failover, a restart or a stalled peer.

mod address;
mod client;
mod connection;
pub(crate) mod credentials;
mod records;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, ServerErrorKind};
use tracing::warn;
use zeroize::Zeroizing;

use self::address::Address;
use self::client::CurrentEndpoint;
use self::connection::Connection;
use self::credentials::Credentials;
use super::{Entry, KeyStore, StoreError, unreadable_record, unusable_applications};
use crate::applications::secret_hash::SecretHashes;
use crate::applications::{AppId, Applications};
use crate::keys::{Half, StoredKeyPair, StoredKeys, StoredRing};

const PRIVATE: &str = "{auth:user-token}:private";
const PUBLIC: &str = "{auth:user-token}:public";
const RING: &str = "{auth:user-token}:ring";
const APPLICATIONS: &str = "{auth:user-token}:applications";

/// The keys of the scripts, in the same order everywhere.
const KEYS: [&str; 3] = [PRIVATE, PUBLIC, RING];

/// A store in the same data centre responds in milliseconds; beyond this it is stalled.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Pause before the retry of a call that a failover interrupted.
const PAUSE: Duration = Duration::from_millis(100);

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

pub(crate) struct RedisStore {
    route: CurrentEndpoint,
    /// The address without user and password.
    redacted: String,
    is_in_clear: bool,
    /// True once a rejected query of its clock was logged.
    is_time_rejected: AtomicBool,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RedisStore").field(&self.redacted).finish()
    }
}

impl RedisStore {
    /// Parses the address; does not connect.
    ///
    /// # Errors
    /// Describes the error without the address, which may hold a password.
    pub(super) fn new(address: &str, access: Credentials) -> Result<Self, String> {
        let Address {
            endpoint,
            redacted,
            is_in_clear,
        } = Address::parse(address, &access, TIMEOUT)?;
        Ok(Self {
            route: CurrentEndpoint::new(address, access, endpoint, TIMEOUT),
            redacted,
            is_in_clear,
            is_time_rejected: AtomicBool::new(false),
        })
    }

    /// Returns true if data leaves this host unencrypted.
    pub(super) const fn is_in_clear(&self) -> bool {
        self.is_in_clear
    }

    /// Returns the address without user and password.
    pub(super) fn redacted(&self) -> &str {
        &self.redacted
    }

    async fn connect(&self) -> Result<Connection, RedisError> {
        Connection::open(&*self.route.endpoint().await, TIMEOUT).await
    }

    /// Runs an idempotent command, with one retry: neither reads nor swaps have an effect the
    /// second time.
    async fn call<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        match self.call_once(command).await {
            Err(error) if is_worth_repeating(&error) => {
                tokio::time::sleep(PAUSE).await;
                self.call_once(command).await
            }
            outcome => outcome,
        }
        .map_err(|error| self.failed(&error))
    }

    async fn call_once<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisError> {
        self.connect().await?.query(command).await
    }

    /// Reads an application's record as written.
    async fn record(
        &self,
        connection: &mut Connection,
        id: &AppId,
    ) -> Result<Option<String>, StoreError> {
        let mut read = redis::cmd("HGET");
        connection
            .query(read.arg(APPLICATIONS).arg(id.as_str()))
            .await
            .map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &RedisError) -> StoreError {
        let text = match error.kind() {
            ErrorKind::Parse => format!("{}: this is not a Redis server", self.redacted),
            _ => format!("{}: {error}", self.redacted),
        };
        if is_lasting(error) {
            StoreError::Unusable(text)
        } else {
            StoreError::Unavailable(text)
        }
    }
}

/// Sends the whole script, not its digest: calls are rare, and a new master does not know it.
fn script(text: &str, keys: &[&str]) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(text).arg(keys.len()).arg(keys);
    command
}

#[async_trait]
impl KeyStore for RedisStore {
    async fn load(&self) -> Result<StoredKeys, StoreError> {
        self.call(&script(LOAD, &KEYS)).await.map(stored)
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
        self.call(&command).await.map(stored)
    }

    async fn applications(&self) -> Result<Applications, StoreError> {
        let mut command = redis::cmd("HGETALL");
        let records: BTreeMap<Vec<u8>, Vec<u8>> = self.call(command.arg(APPLICATIONS)).await?;
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
        let connected = self.connect().await;
        let mut connection = connected.map_err(|error| self.failed(&error))?;
        // Compared as text by the store: another program may have written it differently.
        let mut swap = script(SWAP_APPLICATION, &[APPLICATIONS]);
        swap.arg(id.as_str()).arg(json);
        let there = self.record(&mut connection, id).await?;
        let parsed = there.as_deref().map(serde_json::from_str).transpose();
        let parsed: Option<SecretHashes> = parsed.map_err(|_| unreadable_record(self, id))?;
        if parsed.as_ref() != expected {
            return Ok(false);
        }
        swap.arg(argument(there.as_deref()).as_str());
        connection
            .query(&swap)
            .await
            .map_err(|error| self.failed(&error))
    }

    async fn now(&self) -> Result<Option<i64>, StoreError> {
        let time: Vec<i64> = self.call(&script(TIME, &KEYS)).await?;
        if time.is_empty() && !self.is_time_rejected.swap(true, Ordering::Relaxed) {
            warn!(
                "{}: the user lacks the right +time: keys follow this machine's clock",
                self.redacted
            );
        }
        Ok(time.first().copied())
    }

    fn location(&self, entry: Entry) -> String {
        let keys = match entry {
            Entry::Store => return self.redacted.clone(),
            Entry::KeyPair => format!("keys {PRIVATE} and {PUBLIC}"),
            Entry::Half(Half::Private) => format!("key {PRIVATE}"),
            Entry::Half(Half::Public) => format!("key {PUBLIC}"),
            Entry::Ring => format!("key {RING}"),
            Entry::Applications => format!("hash {APPLICATIONS}"),
        };
        format!("{} {keys}", self.redacted)
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

/// Returns true if an immediate retry may help: the peer is no longer the master, or the connection
/// broke. An unresponsive peer is not retried.
fn is_worth_repeating(error: &RedisError) -> bool {
    !(error.is_timeout() || error.is_connection_refusal() || is_lasting(error))
}

/// Returns true if waiting cannot help: wrong credentials, missing rights, a key of another type.
/// Everything else (connection refused, timeout, loading, read-only, out of memory, failover) may
/// be transient.
fn is_lasting(error: &RedisError) -> bool {
    const CODES: [&str; 4] = ["WRONGPASS", "NOAUTH", "NOPERM", "WRONGTYPE"];
    // The client's text for a rejected SELECT, which lacks the code. Redis accepts SELECT even
    // while it loads or has lost its master.
    const DATABASE_REJECTED: &str = "refused to switch database";
    match error.kind() {
        ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::Parse
        | ErrorKind::UnexpectedReturnType
        | ErrorKind::Server(ServerErrorKind::NoPerm) => true,
        _ if error.to_string().contains(DATABASE_REJECTED) => true,
        // Up to Redis 6, a script's error hides the code of the failed command in its text.
        _ => CODES.iter().any(|code| {
            error.code() == Some(code) || error.detail().is_some_and(|detail| detail.contains(code))
        }),
    }
}

#[cfg(test)]
mod tests;
