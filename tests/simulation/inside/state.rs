//! One state of the simulated store, and the changes that lead to the next one.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use crate::store::{Change, Key, Kind, LogEntry, NewEntry, Stored, Version};

/// Everything that one state of the store holds.
#[derive(Clone, Default)]
pub(super) struct State {
    pub(super) records: BTreeMap<(&'static str, String), Record>,
    pub(super) log: BTreeMap<i64, LogEntry>,
    /// The last number that was given to an entry.
    last: i64,
}

#[derive(Clone)]
pub(super) struct Record {
    pub(super) value: Zeroizing<String>,
    ends: Option<i64>,
}

impl State {
    fn record(&self, key: &Key, now: i64) -> Option<&Record> {
        let record = self.records.get(&(key.kind.name(), key.id.clone()));
        record.filter(|record| record.ends.is_none_or(|ends| now < ends))
    }

    pub(super) fn read(&self, key: &Key, now: i64) -> Option<Stored> {
        self.record(key, now).map(|record| Stored {
            value: record.value.clone(),
            version: version_of(&record.value),
        })
    }

    pub(super) fn ids(&self, kind: Kind, group: &str, now: i64) -> Vec<String> {
        let of_kind = self.records.iter().filter(|((name, id), record)| {
            let lives = record.ends.is_none_or(|ends| now < ends);
            *name == kind.name() && lives && id.starts_with(group)
        });
        let mut ids: Vec<_> = of_kind
            .map(|((_, id), record)| (record.ends.unwrap_or(i64::MAX), id.clone()))
            .collect();
        ids.sort();
        ids.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns false where one of the changes expects another version.
    pub(super) fn permits(&self, changes: &[Change], now: i64) -> bool {
        changes.iter().all(|change| self.permits_one(change, now))
    }

    fn permits_one(&self, change: &Change, now: i64) -> bool {
        let held = |key| {
            self.record(key, now)
                .map(|record| version_of(&record.value))
        };
        match change {
            Change::Put { key, expected, .. } | Change::Check { key, expected } => {
                held(key) == *expected
            }
            Change::Delete { key, expected } => held(key).as_ref() == Some(expected),
            Change::Append(_) => true,
            Change::Remove { expected, .. } => self.log.get(&expected.id) == Some(expected),
        }
    }

    pub(super) fn after(&self, changes: Vec<Change>, now: i64) -> Self {
        let mut next = self.clone();
        changes
            .into_iter()
            .for_each(|change| next.make(change, now));
        next
    }

    fn make(&mut self, change: Change, now: i64) {
        match change {
            Change::Put {
                key, value, ends, ..
            } => {
                let record = Record { value, ends };
                self.records.insert((key.kind.name(), key.id), record);
            }
            Change::Delete { key, .. } => {
                self.records.remove(&(key.kind.name(), key.id));
            }
            Change::Check { .. } => {}
            Change::Append(entry) => self.append(entry, now),
            Change::Remove { ids, .. } => {
                self.log
                    .retain(|id, _| *id == self.last || !ids.contains(id));
            }
        }
        self.records
            .retain(|_, record| record.ends.is_none_or(|ends| now < ends));
    }

    fn append(&mut self, entry: NewEntry, now: i64) {
        self.last = self.last.max(entry.above) + 1;
        let id = self.last;
        let NewEntry { value, ends, .. } = entry;
        self.log.insert(id, LogEntry { id, value, ends });
        // The last one stays, so that its number is known.
        self.log
            .retain(|other, entry| *other == id || now < entry.ends);
    }
}

/// As in Redis, equal values have equal versions.
fn version_of(value: &str) -> Version {
    Version(value.to_owned())
}
