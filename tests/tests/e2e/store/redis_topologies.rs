//! Redis with users, behind Sentinels, as a cluster and over TLS: real servers, and masters that
//! die.

mod tls;

use std::fs;

use tempfile::TempDir;
use tests::actors::auth_server::{AuthServer, AuthServerPlan, ECDSA, USER_DETAILS};
use tests::actors::expect::has;
use tests::actors::process::Finished;
use tests::actors::programs::Program;
use tests::services::redis_server::Redis;
use tests::services::redis_topologies::{Cluster, MASTER, SENTINEL_PASSWORD, Watched};
use tests::wait;
use tests::wire::certificates::write_private;
use tests::wire::free_address::free_address;

fn plan(url: &str, flags: &[String]) -> AuthServerPlan {
    let plan = AuthServerPlan::polling().store(url);
    plan.flags(flags)
}

fn keys(words: &[&str], url: &str, flags: &[String]) -> Finished {
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    Program::AuthServer.run(&[&["keys"], words, &["--store", url], &ECDSA, &flags].concat())
}

fn file(directory: &TempDir, name: &str, text: &str) -> String {
    let path = directory.path().join(name);
    write_private(&path, text);
    path.display().to_string()
}

/// Starts two servers that share the store.
fn two_servers(url: &str, flags: &[String]) -> [AuthServer; 2] {
    [(); 2].map(|()| plan(url, flags).ready())
}

fn flag(name: &str, value: impl Into<String>) -> [String; 2] {
    [name.to_owned(), value.into()]
}

fn sentinel_flags(directory: &TempDir) -> Vec<String> {
    let password = file(directory, "sentinel", SENTINEL_PASSWORD);
    flag("--store-sentinel-password-file", password).to_vec()
}

/// Checks that both servers serve the one key that signed `token`.
fn assert_undivided(servers: &[AuthServer; 2], token: &str) {
    assert_eq!(servers[0].served_key(), servers[1].served_key());
    for server in servers {
        assert!(server.accepts(token));
        assert!(servers[0].accepts(&server.login()));
        assert_eq!(server.readiness(), 200);
    }
}

fn wait_for_the_store(servers: &[AuthServer; 2]) {
    for server in servers {
        wait_for_store_up(server, 1);
    }
}

/// Waits until `up` is 1, after a successful poll of the store, or 0, after a failed one.
fn wait_for_store_up(server: &AuthServer, up: u64) {
    wait::until("a poll of the store", || {
        server.metric("postern_auth_server_store_up") == Some(up)
    });
}

#[test]
fn a_user_of_few_rights_is_enough_and_one_of_fewer_is_rejected() {
    let Some(redis) = Redis::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    redis.user("postern", "hush-acl-77", &[]);
    redis.user("reader", "hush-acl-77", &["-@all", "+get"]);
    let url = |user: &str| format!("redis://{user}@{}", redis.address());
    let password = file(&directory, "right", "hush-acl-77");
    let flags = flag("--store-password-file", password).to_vec();
    let server = plan(&url("postern"), &flags).ready();
    assert!(server.accepts(&server.login()));
    assert!(!server.process().output().contains("hush-acl-77"));
    let added = Program::AuthServer
        .command()
        .arguments(["application", "add", "--app-id", "orders", "--store"])
        .arguments([url("postern")])
        .arguments(&flags)
        .run();
    assert_eq!(added.code, Some(0), "{}", added.stderr);

    let wrong = flag("--store-password-file", file(&directory, "wrong", "no")).to_vec();
    for (user, flags) in [("reader", &flags), ("postern", &wrong), ("nobody", &flags)] {
        let end = plan(&url(user), flags).fails();
        assert_eq!(end.code, Some(78), "{user}: {}", end.stderr);
        assert!(!end.stderr.contains("hush-acl-77"), "{}", end.stderr);
    }
}

#[test]
fn a_changed_password_is_read_again_without_an_outage() {
    let Some(redis) = Redis::start() else { return };
    redis.command(&["CONFIG", "SET", "requirepass", "hush-first-77"]);
    let directory = tempfile::tempdir().unwrap();
    let password = file(&directory, "password", "hush-first-77");
    let flags = flag("--store-password-file", password);
    let server = plan(&redis.url(), &flags).ready();

    redis.session(&[
        &["AUTH", "hush-first-77"],
        &["CONFIG", "SET", "requirepass", "hush-second-77"],
    ]);
    let note = wait::until("the rejection", || server.store_note());
    has(&note, "authentication failed");
    assert_eq!(server.readiness(), 200, "all servers would go at once");
    assert_eq!(server.logged_in().status(USER_DETAILS), 200);
    file(&directory, "password", "hush-second-77");
    wait::until("the store again", || server.store_note().is_none());
    assert!(!server.process().output().contains("hush-"));
}

#[test]
fn the_server_that_fails_behind_sentinels_is_named() {
    let Some(mut redis) = Watched::start() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (url, flags) = (redis.url(), sentinel_flags(&directory));
    let other = url.replace(&format!("/{MASTER}"), "/other");
    keys(&["show"], &other, &flags).says(69, "it knows no master of this name");
    keys(&["show"], &url, &[]).says(78, "the Sentinel 127.0.0.1:");

    // Two of three addresses without a listener do no harm.
    let (_, hosts) = url.split_once("//").unwrap();
    let last = hosts.rsplit(',').next().unwrap();
    let url = format!(
        "redis+sentinel://{},{},{last}",
        free_address(),
        free_address()
    );
    let server = plan(&url, &flags).ready();
    assert!(server.accepts(&server.login()));

    let lost = format!("the master {}: Connection", redis.lose_servers());
    keys(&["show"], &redis.url(), &flags).says(69, &lost);
}

#[test]
fn a_server_without_a_command_that_is_needed_ends_the_start() {
    for command in ["EVAL", "ZADD"] {
        let options = ["--rename-command", command, ""];
        let Some(redis) = Redis::start_with(free_address(), &options) else {
            return;
        };
        let end = plan(&redis.url(), &[]).fails();
        end.says(78, "nknown");
        assert!(!end.stderr.contains("redis.call"), "{}", end.stderr);
    }
}

#[test]
fn a_cluster_keeps_the_keys_through_a_moved_slot() {
    let Some(redis) = Cluster::start() else {
        return;
    };
    let url = redis.url();
    let servers = two_servers(&url, &[]);
    let token = servers[0].login();
    let pair = redis.owner().pair();
    assert!(
        pair.0.is_some() && pair.1.is_some(),
        "one slot for all of them"
    );

    redis.switch();
    wait_for_the_store(&servers);
    assert_undivided(&servers, &token);
    redis.move_slot();
    assert_eq!(redis.owner().pair(), pair);
    wait_for_the_store(&servers);
    assert_undivided(&servers, &token);
    let rotated = wait::until("a rotation", || {
        let end = keys(&["rotate"], &url, &[]);
        (end.code == Some(0)).then_some(end)
    });
    has(&rotated.stdout, "signs from");
}
