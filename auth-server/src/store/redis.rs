//! The shared store: Redis or a compatible server, for any number of servers.
//!
//! One hash tag keeps the keys in one cluster slot, so that a script may change all of them at
//! once. Every call makes its own connection: calls are rare (one per poll), and no connection
//! state can be spoilt by a failover, a restart or a stalled peer.
//!
//! A record is a string of its own, and its version the digest of that. An index for each kind and
//! each group (a sorted set of ids, by the end of the record) and the entries of the log (a sorted set by id, with
//! another one by end) are kept by the script that commits.

mod address;
mod connection;
pub(crate) mod credentials;
mod route;

use std::time::Duration;

use ::redis::{Cmd, ErrorKind, FromRedisValue, RedisError, ServerErrorKind};
use async_trait::async_trait;
use runtime::net::host_port::without_credentials;
use tokio::sync::Mutex;
use tokio::time::timeout;
use zeroize::Zeroizing;

use self::address::Address;
use self::connection::{Connection, Failed};
use self::credentials::Credentials;
use self::route::Route;
use super::{
    CALL_TIMEOUT, Change, Key, Kind, LogEntry, Outcome, Store, StoreError, Stored, Version,
};
use crate::random;

/// Before the names of all keys.
const PREFIX: &str = "{auth:user-token}:";

/// A store in the same data centre responds in milliseconds; beyond this it is stalled.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Time for `?wait=N` replicas to acknowledge, within the timeout of a response.
const ACKNOWLEDGEMENT_MS: u16 = 1000;
/// Pause before the retry of a call that a failover interrupted.
const PAUSE: Duration = Duration::from_millis(100);
/// Records that one script reads: no script may keep the server from others for long.
const BATCH: usize = 500;

/// Reads records with their versions. GET, not MGET: that takes a value of another type for none.
const GET: &str = "
local held = {}
for number, key in ipairs(KEYS) do
  local value = redis.call('GET', key)
  held[number] = value and {value, redis.sha1hex(value)} or false
end
return held
";

/// Reads the clock of the server that holds the key.
const TIME: &str = "return redis.call('TIME')";

/// Reads the ids of the records that have not ended.
const IDS: &str = "
return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. redis.call('TIME')[1], '+inf')
";

/// `KEYS`: the mark of this commit, the counter of log entries, and three for each change: record and
/// the indexes of kind and group, or a log and twice its ends. `ARGV`: five for each change: its name, the expected version or
/// nothing, the value, the end or nothing, the id; of a log in place of the last one the id to exceed; of
/// its removed entries the expected one with its id, and their ids as the value.
///
/// The mark makes a repeated commit one: the response to the first may be lost. It is written again, so
/// that replicas which acknowledge that have the commit too. All keys are read
/// before the first write, since an error after it would leave half a commit; without the right to
/// the clock only what has ended stays longer.
const COMMIT: &str = r"
local function key(change, number) return KEYS[3 * change - 1 + number] end
local function argument(change, number) return ARGV[5 * change - 5 + number] end
local changes = #ARGV / 5
if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('EXPIRE', KEYS[1], 60)
  return 1
end
redis.call('GET', KEYS[2])
for change = 1, changes do
  local name, id = argument(change, 1), argument(change, 5)
  if name == 'append' then
    redis.call('ZCARD', key(change, 1))
  elseif name == 'remove' then
    local held = redis.call('ZRANGEBYSCORE', key(change, 1), id, id)[1]
    if held ~= argument(change, 2) then return 0 end
  else
    local held = redis.call('GET', key(change, 1))
    if (held and redis.sha1hex(held) or '') ~= argument(change, 2) then return 0 end
  end
  redis.call('ZCARD', key(change, 2))
  redis.call('ZCARD', key(change, 3))
end
redis.call('SET', KEYS[1], '', 'EX', 60)
local time = redis.pcall('TIME')
local function forget(change, id)
  if id ~= redis.call('GET', KEYS[2]) then
    redis.call('ZREMRANGEBYSCORE', key(change, 1), id, id)
    redis.call('ZREM', key(change, 2), id)
  end
