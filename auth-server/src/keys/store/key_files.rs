//! The keys as files: one a value, changed as a whole.
//!
//! Three files cannot be replaced at one instant. So the new values are first written into one
//! file, the journal, which takes effect by its rename; then into their own files, and the journal
//! goes. Whoever finds a journal carries it out first: after a crash the keys are the old or the new
//! ones, and never a mixture. The caller holds the write lock throughout.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::StoreError;
use super::private_directory::PrivateDirectory;
use crate::keys::{StoredKeyPair, StoredKeys, StoredRing};

pub(super) const PRIVATE: &str = "user-token.private";
pub(super) const PUBLIC: &str = "user-token.public";
pub(super) const RING: &str = "user-token.ring";
const JOURNAL: &str = "user-token.journal";

/// The keys of this moment.
pub(super) fn read(directory: &PrivateDirectory) -> Result<StoredKeys, StoreError> {
    if let Some(text) = directory.read(JOURNAL)? {
        let journal: Journal = serde_json::from_str(&text).map_err(|_| unreadable(directory))?;
        carry_out(directory, &journal)?;
    }
    let private = directory.read(PRIVATE)?;
    let public = directory.read(PUBLIC)?;
    Ok(StoredKeys {
        pair: private
            .zip(public)
            .map(|(private, public)| StoredKeyPair { private, public }),
        ring: directory.read(RING)?.map(StoredRing),
    })
}

/// Puts `keys` in the place of whatever is there.
pub(super) fn write(directory: &PrivateDirectory, keys: &StoredKeys) -> Result<(), StoreError> {
    let journal = Journal::of(keys);
    let text = serde_json::to_string(&journal)
        .map(Zeroizing::new)
        .map_err(|_| unreadable(directory))?;
    directory.replace(JOURNAL, &text)?;
    carry_out(directory, &journal)
}

/// Again and again with the same effect, so that it may be interrupted anywhere.
fn carry_out(directory: &PrivateDirectory, journal: &Journal) -> Result<(), StoreError> {
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

/// The three values as they are to be.
#[derive(Serialize, Deserialize)]
struct Journal {
    private: Option<Zeroizing<String>>,
    public: Option<Zeroizing<String>>,
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
}

/// The parser's own text may quote a key.
fn unreadable(directory: &PrivateDirectory) -> StoreError {
    let place = directory.describe(JOURNAL);
    StoreError::Unusable(format!("{place}: not a journal of the keys"))
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
            write(&directory, &keys).unwrap();
            assert_eq!(read(&directory).unwrap(), keys);
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
            assert_eq!(read(&directory).unwrap(), new, "after {done} steps");
        }
    }

    #[test]
    fn a_journal_that_is_none_is_named_without_its_content() {
        let (_outer, directory) = directory();
        directory.replace(JOURNAL, r#"{"private": hush"#).unwrap();
        let line = read(&directory).unwrap_err().to_string();
        assert!(
            line.contains("user-token.journal") && !line.contains("hush"),
            "{line}"
        );
    }
}
