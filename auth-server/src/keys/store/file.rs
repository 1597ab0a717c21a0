//! The embedded store: a directory of plain files, for one server.
//!
//! `user-token.private` and `user-token.public` hold the two values of contract §2.6,
//! `user-token.ring` the rest of the ring. A server holds a lock on the directory for its lifetime;
//! `write.lock` is held briefly, so that commands work beside a running server.

mod journal;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use self::journal::{PRIVATE, PUBLIC, RING};
use super::{Entry, KeyStore, StoreError};
use crate::keys::{Half, StoredKeys};
use crate::store::directory::{Locked, PrivateDirectory};

const WRITE_LOCK: &str = "write.lock";

#[derive(Debug, Clone)]
pub(crate) struct FileStore {
    directory: Arc<PrivateDirectory>,
    purpose: Purpose,
    /// The reason why the last change is incomplete.
    unfinished: Arc<Mutex<Option<StoreError>>>,
}

#[derive(Debug, Clone)]
enum Purpose {
    /// A server, with the serving lock.
    Serve(Arc<Mutex<File>>),
    /// A command, beside a running server or without one.
    Command,
    /// Reads without locks.
    Preview,
}

impl FileStore {
    /// Opens the store for a command.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self {
            directory: Arc::new(PrivateDirectory::new(directory)),
            purpose: Purpose::Command,
            unfinished: Arc::default(),
        }
    }

    /// Opens the store to check a start; creates, locks and writes nothing.
    ///
    /// # Errors
    /// Those of [`for_serving`](Self::for_serving), except for another server's lock.
    pub(crate) fn for_preview(directory: PathBuf) -> Result<Self, StoreError> {
        let directory = PrivateDirectory::new(directory);
        directory.preview(&[WRITE_LOCK])?;
        Ok(Self {
            directory: Arc::new(directory),
            purpose: Purpose::Preview,
            unfinished: Arc::default(),
        })
    }

    /// Opens the store for a server: creates the directory and locks out other servers.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if another server uses the directory for longer than `wait`.
    pub(crate) fn for_serving(directory: PathBuf, wait: Duration) -> Result<Self, StoreError> {
        let directory = PrivateDirectory::new(directory);
        directory.create()?;
        let serving = directory.lock_for_serving(wait)?;
        Ok(Self {
            directory: Arc::new(directory),
            purpose: Purpose::Serve(Arc::new(Mutex::new(serving))),
            unfinished: Arc::default(),
        })
    }

    /// Runs blocking file operations.
    async fn blocking<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = self.clone();
        spawn_blocking(move || operation(&store))
            .await
            .map_err(|error| {
                StoreError::Unavailable(format!("{}: {error}", self.directory.path().display()))
            })?
    }

    /// Takes the serving lock again if the directory was removed and recreated under a running
    /// server.
    fn keep_serving_lock(&self) -> Result<(), StoreError> {
        let Purpose::Serve(serving) = &self.purpose else {
            return Ok(());
        };
        let mut held = serving.lock();
        if !self.directory.is_in_place(&held) {
            self.directory.create()?;
            *held = self.directory.lock_for_serving(Duration::ZERO)?;
        }
        Ok(())
    }

    fn write_lock(&self) -> Result<Locked, StoreError> {
        if matches!(self.purpose, Purpose::Preview) {
            let location = self.location(Entry::Store);
            return Err(StoreError::Unusable(format!("{location}: only read")));
        }
        self.directory.create()?;
        self.directory.lock(WRITE_LOCK)
    }

    fn read_keys(&self) -> Result<StoredKeys, StoreError> {
        let held = journal::read(&self.directory)?;
        self.note_unfinished(held.unfinished);
        Ok(held.keys)
    }

    /// Reads the keys, and checks that a server could write a missing pair.
    fn preview_keys(&self) -> Result<StoredKeys, StoreError> {
        let keys = journal::preview(&self.directory)?;
        if keys.pair.is_none() {
            self.directory.allows_new_files()?;
        }
        Ok(keys)
    }

    /// Logs an incomplete change once, and its completion once.
    fn note_unfinished(&self, unfinished: Option<StoreError>) {
        let mut noted = self.unfinished.lock();
        match &unfinished {
            Some(_) if *noted == unfinished => {}
            Some(cause) => warn!(
                %cause,
                "the keys were changed; the change is in effect, but not complete in the store yet"
            ),
            None if noted.is_some() => info!("the change is complete in the store"),
            None => {}
        }
        *noted = unfinished;
    }
}

#[async_trait]
impl KeyStore for FileStore {
    async fn load(&self) -> Result<StoredKeys, StoreError> {
        self.blocking(|store| {
            store.keep_serving_lock()?;
            if !store.directory.exists() {
                return Ok(StoredKeys::default());
            }
            if matches!(store.purpose, Purpose::Preview) {
                return store.preview_keys();
            }
            let _no_writer = store.write_lock()?;
            store.read_keys()
        })
        .await
    }

    async fn compare_and_swap(
        &self,
        expected: &StoredKeys,
        new: &StoredKeys,
    ) -> Result<StoredKeys, StoreError> {
        let (expected, new) = (expected.clone(), new.clone());
        self.blocking(move |store| {
            let _locked = store.write_lock()?;
            let held = store.read_keys()?;
            if held != expected {
                return Ok(held);
            }
            store.note_unfinished(journal::write(&store.directory, &new)?);
            Ok(new)
        })
        .await
    }

    fn unfinished(&self) -> Option<StoreError> {
        self.unfinished.lock().clone()
    }

