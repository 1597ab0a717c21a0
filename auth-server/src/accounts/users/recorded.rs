//! The users of the file in the store. The tokens of users who have left since an earlier load are revoked
//! once, by whatever server, and a server rejects a login that contradicts a later file of another server.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf, absolute};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use postern_process::clock::instant;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::PresentUser;
use super::file::{EnabledUsers, FileUsers, Loaded, ended};
use super::users_file::digest_of;
use crate::accounts::applications::AppId;
use crate::accounts::applications::registry::ApplicationRegistry;
use crate::random::fraction;
use crate::revocations::Revocation;
use crate::revocations::log::{BATCH, RevocationLog};
use crate::store::open_store::{Held, OpenStore};
use crate::store::{Change, Key, Kind, Outcome, RETRIES, StoreError};
use crate::telemetry::audit::events::RevocationEvent;

/// Max attempts to record the users. Each retry reads what another server has written meanwhile.
const ATTEMPTS: usize = 4;

pub(crate) struct RecordedUsers {
    /// For background work.
    store: OpenStore,
    pub(crate) users: Arc<FileUsers>,
    registrations: Arc<ApplicationRegistry>,
    revocations: Arc<RevocationLog>,
    /// The digest of the file's path, however that is spelled.
    file: String,
    changed: Notify,
    /// The generation of the record with the present users; 0 before the store has them.
    generation: AtomicI64,
    /// The users of the last record that was compared, should the store lose it.
    recorded: Mutex<EnabledUsers>,
}

/// The part after the digest of the path in the ids of the two records.
const HEAD: &str = ".head";
const USERS: &str = "";

/// The part of the record that each login reads; the default before the first record.
#[derive(Default, Serialize, Deserialize)]
struct Head {
    /// A number larger than every former one, even of a former installation.
    generation: i64,
    /// The digest of the users.
    users: String,
}

impl RecordedUsers {
    pub(crate) fn new(
        store: OpenStore,
        users: Arc<FileUsers>,
        registrations: Arc<ApplicationRegistry>,
        revocations: Arc<RevocationLog>,
    ) -> Self {
        Self {
            file: digest_of(&whole_path(users.path()).to_string_lossy()),
            store,
            users,
            registrations,
            revocations,
            changed: Notify::new(),
            generation: AtomicI64::new(0),
            recorded: Mutex::default(),
        }
    }

    /// Records the users at the start and after each change, for as long as the process lives.
    pub(crate) async fn record_changes(self: Arc<Self>) {
        let mut failures = 0;
        loop {
            let Err(error) = self.record().await else {
                failures = 0;
                // No change during the commit is missed: `notify_one` keeps one permit.
                self.changed.notified().await;
                continue;
            };
            failures += 1;
            // Once for each outage: the retries would repeat it every few seconds.
            if failures == 1 {
                warn!(%error, "the store does not have the users of the file yet: those who left keep their tokens");
            }
            sleep(RETRIES.jittered(failures, fraction())).await;
        }
    }

    /// Notes that the file has changed.
    pub(crate) fn changed(&self) {
        self.changed.notify_one();
    }

