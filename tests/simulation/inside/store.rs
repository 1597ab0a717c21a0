//! The store of the simulation: one primary with the history of its states, and what can go wrong on the
//! way to it. Its rules are those of every store (`conformance`); what goes wrong comes from [`Weather`].

#![allow(missing_docs, reason = "only tests/simulation uses it")]
#![cfg_attr(
    not(feature = "simulation"),
    expect(
        unreachable_pub,
        dead_code,
        reason = "only the simulation uses all of it"
    )
)]

mod keys;
mod state;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use postern_token::claims::Claims;
use postern_token::revocations::{RevocationDigest, RevokedTokens, TokenDigests};

pub use self::keys::Keys;
use self::state::{Record, State};
use super::at_rest::KeyEncryption;
use super::envelope_encryption::MARK;
use super::{Change, Key, Kind, LogEntry, Outcome, Store, StoreError, Stored};
use crate::revocations::entry::Fact;

const KEY_ENCRYPTION_KEY: &str = "015a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";

/// A call, as the weather sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Read,
    Commit,
}

/// The fate of one call.
#[derive(Debug, Clone, Copy)]
pub struct Fate {
    /// The time on the way to the store.
    pub there: Duration,
    /// The time on the way back.
    pub back: Duration,
    pub event: Event,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Served,
    /// The former primary serves it, which does not know of the last fail-over.
    FormerServes,
    /// The store was not reached.
    Away,
    /// Too many calls wait.
    Busy,
    /// No response: the request did not arrive.
    RequestLost,
    /// No response: it was served.
    ResponseLost,
}

/// The world's influence on the calls of one server, and the clock of the store.
pub trait Weather: Send + Sync {
    fn fate(&self, call: Call) -> Fate;
    /// Seconds since the epoch, by the clock of the store.
    fn now(&self) -> i64;
}

/// The states since the beginning, of which the last one is the present one.
struct History {
    states: Vec<Arc<State>>,
    /// The last state that no fail-over can lose.
    safe: usize,
    /// Counts fail-overs: a commit whose acknowledgement one has overtaken is unclear.
    epoch: usize,
    /// The primary until the last fail-over.
    former: Arc<State>,
    /// True where a commit waits until replicas have it (`?wait=`).
    waits: bool,
    /// True where every server has a key that encrypts the store.
    is_sealed: bool,
    /// The values that were last opened for [`SimulatedStore::keys`], and the keys.
    keys: (keys::Values, Option<Keys>),
}

/// The servers of one store.
#[derive(Clone)]
pub struct SimulatedStore(Arc<Mutex<History>>);

impl SimulatedStore {
    #[must_use]
    pub fn new(waits: bool, is_sealed: bool) -> Self {
        Self(Arc::new(Mutex::new(History {
            states: vec![Arc::default()],
            safe: 0,
            epoch: 0,
            former: Arc::default(),
            waits,
            is_sealed,
            keys: Default::default(),
        })))
    }

    /// Returns the store as one server reaches it.
    pub(crate) fn reached_through(&self, weather: Arc<dyn Weather>) -> Arc<dyn Store> {
        Arc::new(Reached {
            store: self.clone(),
            weather,
        })
    }

    /// A copy takes the place of the primary, which lacks up to `lost` commits: those only that were not
    /// waited for. Returns the number of commits that are lost.
    pub fn fail_over(&self, lost: usize) -> usize {
        let mut history = self.0.lock();
        history.epoch += 1;
        history.former = history.present();
        let present = history.states.len() - 1;
        let earliest = if history.waits { history.safe } else { 0 };
        let kept = present.saturating_sub(lost).max(earliest);
        history.states.truncate(kept + 1);
        history.safe = history.safe.min(kept);
        present - kept
    }

    /// A backup takes the place of the store: the state before the last `lost` commits.
    pub fn restore(&self, lost: usize) {
        let mut history = self.0.lock();
        let kept = (history.states.len() - 1).saturating_sub(lost);
        let backup = Arc::clone(&history.states[kept]);
        history.begin_with(backup);
    }

    /// Everything is gone.
    pub fn flush(&self) {
        self.0.lock().begin_with(Arc::default());
    }

    /// Returns the numbers of the entries of the log, and when each ends.
    #[must_use]
    pub fn log_ends(&self) -> Vec<(i64, i64)> {
        let state = self.0.lock().present();
        state
            .log
            .values()
            .map(|entry| (entry.id, entry.ends))
            .collect()
    }

