//! The keys as files, one per value, changed as a whole.
//!
//! Three files cannot be replaced at one instant, so the new values are first written to a journal,
//! which takes effect by its rename, then to their files. A reader completes an existing journal
//! first: after a crash the keys are the old or the new ones, never a mixture. The caller holds the
//! write lock throughout.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::keys::store::StoreError;
use crate::keys::{StoredKeyPair, StoredKeys, StoredRing};
use crate::store::directory::PrivateDirectory;

pub(super) const PRIVATE: &str = "user-token.private";
pub(super) const PUBLIC: &str = "user-token.public";
pub(super) const RING: &str = "user-token.ring";
const JOURNAL: &str = "user-token.journal";

/// Each retry means a change in between.
const PREVIEWS: usize = 8;

pub(super) struct Snapshot {
    pub(super) keys: StoredKeys,
    /// The reason why the journal remains (a full disk, say); the keys are in effect anyway.
    pub(super) unfinished: Option<StoreError>,
}

/// Reads the keys. A journal is in effect even if it cannot be completed now.
pub(super) fn read(directory: &PrivateDirectory) -> Result<Snapshot, StoreError> {
    for name in [JOURNAL, PRIVATE, PUBLIC, RING] {
        directory.remove_unfinished(name)?;
    }
    if let Some(journal) = read_journal(directory)?
        && let Some(unfinished) = try_complete(directory, &journal)?
    {
        return Ok(Snapshot {
            keys: journal.into_keys(),
            unfinished: Some(unfinished),
        });
    }
    Ok(Snapshot {
        keys: read_files(directory)?,
        unfinished: None,
    })
}

/// Reads the keys without the write lock and changes nothing: two equal reads in a row are a
/// consistent snapshot.
pub(super) fn preview(directory: &PrivateDirectory) -> Result<StoredKeys, StoreError> {
    let mut former = in_effect(directory)?;
    for _ in 0..PREVIEWS {
        let now = in_effect(directory)?;
        if now == former {
            return Ok(now);
        }
        former = now;
    }
    Err(StoreError::Unavailable(
        "the stored keys keep changing".to_owned(),
    ))
}

fn in_effect(directory: &PrivateDirectory) -> Result<StoredKeys, StoreError> {
    match read_journal(directory)? {
        Some(journal) => Ok(journal.into_keys()),
        None => read_files(directory),
    }
}

fn read_journal(directory: &PrivateDirectory) -> Result<Option<Journal>, StoreError> {
    let text = directory.read(JOURNAL)?;
    let journal = text.map(|text| serde_json::from_str(&text).map_err(|_| unreadable(directory)));
    journal.transpose()
}

fn read_files(directory: &PrivateDirectory) -> Result<StoredKeys, StoreError> {
    let private = directory.read(PRIVATE)?;
    let public = directory.read(PUBLIC)?;
    Ok(StoredKeys {
        pair: private
            .zip(public)
            .map(|(private, public)| StoredKeyPair { private, public }),
        ring: directory.read(RING)?.map(StoredRing),
    })
}

/// Replaces the keys; they are in effect once the journal is written. Returns the reason if it
/// cannot be completed.
pub(super) fn write(
    directory: &PrivateDirectory,
    keys: &StoredKeys,
) -> Result<Option<StoreError>, StoreError> {
    let journal = Journal::of(keys);
    let text = serde_json::to_string(&journal)
        .map(Zeroizing::new)
        .map_err(|_| unreadable(directory))?;
    directory.replace(JOURNAL, &text)?;
    try_complete(directory, &journal)
}

/// Completes the journal, and returns the reason if that fails for now.
fn try_complete(
    directory: &PrivateDirectory,
    journal: &Journal,
) -> Result<Option<StoreError>, StoreError> {
    match complete(directory, journal) {
        Ok(()) => Ok(None),
        Err(passing @ StoreError::Unavailable(_)) => Ok(Some(passing)),
        Err(other) => Err(other),
    }
}

/// Writes the values of the journal. Idempotent, so it may be interrupted anywhere.
fn complete(directory: &PrivateDirectory, journal: &Journal) -> Result<(), StoreError> {
    for (name, value) in [
        (PRIVATE, &journal.private),
        (PUBLIC, &journal.public),
        (RING, &journal.ring),
    ] {
        match value {
            Some(text) => directory.replace(name, text)?,
            None => directory.remove(name)?,
        }
    }
    directory.remove(JOURNAL)
}

/// The three new values. `null` removes a file and must be explicit, so that no other JSON object
/// removes anything.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Journal {
    #[serde(deserialize_with = "Option::deserialize")]
    private: Option<Zeroizing<String>>,
    #[serde(deserialize_with = "Option::deserialize")]
    public: Option<Zeroizing<String>>,
    #[serde(deserialize_with = "Option::deserialize")]
    ring: Option<Zeroizing<String>>,
}