    /// Writes the users, in one commit with the revocations of users who left, and of applications that have
    /// the name of a new user.
    async fn record(&self) -> Result<(), StoreError> {
        let store = &self.store;
        for _ in 0..ATTEMPTS {
            let loaded = self.users.loaded();
            let users = loaded.enabled();
            // The two records are read one after the other: a commit in between makes this one conflict.
            let head = read::<Head>(store, self.key(HEAD)).await?;
            let held = read::<EnabledUsers>(store, self.key(USERS)).await?;
            let checks = vec![head.check(), held.check()];
            let generation = head.record?.unwrap_or_default().generation;
            let before = held.record?;
            if before.as_ref() == Some(&users) && generation > 0 {
                // The commit before this one may have had an unclear outcome.
                if store.confirm(checks).await? {
                    self.note_recorded(users, generation);
                    return Ok(());
                }
                continue;
            }
            let now = store.clock.now();
            let before = before.unwrap_or_default();
            let revocations = self.revocations_since(&before, &loaded, &users, now)?;
            let next = Head {
                // The time is a floor: a store that was emptied begins above all former generations.
                generation: now.max(generation.saturating_add(1)),
                users: loaded.enabled.clone(),
            };
            let changes = vec![
                store.put(self.key(HEAD), head.version, &next, None)?,
                store.put(self.key(USERS), held.version, &users, None)?,
            ];
            if self.commit(&revocations, changes).await? == Outcome::Committed {
                // Another server may have renewed a session of a user who left in the seconds of the commit.
                let later = store.clock.now();
                let left = revocations.iter().filter(|it| !is_of_user_in(it, &users));
                let left = left.filter_map(|it| it.moved_to(later));
                self.revocations.note(left);
                self.note_recorded(users, next.generation);
                return Ok(());
            }
        }
        Err(StoreError::Unavailable(
            "another server writes the users at the same time".to_owned(),
        ))
    }

    /// Returns the revocations of users who have left or changed since `before`, and of applications that have the name
    /// of such a user.
    fn revocations_since(
        &self,
        before: &EnabledUsers,
        loaded: &Loaded,
        users: &EnabledUsers,
        now: i64,
    ) -> Result<Vec<Revocation>, StoreError> {
        // The store may have lost its record of users: memory still knows who has left since.
        let mut left = BTreeSet::from_iter(ended(&self.recorded.lock(), users));
        left.extend(ended(before, users));
        // Revoked up to the load, not up to now: a user of this file may have logged in since. A user who
        // is not in it can only have logged in at another server, which had not loaded the file yet.
        let passed =
            i64::try_from(instant().duration_since(loaded.since).as_secs()).unwrap_or_default();
        let loaded_at = now.saturating_sub(passed);
        let mut revocations = Vec::new();
        for id in left {
            let time = if users.contains_key(&id) {
                loaded_at
            } else {
                now
            };
            revocations.push(Revocation::for_user(id, time));
        }
        for id in self.applications_named_as(loaded, before)? {
            revocations.push(Revocation::for_application(id.to_string(), now));
        }
        Ok(revocations)
    }

    /// Commits the revocations before the changes, in batches: after a failure in between none is missing, and
    /// some are repeated.
    async fn commit(
        &self,
        revocations: &[Revocation],
        changes: Vec<Change>,
    ) -> Result<Outcome, StoreError> {
        let store = &self.store;
        let (first, last) = revocations.split_at(revocations.len().saturating_sub(BATCH));
        for some in first.chunks(BATCH) {
            self.revocations.append(store, some, Vec::new()).await?;
        }
        self.revocations.append(store, last, changes).await
    }

    /// Returns the applications that have the name of a user who is new or changed: services could take their
    /// tokens for the user's (RFC 9700 §4.15). One that has the name of a former user has got no token since.
    fn applications_named_as(
        &self,
        loaded: &Loaded,
        before: &EnabledUsers,
    ) -> Result<BTreeSet<AppId>, StoreError> {
        if !self.registrations.are_known() {
            let unread = "the applications were not read yet".to_owned();
            return Err(StoreError::Unavailable(unread));
        }
        let mut named = BTreeSet::new();
        for PresentUser { user, credentials } in loaded.present() {
            if before.get(&user.id) == Some(&credentials) {
                continue;
            }
            for name in [&user.id, &user.account] {
                named.extend(self.registrations.registered_id(name));
            }
        }
        Ok(named)
    }

