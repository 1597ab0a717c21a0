//! The embedded store on a full disk, and the users file after a crash in the middle of a write.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tests::actors::auth_server::{AuthServerPlan, file_store};
use tests::actors::expect::has;
use tests::actors::process::{CommandLine, Finished, Process};
use tests::actors::programs::Program;
use tests::actors::token_forge::kid_of;
use tests::actors::users_file::UsersFile;
use tests::services::small_disk::{self, SmallDisk};
use tests::wait;

/// A small disk with a server's store, and the process that holds it.
struct Room {
    disk: SmallDisk,
    holder: Process,
}

impl Room {
    fn new() -> Option<Self> {
        let disk = SmallDisk::new()?;
        let holder = disk.mounted();
        Some(Self { disk, holder })
    }

    fn plan(&self) -> AuthServerPlan {
        let plan = AuthServerPlan::new().on_disk(&self.disk, &self.holder);
        plan.flags(["--store-poll-interval", "1"])
    }

    fn keys(&self, words: &[&str]) -> Finished {
        let store = file_store(&self.disk.path().join("data"));
        small_disk::inside(&self.holder)
            .arguments([Program::AuthServer.path()])
            .arguments(["keys"])
            .arguments(words)
            .arguments(["--store", &store])
            .run()
    }

    fn fill(&self) {
        small_disk::fill(&self.disk.seen_by(&self.holder));
    }

    fn empty(&self) {
        small_disk::make_room(&self.disk.seen_by(&self.holder));
    }
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
fn a_revocation_on_a_full_disk_fails_and_can_be_repeated() {
    let Some(room) = Room::new() else { return };
    let server = room.plan().ready();
    let stolen = server.login();
    let kid = kid_of(&stolen);

    room.fill();
    let revoked = room.keys(&["revoke", &kid]);
    revoked.says(69, "full");
    assert!(server.accepts(&stolen));
    let note = wait::until("the disk in /readyz", || {
        // The server has emptied its journal.
        room.fill();
        server.store_note()
    });
    has(&note, "full");
    assert_eq!(server.readiness(), 200);

    room.empty();
    let revoked = room.keys(&["revoke", &kid]);
    assert_eq!(revoked.code, Some(0), "{}", revoked.stderr);
    wait::until("the server to hear of it", || !server.accepts(&stolen));
    drop(server);
    assert!(!room.plan().ready().accepts(&stolen));
}

#[test]
fn a_first_start_on_a_full_disk_waits_for_room() {
    let Some(room) = Room::new() else { return };
    room.fill();
    let server = room.plan().start();
    server.until_logged("full");
    assert_eq!(server.readiness(), 503);
    room.empty();
    drop(server.ready());
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
