//! The log of revocations as this server knows it: a cache of the store's, read from the last known
//! entry on.
//!
//! One thing is ever written back: entries that an older copy of the store lacks. It is noticed where
//! the last known entry is not in its place, and facts only add to each other.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tracing::{debug, warn};
use wire::token::claims::Claims;
use wire::token::revocations::{self, TokenDigests};

use super::entry::{Entry, Fact};
use super::list::List;
use super::state::{State, Surplus};
use super::{MAX_SESSION_LIFETIME, Revocation};
use crate::audit;
use crate::audit::events::{RevocationEvent, RevocationEventKind};
use crate::metrics::Metrics;
use crate::store::clock::StoreClock;
use crate::store::envelope_encryption::KeyEncryption;
use crate::store::{Calls, Change, Log, LogEntry, Outcome, Store, StoreError};

/// Each retry means that the store has become an older copy meanwhile.
const ATTEMPTS: usize = 4;
/// Entries of one commit: no script may keep the store from others for long.
const BATCH: usize = 500;

pub(crate) struct RevocationLog {
    store: Arc<dyn Store>,
    /// Of the notes of commands.
    encryption: Arc<KeyEncryption>,
    clock: Arc<StoreClock>,
    metrics: Metrics,
    /// Seconds for which a line without an end of its own is listed.
    keep: i64,
    state: RwLock<State>,
    /// One reads at a time.
    reading: tokio::sync::Mutex<()>,
    calls: Calls,
    /// Revocations that no request waits for, until the store has them.
    noted: Mutex<Vec<Revocation>>,
}