    /// Returns the number of records of a kind, by its name.
    #[must_use]
    pub fn records(&self, kind: &str) -> usize {
        let state = self.0.lock().present();
        state
            .records
            .keys()
            .filter(|(name, _)| *name == kind)
            .count()
    }

    /// Returns true if the log ends all these tokens.
    #[must_use]
    pub fn revokes(&self, tokens: &[&Claims]) -> bool {
        let state = self.0.lock().present();
        let mut revoked = RevokedTokens::default();
        for entry in state.log.values() {
            let value: serde_json::Value = serde_json::from_str(&entry.value).unwrap_or_default();
            let line = value["revokes"].as_str().unwrap_or_default();
            line.parse().into_iter().for_each(|one| revoked.add(one));
        }
        tokens
            .iter()
            .all(|claims| revoked.revokes(&TokenDigests::from_claims(claims)))
    }

    /// Returns the number of facts in the log by a statement of another issuer with this `jti`: a server writes one
    /// again that it could not read back.
    #[must_use]
    pub fn statements(&self, issuer: &str, id: &str) -> usize {
        let state = self.0.lock().present();
        let digest = RevocationDigest::for_statement(issuer, id).to_string();
        let by_it = state.log.values();
        let by_it = by_it.filter(|entry| entry.value.contains(&digest));
        let facts: HashSet<_> = by_it
            .filter_map(|entry| Fact::parse(&entry.value))
            .collect();
        facts.len()
    }

    /// Returns the stored keys.
    #[must_use]
    pub fn keys(&self) -> Option<Keys> {
        let encryption = self.encryption();
        let mut history = self.0.lock();
        let values = keys::values(&history.present());
        if history.keys.0 != values {
            history.keys = (values.clone(), keys::opened(values, &encryption));
        }
        history.keys.1.clone()
    }

    /// Returns true if the key of this id is among those that the ring names as revoked.
    #[must_use]
    pub fn has_revoked_key(&self, id: &str) -> bool {
        self.keys().is_some_and(|keys| keys.revoked.contains(id))
    }

    /// Returns the name of a record that only a key opens and that is in clear, in a store that is sealed.
    #[must_use]
    pub fn in_clear(&self) -> Option<String> {
        let history = self.0.lock();
        let state = history.present();
        let is_clear = |record: &Record| !record.value.starts_with(MARK);
        let is_public = |(kind, id): &(&str, String)| *kind == "installation" && id == "public";
        let mut records = state.records.iter().filter(|(key, _)| !is_public(key));
        let found = records.find(|(_, record)| history.is_sealed && is_clear(record));
        found.map(|((kind, id), _)| format!("{kind} {id}"))
    }

    /// Returns the keys that a server has for the store.
    pub(crate) fn encryption(&self) -> KeyEncryption {
        match self.0.lock().is_sealed {
            true => KeyEncryption::parse(KEY_ENCRYPTION_KEY).unwrap_or_default(),
            false => KeyEncryption::default(),
        }
    }

    /// Returns the number of commits that changed something.
    #[must_use]
    pub fn commits(&self) -> usize {
        self.0.lock().states.len() - 1
    }
}

impl History {
    fn present(&self) -> Arc<State> {
        Arc::clone(&self.states[self.states.len() - 1])
    }

    fn begin_with(&mut self, state: Arc<State>) {
        self.epoch += 1;
        self.states = vec![state];
        self.safe = 0;
    }
}

/// The store as one server reaches it.
struct Reached {
    store: SimulatedStore,
    weather: Arc<dyn Weather>,
}

impl Reached {
    /// Returns the state that a reading sees, once it is there.
    async fn state(&self) -> Result<Arc<State>, StoreError> {
        let fate = self.weather.fate(Call::Read);
        tokio::time::sleep(fate.there).await;
        let state = match fate.event {
            Event::Away | Event::RequestLost | Event::ResponseLost => return Err(away()),
            Event::Busy => return Err(StoreError::Busy),
            Event::Served => self.store.0.lock().present(),
            Event::FormerServes => Arc::clone(&self.store.0.lock().former),
        };
        tokio::time::sleep(fate.back).await;
        Ok(state)
    }
}

fn away() -> StoreError {
    StoreError::Unavailable("the store is away".to_owned())
}

