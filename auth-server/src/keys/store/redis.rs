//! The shared store: Redis, or what speaks its protocol, for any number of servers.
//!
//! The keys carry one hash tag, so that a cluster keeps them in one slot and a script may touch all
//! of them at once. Every call makes its own connection: calls are rare (one per re-read),
//! and so there is no connection state that a failover, a restart or a stalled peer could spoil.

mod address;
mod client;
mod connection;
pub(crate) mod credentials;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, ServerErrorKind};
use tracing::warn;
use zeroize::Zeroizing;

use self::address::Address;
use self::client::Route;
use self::connection::Connection;
use self::credentials::StoreAccess;
use super::{Entry, KeyStore, StoreError, unreadable_record, unusable_applications};
use crate::applications::secret_hash::SecretHashes;
use crate::applications::{AppId, Applications};
use crate::keys::{Half, StoredKeyPair, StoredKeys, StoredRing};

const PRIVATE: &str = "{auth:user-token}:private";
const PUBLIC: &str = "{auth:user-token}:public";
const RING: &str = "{auth:user-token}:ring";
const APPLICATIONS: &str = "{auth:user-token}:applications";

/// What the scripts work on; in one order everywhere.
const KEYS: [&str; 3] = [PRIVATE, PUBLIC, RING];

/// A store in the same data centre answers in milliseconds; past this it is stalled.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Before the second attempt of a call that a failover cut short.
const PAUSE: Duration = Duration::from_millis(100);

/// The values of one moment: another server may be storing others right now. A script, because the
/// client panics where a transaction is refused as a whole (redis 1.8.1, wrong credentials).
const LOAD: &str = "
return {redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3])}
";

/// As a script it goes to the server that holds the keys. A user without the right gets no time and
/// no error: the keys do not depend on it.
const TIME: &str = "
local time = redis.pcall('TIME')
return time.err and {} or time
";

/// One script, because every way of doing it in several commands ends in mixed pairs when servers
/// start at the same instant. GET, not MGET: MGET takes a value of another type for a missing one,
/// and the SET after it would overwrite it.
///
/// `ARGV`: the three values expected, then the three new ones, each as [`argument`] writes it. The
/// private half is set first: where a full or read-only store refuses a write, it refuses that one.
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

/// Replaces one application's record if it, and the record of another one if there is one to look at,
/// still are what was read.
///
/// `ARGV`: the id and its new record, then the ids looked at, each with what was read as [`argument`]
/// writes it.
const SWAP_APPLICATION: &str = r"
for i = 3, #ARGV, 2 do
  local there = redis.call('HGET', KEYS[1], ARGV[i])
  if (there and '+' .. there or '-') ~= ARGV[i + 1] then
    return 0
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
";

/// One Redis, addressed by URL.
pub(crate) struct RedisStore {
    route: Route,
    /// The address without user and password.
    shown: String,
    is_in_clear: bool,
    /// Said already.
    is_time_refused: AtomicBool,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RedisStore").field(&self.shown).finish()
    }
}

impl RedisStore {
    /// Reads the address and connects to nothing yet.
    ///
    /// # Errors
    /// What is wrong with the address, without repeating it: it may hold a password.
    pub(super) fn new(address: &str, access: StoreAccess) -> Result<Self, String> {
        let Address {
            endpoint,
            shown,
            is_in_clear,
        } = Address::parse(address, &access, TIMEOUT)?;
        Ok(Self {
            route: Route::new(address, access, endpoint, TIMEOUT),
            shown,
            is_in_clear,
            is_time_refused: AtomicBool::new(false),
        })
    }

    /// Whether what is sent leaves this host unencrypted.
    pub(super) const fn is_in_clear(&self) -> bool {
        self.is_in_clear
    }

    /// The address without user and password.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    async fn connect(&self) -> Result<Connection, RedisError> {
        Connection::open(&*self.route.endpoint().await, TIMEOUT).await
    }

    /// A command that may be done twice: nothing that reads the keys, or swaps them for others, does
    /// anything the second time.
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

    /// An application's record, as it was written.
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
            ErrorKind::Parse => format!("{}: what answers there is no Redis", self.shown),
            _ => format!("{}: {error}", self.shown),
        };
        if is_lasting(error) {
            StoreError::Unusable(text)
        } else {
            StoreError::Unavailable(text)
        }
    }
}