impl RevocationLog {
    /// `keep`: the seconds for which a token of this server may be valid.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        encryption: Arc<KeyEncryption>,
        clock: Arc<StoreClock>,
        metrics: Metrics,
        keep: i64,
    ) -> Self {
        Self {
            store,
            encryption,
            clock,
            metrics,
            keep: keep.max(MAX_SESSION_LIFETIME.into()),
            state: RwLock::default(),
            reading: tokio::sync::Mutex::default(),
            calls: Calls::default(),
            noted: Mutex::default(),
        }
    }

    /// Returns true if the token of these claims was revoked.
    pub(crate) fn revokes(&self, claims: &Claims) -> bool {
        let token = TokenDigests::of(claims);
        self.state.read().revoked().revokes(&token)
    }

    /// Returns the published lines, and the number of the last entry.
    pub(crate) fn published(&self) -> Published<'_> {
        Published(self.state.read())
    }

    /// Commits revocations together with other changes, and reads them.
    ///
    /// # Errors
    /// Those of the store; [`StoreError::Unclear`] where the commit may have taken place.
    pub(crate) async fn append(
        &self,
        revocations: &[Revocation],
        mut changes: Vec<Change>,
    ) -> Result<Outcome, StoreError> {
        let (now, above) = (self.clock.now(), self.state.read().cursor());
        changes.extend(
            revocations
                .iter()
                .filter_map(|revocation| Fact::of(revocation, now).append(revocation.ends, above)),
        );
        let outcome = self.calls.run(self.store.commit(changes)).await?;
        if outcome == Outcome::Committed && !revocations.is_empty() {
            let events: Vec<_> = revocations.iter().map(|it| it.revoked.event()).collect();
            audit::revocations(&events);
            if let Err(error) = self.catch_up().await {
                debug!(%error, "a revocation counts here from the next poll on");
            }
        }
        Ok(outcome)
    }

    /// Adds revocations that no request waits for; [`flush`](Self::flush) and each poll commit them.
    pub(crate) fn note(&self, revocations: impl IntoIterator<Item = Revocation>) {
        self.noted.lock().extend(revocations);
    }

    /// Commits all that were noted.
    ///
    /// # Errors
    /// Those of the store; they stay noted, and may be there twice in the end.
    pub(crate) async fn flush(&self) -> Result<(), StoreError> {
        loop {
            let noted: Vec<_> = self.noted.lock().iter().take(BATCH).cloned().collect();
            if noted.is_empty() {
                return Ok(());
            }
            self.append(&noted, Vec::new()).await?;
            self.noted.lock().retain(|it| !noted.contains(it));
        }
    }

    /// Reads what the store has more, writes what it has lost, and bounds the list.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn poll(&self) -> Result<(), StoreError> {
        self.catch_up().await?;
        self.flush().await?;
        let now = self.clock.now();
        let surplus = self.state.read().surplus(now.saturating_add(1));
        for one in surplus {
            self.collapse(one, now).await?;
        }
        Ok(())
    }

    async fn catch_up(&self) -> Result<(), StoreError> {
        let _reading = self.reading.lock().await;
        let now = self.clock.now();
        let known = self.state.read().last_there(now);
        // From the last known entry on, to see that it is there.
        let begin = known.map_or(0, |known| known.id.saturating_sub(1));
        let read = self.store.since(Log::Revocations, begin).await?;
        let there = read.first().and_then(Entry::parse);
        if known.is_some() && there != known {
            return self.restore(now).await;
        }
        self.log_events(&read);
        let (entries, last) = (parsed(&read), last_id(&read));
        let mut state = self.state.write();
        match known {
            Some(_) => state.add(&entries, last, now, self.keep),
            None => state.replace(&entries, last, now, self.keep),
        }
        self.metrics.revocations(state.revoked().counts());
        Ok(())
    }

    /// Appends the entries that an older copy of the store lacks, and goes on with what it has.
    async fn restore(&self, now: i64) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            let read = self.store.since(Log::Revocations, 0).await?;
            let there = parsed(&read);
            let (missing, above) = {
                let state = self.state.read();
                (state.missing_in(&there, now), state.cursor())
            };
            if missing.is_empty() {
                let mut state = self.state.write();
                state.replace(&there, last_id(&read), now, self.keep);
                self.metrics.revocations(state.revoked().counts());
                return Ok(());
            }
            for batch in missing.chunks(BATCH) {
                let changes = batch.iter();
                let changes = changes.filter_map(|entry| entry.fact.append(entry.ends, above));
                self.store.commit(changes.collect()).await?;
            }
            let count = missing.len();
            warn!(
                count,
                "the store is an older copy: the revocations that it lacked are in it again"
            );
            self.metrics.revocations_restored(count);
        }
        Err(StoreError::Unavailable(
            "revocations keep leaving the store".to_owned(),
        ))
    }

    /// Logs what commands revoked since this server read the log before.
    fn log_events(&self, read: &[LogEntry]) {
        let cursor = match &*self.state.read() {
            state if state.is_read() => state.cursor(),
            _ => return,
        };
        let new = read.iter().filter(|entry| entry.id > cursor);
        let events = new.filter_map(|stored| Entry::parse(stored)?.event(stored, &self.encryption));
        audit::revocations(&events.collect::<Vec<_>>());
    }

    /// Revokes all tokens of a user, or all, in place of single ones.
    async fn collapse(&self, surplus: Surplus, now: i64) -> Result<(), StoreError> {
        let before = now.saturating_add(1);
        let (kind, id, revoked) = match surplus.user {
            Some(user) => {
                let revoked = revocations::Revoked::User(user, before);
                (RevocationEventKind::User, user.to_string(), revoked)
            }
            None => {
                let revoked = revocations::Revoked::Everyone(before);
                (RevocationEventKind::Everyone, String::new(), revoked)
            }
        };
        let ends = surplus.ends.max(super::end_of_tokens(before, self.keep));
        let (log, ids) = (Log::Revocations, surplus.ids);
        let append = Fact::of_digests(revoked, now).append(ends, self.state.read().cursor());
        let mut changes: Vec<_> = append.into_iter().collect();
        changes.push(Change::Remove { log, ids });
        self.store.commit(changes).await?;
        audit::revocations(&[RevocationEvent {
            kind,
            id,
            user: None,
            changed_by: None,
        }]);
        self.catch_up().await
    }
}

/// The published lines, which do not change meanwhile.
pub(crate) struct Published<'l>(RwLockReadGuard<'l, State>);

impl Published<'_> {
    pub(crate) fn list(&self) -> &List {
        self.0.list()
    }

    pub(crate) fn seq(&self) -> i64 {
        self.0.cursor()
    }
}

fn last_id(read: &[LogEntry]) -> i64 {
    read.last().map_or(0, |last| last.id)
}

/// Returns the entries that this version knows.
fn parsed(read: &[LogEntry]) -> Vec<Entry> {
    let entries: Vec<_> = read.iter().filter_map(Entry::parse).collect();
    let unknown = read.len().saturating_sub(entries.len());
    if unknown > 0 {
        warn!(unknown, "revocations of a newer version are not known here");
    }
    entries
}