fn unclear() -> StoreError {
    StoreError::Unclear("no response".to_owned())
}

impl SimulatedStore {
    /// Makes a commit. Returns the number of the state that has it, and the epoch.
    fn make(&self, changes: Vec<Change>, now: i64) -> Option<(usize, usize)> {
        let mut history = self.0.lock();
        let present = history.present();
        if !present.permits(&changes, now) {
            return None;
        }
        // Records that have ended at once leave nothing behind.
        let is_empty = changes.iter().all(is_without_effect);
        if !is_empty {
            let next = present.after(changes, now);
            history.states.push(Arc::new(next));
        }
        Some((history.states.len() - 1, history.epoch))
    }

    /// Makes a commit at the former primary, which has no replicas, and will be lost with it.
    fn make_in_former(&self, changes: Vec<Change>, now: i64) -> Result<Outcome, StoreError> {
        let mut history = self.0.lock();
        if !history.former.permits(&changes, now) {
            return Ok(Outcome::Conflict);
        }
        let next = history.former.after(changes, now);
        history.former = Arc::new(next);
        match history.waits {
            true => Err(unclear()),
            false => Ok(Outcome::Committed),
        }
    }

    /// Replicas have the commit, unless a fail-over was quicker.
    fn acknowledge(&self, (number, epoch): (usize, usize)) -> Result<Outcome, StoreError> {
        let mut history = self.0.lock();
        match history.waits {
            true if history.epoch != epoch => Err(unclear()),
            true => {
                history.safe = history.safe.max(number);
                Ok(Outcome::Committed)
            }
            false => Ok(Outcome::Committed),
        }
    }
}

fn is_without_effect(change: &Change) -> bool {
    change.only_compares() || matches!(change, Change::Put { ends: Some(0), .. })
}

#[async_trait]
impl Store for Reached {
    async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>, StoreError> {
        let (state, now) = (self.state().await?, self.weather.now());
        Ok(keys.iter().map(|key| state.read(key, now)).collect())
    }

    async fn ids(&self, kind: Kind, group: &str) -> Result<Vec<String>, StoreError> {
        let (state, now) = (self.state().await?, self.weather.now());
        Ok(state.ids(kind, group, now))
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Outcome, StoreError> {
        // As in Redis: without replicas there is no acknowledgement to wait for.
        if !self.store.0.lock().waits && changes.iter().all(Change::only_compares) {
            return Ok(Outcome::Committed);
        }
        let fate = self.weather.fate(Call::Commit);
        tokio::time::sleep(fate.there).await;
        match fate.event {
            Event::Away => return Err(away()),
            Event::Busy => return Err(StoreError::Busy),
            Event::RequestLost => {
                tokio::time::sleep(fate.back).await;
                return Err(unclear());
            }
            Event::FormerServes => {
                let outcome = self.store.make_in_former(changes, self.weather.now());
                tokio::time::sleep(fate.back).await;
                return outcome;
            }
            Event::Served | Event::ResponseLost => {}
        }
        let made = self.store.make(changes, self.weather.now());
        tokio::time::sleep(fate.back).await;
        let Some(made) = made else {
            return Ok(Outcome::Conflict);
        };
        match fate.event {
            // The replicas have it, or a fail-over will show that they have not.
            Event::ResponseLost => Err(unclear()),
            _ => self.store.acknowledge(made),
        }
    }

    async fn since(&self, cursor: i64) -> Result<Vec<LogEntry>, StoreError> {
        let state = self.state().await?;
        let after = state.log.range(cursor.saturating_add(1)..);
        Ok(after.map(|(_, entry)| entry.clone()).collect())
    }

    async fn now(&self) -> Result<i64, StoreError> {
        self.state().await?;
        Ok(self.weather.now())
    }

    fn describe(&self, key: &Key) -> String {
        format!("{} {}", key.kind.name(), key.id)
    }
}

/// The weather of the conformance suite: every call is served at once.
#[cfg(test)]
pub(crate) struct Fair;

#[cfg(test)]
impl Weather for Fair {
    fn fate(&self, _: Call) -> Fate {
        Fate {
            there: Duration::ZERO,
            back: Duration::ZERO,
            event: Event::Served,
        }
    }

    fn now(&self) -> i64 {
        postern_process::clock::unix_now()
    }
}
