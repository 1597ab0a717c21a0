//! The key-encryption key: the contents of a store with it, its introduction and rotation while
//! servers run, and the failures without it.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use tests::auth_server::{AuthServer, AuthServerPlan, file_store};
use tests::certificates::write_private;
use tests::file_store;
use tests::keys::{SigningKey, SigningType};
use tests::process::Finished;
use tests::programs::Program;
use tests::redis_server::{PRIVATE_KEY, PUBLIC_KEY, RedisServer};
use tests::users_file::UsersFile;
use tests::wait;

const MARK: &str = "postern-encrypted:1:";

/// Files with key-encryption keys.
struct Keyring(TempDir);

impl Keyring {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Returns the path of a key file: always the same key under one name.
    fn file(&self, name: char) -> String {
        let path = self.0.path().join(name.to_string());
        let digit = u32::from(name) % 10;
        write_private(&path, &format!("{digit}0{}\n", "c3".repeat(31)));
        path.display().to_string()
    }

    /// Returns the flags of a server or command that writes with one key and still reads with
    /// another.
    fn flags(&self, current: char, previous: Option<char>) -> Vec<String> {
        let mut flags = vec!["--key-encryption-key-file".to_owned(), self.file(current)];
        if let Some(previous) = previous {
            flags.push("--key-encryption-key-previous-file".to_owned());
            flags.push(self.file(previous));
        }
        flags
    }
}

fn plan(store: &str, flags: &[String]) -> AuthServerPlan {
    AuthServerPlan::new()
        .store(store)
        .flags(["--store-poll-interval", "1"])
        .flags(flags.iter().map(String::as_str))
}

fn command(words: &[&str], store: &str, flags: &[String]) -> Finished {
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    Program::AuthServer.run(&[words, &["--store", store], &flags].concat())
}

fn accepts(server: &AuthServer, token: &str) -> bool {
    server.verdict(token) == "200"
}

fn files(directory: &TempDir) -> (String, PathBuf) {
    let data = directory.path().join("data");
    (file_store(&data), data)
}

#[test]
fn no_private_key_is_in_clear_through_a_rotation() {
    for signing_type in [SigningType::Rsa, SigningType::Ecdsa] {
        let (keyring, directory) = (Keyring::new(), tempfile::tempdir().unwrap());
        let (store, data) = files(&directory);
        let mut flags = keyring.flags('1', None);
        let signing = ["--signing-type".to_owned(), signing_type.name().to_owned()];
        flags.extend(signing);
        let server = plan(&store, &flags).ready();
        let token = server.login();
        let rotated = command(&["keys", "rotate"], &store, &flags);
        assert_eq!(rotated.code, Some(0), "{}", rotated.stderr);
        server.until_logged("stored encrypted");
        for file in fs::read_dir(&data).unwrap() {
            let bytes = fs::read(file.unwrap().path()).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains("PRIVATE"));
        }
        for id in [file_store::PRIVATE, file_store::RING] {
            let value = file_store::value(&data, id).unwrap();
            assert!(value.starts_with(MARK), "{value}");
        }
        drop(server);
        assert!(accepts(&plan(&store, &flags).ready(), &token));
    }
}

#[test]
fn a_shared_secret_is_encrypted_under_both_names() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let keyring = Keyring::new();
    let mut flags = keyring.flags('1', None);
    let added = command(
        &["application", "add", "--app-id", "orders"],
        &redis.url(),
        &flags,
    );
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    flags.extend(["--signing-type".to_owned(), "hmac".to_owned()]);
    let server = plan(&redis.url(), &flags).ready();
    let token = server.login();
    let (private, public) = redis.pair();
    assert!(private.unwrap().starts_with(MARK));
    assert!(public.unwrap().starts_with(MARK));
    assert!(accepts(&server, &token));
}

#[test]
fn without_the_right_key_start_and_commands_end_clearly() {
    let (keyring, directory) = (Keyring::new(), tempfile::tempdir().unwrap());
    let (store, data) = files(&directory);
    drop(plan(&store, &keyring.flags('1', None)).ready());
    let private = || file_store::value(&data, file_store::PRIVATE);
    let before = private();
    for (flags, said) in [
        (Vec::new(), "none is configured (--key-encryption-key-file)"),
        (keyring.flags('2', None), "what is configured is"),
        (keyring.flags('2', Some('3')), "what is configured is"),
    ] {
        let start = plan(&store, &flags).fails();
        let show = command(&["keys", "show"], &store, &flags);
        let reencrypt = command(&["keys", "reencrypt"], &store, &flags);
        for end in [start, show, reencrypt] {
            assert_eq!(end.code, Some(78), "{}", end.stderr);
            let last = end.stderr.lines().last().unwrap_or_default();
            assert!(last.starts_with("error: "), "{last}");
            assert!(last.contains("store.db"), "{last}");
            assert!(last.contains(said), "{last}");
        }
    }
    assert_eq!(private(), before, "nothing is overwritten");
}

