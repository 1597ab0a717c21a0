//! The shared store: Redis, or what speaks its protocol, for any number of servers.
//!
//! The three keys carry one hash tag, so that a cluster keeps them in one slot and a script may
//! touch both halves at once. Every call makes its own connection: calls are rare (one per re-read),
//! and so there is no connection state that a failover, a restart or a stalled peer could spoil.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisError,
    Script, ServerErrorKind,
};
use zeroize::Zeroizing;

use super::{Entry, KeyStore, StoreError, unusable_applications};
use crate::applications::secret_hash::SecretHashes;
use crate::applications::{AppId, Applications};
use crate::keys::{Half, StoredKeyPair};

const PRIVATE: &str = "{auth:user-token}:private";
const PUBLIC: &str = "{auth:user-token}:public";
const APPLICATIONS: &str = "{auth:user-token}:applications";

/// A store in the same data centre answers in milliseconds; past this it is stalled.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Both halves of one moment: another server may be installing a pair right now. A script, because
/// the client panics where a transaction is refused as a whole (redis 1.8.1, wrong credentials).
const LOAD: &str = "return {redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])}";

/// Adopt the winner or install mine. One script, because every way of doing it in several commands
/// ends in mixed pairs when servers start at the same instant. GET, not MGET: MGET takes a value of
/// another type for a missing one, and the SET after it would overwrite it.
const ADOPT_OR_INSTALL: &str = r"
local private = redis.call('GET', KEYS[1])
local public = redis.call('GET', KEYS[2])
if private and public then
  return {private, public}
end
redis.call('MSET', KEYS[1], ARGV[1], KEYS[2], ARGV[2])
return {ARGV[1], ARGV[2]}
";

/// One Redis, addressed by URL.
#[derive(Clone)]
pub(crate) struct RedisStore {
    client: Client,
    /// The address without user and password.
    shown: String,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RedisStore").field(&self.shown).finish()
    }
}

impl RedisStore {
    /// Reads the address and connects to nothing yet. `password` takes the place of the one in the
    /// address.
    ///
    /// # Errors
    /// What is wrong with the address, without repeating it: it may hold a password.
    pub(super) fn new(address: &str, password: Option<&str>) -> Result<Self, String> {
        // The client reads `#insecure` as leave to trust any certificate.
        if address.contains('#') {
            return Err("it may not have a fragment".to_owned());
        }
        let refused = |error: RedisError| error.to_string();
        let info = address.into_connection_info().map_err(refused)?;
        let mut settings = info.redis_settings().clone();
        if let Some(password) = password {
            settings = settings.set_password(password);
        }
        let shown = shown(info.addr(), settings.db());
        let client = Client::open(info.set_redis_settings(settings)).map_err(refused)?;
        Ok(Self { client, shown })
    }

    /// The address without user and password.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    async fn connect(&self) -> Result<MultiplexedConnection, StoreError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(TIMEOUT))
            .set_response_timeout(Some(TIMEOUT));
        self.client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &RedisError) -> StoreError {
        let text = format!("{}: {error}", self.shown);
        if is_lasting(error) {
            StoreError::Unusable(text)
        } else {
            StoreError::Unavailable(text)
        }
    }
}

#[async_trait]
impl KeyStore for RedisStore {
    async fn load(&self) -> Result<Option<StoredKeyPair>, StoreError> {
        let mut connection = self.connect().await?;
        let (private, public): (Option<String>, Option<String>) = Script::new(LOAD)
            .key(PRIVATE)
            .key(PUBLIC)
            .invoke_async(&mut connection)
            .await
            .map_err(|error| self.failed(&error))?;
        Ok(private.zip(public).map(stored))
    }

    async fn adopt_or_install(
        &self,
        candidate: &StoredKeyPair,
    ) -> Result<StoredKeyPair, StoreError> {
        let mut connection = self.connect().await?;
        Script::new(ADOPT_OR_INSTALL)
            .key(PRIVATE)
            .key(PUBLIC)
            .arg(candidate.private.as_str())
            .arg(candidate.public.as_str())
            .invoke_async(&mut connection)
            .await
            .map(stored)
            .map_err(|error| self.failed(&error))
    }

    async fn applications(&self) -> Result<Applications, StoreError> {
        let mut connection = self.connect().await?;
        let records: BTreeMap<String, String> = redis::cmd("HGETALL")
            .arg(APPLICATIONS)
            .query_async(&mut connection)
            .await
            .map_err(|error| self.failed(&error))?;
        parse_records(&records).map_err(|error| unusable_applications(self, &error))
    }

    async fn add_application(
        &self,
        id: &AppId,
        secrets: &SecretHashes,
    ) -> Result<bool, StoreError> {
        let record =
            serde_json::to_string(secrets).map_err(|error| unusable_applications(self, &error))?;
        let mut connection = self.connect().await?;
        redis::cmd("HSETNX")
            .arg(APPLICATIONS)
            .arg(id.as_str())
            .arg(record)
            .query_async(&mut connection)
            .await
            .map_err(|error| self.failed(&error))
    }

    fn whereabouts(&self, entry: Entry) -> String {
        let keys = match entry {
            Entry::Store => return self.shown.clone(),
            Entry::KeyPair => format!("keys {PRIVATE} and {PUBLIC}"),
            Entry::Half(Half::Private) => format!("key {PRIVATE}"),
            Entry::Half(Half::Public) => format!("key {PUBLIC}"),
            Entry::Applications => format!("hash {APPLICATIONS}"),
        };
        format!("{} {keys}", self.shown)
    }
}

