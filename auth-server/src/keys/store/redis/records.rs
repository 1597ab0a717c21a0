//! Sessions in Redis: a key each, which expires with its session.

use async_trait::async_trait;
use runtime::clock::unix_now;

use super::{RedisStore, argument, script};
use crate::keys::store::StoreError;
use crate::keys::store::records::{NewSession, SessionId, SessionStore, StoredSession};

const SESSION: &str = "{auth:user-token}:session:";

/// `ARGV`: the expected value and the new one, each encoded by [`argument`], and the seconds that the
/// new one lives. The new value counts as success too: it is there if the response to a first
/// attempt was lost.
const SWAP_SESSION: &str = r"
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

fn key(id: &SessionId) -> String {
    format!("{SESSION}{id}")
}

#[async_trait]
impl SessionStore for RedisStore {
    async fn session(&self, id: &SessionId) -> Result<Option<StoredSession>, StoreError> {
        let mut read = redis::cmd("GET");
        let held: Option<String> = self.call(read.arg(key(id))).await?;
        Ok(held.map(StoredSession::in_clear))
    }

    async fn swap_session(
        &self,
        id: &SessionId,
        expected: Option<&StoredSession>,
        new: Option<NewSession<'_>>,
    ) -> Result<bool, StoreError> {
        let lifetime = new.map_or(0, |new| new.ends.saturating_sub(unix_now()));
        let expected = expected.map(|session| session.held.as_str());
        let mut swap = script(SWAP_SESSION, &[&key(id)]);
        swap.arg(argument(expected).as_str())
            .arg(argument(new.map(|new| new.text)).as_str())
            .arg(lifetime.max(1));
        self.call(&swap).await
    }
}