impl Journal {
    fn of(keys: &StoredKeys) -> Self {
        let pair = keys.pair.clone();
        let (private, public) = pair.map(|pair| (pair.private, pair.public)).unzip();
        Self {
            private,
            public,
            ring: keys.ring.clone().map(|StoredRing(ring)| ring),
        }
    }

    fn into_keys(self) -> StoredKeys {
        let pair = self.private.zip(self.public);
        StoredKeys {
            pair: pair.map(|(private, public)| StoredKeyPair { private, public }),
            ring: self.ring.map(StoredRing),
        }
    }
}

/// Omits the parser's error, which may quote a key.
fn unreadable(directory: &PrivateDirectory) -> StoreError {
    let journal = directory.describe(JOURNAL);
    StoreError::Unusable(format!("{journal}: not a journal of the keys"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn keys(name: &str, ring: Option<&str>) -> StoredKeys {
        let text = |half| Zeroizing::new(format!("{name} {half}"));
        StoredKeys {
            pair: Some(StoredKeyPair {
                private: text("private"),
                public: text("public"),
            }),
            ring: ring.map(|ring| StoredRing(Zeroizing::new(ring.to_owned()))),
        }
    }

    fn directory() -> (tempfile::TempDir, PrivateDirectory) {
        let outer = tempfile::tempdir().unwrap();
        let directory = PrivateDirectory::new(outer.path().join("data"));
        directory.create().unwrap();
        (outer, directory)
    }

    #[test]
    fn what_is_written_is_read_and_no_journal_stays() {
        let (_outer, directory) = directory();
        for keys in [
            keys("a", Some("{}")),
            keys("b", None),
            keys("c", Some("")),
            StoredKeys::default(),
        ] {
            assert_eq!(write(&directory, &keys).unwrap(), None);
            assert_eq!(read(&directory).unwrap().keys, keys);
            assert_eq!(directory.read(JOURNAL).unwrap(), None);
        }
    }

    #[test]
    fn a_change_that_a_crash_cut_off_anywhere_is_carried_out() {
        let (old, new) = (keys("a", None), keys("b", Some("{}")));
        let text = serde_json::to_string(&Journal::of(&new)).unwrap();
        let pair = new.pair.clone().unwrap();
        let steps = [(PRIVATE, pair.private), (PUBLIC, pair.public)];
        for done in 0..=steps.len() {
            let (_outer, directory) = directory();
            write(&directory, &old).unwrap();
            directory.replace(JOURNAL, &text).unwrap();
            for (name, value) in &steps[..done] {
                directory.replace(name, value).unwrap();
            }
            assert_eq!(read(&directory).unwrap().keys, new, "after {done} steps");
        }
    }

    #[test]
    fn a_preview_takes_the_journal_into_account_and_leaves_it() {
        let (_outer, directory) = directory();
        let (old, new) = (keys("a", None), keys("b", Some("{}")));
        write(&directory, &old).unwrap();
        assert_eq!(preview(&directory).unwrap(), old);
        let text = serde_json::to_string(&Journal::of(&new)).unwrap();
        directory.replace(JOURNAL, &text).unwrap();
        assert_eq!(preview(&directory).unwrap(), new);
        assert_eq!(read_files(&directory).unwrap(), old);
        assert_eq!(read(&directory).unwrap().keys, new);
    }

    #[test]
    fn what_is_not_a_journal_is_named_and_removes_nothing() {
        for text in [
            r#"{"private": hush"#,
            "{}",
            r#"{"private": "hush", "public": "p"}"#,
            r#"{"private": "hush", "public": "p", "ring": null, "more": 1}"#,
        ] {
            let (_outer, directory) = directory();
            let keys = keys("a", Some("{}"));
            write(&directory, &keys).unwrap();
            directory.replace(JOURNAL, text).unwrap();
            let line = read(&directory).err().unwrap().to_string();
            assert!(line.contains("user-token.journal"), "{line}");
            assert!(!line.contains("hush"), "{line}");
            directory.remove(JOURNAL).unwrap();
            assert_eq!(read(&directory).unwrap().keys, keys, "{text}");
        }
    }

    #[test]
    fn what_a_crash_left_half_written_is_removed() {
        let (outer, directory) = directory();
        let left = [JOURNAL, PRIVATE, PUBLIC, RING].map(|name| {
            let path = outer.path().join("data").join(format!("{name}.new"));
            std::fs::write(&path, "hush").unwrap();
            path
        });
        read(&directory).unwrap();
        assert!(left.iter().all(|path| !path.exists()), "{left:?}");
    }
}
