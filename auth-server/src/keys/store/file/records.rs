//! Records in a subdirectory: a file each, the time of its end in the first line.
//!
//! The number of files is bounded; files of ended records are removed about every hour.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use runtime::process::clock::unix_now;
use tokio::task::spawn_blocking;
use tracing::warn;

use crate::keys::store::StoreError;
use crate::keys::store::records::{NewRecord, RecordId, RecordStore, StoredRecord};
use crate::store::directory::PrivateDirectory;

/// Sessions were its first records.
const DIRECTORY: &str = "sessions";
const LOCK: &str = "write.lock";
/// Max number of files; each takes a block of the file system, 400 MB in all.
const MAX_RECORDS: usize = 100_000;
const SWEEP_EVERY: Duration = Duration::from_secs(3600);
/// Pause between two sweeps while there is no room: a sweep reads every file.
const SWEEP_WHEN_FULL_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(in crate::keys::store) struct FileRecords {
    directory: Arc<PrivateDirectory>,
    limit: usize,
    room: Arc<Mutex<Room>>,
}

#[derive(Debug, Default)]
struct Room {
    /// `None` before the files were counted.
    taken: Option<usize>,
    swept: Option<Instant>,
}

impl FileRecords {
    /// Uses the subdirectory of a store.
    pub(in crate::keys::store) fn new(store: &std::path::Path) -> Self {
        Self {
            directory: Arc::new(PrivateDirectory::new(store.join(DIRECTORY))),
            limit: MAX_RECORDS,
            room: Arc::default(),
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let records = self.clone();
        let done = spawn_blocking(move || operation(&records)).await;
        done.map_err(|error| {
            StoreError::Unavailable(format!("{}: {error}", self.directory.path().display()))
        })?
    }

    /// Returns what the file of a record holds, ended or not.
    fn held(&self, name: &str) -> Result<Option<(i64, String)>, StoreError> {
        let text = self.directory.read(name)?;
        Ok(text.map(|text| match text.split_once('\n') {
            Some((ends, record)) => (ends.parse().unwrap_or_default(), record.to_owned()),
            None => (0, String::new()),
        }))
    }

    fn read(&self, name: &str) -> Result<Option<String>, StoreError> {
        let held = self.held(name)?;
        Ok(valid(held.as_ref()).map(str::to_owned))
    }

    fn swap(
        &self,
        name: &str,
        expected: Option<&str>,
        new: Option<&str>,
    ) -> Result<bool, StoreError> {
        self.directory.create()?;
        let _locked = self.directory.lock(LOCK)?;
        let held = self.held(name)?;
        if valid(held.as_ref()) != expected {
            return Ok(false);
        }
        match new {
            Some(new) => {
                if held.is_none() {
                    self.take_room()?;
                }
                self.directory.replace(name, new)?;
            }
            None => {
                self.directory.remove(name)?;
                self.room.lock().free(1);
            }
        }
        Ok(true)
    }

    /// Counts one more record, unless there are too many.
    fn take_room(&self) -> Result<(), StoreError> {
        let mut room = self.room.lock();
        let taken = match room.taken {
            Some(taken) => taken,
            None => self
                .directory
                .names()?
                .filter(|name| is_record(name))
                .count(),
        };
        let is_full = taken >= self.limit;
        room.taken = Some(if is_full { taken } else { taken + 1 });
        if room.is_due(is_full) {
            room.swept = Some(Instant::now());
            let records = self.clone();
            // In the background: it may read every file.
            drop(spawn_blocking(move || records.sweep()));
        }
        if is_full {
            return Err(StoreError::Unavailable(format!(
                "{}: there are {taken} records already",
                self.directory.path().display()
            )));
        }
        Ok(())
    }

    fn sweep(&self) {
        let names = match self.directory.names() {
            Ok(names) => names,
            Err(error) => return warn!(%error, "ended records cannot be removed"),
        };
        for name in names {
            if let Some(record) = name.strip_suffix(".new") {
                self.remove_left_over(record);
            } else if is_record(&name) && self.is_over(&name) && self.discard_over(&name) {
                self.room.lock().free(1);
            }
        }
    }

    /// Removes an unfinished file; a file that is being written is locked.
    fn remove_left_over(&self, name: &str) {
        if let Ok(_locked) = self.directory.lock(LOCK) {
            let _ = self.directory.remove_unfinished(name);
        }
    }

    /// Removes the file of an ended record, unless a new one has taken its name meanwhile.
    fn discard_over(&self, name: &str) -> bool {
        let locked = self.directory.lock(LOCK);
        locked.is_ok_and(|_locked| self.is_over(name) && self.directory.discard(name))
    }

    fn is_over(&self, name: &str) -> bool {
        let held = self.held(name);
        held.is_ok_and(|held| held.is_some_and(|(ends, _)| ends <= unix_now()))
    }
}

impl Room {
    fn is_due(&self, is_full: bool) -> bool {
        let every = if is_full {
            SWEEP_WHEN_FULL_EVERY
        } else {
            SWEEP_EVERY
        };
        self.swept.is_none_or(|swept| swept.elapsed() >= every)
    }