#[test]
fn the_key_is_introduced_while_servers_run_and_turned_off_again() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let (keyring, url) = (Keyring::new(), redis.url());
    let old = plan(&url, &[]).ready();
    let token = old.login();
    // A server with the key reads records in clear, warns, and leaves them to the operator.
    let with_key = plan(&url, &keyring.flags('1', None)).ready();
    assert!(accepts(&with_key, &token));
    with_key.until_logged("stored in clear");
    // What it writes, the others go on reading: also one that starts now.
    assert_eq!(with_key.log_out(&token).status(), 200);
    old.until_revoked(&token);
    plan(&url, &[]).ready().until_revoked(&token);
    let in_clear = redis.pair();
    assert!(!in_clear.0.as_ref().unwrap().starts_with(MARK));

    let done = command(&["keys", "reencrypt"], &url, &keyring.flags('1', None));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(
        done.stdout.contains("are encrypted with"),
        "{}",
        done.stdout
    );
    assert!(redis.pair().0.unwrap().starts_with(MARK));
    // A server without the new flag would miss what follows, and is not ready.
    wait::until("the old server to leave service", || old.readiness() == 503);
    old.until_logged("none is configured");
    assert_eq!(with_key.readiness(), 200);
    let rejected = command(&["keys", "rotate"], &url, &[]);
    assert_eq!(rejected.code, Some(78), "{}", rejected.stderr);

    let mut off = keyring.flags('1', None);
    off[0] = "--key-encryption-key-previous-file".to_owned();
    let rotated = command(&["keys", "rotate"], &url, &off);
    assert_eq!(rotated.code, Some(0), "{}", rotated.stderr);
    assert!(redis.pair().0.unwrap().starts_with(MARK));
    let done = command(&["keys", "reencrypt"], &url, &off);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(redis.pair(), in_clear);
    wait::until("the old server to read the store again", || {
        old.readiness() == 200 && old.store_note().is_none()
    });
    assert!(accepts(&old, &with_key.login()));
}

#[test]
fn the_key_encryption_key_rotates_while_servers_run() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let (keyring, url) = (Keyring::new(), redis.url());
    // First all servers can read the new key, then they write with it.
    let one = plan(&url, &keyring.flags('1', Some('2'))).ready();
    let token = one.login();
    let two = plan(&url, &keyring.flags('2', Some('1'))).ready();
    let before = redis.pair().0;
    let done = command(&["keys", "reencrypt"], &url, &keyring.flags('2', Some('1')));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_ne!(redis.pair().0, before);
    let three = plan(&url, &keyring.flags('2', None)).ready();
    for server in [&one, &two, &three] {
        assert!(accepts(server, &token));
        assert!(accepts(&one, &server.login()));
        assert_eq!(server.readiness(), 200);
    }
    // The first server to notice restores the lost records, encrypted.
    redis.command(&["FLUSHALL"]);
    wait::until("the keys to be back", || {
        redis.pair().0.filter(|private| private.starts_with(MARK))
    });
    assert!(accepts(&one, &token) && accepts(&three, &token));
}

#[test]
fn where_encryption_is_required_a_planted_key_is_not_adopted() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let (keyring, url) = (Keyring::new(), redis.url());
    let mut flags = keyring.flags('1', None);
    flags.push("--require-encrypted-keys".to_owned());
    let server = plan(&url, &flags).ready();
    let (token, served) = (server.login(), server.served_key());
    let planted = SigningKey::generate(SigningType::Rsa);
    redis.command(&[
        "MSET",
        PRIVATE_KEY,
        &planted.private(),
        PUBLIC_KEY,
        &planted.served(),
    ]);
    let note = wait::until("the rejection", || server.store_note());
    assert!(note.contains("not encrypted"), "{note}");
    assert_eq!(server.served_key(), served);
    assert!(accepts(&server, &token));
    let fresh = plan(&url, &flags).fails();
    assert_eq!(fresh.code, Some(78), "{}", fresh.stderr);
}

#[test]
fn sessions_and_who_leaves_are_known_under_each_key_in_turn() {
    let (keyring, home) = (Keyring::new(), tempfile::tempdir().unwrap());
    let users = UsersFile::with("ada", "enchantress");
    users.add("eve", "enchantress", &[]);
    let store = format!("file:{}", home.path().join("data").display());
    let start = |flags: &[String]| {
        let plan = plan(&store, flags).flags(["--refresh-tokens", "on", "--log-level", "debug"]);
        let server = plan.flags(["--users", &users.location()]).ready();
        server.until_logged("the store has the users of the file");
        server
    };
    let log_in = |server: &AuthServer, account: &str| {
        let response = server.login_as(account, "enchantress").json();
        let token = |name: &str| response["data"][name].as_str().unwrap().to_owned();
        (token("access_token"), token("refresh_token"))
    };
    let refresh = |server: &AuthServer, token: &str| {
        let form = format!("grant_type=refresh_token&refresh_token={token}");
        let response = server.anonymous().post_form("/oauth/token", &form);
        let next = response.json()["refresh_token"].as_str().map(str::to_owned);
        next.ok_or_else(|| response.status())
    };
    let (_, in_clear) = log_in(&start(&[]), "eve");
    let server = start(&keyring.flags('1', None));
    // Unreadable is not absent.
    assert_eq!(refresh(&server, &in_clear), Err(503));
    assert_eq!(server.log_out(&in_clear).status(), 503);
    let reencrypt = |flags: &[String]| {
        let end = command(&["keys", "reencrypt"], &store, flags);
        assert_eq!(end.code, Some(0), "{}", end.stderr);
    };
    reencrypt(&keyring.flags('1', None));
    let eve = refresh(&server, &in_clear).unwrap();
    let (ada, _) = log_in(&server, "ada");
    drop(server);
    drop(start(&keyring.flags('2', Some('1'))));
    reencrypt(&keyring.flags('2', Some('1')));
    assert_eq!(users.command("remove", "ada", &[], "").code, Some(0));
    // The record of the last start is under the new key.
    let server = start(&keyring.flags('2', None));
    server.until_revoked(&ada);
    let eve = refresh(&server, &eve).unwrap();
    drop(server);
    // Turned off, with no start in between that reads the former key.
    let flag = "--key-encryption-key-previous-file".to_owned();
    reencrypt(&[flag, keyring.file('2')]);
    assert!(refresh(&start(&[]), &eve).is_ok());
}