end
for change = 1, changes do
  local name, ends, id = argument(change, 1), argument(change, 4), argument(change, 5)
  if name == 'put' then
    redis.call('SET', key(change, 1), argument(change, 3))
    if ends ~= '' then redis.call('EXPIREAT', key(change, 1), ends) end
    for index = 2, 3 do redis.call('ZADD', key(change, index), ends == '' and '+inf' or ends, id) end
    if key(change, 2) ~= key(change, 3) and ends ~= '' then
      local last = redis.call('ZRANGE', key(change, 3), -1, -1, 'WITHSCORES')[2]
      if last ~= 'inf' then redis.call('EXPIREAT', key(change, 3), last) end
    end
  elseif name == 'delete' then
    redis.call('DEL', key(change, 1))
    for index = 2, 3 do redis.call('ZREM', key(change, index), id) end
  elseif name == 'append' then
    local number = math.max(redis.call('GET', KEYS[2]) or 0, id) + 1
    redis.call('SET', KEYS[2], number)
    redis.call('ZADD', key(change, 1), number, number .. ' ' .. ends .. ' ' .. argument(change, 3))
    redis.call('ZADD', key(change, 2), ends, number)
  elseif name == 'remove' then
    for id in string.gmatch(argument(change, 3), '%d+') do forget(change, id) end
  end
  for index = 2, name ~= 'remove' and not time.err and 3 or 0 do
    local over = redis.call('ZRANGEBYSCORE', key(change, index), '-inf', time[1], 'LIMIT', 0, 100)
    for _, id in ipairs(over) do
      if name == 'append' then forget(change, id) else redis.call('ZREM', key(change, index), id) end
    end
  end
end
return 1
";

pub(crate) struct RedisStore {
    /// Locked while files are read too: the later of two calls must not keep what the earlier one read.
    route: Mutex<Route>,
    /// The address without user and password.
    pub(super) redacted: String,
    /// Replicas that must have acknowledged a commit.
    replicas: u8,
    /// True if data leaves this host unencrypted.
    pub(super) is_in_clear: bool,
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
    pub(crate) fn new(address: &str, access: Credentials) -> Result<Self, String> {
        let Address {
            endpoint,
            replicas,
            is_in_clear,
        } = Address::parse(address, &access)?;
        // A socket's password stands in the query.
        let (named, _) = address.split_once('?').unwrap_or((address, ""));
        Ok(Self {
            route: Mutex::new(Route::new(address, access, endpoint)),
            redacted: without_credentials(named),
            replicas,
            is_in_clear,
        })
    }

