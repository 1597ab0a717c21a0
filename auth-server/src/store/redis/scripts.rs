//! The names of the store's keys in Redis, its scripts, and the forms of records and entries.

use aws_lc_rs::error::Unspecified;
use redis::Cmd;
use zeroize::Zeroizing;

use crate::random;
use crate::store::{Change, Key, Kind, LogEntry, NewEntry, Stored, Version};

/// The beginning of the names of all keys.
pub(super) const PREFIX: &str = "{auth:user-token}:";

/// The text before each script, which remembers the command that fails.
const BEGIN: &str = "
local command, is_writing
local function call(...)
  command = ...
  return redis.call(...)
end
local is_done, result = pcall(function()
";

/// The text after each script. The first word of an error is its code: with `HALFWAY` a part of a commit is
/// in the store, with any other code nothing of it. Up to Redis 6 the code stands after the position.
const END: &str = "
end)
if is_done then return result end
local text = type(result) == 'table' and result.err or result
text = string.match(text, '%-(%u+ .*)') or text
return redis.error_reply((is_writing and 'HALFWAY ' or '') .. text .. ', in ' .. command)
";

/// Reads records with their versions. GET, because MGET takes a value of another type for a missing one.
const GET: &str = "
local held = {}
for number, key in ipairs(KEYS) do
  local value = call('GET', key)
  held[number] = value and {value, redis.sha1hex(value)} or false
end
return held
";

/// Reads the clock of the server that holds the key.
const TIME: &str = "return call('TIME')";

/// Reads the ids of the records that have not ended.
const IDS: &str = "
return call('ZRANGEBYSCORE', KEYS[1], '(' .. call('TIME')[1], '+inf')
";

/// `KEYS`: the mark of this commit, the last number of a log entry, the log, its ends, and three for each
/// change: record and the indexes of kind and group, or the log and twice its ends. `ARGV`: five for each
/// change: its name, the expected version or nothing, the value, the end or nothing, the id; of a log in
/// place of the last one the id to exceed; of its removed entries the expected one with its id, and their
/// ids as the value.
///
/// An error between two writes would leave half a commit. So every command, set and number is tried first
/// without any effect: the mark does not exist, and no member is empty.
///
/// By the mark a repeated commit changes nothing: the response to the first may be lost. The mark is the last
/// write, and a repetition writes it again: replicas which acknowledge this write have the commit too.
const COMMIT: &str = r"
local mark, last, log, log_ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local function key(change, number) return KEYS[3 * change + 1 + number] end
local function argument(change, number) return ARGV[5 * change - 5 + number] end
local changes, time = #ARGV / 5, call('TIME')[1]
if call('EXISTS', mark) == 1 then
  call('SET', mark, '', 'EX', 60)
  return 1
end

call('SET', mark, '', 'XX', 'EX', 60)
call('DEL', mark)
call('EXPIREAT', mark, time)
call('ZREM', mark, '')
call('ZREMRANGEBYSCORE', mark, 0, 0)
call('ZRANGEBYSCORE', mark, 0, 0)
call('ZADD', log, 'XX', 0, '')
call('ZADD', log_ends, 'XX', 0, '')
local highest = call('ZRANGE', log, -1, -1, 'WITHSCORES')[2] or 0
local number = math.max(tonumber(call('GET', last) or 0) or math.huge, highest)
for change = 1, changes do
  local name, ends, id = argument(change, 1), argument(change, 4), argument(change, 5)
  local held = ''
  if name == 'append' then
    number = math.max(number, id)
  elseif name == 'remove' then
    held = call('ZRANGEBYSCORE', log, id, id)[1]
  else
    held = call('GET', key(change, 1))
    held = held and redis.sha1hex(held) or ''
    if ends ~= '' then call('EXPIREAT', mark, ends) end
    for index = 2, 3 do call('ZADD', key(change, index), 'XX', 0, '') end
  end
  if held ~= argument(change, 2) then return 0 end
end
-- A store that gave one in every millisecond has not come so far; NaN is not less than anything.
if not (number + changes < 1000 * time) then
  return redis.error_reply('UNUSABLE ' .. last .. ' or ' .. log .. ' has a number that was never given')
end

is_writing = true
local function forget(id)
  if id == call('GET', last) then return end
  -- Another program may have written something else there.
  if string.match(id, '^%d+$') then call('ZREMRANGEBYSCORE', log, id, id) end
  call('ZREM', log_ends, id)