fn shown(address: &ConnectionAddr, database: i64) -> String {
    match address {
        ConnectionAddr::Unix(socket) => format!("redis+unix://{}?db={database}", socket.display()),
        ConnectionAddr::TcpTls { .. } => format!("rediss://{address}/{database}"),
        _ => format!("redis://{address}/{database}"),
    }
}

/// The hash's fields are the ids, its values what stands under an id in the file store.
fn parse_records(records: &BTreeMap<String, String>) -> Result<Applications, String> {
    let mut applications = Applications::default();
    for (id, record) in records {
        let fault = |cause: &dyn std::fmt::Display| format!("field {id:?}: {cause}");
        let secrets = serde_json::from_str(record).map_err(|error| fault(&error))?;
        applications.add(id.parse().map_err(|error| fault(&error))?, secrets);
    }
    Ok(applications)
}

fn stored((private, public): (String, String)) -> StoredKeyPair {
    StoredKeyPair {
        private: Zeroizing::new(private),
        public: Zeroizing::new(public),
    }
}

/// Whether waiting cannot help: wrong credentials, missing rights, a value of another type under
/// one of our keys. Everything else (refused, timed out, loading, read-only, out of memory, failing
/// over) may be over at the next attempt.
fn is_lasting(error: &RedisError) -> bool {
    const CODES: [&str; 4] = ["WRONGPASS", "NOAUTH", "NOPERM", "WRONGTYPE"];
    match error.kind() {
        ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::Parse
        | ErrorKind::UnexpectedReturnType
        | ErrorKind::Server(ServerErrorKind::NoPerm) => true,
        // Up to Redis 6, a script's error hides the code of the command that failed in its text.
        _ => CODES.iter().any(|code| {
            error.code() == Some(code) || error.detail().is_some_and(|detail| detail.contains(code))
        }),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::time::Instant;

    use super::super::conformance::installations::Redis;
    use super::*;

    fn pair() -> StoredKeyPair {
        stored(("private".to_owned(), "public".to_owned()))
    }

    #[tokio::test]
    async fn a_value_of_another_type_is_unusable_and_stays() {
        let Some(redis) = Redis::start() else { return };
        let store = redis.open_with(None);
        redis.command(&["RPUSH", PRIVATE, "not ours"]).await;
        for error in [
            store.load().await.unwrap_err(),
            store.adopt_or_install(&pair()).await.unwrap_err(),
        ] {
            assert!(matches!(&error, StoreError::Unusable(_)), "{error}");
        }
        assert_eq!(
            redis.command(&["LLEN", PRIVATE]).await,
            redis::Value::Int(1)
        );
        assert_eq!(
            redis.command(&["EXISTS", PUBLIC]).await,
            redis::Value::Int(0)
        );
    }

    #[tokio::test]
    async fn wrong_credentials_are_unusable_and_right_ones_are_used() {
        let Some(redis) = Redis::start_with(&["--requirepass", "hush"]) else {
            return;
        };
        for password in [None, Some("wrong")] {
            let error = redis.open_with(password).load().await.unwrap_err();
            assert!(matches!(&error, StoreError::Unusable(_)), "{error}");
            assert!(!error.to_string().contains("hush"));
        }
        assert_eq!(redis.open_with(Some("hush")).load().await, Ok(None));
    }

    #[tokio::test]
    async fn a_replica_or_a_full_store_takes_nothing_and_is_away_for_now() {
        let Some(redis) = Redis::start() else { return };
        let store = redis.open_with(None);
        redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
        let full = store.adopt_or_install(&pair()).await.unwrap_err();
        assert!(matches!(&full, StoreError::Unavailable(_)), "{full}");
        redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
        assert_eq!(store.load().await, Ok(None));

        redis.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
        let replica = store.adopt_or_install(&pair()).await.unwrap_err();
        assert!(matches!(&replica, StoreError::Unavailable(_)), "{replica}");
        redis.command(&["REPLICAOF", "NO", "ONE"]).await;
        assert_eq!(store.adopt_or_install(&pair()).await, Ok(pair()));
    }

    #[tokio::test]
    async fn a_stalled_server_is_given_up_and_used_again_when_it_goes_on() {
        let Some(redis) = Redis::start() else { return };
        let store = redis.open_with(None);
        signal(&redis, "STOP");
        let started = Instant::now();
        let error = store.load().await.unwrap_err();
        assert!(matches!(&error, StoreError::Unavailable(_)), "{error}");
        assert!(started.elapsed() < 3 * TIMEOUT);
        signal(&redis, "CONT");
        assert_eq!(store.load().await, Ok(None));
    }

    #[tokio::test]
    async fn a_server_that_is_gone_is_away() {
        let Some(redis) = Redis::start() else { return };
        let store = redis.open_with(None);
        drop(redis);
        let error = store.load().await.unwrap_err();
        assert!(matches!(&error, StoreError::Unavailable(_)), "{error}");
    }

    fn signal(redis: &Redis, name: &str) {
        let id = redis.process_id().to_string();
        let status = std::process::Command::new("kill")
            .args(["-s", name, &id])
            .status();
        assert!(status.unwrap().success());
    }
}
