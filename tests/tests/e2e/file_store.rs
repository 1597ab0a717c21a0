//! The embedded store: the errors that stop a start, and the values that stay as they are.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tests::auth_server::{AuthServerPlan, USER_DETAILS};
use tests::file_store::{self, PRIVATE, PUBLIC};
use tests::keys::{SigningKey, SigningType};
use tests::process::{CommandLine, Finished};
use tests::programs::Program;

const DATABASE: &str = "store.db";

/// A store that a server has created.
struct Store {
    directory: tempfile::TempDir,
}

impl Store {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        drop(AuthServerPlan::new().directory(directory.path()).ready());
        Self { directory }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    fn put(&self, id: &str, text: &str) {
        file_store::put(self.directory.path(), id, text);
    }

    fn chmod(&self, file: &str, mode: u32) {
        fs::set_permissions(self.path(file), Permissions::from_mode(mode)).unwrap();
    }

    fn contents(&self) -> [Option<String>; 2] {
        [PRIVATE, PUBLIC].map(|id| file_store::value(self.directory.path(), id))
    }

    fn serve(&self) -> AuthServerPlan {
        AuthServerPlan::new().directory(self.directory.path())
    }

    /// Checks that a start fails: exit code 78, a last line that names the store, no key.
    fn rejects(&self) -> Finished {
        let end = self.serve().fails();
        assert_eq!(end.code, Some(78), "{}", end.stderr);
        let line = end.stderr.lines().last().unwrap_or_default();
        let path = self.directory.path().display().to_string();
        assert!(line.contains(&path), "the store in: {line}");
        assert!(
            !end.stderr.contains("BEGIN PRIVATE"),
            "no key material in the complaint"
        );
        end
    }

    /// The same with every value unchanged.
    fn rejects_value(&self) {
        let before = self.contents();
        self.rejects();
        assert_eq!(self.contents(), before, "nothing is overwritten");
    }

    /// The same with owner and mode of the database in the last line.
    fn rejects_file(&self) {
        let end = self.rejects();
        let line = end.stderr.lines().last().unwrap_or_default();
        let metadata = fs::symlink_metadata(self.path(DATABASE)).unwrap();
        for part in [
            format!("{:o}", metadata.mode() & 0o7777),
            metadata.uid().to_string(),
        ] {
            assert!(line.contains(&part), "{part} in: {line}");
        }
    }
}

#[test]
fn contract_1_both_keys_present_are_loaded() {
    let store = Store::new();
    let before = store.contents();
    let server = store.serve().ready();
    assert_eq!(server.logged_in().status(USER_DETAILS), 200);
    assert_eq!(store.contents(), before);
}

#[test]
fn contract_1_a_missing_key_is_replaced_together_with_the_other() {
    for missing in [PRIVATE, PUBLIC] {
        let store = Store::new();
        let before = store.contents();
        file_store::remove(store.directory.path(), missing);
        let server = store.serve().ready();
        assert_eq!(server.logged_in().status(USER_DETAILS), 200);
        let after = store.contents();
        assert!(
            after
                .iter()
                .zip(&before)
                .all(|(after, before)| after.is_some() && after != before),
            "{missing}"
        );
    }
}

#[test]
fn the_files_are_their_owners_alone() {
    let store = Store::new();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&store.path(DATABASE)), 0o600);
    let nested = store.path("made/by/the/server");
    drop(AuthServerPlan::new().directory(&nested).ready());
    assert_eq!(mode(&nested), 0o700);
}

/// Kubernetes opens a volume with `fsGroup` to that group at each mount.
#[test]
fn what_each_mount_opens_to_a_group_is_closed_again() {
    let store = Store::new();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    for _ in 0..2 {
        store.chmod(DATABASE, 0o660);
        store.chmod("", 0o2770);
        let server = store.serve().ready();
        server.until_logged("others had access");
        assert_eq!(mode(&store.path(DATABASE)), 0o600);
        assert_eq!(mode(store.directory.path()), 0o700);
    }
}

