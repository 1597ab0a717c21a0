//! The log of revocations as this server knows it: a cache of the store's log, read on from the last known
//! entry.
//!
//! Only entries that an older copy of the store lacks are ever written back. An older copy is noticed because
//! the last known entry is not in its place; facts only add to each other. Readings do not wait for one
//! another: of two simultaneous readings each takes over the entries that the other one has not.
//!
//! ```text
//! request      append: read_or_restore, commit, read_or_restore; what was not read back is noted
//! background   note: kept until the next flush
//! poll         catch_up: read_or_restore
//!              flush: append, for each batch that was noted and is still lacking
//!              confirm_number: confirm; what was read counts in the number of the list
//!              bound: commit one revocation in place of many, for each batch of them; read_or_restore
//! confirm      a commit that expects the last known entry; where it is gone catch_up, and again
//! each read_or_restore
//!              read_on: reads what is new, where the last known entry is in its place;
//!              where it is not, one caller reads on again, and then restores:
//!              restore: commit what the store lacks, go on with what it has
//! ```

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use postern_token::claims::Claims;
use postern_token::revocations::{RevocationDigest, TokenDigests};
use tracing::warn;

use super::state::State;
use super::state::bound::Surplus;
use super::{MAX_SESSION_LIFETIME, Revocation, log_revocations};
use crate::store::open_store::OpenStore;
use crate::store::{Change, LogEntry, Outcome, Store, StoreError};
use crate::telemetry::metrics::Metrics;

/// Max attempts of a restore, or a confirmation. Each retry means that the store has become another copy meanwhile.
const ATTEMPTS: usize = 4;
/// Entries of one commit: no script may keep the store from others for long.
pub(crate) const BATCH: usize = 500;
/// Entries that one commit removes.
const REMOVED: usize = 5_000;

pub(crate) struct RevocationLog {
    /// For background work: outside of the bound of requests.
    store: OpenStore,
    metrics: Metrics,
    /// Seconds for which a line without an end of its own is listed.
    keep: i64,
    state: RwLock<State>,
    /// Revocations that no request waits for, until the store has them.
    noted: Mutex<Vec<Revocation>>,
    /// Held by the caller that writes back lost entries: others would write them again.
    restoring: tokio::sync::Mutex<()>,
    /// Held by the caller that bounds the list.
    bounding: tokio::sync::Mutex<()>,
}

impl RevocationLog {
    /// `keep`: the seconds for which a token of this server may be valid.
    pub(crate) fn new(store: OpenStore, metrics: Metrics, keep: i64) -> Self {
        Self {
            store,
            metrics,
            // A session may outlive its tokens, and must not outlive the revocation of its user.
            keep: keep.max(MAX_SESSION_LIFETIME.into()),
            state: RwLock::default(),
            noted: Mutex::default(),
            restoring: tokio::sync::Mutex::default(),
            bounding: tokio::sync::Mutex::default(),
        }
    }

    /// Returns true if the token of these claims was revoked.
    pub(crate) fn revokes(&self, claims: &Claims) -> bool {
        let token = TokenDigests::from_claims(claims);
        self.state.read().revoked.revokes(&token)
    }

    /// Returns the digest of the whole statement with this id, if that has ended something.
    pub(crate) fn statement(&self, id: &RevocationDigest) -> Option<RevocationDigest> {
        self.state.read().statement(id)
    }

