//! The embedded store: the errors that stop a start, and the values that stay as they are.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use tests::actors::auth_server::{AuthServerPlan, USER_DETAILS, file_store};
use tests::actors::file_store::{self, PRIVATE, PUBLIC};
use tests::actors::process::CommandLine;
use tests::actors::programs::Program;

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

    fn contents(&self) -> [Option<String>; 2] {
        [PRIVATE, PUBLIC].map(|id| file_store::value(self.directory.path(), id))
    }

    fn serve(&self) -> AuthServerPlan {
        AuthServerPlan::new().directory(self.directory.path())
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

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn every_file_is_for_its_owner_alone() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("made/by/the/server");
    let _server = AuthServerPlan::new().directory(&directory).ready();
    assert_eq!(mode(&directory), 0o700);
    for file in fs::read_dir(&directory).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

/// Kubernetes opens a volume with `fsGroup` to that group at each mount.
#[test]
fn what_each_mount_opens_to_a_group_is_closed_again() {
    let store = Store::new();
    let directory = store.directory.path();
    let database = file_store::database(directory);
    let chmod = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    for _ in 0..2 {
        chmod(&database, 0o660);
        chmod(directory, 0o2770);
        let server = store.serve().ready();
        server.until_logged("others had access");
        assert_eq!(mode(&database), 0o600);
        assert_eq!(mode(directory), 0o700);
    }
}

#[test]
fn a_second_server_on_the_same_directory_waits_for_the_first() {
    let store = Store::new();
    let first = store.serve().ready();
    let plan = store.serve();
    let second = std::thread::spawn(move || plan.ready());
    let third = Program::AuthServer
        .command()
        .arguments([
            "serve",
            "--listen=127.0.0.1:0",
            "--admin-listen=127.0.0.1:0",
        ])
        .arguments(["--store", &file_store(store.directory.path())])
        .start();
    third.until_logged("waiting up to 60 s for its end");
    third.terminate();
    assert_eq!(third.finished().code, Some(0));
    assert_eq!(first.logged_in().status(USER_DETAILS), 200);
    drop(first);
    drop(second.join().unwrap());
}

#[test]
fn a_backup_beside_a_running_server_is_a_store() {
    let store = Store::new();
    let server = store.serve().ready();
    let served = server.served_key();
    let copy = tempfile::tempdir().unwrap();
    let file = copy.path().join("store.db").display().to_string();
    let backup = |store: &str| {
        let words = ["store", "backup", &file, "--store", store];
        Program::AuthServer.run(&words)
    };
    let own = file_store(store.directory.path());
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

/// `ulimit -f` stands for any end in the middle: the kernel kills the command at that byte.
#[test]
fn a_backup_that_is_killed_leaves_no_file_of_that_name() {
    let store = Store::new();
    let server = store.serve().flags(["--refresh-tokens", "on"]).ready();
    for _ in 0..200 {
        server.login();
    }
    let copy = tempfile::tempdir().unwrap();
    let file = copy.path().join("backup").display().to_string();
    let own = file_store(store.directory.path());
    let words = ["store", "backup", &file, "--store", &own];
    let limited = r#"ulimit -c 0; ulimit -f 80; exec "$0" "$@""#;
    let end = CommandLine::new("sh")
        .arguments(["-c", limited])
        .arguments([Program::AuthServer.path()])
        .arguments(words)
        .run();
    assert_eq!(end.code, None, "it was not killed: {}", end.stderr);
    let names = || -> BTreeSet<_> {
        let entries = fs::read_dir(copy.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    };
    assert!(!names().contains(OsStr::new("backup")), "{:?}", names());
    assert!(
        names().contains(OsStr::new("backup.unfinished")),
        "{:?}",
        names()
    );

    assert_eq!(Program::AuthServer.run(&words).code, Some(0));
    assert_eq!(names(), BTreeSet::from(["backup".into()]));
    let database = rusqlite::Connection::open(&file).unwrap();
    let checked: String = database
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(checked, "ok");
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
    let url = file_store(store.directory.path());
    let end = Program::AuthServer.run(&["keys", "export-public", "--store", &url]);
    end.says(0, "");
    assert_eq!(end.stdout.trim(), server.served_key().trim());
}