#[test]
fn a_value_that_is_no_key_of_this_server_stops_the_start() {
    let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let store = Store::new();
    let whole = store.contents();
    for (id, whole) in [PRIVATE, PUBLIC].into_iter().zip(whole) {
        let whole = whole.unwrap();
        for text in ["", "not a key", "{}", certificate, &whole[..100]] {
            store.put(id, text);
            store.rejects_value();
        }
        store.put(id, &whole);
    }
    // The halves of two pairs, and a pair of another type.
    store.put(PUBLIC, &SigningKey::generate(SigningType::Rsa).served());
    store.rejects_value();
    let other = SigningKey::generate(SigningType::Ecdsa);
    store.put(PRIVATE, &other.private());
    store.put(PUBLIC, &other.served());
    store.rejects_value();
}

#[test]
fn what_is_no_regular_file_stops_the_start() {
    let store = Store::new();
    let path = store.path(DATABASE);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    store.rejects_file();
    fs::remove_dir(&path).unwrap();

    let made = CommandLine::new(Path::new("mkfifo"))
        .arguments([path.to_str().unwrap()])
        .run();
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    store.rejects_file();
    fs::remove_file(&path).unwrap();

    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("created");
    std::os::unix::fs::symlink(&target, &path).unwrap();
    store.rejects_file();
    assert!(!target.exists(), "the link was followed");
}

#[test]
fn a_database_that_cannot_be_read_stops_the_start() {
    let store = Store::new();
    if !take_away(&store.path(DATABASE)) {
        // Root reads every file: only the owner shows that something is wrong.
        return;
    }
    store.rejects_file();
}

/// Makes a file unreadable: by its mode, or, for root, by changing its owner.
fn take_away(path: &Path) -> bool {
    fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
    if fs::read(path).is_err() {
        return true;
    }
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).is_ok()
}

#[test]
fn a_directory_of_another_owner_stops_the_start() {
    let store = Store::new();
    // Only root can change the owner of a directory.
    if std::os::unix::fs::chown(store.directory.path(), Some(65_534), None).is_ok() {
        let end = store.serve().fails();
        end.says(78, "owner uid 65534");
    }
}

#[test]
fn a_second_server_on_the_same_directory_waits_for_the_first() {
    let store = Store::new();
    let first = store.serve().ready();
    let plan = store.serve();
    let second = std::thread::spawn(move || plan.ready());
    assert_eq!(first.logged_in().status(USER_DETAILS), 200);
    drop(first);
    drop(second.join().unwrap());
}

#[test]
fn keys_that_vanish_while_running_are_put_back() {
    let store = Store::new();
    let server = store.serve().flags(["--store-poll-interval", "1"]).ready();
    let before = store.contents();
    for id in [PRIVATE, PUBLIC] {
        file_store::remove(store.directory.path(), id);
    }
    tests::wait::until("the pair to be back", || store.contents() == before);
    assert_eq!(server.logged_in().status(USER_DETAILS), 200);
}

#[test]
fn a_backup_beside_a_running_server_is_a_store() {
    let store = Store::new();
    let server = store.serve().ready();
    let served = server.served_key();
    let copy = tempfile::tempdir().unwrap();
    let file = copy.path().join(DATABASE).display().to_string();
    let backup = |store: &str| {
        let words = ["store", "backup", &file, "--store", store];
        Program::AuthServer.run(&words)
    };
    let own = tests::auth_server::file_store(store.directory.path());
    let done = backup(&own);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    for (store, code, said) in [
        (own.as_str(), 78, "overwrites nothing"),
        ("redis://localhost", 64, "redis-cli --rdb"),
    ] {
        let end = backup(store);
        end.says(code, said);
    }
    drop((server, store));
    let restored = AuthServerPlan::new().directory(copy.path()).ready();
    assert_eq!(restored.served_key(), served);
}

#[test]
fn a_store_in_memory_is_its_server_s_alone() {
    let server = AuthServerPlan::polling().store("memory").ready();
    let token = server.login();
    assert_eq!(server.verdict(&token), "200");
    assert_eq!(server.log_out(&token).status(), 200);
    server.until_revoked(&token);
    server.until_logged("end with this process");
    let end = Program::AuthServer.run(&["keys", "show", "--store", "memory"]);
    end.says(78, "only its server");
}

#[test]
fn the_public_key_is_exported_beside_a_running_server() {
    let store = Store::new();
    let server = store.serve().ready();
    let url = tests::auth_server::file_store(store.directory.path());
    let command = CommandLine::new(Program::AuthServer.path());
    let end = command
        .arguments(["keys", "export-public", "--store", &url])
        .run();
    end.says(0, "");
    assert_eq!(end.stdout.trim(), server.served_key().trim());
}
