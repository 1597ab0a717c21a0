//! The key-encryption key: the contents of a store with it, its introduction and rotation while
//! servers run, and the failures without it.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use tests::actors::auth_server::{AuthServer, AuthServerPlan, file_store};
use tests::actors::expect::has;
use tests::actors::file_store;
use tests::actors::process::Finished;
use tests::actors::programs::Program;
use tests::actors::sessions::Tokens;
use tests::actors::users_file::UsersFile;
use tests::keys::{SigningKey, SigningType};
use tests::services::redis_server::{PRIVATE_KEY, PUBLIC_KEY, Redis};
use tests::wait;
use tests::wire::certificates::write_private;

const MARK: &str = "postern-encrypted:1:";

/// Files with key-encryption keys.
struct Keyring(TempDir);

impl Keyring {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Returns the flags of a server or command that encrypts with the first of these keys, and reads
    /// with all: a digit is always the same key, `-` no key.
    fn flags(&self, names: &str) -> Vec<String> {
        let line = |name: char| match name {
            '-' => "clear\n".to_owned(),
            digit => format!("{digit}0{}\n", "c3".repeat(31)),
        };
        let path = self.0.path().join(names);
        write_private(&path, &names.chars().map(line).collect::<String>());
        let path = path.display().to_string();
        vec!["--key-encryption-key-file".to_owned(), path]
    }
}

fn plan(store: &str, flags: &[String]) -> AuthServerPlan {
    AuthServerPlan::new()
        .store(store)
        .flags(["--store-poll-interval", "1"])
        .flags(flags)
}

fn command(words: &[&str], store: &str, flags: &[String]) -> Finished {
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    Program::AuthServer.run(&[words, &["--store", store], &flags].concat())
}

fn files(directory: &TempDir) -> (String, PathBuf) {
    let data = directory.path().join("data");
    (file_store(&data), data)
}

#[test]
fn no_private_key_is_in_clear_through_a_rotation() {
    let (keyring, directory) = (Keyring::new(), tempfile::tempdir().unwrap());
    let (store, data) = files(&directory);
    let flags = keyring.flags("1");
    let server = plan(&store, &flags).ready();
    let token = server.login();
    let rotated = command(&["keys", "rotate"], &store, &flags);
    assert_eq!(rotated.code, Some(0), "{}", rotated.stderr);
    server.until_logged("the store is encrypted");
    for file in fs::read_dir(&data).unwrap() {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("PRIVATE"));
    }
    for id in [file_store::PRIVATE, file_store::RING] {
        let value = file_store::value(&data, id).unwrap();
        assert!(value.starts_with(MARK), "{value}");
    }
    drop(server);
    assert!(plan(&store, &flags).ready().accepts(&token));
}

#[test]
fn a_shared_secret_is_encrypted_under_both_names() {
    let Some(redis) = Redis::start() else { return };
    let keyring = Keyring::new();
    let mut flags = keyring.flags("1");
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
    assert!(server.accepts(&token));
}

#[test]
fn without_the_right_key_start_and_commands_end_clearly() {
    let (keyring, directory) = (Keyring::new(), tempfile::tempdir().unwrap());
    let (store, data) = files(&directory);
    drop(plan(&store, &keyring.flags("1")).ready());
    let private = || file_store::value(&data, file_store::PRIVATE);
    let before = private();
    for (flags, said) in [
        (Vec::new(), "none is configured (--key-encryption-key-file)"),
        (keyring.flags("2"), "what is configured is"),
        (keyring.flags("23"), "what is configured is"),
    ] {
        let start = plan(&store, &flags).fails();
        let show = command(&["keys", "show"], &store, &flags);
        let reencrypt = command(&["keys", "reencrypt"], &store, &flags);
        for end in [start, show, reencrypt] {
            assert_eq!(end.code, Some(78), "{}", end.stderr);
            let last = end.stderr.lines().last().unwrap_or_default();
            assert!(last.starts_with("error: "), "{last}");
            has(last, "store.db");
            has(last, said);
        }
    }
    assert_eq!(private(), before, "nothing is overwritten");
}

#[test]
fn a_server_that_lacks_the_key_of_its_store_is_not_ready() {
    let Some(redis) = Redis::start() else { return };
    let (keyring, url) = (Keyring::new(), redis.url());
    let without = plan(&url, &[]).ready();
    let token = without.login();
    let with_key = plan(&url, &keyring.flags("1")).ready();
    with_key.until_logged("does not encrypt the store");
    // What it writes, the others go on reading: also one that starts now.
    assert_eq!(with_key.log_out(&token).status(), 200);
    without.until_revoked(&token);
    plan(&url, &[]).ready().until_revoked(&token);

    let done = command(&["keys", "reencrypt"], &url, &keyring.flags("1"));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    wait::until("the server to leave service", || without.readiness() == 503);
    without.until_logged("none is configured");
    with_key.until_logged("the store is being encrypted");
    assert_eq!(with_key.readiness(), 200);
    let rejected = command(&["keys", "rotate"], &url, &[]);
    assert_eq!(rejected.code, Some(78), "{}", rejected.stderr);
    // Lost records are restored as they were, by a server that can.
    let token = with_key.login();
    redis.command(&["FLUSHALL"]);
    let private = wait::until("the keys to be back", || redis.pair().0);
    assert!(private.starts_with(MARK));
    assert!(with_key.accepts(&token));
}

