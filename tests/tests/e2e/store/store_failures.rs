//! Failures of the store under a running server, and older copies of it: what got no 200 has ended nothing,
//! and the same request succeeds afterwards.

use std::fs;
use std::process::Command;

use rusqlite::Connection;
use tests::actors::auth_server::{AuthServer, AuthServerPlan, USER_DETAILS, file_store};
use tests::actors::file_store;
use tests::actors::programs::Program;
use tests::services::redis_server::Redis;
use tests::wait;
use tests::wire::message::Message;

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
    let note = wait::until("the failure in /readyz", || server.store_note());
    for part in ["; since 20", "a logout, a refresh or a revocation gets 503"] {
        assert!(note.contains(part), "{failure}: {note}");
    }
    assert_eq!(server.metric(STORE_UP), Some(0), "{failure}");
    assert!(!has_session(&server.login_as("eve", "any")), "{failure}");
    assert_eq!(server.readiness(), 200, "{failure}");
    lasts(false);
    wait::until("the same request to succeed", || {
        server.log_out(&session.refresh).status() == 200
    });
    server.until_revoked(&session.access);
    wait::until("the store again", || server.store_note().is_none());
    wait::until("sessions to begin again", || {
        has_session(&server.login_as("eve", "any"))
    });
    let ended = server.refresh(&session.refresh);
    assert_eq!(ended.status(), 400, "{failure}");
}

/// Returns true for a login with a refresh token; without one it succeeds as well.
fn has_session(login: &Message) -> bool {
    assert_eq!(login.status(), 200, "{}", login.text());
    !login.json()["data"]["refresh_token"].is_null()
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

#[test]
fn a_server_starts_on_a_store_that_takes_nothing() {
    let Some(redis) = Redis::start() else { return };
    drop(plan(&redis.url()).ready());
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let server = plan(&redis.url()).ready();
    wait::until("the failure in /readyz", || server.store_note());
    assert_eq!(server.readiness(), 200);
    assert!(!has_session(&server.login_as("eve", "any")));
}

/// docs/store.md, "A log that cannot be read".
#[test]
fn an_unreadable_log_takes_no_logout_until_it_is_deleted() {
    const LOG: &str = "{auth:user-token}:log:revocations";
    const ENDS: &str = "{auth:user-token}:log:revocations:ends";
    const LAST: &str = "{auth:user-token}:last";
    let Some(redis) = Redis::start() else { return };
    let server = plan(&redis.url()).ready();
    let [before, token] = [(); 2].map(|()| server.login());
    assert_eq!(server.log_out(&before).status(), 200);
    redis.command(&["SET", LAST, "100000000000000"]);
    wait::until("the reason in /readyz", || server.store_note());
    assert_eq!(server.metric(STORE_UP), Some(0));
    assert_eq!(server.log_out(&token).status(), 503);
    server.command(&["revoke", "--all"]).says(78, "log");
    assert_eq!(server.logged_in().status(USER_DETAILS), 200);
    plan(&redis.url()).fails().says(78, "log");

    redis.command(&["DEL", LOG, ENDS, LAST]);
    wait::until("the store again", || server.store_note().is_none());
    assert_eq!(server.log_out(&token).status(), 200);
    let fresh = plan(&redis.url()).ready();
    for (server, token) in [(&server, &token), (&fresh, &token), (&fresh, &before)] {
        server.until_revoked(token);
    }
}

#[test]
fn logins_that_no_replica_acknowledges_leave_no_session() {
    let (Some(master), Some(replica)) = (Redis::start(), Redis::start()) else {
        return;
    };
    replica.follow(&master);
    let plan = plan(&format!("{}?wait=1", master.url())).flags(["--sessions-per-user", "3"]);
    let server = plan.ready();
    let login = || server.login_as("ada", "any");
    let session = server.session_of("ada");
    replica.signal("STOP");
    for _ in 0..10 {
        assert!(!has_session(&login()));
    }
    replica.signal("CONT");
    wait::until("sessions to begin again", || has_session(&login()));
    assert_eq!(server.refresh(&session.refresh).status(), 200);
    assert!(!server.process().stderr().contains("cause=limit"));
}

/// A restore has to happen with no server running: beside one neither it nor a command uses what stands there.
#[test]
fn a_server_whose_store_is_replaced_uses_it_no_more() {
    const LINE: &str = "its -wal is of another store.db";
    let home = tempfile::tempdir().unwrap();
    let (data, backup) = (home.path().join("data"), home.path().join("backup"));
    let store = file_store(&data);
    let run = |words: &[&str]| Program::AuthServer.run(&[words, &["--store", &store]].concat());
    let server = plan(&store).ready();
    let session = server.session_of("ada");
    run(&["store", "backup", &backup.display().to_string()]).says(0, "");
    let kept = home.path().join("kept");
    fs::copy(&backup, &kept).unwrap();
    // The last of these is in the journal still.
    let later: Vec<_> = (0..20).map(|_| server.session_of("ada")).collect();
    let database = file_store::database(&data);
    fs::rename(&backup, &database).unwrap();
    for token in [&session.access, &later[19].access, &later[19].refresh] {
        assert_eq!(server.log_out(token).status(), 503);
    }
    assert!(!has_session(&server.login_as("ada", "any")));
    wait::until("the readiness", || server.readiness() == 503);
    server.until_logged("was replaced, changed or removed under this program");
    run(&["revoke", "--user", "1"]).says(78, LINE);
    drop(server);

    plan(&store).fails().says(78, LINE);
    for ending in ["db-wal", "db-shm"] {
        let _ = fs::remove_file(database.with_extension(ending));
    }
    fs::copy(&kept, &database).unwrap();
    let restored = plan(&store).ready();
    assert_eq!(restored.refresh(&session.refresh).status(), 200);
}
