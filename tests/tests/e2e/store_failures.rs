//! Failures of the store under a running server, and older copies of it: what got no 200 has ended nothing,
//! and the same request succeeds afterwards.

use std::fs;
use std::process::Command;

use rusqlite::Connection;
use tests::auth_server::{AuthServer, AuthServerPlan, USER_DETAILS, file_store};
use tests::file_store;
use tests::programs::Program;
use tests::redis_server::Redis;
use tests::wait;

const AWAY: &str = "store_unavailable";
const UNKNOWN: &str = "store_outcome_unknown";
const STORE_UP: &str = "postern_auth_server_store_up";

/// Checks both tokens of a session while the failure lasts, and after it.
fn assert_survived(server: &AuthServer, failure: &str, reasons: &[&str], lasts: impl Fn(bool)) {
    let session = server.session_of("ada");
    lasts(true);
    for token in [&session.refresh, &session.access] {
        let rejected = server.log_out(token);
        let reason = rejected.json()["reason"].as_str().map(str::to_owned);
        assert_eq!(rejected.status(), 503, "{failure}");
        let reason = reason.unwrap_or_default();
        assert!(reasons.contains(&reason.as_str()), "{failure}: {reason}");
    }
    wait::until("the failure in /readyz", || server.store_note());
    assert_eq!(server.metric(STORE_UP), Some(0), "{failure}");
    assert_eq!(server.readiness(), 200, "{failure}");
    lasts(false);
    wait::until("the same request to succeed", || {
        server.log_out(&session.refresh).status() == 200
    });
    server.until_revoked(&session.access);
    wait::until("the store again", || server.store_note().is_none());
    let ended = server.refresh(&session.refresh);
    assert_eq!(ended.status(), 400, "{failure}");
}

fn plan(store: &str) -> AuthServerPlan {
    let plan = AuthServerPlan::polling().store(store);
    plan.flags(["--refresh-tokens", "on"])
}

#[test]
fn a_locked_database_takes_nothing_and_goes_on_afterwards() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let server = plan(&file_store(&data)).ready();
    let other = Connection::open(file_store::database(&data)).unwrap();
    assert_survived(&server, "another process", &[AWAY], |lasts| {
        let statement = if lasts { "BEGIN IMMEDIATE" } else { "ROLLBACK" };
        other.execute_batch(statement).unwrap();
    });
}

#[test]
fn a_disk_that_fails_in_a_commit_leaves_its_outcome_unknown() {
    let home = tempfile::tempdir().unwrap();
    let plan = plan(&file_store(&home.path().join("data")));
    let server = plan.past_file_size_limits().ready();
    assert_survived(&server, "a failing disk", &[UNKNOWN], |lasts| {
        let size = if lasts { "1" } else { "unlimited" };
        let limit = format!("--fsize={size}:");
        let pid = server.process().id().to_string();
        let mut command = Command::new("prlimit");
        let set = command.args(["--pid", &pid, &limit]).status();
        assert!(set.unwrap().success());
    });
}

#[test]
fn a_redis_that_takes_nothing_ends_nothing() {
    let Some(redis) = Redis::start() else { return };
    let server = plan(&redis.url()).ready();
    let of_pause = &[AWAY, UNKNOWN][..];
    for (command, begins, ends, reasons) in [
        ("CONFIG SET maxmemory", "1", "0", &[AWAY][..]),
        ("REPLICAOF", "127.0.0.1 1", "NO ONE", &[AWAY]),
        ("CONFIG SET min-replicas-to-write", "1", "0", &[AWAY]),
        ("CLIENT", "PAUSE 600000 WRITE", "UNPAUSE", of_pause),
    ] {
        assert_survived(&server, command, reasons, |lasts| {
            let words = format!("{command} {}", if lasts { begins } else { ends });
            redis.command(&words.split(' ').collect::<Vec<_>>());
        });
    }
    assert_survived(&server, "stalled", &[AWAY, UNKNOWN], |lasts| {
        redis.signal(if lasts { "STOP" } else { "CONT" });
    });
}

/// docs/store.md, "A log that cannot be read".
#[test]
fn an_unreadable_log_takes_no_logout_until_it_is_deleted() {
    const LOG: &str = "{auth:user-token}:log:revocations";
    const ENDS: &str = "{auth:user-token}:log:revocations:ends";
    const LAST: &str = "{auth:user-token}:last";
    for planted in [
        &["SET", LAST, "100000000000000"][..],
        &["SET", LAST, "none"],
        &["ZADD", LOG, "1e14", "100000000000000 9000000000 {}"],
        &["ZADD", LOG, "5", "100000000000000 9000000000 {}"],
        &["ZADD", LOG, "5", "1e+14 9000000000 {}"],
    ] {
        let Some(redis) = Redis::start() else { return };
        let server = plan(&redis.url()).ready();
        let [before, token] = [(); 2].map(|()| server.login());
        assert_eq!(server.log_out(&before).status(), 200);
        redis.command(planted);
        wait::until("the reason in /readyz", || server.store_note());
        assert_eq!(server.metric(STORE_UP), Some(0), "{planted:?}");
        assert_eq!(server.log_out(&token).status(), 503, "{planted:?}");
        server.command(&["revoke", "--all"]).says(78, "log");
        assert_eq!(server.logged_in().status(USER_DETAILS), 200);
        plan(&redis.url()).fails().says(78, "log");

        redis.command(&["DEL", LOG, ENDS, LAST]);
        wait::until("the store again", || server.store_note().is_none());
        assert_eq!(server.log_out(&token).status(), 200, "{planted:?}");
        let fresh = plan(&redis.url()).ready();
        for (server, token) in [(&server, &token), (&fresh, &token), (&fresh, &before)] {
            server.until_revoked(token);
        }
    }
}

#[test]
fn an_older_copy_counts_until_all_is_revoked() {
    let home = tempfile::tempdir().unwrap();
    let (data, copy) = (home.path().join("data"), home.path().join("copy"));
    let store = file_store(&data);
    let command = |words: &[&str]| {
        let end = Program::AuthServer.run(&[words, &["--store", &store]].concat());
        assert_eq!(end.code, Some(0), "{}", end.stderr);
    };
    let server = plan(&store).ready();
    let token = server.login();
    command(&["store", "backup", &copy.display().to_string()]);
    assert_eq!(server.log_out(&token).status(), 200);
    drop(server);
    fs::remove_dir_all(&data).unwrap();
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    fs::rename(&copy, file_store::database(&data)).unwrap();
    let server = plan(&store).ready();
    let found = server.verdict(&token);
    assert_eq!(found, "200", "it cannot know of the logout");
    command(&["revoke", "--all"]);
    server.until_revoked(&token);
}