#[test]
fn where_encryption_is_required_a_planted_key_is_not_adopted() {
    let Some(redis) = Redis::start() else { return };
    let (keyring, url) = (Keyring::new(), redis.url());
    let mut flags = keyring.flags("1");
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
    has(&note, "not encrypted");
    assert_eq!(server.served_key(), served);
    assert!(server.accepts(&token));
    let fresh = plan(&url, &flags).fails();
    assert_eq!(fresh.code, Some(78), "{}", fresh.stderr);
}

/// Two servers of one store, each with its file of keys.
struct Pair<'a> {
    url: String,
    keyring: &'a Keyring,
    users: String,
    servers: [AuthServer; 2],
    /// A session that goes on through everything.
    lasting: Tokens,
}

impl<'a> Pair<'a> {
    fn start(url: String, keyring: &'a Keyring, users: &UsersFile) -> Self {
        let users = users.location();
        let servers = [(); 2].map(|()| one_of_two(&url, &users, &[]));
        let lasting = servers[0].session_of("eve");
        Self {
            url,
            keyring,
            users,
            servers,
            lasting,
        }
    }

    fn flags(&self, names: &str) -> Vec<String> {
        match names {
            "" => Vec::new(),
            names => self.keyring.flags(names),
        }
    }

    /// Starts one server again with these keys; at once they are both in use.
    fn restart(&mut self, server: usize, names: &str) {
        self.servers[server] = one_of_two(&self.url, &self.users, &self.flags(names));
        self.assert_served();
    }

    fn reencrypt(&mut self, names: &str) -> String {
        let done = command(&["keys", "reencrypt"], &self.url, &self.flags(names));
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        self.assert_served();
        done.stdout
    }

    /// Checks that what one server begins, the other one goes on with and ends.
    fn assert_served(&mut self) {
        for [begins, goes_on] in [[0, 1], [1, 0]].map(|it| it.map(|at| &self.servers[at])) {
            assert_eq!((begins.readiness(), goes_on.readiness()), (200, 200));
            let session = begins.session_of("ada");
            assert!(goes_on.accepts(&session.access));
            let next = goes_on.refreshed(&session).refresh;
            assert_eq!(begins.log_out(&next).status(), 200);
            assert_eq!(goes_on.refresh(&next).status(), 400);
            self.lasting = goes_on.refreshed(&self.lasting);
        }
    }
}

fn one_of_two(url: &str, users: &str, flags: &[String]) -> AuthServer {
    let plan = plan(url, flags).flags(["--refresh-tokens", "on", "--users", users]);
    plan.ready()
}

#[test]
fn one_procedure_introduces_changes_and_removes_the_key() {
    let Some(redis) = Redis::start() else { return };
    let keyring = Keyring::new();
    let users = UsersFile::with("ada", "enchantress");
    users.add("eve", "enchantress", &[]);
    let mut pair = Pair::start(redis.url(), &keyring, &users);
    let sealed = || {
        let session = redis.command(&["ZRANGE", "{auth:user-token}:index:session", "0", "0"]);
        let key = format!("{{auth:user-token}}:session:{}", session.unwrap());
        redis.command(&["GET", &key]).unwrap().starts_with(MARK)
    };
    let steps = [
        ("1", "1", "is encrypted"),
        ("21", "2", "is encrypted"),
        ("-2", "", "is in clear"),
    ];
    // The servers restart in one order, then in the other.
    let orders = [[0, 1], [1, 0]];
    for (order, (both, key, becomes)) in orders
        .into_iter()
        .flat_map(|it| steps.map(|step| (it, step)))
    {
        for server in order {
            pair.restart(server, both);
        }
        let first = pair.reencrypt(both);
        for server in &pair.servers {
            let logged = if first.contains("being") {
                "being encrypted"
            } else {
                becomes
            };
            server.until_logged(logged);
        }
        let second = pair.reencrypt(both);
        has(&second, becomes);
        for server in &pair.servers {
            server.until_logged(becomes);
        }
        pair.assert_served();
        assert_eq!(sealed(), !key.is_empty());
        for server in order {
            pair.restart(server, key);
        }
    }
}