    /// Runs an idempotent command.
    pub(crate) async fn call<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        let done = self.twice(command, 0).await;
        done.map_err(|failed| self.error(&failed))
    }

    /// Runs a command that may run twice, with one retry.
    async fn twice<T: FromRedisValue>(&self, command: &Cmd, replicas: u8) -> Result<T, Failed> {
        let attempts = async {
            let first = match self.attempt(command, replicas).await {
                Err(failed) if is_worth_repeating(&failed.error) => failed,
                outcome => return outcome,
            };
            tokio::time::sleep(PAUSE).await;
            let second = self.attempt(command, replicas).await;
            second.map_err(|last| Failed {
                may_have_arrived: first.may_have_arrived || last.may_have_arrived,
                ..last
            })
        };
        let done = timeout(CALL_TIMEOUT, attempts).await;
        done.unwrap_or_else(|_| {
            Err(Failed {
                may_have_arrived: true,
                ..RedisError::from((ErrorKind::Io, "no response")).into()
            })
        })
    }

    async fn attempt<T: FromRedisValue>(&self, command: &Cmd, replicas: u8) -> Result<T, Failed> {
        let endpoint = self.route.lock().await.endpoint().await;
        let mut connection = Connection::open(&endpoint).await?;
        let done = connection.query(command).await.map_err(|error| Failed {
            may_have_arrived: !is_rejected(&error),
            ..error.into()
        })?;
        let acknowledged = acknowledged(&mut connection, replicas).await;
        acknowledged.map_err(|error| Failed {
            may_have_arrived: true,
            ..error.into()
        })?;
        Ok(done)
    }

    /// Commits once: what the first attempt did counts.
    async fn commit_once(&self, command: &Cmd) -> Result<bool, StoreError> {
        let done = self.twice(command, self.replicas).await;
        done.map_err(|failed| match failed.may_have_arrived {
            true => StoreError::Unclear(self.describe_failure(&failed)),
            false => self.error(&failed),
        })
    }

    fn commit_command(&self, changes: &[Change]) -> Result<Cmd, StoreError> {
        let no_mark = |_| StoreError::Unavailable(format!("{}: no randomness", self.redacted));
        let mark = random::token_id().map_err(no_mark)?;
        let mut keys = vec![format!("{PREFIX}commit:{mark}"), format!("{PREFIX}last")];
        keys.extend(changes.iter().flat_map(keys_of));
        let mut command = script(COMMIT, &keys);
        for argument in changes.iter().flat_map(arguments) {
            command.arg(argument.as_str());
        }
        Ok(command)
    }

    async fn values(&self, keys: &[String]) -> Result<Vec<Option<Stored>>, StoreError> {
        let held: Vec<Option<(Vec<u8>, String)>> = self.call(&script(GET, keys)).await?;
        Ok(held.into_iter().map(|held| held.map(stored)).collect())
    }

    fn error(&self, failed: &Failed) -> StoreError {
        let text = self.describe_failure(failed);
        if is_lasting(&failed.error) {
            StoreError::Unusable(text)
        } else {
            StoreError::Unavailable(text)
        }
    }

    fn describe_failure(&self, Failed { error, server, .. }: &Failed) -> String {
        let error = match error.kind() {
            ErrorKind::Parse => "this is not a Redis server".to_owned(),
            _ => error.to_string(),
        };
        // They are a script.
        let (cause, _arguments) = error.split_once(", with args").unwrap_or((&error, ""));
        match server {
            Some(server) => format!("{}: {server}: {cause}", self.redacted),
            None => format!("{}: {cause}", self.redacted),
        }
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>, StoreError> {
        let keys: Vec<_> = keys.iter().map(record_key).collect();
        self.values(&keys).await
    }

    async fn list(&self, kind: Kind) -> Result<Vec<(String, Stored)>, StoreError> {
        let mut ids = self.ids(kind, "").await?;
        ids.sort_unstable();
        let mut records = Vec::with_capacity(ids.len());
        for ids in ids.chunks(BATCH) {
            let key = |id: &String| {
                record_key(&Key {
                    kind,
                    id: id.clone(),
                })
            };
            let held = self
                .values(&ids.iter().map(key).collect::<Vec<_>>())
                .await?;
            let held = ids.iter().zip(held);
            records.extend(held.filter_map(|(id, held)| Some((id.clone(), held?))));
        }
        Ok(records)
    }

    async fn ids(&self, kind: Kind, group: &str) -> Result<Vec<String>, StoreError> {
        let ids: Vec<Vec<u8>> = self.call(&script(IDS, &[index_key(kind, group)])).await?;
        let ids = ids.into_iter().filter_map(|id| String::from_utf8(id).ok());
        Ok(ids.collect())
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Outcome, StoreError> {
        if changes.is_empty() && self.replicas == 0 {
            return Ok(Outcome::Committed);
        }
        let command = self.commit_command(&changes)?;
        Ok(match self.commit_once(&command).await? {
            true => Outcome::Committed,
            false => Outcome::Conflict,
        })
    }

    async fn since(&self, cursor: i64) -> Result<Vec<LogEntry>, StoreError> {
        let [entries, _] = log_keys();
        let mut command = ::redis::cmd("ZRANGEBYSCORE");
        command.arg(entries).arg(format!("({cursor}")).arg("+inf");
        let entries: Vec<String> = self.call(&command).await?;
        Ok(entries
            .iter()
            .filter_map(|entry| log_entry(entry))
            .collect())
    }

    async fn now(&self) -> Result<i64, StoreError> {
        let (now, _): (i64, i64) = self.call(&script(TIME, &[format!("{PREFIX}last")])).await?;
        Ok(now)
    }

    fn describe(&self, key: &Key) -> String {
        format!("{} key {}", self.redacted, record_key(key))
    }
}

/// Sends the whole script, not its digest: calls are rare, and a new master does not know it.
pub(crate) fn script(text: &str, keys: &[impl ::redis::ToRedisArgs]) -> Cmd {
    let mut command = ::redis::cmd("EVAL");
    command.arg(text).arg(keys.len()).arg(keys);
    command
}

/// Returns the name of a record; the contract gives two.
fn record_key(Key { kind, id }: &Key) -> String {
    match kind {
        Kind::Installation => format!("{PREFIX}{id}"),
        _ => format!("{PREFIX}{}:{id}", kind.name()),
    }
}

/// Returns the name of the index of a group, or of the whole kind (an empty group).
fn index_key(kind: Kind, group: &str) -> String {
    let index = format!("{PREFIX}index:{}", kind.name());
    match group {
        "" => index,
        group => format!("{index}:{group}"),
    }
}

fn log_keys() -> [String; 2] {
    let entries = format!("{PREFIX}log:revocations");
    let ends = format!("{entries}:ends");
    [entries, ends]
}

fn keys_of(change: &Change) -> [String; 3] {
    match change {
        Change::Put { key, .. } | Change::Delete { key, .. } => [
            record_key(key),
            index_key(key.kind, ""),
            index_key(key.kind, key.group()),
        ],
        Change::Append(_) | Change::Remove { .. } => {
            let [entries, ends] = log_keys();
            [entries, ends.clone(), ends]
        }
    }
}

/// Returns the five arguments of a change; an empty value is a value.
fn arguments(change: &Change) -> [Zeroizing<String>; 5] {
    let (removed, number);
    let text = |version: &Option<Version>| version.as_ref().map(|Version(text)| text.clone());
    let (name, expected, value, ends, id) = match change {
        Change::Put {
            key,
            expected,
            value,
            ends,
        } => ("put", text(expected), value.as_str(), *ends, &*key.id),
        Change::Delete { key, expected } => {
            ("delete", Some(expected.0.clone()), "", None, &*key.id)
        }
        Change::Append(entry) => {
            number = entry.above.to_string();
            ("append", None, &*entry.value, Some(entry.ends), &*number)
        }
        Change::Remove { ids, expected, .. } => {
            let ids: Vec<_> = ids.iter().map(i64::to_string).collect();
            removed = ids.join(" ");
            let LogEntry { id, ends, value } = expected;
            number = id.to_string();
            let entry = Some(format!("{id} {ends} {value}"));
            ("remove", entry, &*removed, None, &*number)
        }
    };
    let ends = ends.map_or_else(String::new, |ends| ends.to_string());
    [name, &expected.unwrap_or_default(), value, &ends, id]
        .map(|text| Zeroizing::new(text.to_owned()))
}

fn stored((value, digest): (Vec<u8>, String)) -> Stored {
    Stored {
        value: Zeroizing::new(String::from_utf8_lossy(&value).into_owned()),
        version: Version(digest),
    }
}

fn log_entry(text: &str) -> Option<LogEntry> {
    let mut parts = text.splitn(3, ' ');
    Some(LogEntry {
        id: parts.next()?.parse().ok()?,
        ends: parts.next()?.parse().ok()?,
        value: parts.next()?.to_owned(),
    })
}

/// Waits until `replicas` have what was written through `connection`, and before.
async fn acknowledged(connection: &mut Connection, replicas: u8) -> Result<(), RedisError> {
    if replicas == 0 {
        return Ok(());
    }
    let mut wait = ::redis::cmd("WAIT");
    wait.arg(replicas).arg(ACKNOWLEDGEMENT_MS);
    let held: u8 = connection.query(&wait).await?;
    if held < replicas {
        let text = format!("{held} of {replicas} replicas have acknowledged");
        return Err((ErrorKind::Io, "WAIT", text).into());
    }
    Ok(())
}

/// Returns true if the server, or the client before it sent anything, rejected the command.
fn is_rejected(error: &RedisError) -> bool {
    !matches!(
        error.kind(),
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::UnexpectedReturnType
    )
}

/// Returns true if an immediate retry may help: the peer is no longer the master, or the connection
/// broke. An unresponsive peer is not retried.
fn is_worth_repeating(error: &RedisError) -> bool {
    !(error.is_timeout() || error.is_connection_refusal() || is_lasting(error))
}

/// Returns true if waiting cannot help: wrong credentials, missing rights, a command that is switched off, a
/// key of another type.
/// Everything else (connection refused, timeout, loading, read-only, out of memory, failover) may
/// be transient.
fn is_lasting(error: &RedisError) -> bool {
    const CODES: [&str; 4] = ["WRONGPASS", "NOAUTH", "NOPERM", "WRONGTYPE"];
    // Of a client and of a script.
    const SWITCHED_OFF: [&str; 2] = ["nknown command", "nknown Redis command"];
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
        _ => CODES.iter().chain(&SWITCHED_OFF).any(|text| {
            error.code() == Some(text) || error.detail().is_some_and(|detail| detail.contains(text))
        }),
    }
}

#[cfg(test)]
mod tests;