    fn free(&mut self, count: usize) {
        self.taken = self.taken.map(|taken| taken.saturating_sub(count));
    }
}

/// Returns the record of a file, unless it is over.
fn valid(held: Option<&(i64, String)>) -> Option<&str> {
    let valid = held.filter(|(ends, _)| *ends > unix_now());
    valid.map(|(_, record)| record.as_str())
}

fn is_record(name: &str) -> bool {
    !name.contains('.')
}

#[async_trait]
impl RecordStore for FileRecords {
    async fn record(&self, id: &RecordId) -> Result<Option<StoredRecord>, StoreError> {
        let name = id.to_string();
        let held = self.blocking(move |records| records.read(&name)).await?;
        Ok(held.map(StoredRecord::in_clear))
    }

    async fn swap_record(
        &self,
        id: &RecordId,
        expected: Option<&StoredRecord>,
        new: Option<NewRecord<'_>>,
    ) -> Result<bool, StoreError> {
        let name = id.to_string();
        let expected = expected.map(|record| record.held.clone());
        let new = new.map(|new| format!("{}\n{}", new.ends, new.text));
        self.blocking(move |records| records.swap(&name, expected.as_deref(), new.as_deref()))
            .await
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn id(number: u8) -> RecordId {
        RecordId::from_start(&[number; 16]).unwrap()
    }

    async fn begin(records: &FileRecords, number: u8, ends: i64) -> Result<bool, StoreError> {
        let new = NewRecord { text: "x", ends };
        records.swap_record(&id(number), None, Some(new)).await
    }

    #[tokio::test]
    async fn an_ended_record_that_is_replaced_takes_no_more_room() {
        let directory = tempfile::tempdir().unwrap();
        let records = FileRecords {
            limit: 2,
            ..FileRecords::new(directory.path())
        };
        records.room.lock().swept = Some(Instant::now());
        for ends in [unix_now() - 1, unix_now() - 1, unix_now() + 60] {
            assert_eq!(begin(&records, 1, ends).await, Ok(true));
        }
        assert_eq!(begin(&records, 2, unix_now() + 60).await, Ok(true));
    }

    #[tokio::test]
    async fn records_are_bounded_and_ended_ones_make_room() {
        let directory = tempfile::tempdir().unwrap();
        let swept = |swept| FileRecords {
            limit: 2,
            room: Arc::new(Mutex::new(Room { taken: None, swept })),
            ..FileRecords::new(directory.path())
        };
        let (records, later) = (swept(Some(Instant::now())), unix_now() + 60);
        assert_eq!(begin(&records, 1, unix_now() - 1).await, Ok(true));
        assert_eq!(begin(&records, 2, later).await, Ok(true));
        assert!(begin(&records, 3, later).await.is_err());
        // A server that has just started counts what is there.
        let records = swept(None);
        assert!(begin(&records, 3, later).await.is_err());
        while begin(&records, 3, later).await != Ok(true) {
            tokio::task::yield_now().await;
        }
        let held = records.record(&id(2)).await.unwrap();
        assert!(records.record(&id(1)).await.unwrap().is_none());
        let ended = records.swap_record(&id(2), held.as_ref(), None).await;
        assert_eq!(ended, Ok(true));
        assert_eq!(begin(&records, 4, later).await, Ok(true));
        assert!(begin(&records, 5, later).await.is_err());
    }
}