    fn note_recorded(&self, users: EnabledUsers, generation: i64) {
        debug!(users = users.len(), "the store has the users of the file");
        *self.recorded.lock() = users;
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// Returns false if a file that another server has loaded later lacks the user, or has other credentials:
    /// this server's file is older, and the user was revoked already. Without the store logins go on.
    ///
    /// # Errors
    /// [`StoreError::Busy`], which clients can bring about.
    pub(crate) async fn knows(
        &self,
        requests: &OpenStore,
        user: &PresentUser,
    ) -> Result<bool, StoreError> {
        let head = read::<Head>(requests, self.key(HEAD)).await;
        let head = match head.and_then(|head| head.record) {
            Ok(head) => head.unwrap_or_default(),
            Err(busy @ StoreError::Busy) => return Err(busy),
            Err(_) => return Ok(true),
        };
        let generation = self.generation.load(Ordering::Relaxed);
        // Before its first record this server cannot know which of two files is the later one.
        if generation == 0 || head.users == self.users.loaded().enabled {
            return Ok(true);
        }
        if head.generation <= generation {
            // The file was just loaded, or the store is an older copy.
            self.changed();
            return Ok(true);
        }
        // Another server has loaded a later file, but perhaps without a change of this user.
        let others = read::<EnabledUsers>(requests, self.key(USERS)).await;
        match others.and_then(|others| others.record) {
            Ok(Some(others)) => Ok(others.get(&user.user.id) == Some(&user.credentials)),
            Err(busy @ StoreError::Busy) => Err(busy),
            _ => Ok(false),
        }
    }

    /// Returns the key of the record for this path: servers with other users may share the store.
    fn key(&self, part: &str) -> Key {
        Key {
            kind: Kind::Users,
            id: self.file.clone() + part,
        }
    }
}

/// Returns the same path for each spelling of one. Links stay: those of Kubernetes lead elsewhere after each
/// change.
fn whole_path(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in absolute(path).unwrap_or_default().components() {
        if part == Component::ParentDir {
            whole.pop();
        } else {
            whole.push(part);
        }
    }
    whole
}

fn is_of_user_in(revocation: &Revocation, users: &EnabledUsers) -> bool {
    matches!(&revocation.event, RevocationEvent::User(id) if users.contains_key(id))
}

/// Reads a value; a planted value counts as missing, and the next commit replaces it.
async fn read<T: DeserializeOwned>(store: &OpenStore, key: Key) -> Result<Held<T>, StoreError> {
    let mut held = store.read(&key).await?;
    if held.is_planted {
        held.record = Ok(None);
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use postern_token::claims::Claims;

    use super::super::UserStore;
    use super::super::file::tests::{file_with, write};
    use super::*;
    use crate::accounts::applications::Applications;
    use crate::accounts::applications::secret_hash::SecretHashes;
    use crate::revocations::tests::log_of;
    use crate::store::Store;
    use crate::store::conformance::unsteady::Unsteady;

    /// A server that has loaded the file as it is, with an application `eve`.
    fn server(store: &Arc<Unsteady>, file: impl AsRef<Path>) -> RecordedUsers {
        let users = Arc::new(FileUsers::open(file.as_ref().to_owned()).unwrap());
        let store = OpenStore::unencrypted(Arc::new(Arc::clone(store)));
        let registrations = ApplicationRegistry::new(false, None);
        let secrets = SecretHashes::default().with_new("right");
        let registered = Applications::default().changed("eve".parse().unwrap(), secrets, 1);
        registrations.reconcile(Some(registered));
        RecordedUsers::new(store.clone(), users, Arc::new(registrations), log_of(store))
    }

    async fn logs_in(server: &RecordedUsers, account: &str) -> bool {
        let user = server.users.present(account).unwrap();
        server.knows(&server.store, &user).await.unwrap()
    }

    async fn revocations(store: &Arc<Unsteady>) -> usize {
        store.since(0).await.unwrap().len()
    }

    #[tokio::test]
    async fn an_older_file_lets_no_one_in_who_has_left() {
        let (store, file) = (Unsteady::new(), file_with(&["ada", "zoe"]));
        let old = server(&store, &file);
        old.record().await.unwrap();
        write(&file, &["ada", "bob"]);
        let new = server(&store, &file);
        assert!(logs_in(&new, "bob").await, "a file that was just loaded");
        new.record().await.unwrap();
        assert_eq!(revocations(&store).await, 1);
        new.revocations.poll().await.unwrap();
        let of_zoe = Claims {
            user_id: "id of zoe".to_owned(),
            ..Claims::default()
        };
        assert!(new.revocations.revokes(&of_zoe));
        assert!(!logs_in(&old, "zoe").await);
        assert!(logs_in(&old, "ada").await && logs_in(&new, "bob").await);
        old.users.reload().unwrap();
        for server in [&old, &new] {
            server.record().await.unwrap();
        }
        assert_eq!(revocations(&store).await, 1, "once");
        assert!(logs_in(&old, "bob").await);
    }

    #[tokio::test]
    async fn a_user_added_between_starts_ends_an_application_of_that_name() {
        let (store, file) = (Unsteady::new(), file_with(&["ada"]));
        server(&store, &file).record().await.unwrap();
        assert_eq!(revocations(&store).await, 0);
        write(&file, &["ada", "eve"]);
        for _ in 0..2 {
            let server = server(&store, &file);
            server.record().await.unwrap();
            server.revocations.poll().await.unwrap();
            let of_application = Claims {
                client_id: Some("eve".to_owned()),
                ..Claims::default()
            };
            assert!(server.revocations.revokes(&of_application));
            assert_eq!(revocations(&store).await, 1, "once");
        }
    }

    #[tokio::test]
    async fn a_file_has_one_record_however_its_path_is_spelled() {
        let depth = std::env::current_dir().unwrap().components().count();
        let root = "../".repeat(depth);
        for spelling in ["DIR/./FILE", "DIR//FILE", "DIR/../DIR/FILE", "ROOTDIR/FILE"] {
            let (store, file) = (Unsteady::new(), file_with(&["ada", "bob"]));
            server(&store, &file).record().await.unwrap();
            write(&file, &["ada"]);
            let directory = file.path().parent().unwrap().display().to_string();
            let name = file.path().file_name().unwrap().to_string_lossy();
            let path = match spelling.strip_prefix("ROOT") {
                Some(_) => format!("{root}{}/{name}", &directory[1..]),
                None => spelling.replace("FILE", &name),
            };
            let last = directory.rsplit('/').next().unwrap();
            let path = path.replace("../DIR", &format!("../{last}"));
            server(&store, path.replace("DIR", &directory))
                .record()
                .await
                .unwrap();
            assert_eq!(revocations(&store).await, 1, "{spelling}");
        }
    }

    #[tokio::test]
    async fn an_older_copy_of_the_store_ends_no_login() {
        let (store, file) = (Unsteady::new(), file_with(&["ada"]));
        let server = server(&store, &file);
        server.record().await.unwrap();
        let older = [server.key(HEAD), server.key(USERS)];
        let older = [store.raw(&older[0]).await, store.raw(&older[1]).await];
        write(&file, &["ada", "bob"]);
        server.users.reload().unwrap();
        server.record().await.unwrap();
        for (key, text) in [server.key(HEAD), server.key(USERS)]
            .into_iter()
            .zip(&older)
        {
            store.plant(key, text.as_deref()).await;
        }
        assert!(logs_in(&server, "bob").await);
        server.record().await.unwrap();
        assert_ne!(store.raw(&server.key(USERS)).await, older[1]);
        store.lose_everything();
        assert!(logs_in(&server, "bob").await);
        write(&file, &["ada"]);
        server.users.reload().unwrap();
        server.record().await.unwrap();
        assert_eq!(
            revocations(&store).await,
            1,
            "of a user whom the store has lost"
        );
        store.set_away(true);
        assert!(logs_in(&server, "ada").await);
    }
}
