//! The embedded store and the users file on a full disk, and after a crash in the middle of a
//! write.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tests::auth_server::{AuthServer, AuthServerPlan, USER_DETAILS, file_store};
use tests::process::{CommandLine, Finished, Process};
use tests::programs::Program;
use tests::small_disk::{self, SmallDisk};
use tests::users_file::UsersFile;
use tests::wait;

const PAGE: u64 = 4096;
/// Room for the journal, one page. Each key file needs one before it replaces the former.
const ROOM_FOR_THE_JOURNAL: u64 = PAGE;

fn plan(data: &Path) -> AuthServerPlan {
    AuthServerPlan::new()
        .directory(data)
        .flags(["--store-poll-interval", "1"])
}

fn keys(words: &[&str], data: &Path) -> Finished {
    CommandLine::new(Program::AuthServer.path())
        .arguments(["keys"])
        .arguments(words)
        .arguments(["--store", &file_store(data)])
        .run()
}

fn current_kid(data: &Path) -> String {
    let listed = keys(&["show", "--json"], data);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    listed["keys"][0]["kid"].as_str().unwrap().to_owned()
}

fn accepts(server: &AuthServer, token: &str) -> bool {
    server.anonymous().bearing(token).get(USER_DETAILS).status() == 200
}

fn names_in(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// Runs a program that the kernel kills once it writes a few hundred bytes to one file.
fn dying_while_it_writes(arguments: &[&str]) {
    let end = CommandLine::new("sh")
        .arguments(["-c", "ulimit -c 0; ulimit -f 1; exec \"$0\" \"$@\""])
        .arguments([Program::AuthServer.path()])
        .arguments(arguments)
        .run();
    assert_eq!(end.code, None, "it was not killed: {}", end.stderr);
}

#[test]
fn a_revocation_counts_though_the_disk_is_full() {
    let Some(disk) = SmallDisk::new() else {
        return;
    };
    let holder = disk.mounted();
    let (room, data) = disk_and_store(&disk, &holder);
    let server = plan(&data).start().ready();
    let stolen = server.login();
    let kid = current_kid(&data);

    small_disk::fill(&room);
    small_disk::make_some_room(&room, ROOM_FOR_THE_JOURNAL);
    let revoked = keys(&["revoke", &kid], &data);
    assert_eq!(revoked.code, Some(0), "{}", revoked.stderr);
    assert!(revoked.stdout.contains("is revoked"), "{}", revoked.stdout);
    let remark = "not complete in the store yet: ";
    assert!(revoked.stderr.contains(remark), "{}", revoked.stderr);
    assert!(
        revoked.stderr.contains("No space left"),
        "{}",
        revoked.stderr
    );
    wait::until("the server to hear of it", || {
        (!accepts(&server, &stolen)).then_some(())
    });
    let note = wait::until("a note about the disk", || server.store_note());
    assert!(note.contains("No space left"), "{note}");
    let warnings = || {
        let output = server.process().output();
        output.matches("not complete in the store yet").count()
    };
    wait::until("the warning", || (warnings() > 0).then_some(()));
    assert_eq!(warnings(), 1, "once, however often the server looks");

    drop(server);
    let restarted = plan(&data).start().ready();
    assert!(!accepts(&restarted, &stolen));
    assert_ne!(current_kid(&data), kid);

    small_disk::make_room(&room);
    wait::until("the journal to be carried out", || {
        let is_done = !names_in(&data).contains("user-token.journal");
        (is_done && restarted.store_note().is_none()).then_some(())
    });
    assert!(!accepts(&restarted, &stolen));
}

#[test]
fn a_first_start_on_a_full_disk_waits_for_room() {
    let Some(disk) = SmallDisk::new() else {
        return;
    };
    let holder = disk.mounted();
    let (room, data) = disk_and_store(&disk, &holder);
    small_disk::fill(&room);
    let server = plan(&data).start();
    wait::until("the reason in the log", || {
        let output = server.process().output();
        output.contains("No space left").then_some(())
    });
    assert_eq!(server.readiness(), 503);
    small_disk::make_room(&room);
    drop(server.ready());
}

/// Returns the disk itself, and the directory of a store on it.
fn disk_and_store(disk: &SmallDisk, holder: &Process) -> (std::path::PathBuf, std::path::PathBuf) {
    let room = disk.seen_by(holder);
    let data = room.join("data");
    (room, data)
}

#[test]
fn no_key_stays_in_a_file_that_a_crash_left_half_written() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    drop(plan(&data).start().ready());
    let before = names_in(&data);
    dying_while_it_writes(&["keys", "reencrypt", "--store", &file_store(&data)]);
    let left: Vec<_> = names_in(&data).difference(&before).cloned().collect();
    let [left] = left.as_slice() else {
        panic!("the crash left {left:?}");
    };
    let half = fs::read_to_string(data.join(left)).unwrap();
    assert!(half.contains("PRIVATE KEY"), "{half}");

    drop(plan(&data).start().ready());
    assert_eq!(names_in(&data), before);
}

#[test]
fn no_hash_stays_in_a_file_that_a_crash_left_half_written() {
    let users = UsersFile::new();
    for account in ["ada", "bob", "eve", "joe", "sue"] {
        users.add(account, "enchantress", &[]);
    }
    let path = users.path();
    let directory = path.parent().unwrap();
    let before = names_in(directory);
    let location = users.location();
    let disable = ["user", "disable", "--account", "ada", "--users", &location];
    dying_while_it_writes(&disable);
    assert_eq!(names_in(directory).len(), before.len() + 1);
    let done = users.command("disable", "ada", &[], "");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(names_in(directory), before);

    dying_while_it_writes(&disable);
    assert_ne!(names_in(directory), before);
    let server = AuthServerPlan::new().flags(["--users", &location]);
    drop(server.start().ready());
    assert_eq!(names_in(directory), before, "a start removes it, too");
}

#[test]
fn a_journal_without_its_members_removes_no_key() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    drop(plan(&data).start().ready());
    let key = || fs::read(data.join("user-token.private")).ok();
    let (before, journal) = (key(), data.join("user-token.journal"));
    fs::write(&journal, "{}").unwrap();
    let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&journal, owner_only).unwrap();
    let end = plan(&data).fails();
    assert_eq!(end.code, Some(78), "{}", end.stderr);
    assert!(end.stderr.contains("user-token.journal"), "{}", end.stderr);
    assert_eq!(key(), before);
}
