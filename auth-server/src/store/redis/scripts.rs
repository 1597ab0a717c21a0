//! The names of the store's keys in Redis, its scripts, and the forms of records and entries.

use aws_lc_rs::error::Unspecified;
use redis::Cmd;
use zeroize::Zeroizing;

use crate::random;
use crate::store::{Change, Key, Kind, LogEntry, Stored, Version};

/// Before the names of all keys.
pub(super) const PREFIX: &str = "{auth:user-token}:";

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

/// Returns the command that reads records.
pub(super) fn read(keys: &[Key]) -> Cmd {
    script(GET, &keys.iter().map(record_key).collect::<Vec<_>>())
}

/// Returns the command that reads the ids of a group, or of a whole kind.
pub(super) fn ids(kind: Kind, group: &str) -> Cmd {
    script(IDS, &[index_key(kind, group)])
}

/// Returns the command that reads the entries of the log after `cursor`.
pub(super) fn since(cursor: i64) -> Cmd {
    let [entries, _] = log_keys();
    let mut command = redis::cmd("ZRANGEBYSCORE");
    command.arg(entries).arg(format!("({cursor}")).arg("+inf");
    command
}

pub(super) fn time() -> Cmd {
    script(TIME, &[format!("{PREFIX}last")])
}

/// Returns the command of a commit, which may be sent twice.
pub(super) fn commit(changes: &[Change]) -> Result<Cmd, Unspecified> {
    let mark = random::token_id()?;
    let mut keys = vec![format!("{PREFIX}commit:{mark}"), format!("{PREFIX}last")];
    keys.extend(changes.iter().flat_map(keys_of));
    let mut command = script(COMMIT, &keys);
    for argument in changes.iter().flat_map(arguments) {
        command.arg(argument.as_str());
    }
    Ok(command)
}

/// Sends the whole script, not its digest, which a new master does not know.
fn script(text: &str, keys: &[String]) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(text).arg(keys.len()).arg(keys);
    command
}

/// Returns the name of a record; the contract gives two.
pub(super) fn record_key(Key { kind, id }: &Key) -> String {
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

pub(super) fn stored((value, digest): (Vec<u8>, String)) -> Stored {
    Stored {
        value: Zeroizing::new(String::from_utf8_lossy(&value).into_owned()),
        version: Version(digest),
    }
}

pub(super) fn log_entry(text: &str) -> Option<LogEntry> {
    let mut parts = text.splitn(3, ' ');
    Some(LogEntry {
        id: parts.next()?.parse().ok()?,
        ends: parts.next()?.parse().ok()?,
        value: parts.next()?.to_owned(),
    })
}