end
for change = 1, changes do
  local name, ends, id = argument(change, 1), argument(change, 4), argument(change, 5)
  if name == 'put' then
    call('SET', key(change, 1), argument(change, 3))
    if ends ~= '' then call('EXPIREAT', key(change, 1), ends) end
    for index = 2, 3 do call('ZADD', key(change, index), ends == '' and '+inf' or ends, id) end
    if key(change, 2) ~= key(change, 3) and ends ~= '' then
      local latest = tonumber(call('ZRANGE', key(change, 3), -1, -1, 'WITHSCORES')[2])
      -- Beyond that it is no time, such as the infinity of a record without an end.
      if latest < 1e12 then call('EXPIREAT', key(change, 3), string.format('%.0f', latest)) end
    end
  elseif name == 'delete' then
    call('DEL', key(change, 1))
    for index = 2, 3 do call('ZREM', key(change, index), id) end
  elseif name == 'append' then
    number = number + 1
    -- Not as Lua writes numbers: with a fraction, or an exponent.
    local text = string.format('%.0f', number)
    call('SET', last, text)
    call('ZADD', log, text, text .. ' ' .. ends .. ' ' .. argument(change, 3))
    call('ZADD', log_ends, ends, text)
  elseif name == 'remove' then
    for id in string.gmatch(argument(change, 3), '%d+') do forget(id) end
  end
  for index = 2, name ~= 'remove' and 3 or 0 do
    local over = call('ZRANGEBYSCORE', key(change, index), '-inf', time, 'LIMIT', 0, 100)
    for _, id in ipairs(over) do
      if name == 'append' then forget(id) else call('ZREM', key(change, index), id) end
    end
  end
end
call('SET', mark, '', 'EX', 60)
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
    // A round bracket excludes the cursor itself.
    command.arg(entries).arg(format!("({cursor}")).arg("+inf");
    command
}

pub(super) fn time() -> Cmd {
    script(TIME, &[format!("{PREFIX}last")])
}

/// Returns the command of a commit, which may be sent twice.
pub(super) fn commit(changes: &[Change]) -> Result<Cmd, Unspecified> {
    // The mark is drawn once a commit: a repetition of the command has the same mark, and changes nothing.
    let mark = random::token_id()?;
    let mut keys = vec![format!("{PREFIX}commit:{mark}"), format!("{PREFIX}last")];
    keys.extend(log_keys());
    keys.extend(changes.iter().flat_map(change_keys));
    let mut command = script(COMMIT, &keys);
    for argument in changes.iter().flat_map(change_arguments) {
        command.arg(argument.as_str());
    }
    Ok(command)
}

/// Sends the whole script, not its digest, which a new master does not know.
fn script(text: &str, keys: &[String]) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command
        .arg([BEGIN, text, END].concat())
        .arg(keys.len())
        .arg(keys);
    command
}

/// Returns the name of a record's key; the contract gives the names of two.
pub(super) fn record_key(Key { kind, id }: &Key) -> String {
    match kind {
        Kind::Installation => format!("{PREFIX}{id}"),
        // Below the kind, so that no id can name a record of another kind or an index.
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

pub(super) fn log_keys() -> [String; 2] {
    let entries = format!("{PREFIX}log:revocations");
    let ends = format!("{entries}:ends");
    [entries, ends]
}

fn change_keys(change: &Change) -> [String; 3] {
    match change {
        Change::Put { key, .. } | Change::Delete { key, .. } | Change::Check { key, .. } => [
            record_key(key),
            index_key(key.kind, ""),
            index_key(key.kind, key.group()),
        ],
        Change::Append(_) | Change::Remove { .. } => {
            let [entries, ends] = log_keys();
            // The script expects three keys a change; a log has no groups, so both indexes are its ends.
            [entries, ends.clone(), ends]
        }
    }
}

/// Returns the five arguments of a change; an empty value is a value.
fn change_arguments(change: &Change) -> [Zeroizing<String>; 5] {
    let owned = |text: &str| Zeroizing::new(text.to_owned());
    match change {
        Change::Put {
            key,
            expected,
            value,
            ends,
        } => {
            let ends = match ends {
                Some(ends) => ends.to_string(),
                None => String::new(),
            };
            ["put", digest_of(expected), value, &ends, &key.id].map(owned)
        }
        Change::Check { key, expected } => {
            ["check", digest_of(expected), "", "", &key.id].map(owned)
        }
        Change::Delete { key, expected } => ["delete", &expected.0, "", "", &key.id].map(owned),
        Change::Append(NewEntry { value, ends, above }) => {
            ["append", "", value, &ends.to_string(), &above.to_string()].map(owned)
        }
        Change::Remove { ids, expected, .. } => {
            let ids: Vec<_> = ids.iter().map(i64::to_string).collect();
            let LogEntry { id, ends, value } = expected;
            // In the form in which the script wrote it, because the script compares the whole entry.
            let entry = format!("{id} {ends} {value}");
            ["remove", &entry, &ids.join(" "), "", &id.to_string()].map(owned)
        }
    }
}

fn digest_of(expected: &Option<Version>) -> &str {
    match expected {
        Some(Version(digest)) => digest,
        None => "",
    }
}

pub(super) fn stored((value, digest): (Vec<u8>, String)) -> Stored {
    Stored {
        // A value that is no UTF-8 was not written by this program; its digest is of the bytes, so
        // that a commit over it still compares the value in the store.
        value: Zeroizing::new(String::from_utf8_lossy(&value).into_owned()),
        version: Version(digest),
    }
}

pub(super) fn log_entry(text: &str) -> Option<LogEntry> {
    // The value comes last, because it may hold blanks.
    let mut parts = text.splitn(3, ' ');
    Some(LogEntry {
        id: parts.next()?.parse().ok()?,
        ends: parts.next()?.parse().ok()?,
        value: parts.next()?.to_owned(),
    })
}