    fn location(&self, entry: Entry) -> String {
        match entry {
            Entry::Store => format!("file:{}", self.directory.path().display()),
            Entry::KeyPair => format!(
                "{} and {}",
                self.directory.describe(PRIVATE),
                self.directory.describe(PUBLIC)
            ),
            Entry::Half(Half::Private) => self.directory.describe(PRIVATE),
            Entry::Half(Half::Public) => self.directory.describe(PUBLIC),
            Entry::Ring => self.directory.describe(RING),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::super::conformance::installations::Files;
    use super::*;
    use crate::keys::{StoredKeyPair, StoredRing};

    fn keys(name: &str) -> StoredKeys {
        let text = |half| zeroize::Zeroizing::new(format!("{name} {half}"));
        StoredKeys {
            pair: Some(StoredKeyPair {
                private: text("private"),
                public: text("public"),
            }),
            ring: Some(StoredRing(text("ring"))),
        }
    }

    async fn install(store: &FileStore, new: &StoredKeys) -> Result<StoredKeys, StoreError> {
        store.compare_and_swap(&StoredKeys::default(), new).await
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    async fn installed() -> (Files, FileStore) {
        let files = Files::new();
        let store = FileStore::for_serving(files.directory(), Duration::ZERO).unwrap();
        install(&store, &keys("a")).await.unwrap();
        (files, store)
    }

    #[tokio::test]
    async fn only_the_owner_may_read_what_is_written() {
        let (files, _store) = installed().await;
        assert_eq!(mode(&files.directory()), 0o700);
        let modes: Vec<_> = fs::read_dir(files.directory())
            .unwrap()
            .map(|entry| {
                (
                    entry.as_ref().unwrap().file_name(),
                    mode(&entry.unwrap().path()),
                )
            })
            .collect();
        assert_eq!(modes.len(), 4, "{modes:?}");
        assert!(modes.iter().all(|(_, mode)| *mode == 0o600), "{modes:?}");
    }

    #[tokio::test]
    async fn a_file_that_others_may_read_is_rejected_and_stays() {
        let (files, store) = installed().await;
        for entry in [
            Entry::Half(Half::Private),
            Entry::Half(Half::Public),
            Entry::Ring,
        ] {
            let path = files.path(entry);
            for bad in [0o644, 0o640, 0o602] {
                chmod(&path, bad);
                for error in [
                    store.load().await.unwrap_err(),
                    install(&store, &keys("b")).await.unwrap_err(),
                ] {
                    let line = error.to_string();
                    for part in [
                        path.to_str().unwrap(),
                        "owner uid ",
                        &format!("mode {bad:04o}"),
                    ] {
                        assert!(line.contains(part), "{line}");
                    }
                    assert!(matches!(error, StoreError::Unusable(_)));
                }
            }
            chmod(&path, 0o600);
        }
        assert_eq!(store.load().await, Ok(keys("a")));
    }

    #[tokio::test]
    async fn what_is_no_regular_file_is_rejected() {
        let (files, store) = installed().await;
        let private = files.path(Entry::Half(Half::Private));
        fs::rename(&private, files.directory().join("elsewhere")).unwrap();
        symlink(files.directory().join("elsewhere"), &private).unwrap();
        assert!(matches!(store.load().await, Err(StoreError::Unusable(_))));
        fs::remove_file(&private).unwrap();
        fs::create_dir(&private).unwrap();
        assert!(matches!(
            install(&store, &keys("b")).await,
            Err(StoreError::Unusable(_))
        ));
    }

    #[tokio::test]
    async fn a_directory_that_others_may_write_to_is_rejected() {
        let (files, store) = installed().await;
        chmod(&files.directory(), 0o770);
        let error = store.load().await.unwrap_err();
        assert!(error.to_string().contains("mode 0770"), "{error}");
    }

    #[tokio::test]
    async fn a_second_server_is_rejected_and_a_command_is_not() {
        let (files, store) = installed().await;
        let rejected = FileStore::for_serving(files.directory(), Duration::ZERO).unwrap_err();
        assert!(
            matches!(&rejected, StoreError::Unavailable(line) if line.contains("another auth-server"))
        );
        assert_eq!(
            FileStore::new(files.directory()).load().await,
            Ok(keys("a"))
        );
        let directory = files.directory();
        let wait = Duration::from_secs(60);
        let next = std::thread::spawn(move || FileStore::for_serving(directory, wait));
        drop(store);
        assert!(next.join().unwrap().is_ok(), "it waits for the end");
    }

    #[tokio::test]
    async fn a_directory_lost_under_a_server_is_made_and_locked_again() {
        let (files, store) = installed().await;
        fs::remove_dir_all(files.directory()).unwrap();
        assert_eq!(store.load().await, Ok(StoredKeys::default()));
        assert_eq!(install(&store, &keys("a")).await, Ok(keys("a")));
        assert!(FileStore::for_serving(files.directory(), Duration::ZERO).is_err());
    }

    #[tokio::test]
    async fn a_preview_reads_beside_a_server_and_writes_nothing() {
        let (files, _serving) = installed().await;
        let preview = FileStore::for_preview(files.directory()).unwrap();
        assert_eq!(preview.load().await, Ok(keys("a")));
        let new = preview.compare_and_swap(&keys("a"), &keys("b")).await;
        assert!(matches!(new, Err(StoreError::Unusable(_))));
        assert_eq!(preview.load().await, Ok(keys("a")));
    }

    #[tokio::test]
    async fn reading_a_directory_that_is_not_there_makes_none() {
        let files = Files::new();
        let loaded = FileStore::new(files.directory()).load().await;
        assert_eq!(loaded, Ok(StoredKeys::default()));
        assert!(!files.directory().exists());
    }
}