    /// Returns the published list and its number, which do not change meanwhile.
    pub(crate) fn published(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    /// Commits revocations together with other changes to `store`, and reads them back.
    ///
    /// # Errors
    /// The errors of the store; [`StoreError::Unclear`] where the commit may have taken place.
    pub(crate) async fn append(
        &self,
        store: &OpenStore,
        revocations: &[Revocation],
        changes: Vec<Change>,
    ) -> Result<Outcome, StoreError> {
        self.append_by(None, store, revocations, changes).await
    }

    /// Does as [`append`](Self::append) for the actor of a command.
    ///
    /// # Errors
    /// The errors of [`append`](Self::append).
    pub(crate) async fn append_by(
        &self,
        actor: Option<&str>,
        store: &OpenStore,
        revocations: &[Revocation],
        changes: Vec<Change>,
    ) -> Result<Outcome, StoreError> {
        let call = store.call().await?;
        if !revocations.is_empty() {
            // After an entry that cannot be read no server would find them.
            self.read_or_restore(&*call).await?;
        }
        // The revocations first: if a commit is left half done, a repetition still finds the sessions to end.
        let mut all = self.append_changes(revocations)?;
        all.extend(changes);
        let outcome = call.commit(all).await?;
        if outcome == Outcome::Committed && !revocations.is_empty() {
            log_revocations(revocations, actor);
            // What is not read now is read by the next poll.
            let _ = self.read_or_restore(&*call).await;
            // At once: a list of another server without it must not seem to be as late.
            self.state.write().count_revocations_in_number(revocations);
            self.note_lacking(revocations);
            // The next poll may be minutes away, and sidecars take no list of some twice the bound.
            if self.state.read().is_full() {
                let _ = self.bound().await;
            }
        }
        Ok(outcome)
    }

    /// Notes those of these revocations that were not read back: the next poll commits them once more unless
    /// they are found by then. A fail-over may have lost them, and only entries that were read are noticed as lost.
    pub(crate) fn note_lacking(&self, revocations: &[Revocation]) {
        let mut noted = self.noted.lock();
        for one in revocations {
            if self.lacks(one) && !noted.contains(one) {
                noted.push(one.clone());
            }
        }
    }

    /// Returns the changes that append the revocations.
    fn append_changes(&self, revocations: &[Revocation]) -> Result<Vec<Change>, StoreError> {
        // An entry with an id below the cursors of sidecars would never reach them.
        let above = self.above();
        let append = |it: &Revocation| it.fact.append(it.ends, above);
        revocations.iter().map(append).collect()
    }

    /// Returns the number that the next entry is to exceed. The time in seconds is a floor: a copy of the
    /// store may lack entries that sidecars have read, and that no running server knows.
    fn above(&self) -> i64 {
        self.state.read().above().max(self.store.clock.now())
    }

    /// Adds revocations that no request waits for; [`flush`](Self::flush) and each poll commit them.
    pub(crate) fn note(&self, revocations: impl IntoIterator<Item = Revocation>) {
        self.noted.lock().extend(revocations);
    }

    /// Commits all noted revocations.
    ///
    /// # Errors
    /// The errors of the store; they stay noted, and may be there twice in the end.
    pub(crate) async fn flush(&self) -> Result<(), StoreError> {
        // Read back meanwhile, or covered by a later revocation of the user.
        self.noted.lock().retain(|one| self.lacks(one));
        let noted = self.noted.lock().clone();
        for batch in noted.chunks(BATCH) {
            // Where the outcome would be unclear each attempt would add them again.
            self.confirm(&self.store).await?;
            self.append(&self.store, batch, Vec::new()).await?;
        }
        Ok(())
    }

    fn lacks(&self, revocation: &Revocation) -> bool {
        self.state.read().lacks(&revocation.fact, revocation.ends)
    }

    /// Reads the store's new entries, writes those that it has lost, and bounds the list.
    ///
    /// # Errors
    /// The errors of the store, and entries of a newer version.
    pub(crate) async fn poll(&self) -> Result<(), StoreError> {
        // First, because entries of other servers may already cover the revocations that are noted here.
        self.catch_up(&self.store).await?;
        self.flush().await?;
        // What was read counts here, confirmed or not; sidecars take it over by its number.
        let confirmed = self.confirm_number().await;
        self.bound().await?;
        self.check_known()?;
        confirmed
    }

    /// Replaces entries by fewer where there are too many of them.
    async fn bound(&self) -> Result<(), StoreError> {
        let Ok(_alone) = self.bounding.try_lock() else {
            return Ok(());
        };
        let now = self.store.clock.now();
        let (surplus, last) = {
            let state = self.state.read();
            // The lock ends with this block, because `collapse` below commits.
            (state.surplus(now, self.keep), state.last.clone())
        };
        let Some(last) = last else { return Ok(()) };
        if surplus.is_empty() {
            return Ok(());
        }
        for some in surplus.chunks(BATCH) {
            // The log has changed since, and the next poll bounds it.
            if self.collapse(some, &last, now).await? == Outcome::Conflict {
                break;
            }
        }
        self.catch_up(&self.store).await
    }

    /// Checks that every entry that was read has an effect here.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] with entries of a newer version.
    pub(crate) fn check_known(&self) -> Result<(), StoreError> {
        match self.state.read().unknown {
            0 => Ok(()),
            count => Err(StoreError::Unusable(format!(
                "{count} revocations are of a newer version of this program: tokens that they end are accepted here"
            ))),
        }
    }

    /// Counts the entries that were read in the number of the list, once the store has confirmed them. A
    /// former primary gives numbers too, and its entries are lost: with such a number, a list would take the
    /// place of a list that has more.
    async fn confirm_number(&self) -> Result<(), StoreError> {
        // The lock ends with this line, because the store is read below.
        let unconfirmed = self.state.read().unconfirmed_number();
        if let Some(id) = unconfirmed {
            self.confirm(&self.store).await?;
            self.state.write().count_in_number(id);
        }
        Ok(())
    }

    /// Waits until the entries that were read are as safe as a commit. Those that a fail-over has lost since are
    /// written back.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn confirm(&self, store: &OpenStore) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            let last = self.state.read().last.clone();
            let check = last.map(|expected| Change::Remove {
                ids: Vec::new(),
                expected,
            });
            if store.confirm(check.into_iter().collect()).await? {
                return Ok(());
            }
            self.catch_up(store).await?;
        }
        Err(StoreError::changed())
    }

    /// Reads the store's new entries.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn catch_up(&self, store: &OpenStore) -> Result<(), StoreError> {
        self.read_or_restore(&*store.call().await?).await
    }

    async fn read_or_restore(&self, store: &dyn Store) -> Result<(), StoreError> {
        if !self.read_on(store).await? {
            // The store is an older copy. One caller writes back what it lacks; the others then find that.
            let _alone = self.restoring.lock().await;
            // Another caller may have restored the entries meanwhile.
            if !self.read_on(store).await? {
                self.restore(store, self.store.clock.now()).await?;
            }
        }
        let counts = self.state.read().revoked.counts();
        self.metrics.revocations(counts);
        Ok(())
    }

    /// Reads the entries after the last known one; returns false, and takes nothing over, if the last known
    /// entry is not in its place.
    async fn read_on(&self, store: &dyn Store) -> Result<bool, StoreError> {
        let now = self.store.clock.now();
        let known = self.state.read().last.clone();
        // The last known entry is read again: it proves that this is the history that we know.
        let begin = known.as_ref().map_or(0, |known| known.id.saturating_sub(1));
        let read = self.since(store, begin).await?;
        let is_there = known.is_none() || read.first() == known.as_ref();
        if is_there {
            // `extend` finds the place of the entries again, as another reading may have been quicker.
            self.state.write().extend(&read, now, self.keep);
        }
        Ok(is_there)
    }

    /// Reads the entries after `cursor`. An id larger than the clock in milliseconds is an error: no store
    /// has given so many, and later ids would be larger still, at sidecars too.
    async fn since(&self, store: &dyn Store, cursor: i64) -> Result<Vec<LogEntry>, StoreError> {
        let read = store.since(cursor).await?;
        let largest = self.store.clock.now().saturating_mul(1000);
        match read.last() {
            Some(last) if last.id > largest => Err(StoreError::Unusable(format!(
                "{}: the log of revocations has an entry {}, a number that was never given",
                self.store.location, last.id
            ))),
            _ => Ok(read),
        }
    }

    /// Appends the entries that an older copy of the store lacks, and goes on with that copy's entries.
    async fn restore(&self, store: &dyn Store, now: i64) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            let (known, above) = (self.state.read().last.clone(), self.above());
            // The whole log: where two histories part is not known.
            let read = self.since(store, 0).await?;
            let missing = self.state.read().missing_in(&read, now);
            if missing.is_empty() {
                let mut state = self.state.write();
                // Not over what another reading has taken over meanwhile, which may be later.
                if state.last == known {
                    state.replace(&read, now, self.keep);
                    return Ok(());
                }
                continue;
            }
            for batch in missing.chunks(BATCH) {
                let mut changes = Vec::new();
                for entry in batch {
                    changes.push(entry.fact.append(entry.ends, above)?);
                }
                store.commit(changes).await?;
            }
            let count = missing.len();
            warn!(
                count,
                "the store is an older copy: the revocations that it lacked are in it again"
            );
            self.metrics.revocations_restored.inc_by(count as u64);
        }
        Err(StoreError::Unavailable(
            "revocations keep leaving the store".to_owned(),
        ))
    }

    /// Revokes all tokens of owners in place of single tokens, unless the store lacks `last`: in an older copy
    /// other entries may have the ids.
    pub(super) async fn collapse(
        &self,
        surplus: &[Surplus],
        last: &LogEntry,
        now: i64,
    ) -> Result<Outcome, StoreError> {
        let mut replacing = Vec::new();
        let mut ids = Vec::new();
        for one in surplus {
            replacing.push(one.revocation(now, self.keep));
            ids.extend(&one.ids);
        }
        // The last one stays, as the proof for each further commit.
        ids.retain(|id| *id != last.id);
        let mut changes = self.append_changes(&replacing)?;
        let call = self.store.call().await?;
        let mut left = ids.as_slice();
        loop {
            let (removed, others) = left.split_at(left.len().min(REMOVED));
            changes.push(Change::Remove {
                ids: removed.to_vec(),
                expected: last.clone(),
            });
            // The first commit has the new revocations too, even if there is no id to remove: they are in force
            // before anything that they replace is gone.
            if call.commit(std::mem::take(&mut changes)).await? == Outcome::Conflict {
                return Ok(Outcome::Conflict);
            }
            if others.is_empty() {
                break;
            }
            left = others;
        }
        log_revocations(&replacing, None);
        Ok(Outcome::Committed)
    }
}