/// The text of the script each time, not its digest: calls are rare, and a server that has just taken
/// over has never heard of it.
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
        beside: Option<(&AppId, &SecretHashes)>,
    ) -> Result<bool, StoreError> {
        let json =
            serde_json::to_string(record).map_err(|error| unusable_applications(self, &error))?;
        let connected = self.connect().await;
        let mut connection = connected.map_err(|error| self.failed(&error))?;
        // Compared as text once more, by the store: it may have been written otherwise than by us.
        let mut swap = script(SWAP_APPLICATION, &[APPLICATIONS]);
        swap.arg(id.as_str()).arg(json);
        let beside = beside.map(|(id, record)| (id, Some(record)));
        for (id, expected) in std::iter::once((id, expected)).chain(beside) {
            let there = self.record(&mut connection, id).await?;
            let parsed = there.as_deref().map(serde_json::from_str).transpose();
            let parsed: Option<SecretHashes> = parsed.map_err(|_| unreadable_record(self, id))?;
            if parsed.as_ref() != expected {
                return Ok(false);
            }
            swap.arg(id.as_str())
                .arg(argument(there.as_deref()).as_str());
        }
        connection
            .query(&swap)
            .await
            .map_err(|error| self.failed(&error))
    }

    async fn now(&self) -> Result<Option<i64>, StoreError> {
        let time: Vec<i64> = self.call(&script(TIME, &KEYS)).await?;
        if time.is_empty() && !self.is_time_refused.swap(true, Ordering::Relaxed) {
            warn!(
                "{}: the user lacks the right +time: keys go by this machine's clock",
                self.shown
            );
        }
        Ok(time.first().copied())
    }

    fn whereabouts(&self, entry: Entry) -> String {
        let keys = match entry {
            Entry::Store => return self.shown.clone(),
            Entry::KeyPair => format!("keys {PRIVATE} and {PUBLIC}"),
            Entry::Half(Half::Private) => format!("key {PRIVATE}"),
            Entry::Half(Half::Public) => format!("key {PUBLIC}"),
            Entry::Ring => format!("key {RING}"),
            Entry::Applications => format!("hash {APPLICATIONS}"),
        };
        format!("{} {keys}", self.shown)
    }
}

/// The hash's fields are the ids, its values what stands under an id in the file store.
fn parse_records(records: &BTreeMap<Vec<u8>, Vec<u8>>) -> Applications {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let held = records.iter().map(|(id, record)| {
        let json = serde_json::from_slice(record);
        (text(id), json.unwrap_or_else(|_| text(record).into()))
    });
    held.collect::<BTreeMap<_, _>>().into()
}

/// The three values, in the order of [`KEYS`].
fn values(keys: &StoredKeys) -> [Option<&str>; 3] {
    let pair = keys.pair.as_ref();
    [
        pair.map(|pair| pair.private.as_str()),
        pair.map(|pair| pair.public.as_str()),
        keys.ring.as_ref().map(|StoredRing(ring)| ring.as_str()),
    ]
}

/// `+` and the value, or `-` for none: an empty value is one too.
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

/// Whether asking again at once is likely to help: the peer is not the master any more, or it was cut
/// off in the middle. Who does not answer at all is not asked twice.
fn is_worth_repeating(error: &RedisError) -> bool {
    !(error.is_timeout() || error.is_connection_refusal() || is_lasting(error))
}

/// Whether waiting cannot help: wrong credentials, missing rights, a value of another type under
/// one of our keys. Everything else (refused, timed out, loading, read-only, out of memory, failing
/// over) may be over at the next attempt.
fn is_lasting(error: &RedisError) -> bool {
    const CODES: [&str; 4] = ["WRONGPASS", "NOAUTH", "NOPERM", "WRONGTYPE"];
    // The client's own words around a refused SELECT, which it tells without the code. Redis takes that
    // command even while it loads or has lost its master.
    const REFUSED_DATABASE: &str = "refused to switch database";
    match error.kind() {
        ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::Parse
        | ErrorKind::UnexpectedReturnType
        | ErrorKind::Server(ServerErrorKind::NoPerm) => true,
        _ if error.to_string().contains(REFUSED_DATABASE) => true,
        // Up to Redis 6, a script's error hides the code of the command that failed in its text.
        _ => CODES.iter().any(|code| {
            error.code() == Some(code) || error.detail().is_some_and(|detail| detail.contains(code))
        }),
    }
}

#[cfg(test)]
mod tests;
