//! Records in Redis: a key each, which expires with its record.

use async_trait::async_trait;
use runtime::process::clock::unix_now;

use super::argument;
use crate::keys::store::StoreError;
use crate::keys::store::records::{NewRecord, RecordId, RecordStore, StoredRecord};
use crate::store::redis::{RedisStore, script};

/// Sessions were its first records.
const PREFIX: &str = "{auth:user-token}:session:";

/// `ARGV`: the expected value and the new one, each encoded by [`argument`], and the seconds that the
/// new one lives. The new value counts as success too: it is there if the response to a first
/// attempt was lost.
const SWAP_RECORD: &str = r"
local there = redis.call('GET', KEYS[1])
there = there and '+' .. there or '-'
if there == ARGV[2] then
  return 1
end
if there ~= ARGV[1] then
  return 0
end
if ARGV[2] == '-' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], string.sub(ARGV[2], 2), 'EX', ARGV[3])
end
return 1
";

fn key(id: &RecordId) -> String {
    format!("{PREFIX}{id}")
}

#[async_trait]
impl RecordStore for RedisStore {
    async fn record(&self, id: &RecordId) -> Result<Option<StoredRecord>, StoreError> {
        let mut read = redis::cmd("GET");
        let held: Option<String> = self.call(read.arg(key(id))).await?;
        Ok(held.map(StoredRecord::in_clear))
    }

    async fn swap_record(
        &self,
        id: &RecordId,
        expected: Option<&StoredRecord>,
        new: Option<NewRecord<'_>>,
    ) -> Result<bool, StoreError> {
        let lifetime = new.map_or(0, |new| new.ends.saturating_sub(unix_now()));
        let expected = expected.map(|record| record.held.as_str());
        let mut swap = script(SWAP_RECORD, &[&key(id)]);
        swap.arg(argument(expected).as_str())
            .arg(argument(new.map(|new| new.text)).as_str())
            .arg(lifetime.max(1));
        self.call(&swap).await
    }
}
