//! The embedded store and the users file on a full disk, and after a crash in the middle of a
//! write.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tests::auth_server::{AuthServer, AuthServerPlan, file_store};
use tests::certificates::write_private;
use tests::process::{CommandLine, Finished};
use tests::programs::Program;
use tests::small_disk::{self, SmallDisk};
use tests::users_file::UsersFile;
use tests::wait;

const PAGE: u64 = 4096;
/// Room for the journal, one page. Each key file needs one before it replaces the former.
const ROOM_FOR_THE_JOURNAL: u64 = PAGE;

fn plan(data: &Path) -> AuthServerPlan {
    let plan = AuthServerPlan::new().directory(data);
    plan.flags(["--store-poll-interval", "1"])
}

fn keys(words: &[&str], data: &Path) -> Finished {
    Program::AuthServer.run(&[&["keys"], words, &["--store", &file_store(data)]].concat())
}

fn accepts(server: &AuthServer, token: &str) -> bool {
    server.verdict(token) == "200"
}

fn current_kid(data: &Path) -> String {
    let listed = keys(&["show", "--json"], data);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    listed["keys"][0]["kid"].as_str().unwrap().to_owned()
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
    let room = disk.seen_by(&holder);
    let data = room.join("data");
    let server = plan(&data).ready();
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
    wait::until("the server to hear of it", || !accepts(&server, &stolen));
    let note = wait::until("a note about the disk", || server.store_note());
    assert!(note.contains("No space left"), "{note}");
    let warnings = server.until_logged("not complete in the store yet");
    assert_eq!(warnings, 1, "once, however often the server looks");

    drop(server);
    let restarted = plan(&data).ready();
    assert!(!accepts(&restarted, &stolen));
    assert_ne!(current_kid(&data), kid);

    small_disk::make_room(&room);
    wait::until("the journal to be carried out", || {
        let is_done = !names_in(&data).contains("user-token.journal");
        is_done && restarted.store_note().is_none()
    });
    assert!(!accepts(&restarted, &stolen));
}

#[test]
fn a_first_start_on_a_full_disk_waits_for_room() {
    let Some(disk) = SmallDisk::new() else {
        return;
    };
    let holder = disk.mounted();
    let room = disk.seen_by(&holder);
    let data = room.join("data");
    small_disk::fill(&room);
    let server = plan(&data).start();
    server.until_logged("No space left");
    assert_eq!(server.readiness(), 503);
    small_disk::make_room(&room);
    drop(server.ready());
}

#[test]
fn no_key_stays_in_a_file_that_a_crash_left_half_written() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    drop(plan(&data).ready());
    let before = names_in(&data);
    dying_while_it_writes(&["keys", "reencrypt", "--store", &file_store(&data)]);
    let left: Vec<_> = names_in(&data).difference(&before).cloned().collect();
    let [left] = left.as_slice() else {
        panic!("the crash left {left:?}");
    };
    let half = fs::read_to_string(data.join(left)).unwrap();
    assert!(half.contains("PRIVATE KEY"), "{half}");

    drop(plan(&data).ready());
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
    drop(server.ready());
    assert_eq!(names_in(directory), before, "a start removes it, too");
}

#[test]
fn a_journal_without_its_members_removes_no_key() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    drop(plan(&data).ready());
    let key = || fs::read(data.join("user-token.private")).ok();
    let (before, journal) = (key(), data.join("user-token.journal"));
    write_private(&journal, "{}");
    let end = plan(&data).fails();
    assert_eq!(end.code, Some(78), "{}", end.stderr);
    assert!(end.stderr.contains("user-token.journal"), "{}", end.stderr);
    assert_eq!(key(), before);
}
