//! The applications in a store that others can write to, commands that change them, and applications
//! outside of any store.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;
use tests::actors::applications::register;
use tests::actors::auth_server::{AuthServer, AuthServerPlan};
use tests::actors::expect::has;
use tests::actors::process::{CommandLine, Finished};
use tests::actors::programs::Program;
use tests::services::redis_server::{PRIVATE_KEY, Redis};
use tests::wait;
use tests::wire::certificates::write_private;

const ALL: &str = "{auth:user-token}:application:all";

/// A store, and the further flags of servers and commands.
struct Store {
    redis: Redis,
    home: TempDir,
}

impl Store {
    fn start() -> Option<Self> {
        Some(Self {
            redis: Redis::start()?,
            home: tempfile::tempdir().unwrap(),
        })
    }

    fn private_file(&self, name: &str, text: &str) -> String {
        let path = self.home.path().join(name);
        write_private(&path, text);
        path.display().to_string()
    }

    fn encryption(&self, required: bool) -> Vec<String> {
        let key = self.private_file("kek", &format!("10{}\n", "c3".repeat(31)));
        let required = required.then(|| "--require-encrypted-keys".to_owned());
        let flags = ["--key-encryption-key-file".to_owned(), key];
        flags.into_iter().chain(required).collect()
    }

    fn server(&self, flags: &[String]) -> AuthServer {
        let plan = AuthServerPlan::new()
            .store(self.redis.url())
            .flags(["--store-poll-interval", "1"])
            .flags(flags);
        plan.ready()
    }

    fn command(&self, words: &[&str], flags: &[String]) -> Finished {
        CommandLine::new(Program::AuthServer.path())
            .arguments(words)
            .arguments(["--store", &self.redis.url()])
            .arguments(flags)
            .run()
    }

    /// Returns the output of a command.
    fn done(&self, words: &[&str], flags: &[String]) -> String {
        let end = self.command(words, flags);
        assert_eq!(end.code, Some(0), "{words:?}: {}", end.stderr);
        end.stdout.trim().to_owned()
    }

    /// Returns the warnings of a command.
    fn remarks(&self, words: &[&str], flags: &[String]) -> String {
        let end = self.command(words, flags);
        assert_eq!(end.code, Some(0), "{words:?}: {}", end.stderr);
        end.stderr.trim().to_owned()
    }

    fn held(&self) -> Option<String> {
        self.redis.command(&["GET", ALL])
    }
}

fn status(server: &AuthServer, id: &str, secret: &str) -> u16 {
    let path = format!("/client/user/secret/key?appId={id}&appSecret={secret}");
    server.anonymous().status(&path)
}

fn until_status(server: &AuthServer, id: &str, secret: &str, expected: u16) {
    wait::until(&format!("{expected} for {id}"), || {
        status(server, id, secret) == expected
    });
}

/// A record that an attacker without any key can write, with its secret.
const FORGED: &str = r#"{"began":1,"generation":99,"applications":{"evil":{"secretSha256":["37QXRU10MnFez6oz2Jq9q6RFfDssvYWkogYg0M2AbaY"]}}}"#;
const EVIL: &str = "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee";

#[test]
fn a_record_that_was_planted_without_the_key_is_ignored() {
    let Some(store) = Store::start() else { return };
    let flags = store.encryption(false);
    let secret = store.done(&["application", "add", "--app-id", "orders"], &flags);
    let hmac = ["--signing-type".to_owned(), "hmac".to_owned()];
    let with_hmac = [&flags[..], &hmac].concat();
    let server = store.server(&with_hmac);
    assert_eq!(status(&server, "orders", &secret), 200);

    let genuine = store.held();
    let moved = store.redis.command(&["GET", PRIVATE_KEY]).unwrap();
    for (planted, cause) in [
        (FORGED, "not encrypted, though the store is"),
        (moved.as_str(), "encrypted for another place"),
    ] {
        store.redis.command(&["SET", ALL, planted]);
        wait::until("it to be reported", || {
            server.store_note().filter(|note| note.contains(cause))
        });
        assert_eq!(status(&server, "evil", EVIL), 401);
        assert_eq!(status(&server, "orders", &secret), 200);
        let plan = AuthServerPlan::new().store(store.redis.url());
        let fresh = plan.flags(&with_hmac).fails();
        assert_eq!(fresh.code, Some(78), "{}", fresh.stderr);
        has(&fresh.stderr, ALL);
        let file = store.private_file("another", &"a".repeat(32));
        for words in [
            &["add"][..],
            &["ensure", "--app-secret-file", &file],
            &["rotate-secret"],
            &["grant", "--audience", "stock"],
            &["remove"],
        ] {
            let words = [&["application"], words, &["--app-id", "evil"]].concat();
            let end = store.command(&words, &flags);
            assert_eq!(end.code, Some(78), "{words:?}: {}", end.stderr);
            assert_eq!(end.stdout, "");
        }
        let said = store.remarks(&["keys", "reencrypt", "--signing-type", "hmac"], &flags);
        has(&said, "1 records cannot be read");
        assert_eq!(store.held().as_deref(), Some(planted));
        // Deleted it is lost, and a running server puts the genuine ones back.
        store.redis.command(&["DEL", ALL]);
        wait::until("the note to go", || server.store_note().is_none());
        store.done(&["application", "list"], &flags);
        let fresh = store.server(&with_hmac);
        assert_eq!(status(&fresh, "orders", &secret), 200);
    }
    assert_ne!(store.held(), genuine, "sealed anew");
}

#[test]
fn a_command_logs_what_it_changed_and_its_actor() {
    let Some(store) = Store::start() else { return };
    let flags = store.encryption(false);
    let _server = store.server(&flags);
    for (words, event) in [
        ("keys rotate", "key_published"),
        ("application add APP", "application_added"),
        (
            "application rotate-secret APP",
            "application_secrets_changed",
        ),
        ("revoke --app=orders", "application_revoked"),
        ("application remove APP", "application_removed"),
    ] {
        let words = words.replace("APP", "--app-id=orders");
        let words: Vec<_> = words.split(' ').collect();
        let log = store.remarks(&words, &flags);
        let mut lines = log.lines();
        let line = lines.find(|line| line.contains(&format!("event={event} ")));
        let by = line.and_then(|line| line.split_once(" by=\""));
        assert!(by.is_some_and(|(_, by)| by.contains('@')), "{log}");
    }
}

#[test]
fn a_directory_of_applications_is_followed_file_by_file() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str, mode: u32| {
        let path = home.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let [first, second] = ["a", "b"].map(|letter| letter.repeat(32));
    write("orders", &first, 0o600);
    write("exposed", &second, 0o644);
    let directory = home.path().display().to_string();
    let flags = [
        "--applications-dir",
        &directory,
        "--store-poll-interval",
        "1",
    ];
    let server = AuthServerPlan::new().flags(flags).ready();
    let registered = register(&server, "bills");
    assert_eq!(status(&server, "orders", &first), 200);
    for (id, secret) in [
        ("orders", second.as_str()),
        ("exposed", &second),
        ("any", "pair"),
    ] {
        assert_eq!(status(&server, id, secret), 401, "{id}");
    }
    until_status(&server, "bills", &registered, 200);
    let unusable = || server.metric("postern_auth_server_application_files_unusable");
    assert_eq!(unusable(), Some(1));
    write("stock", &format!("{second}\n{first}\n"), 0o600);
    until_status(&server, "stock", &second, 200);
    assert_eq!(status(&server, "stock", &first), 200);
    write("orders", "broken", 0o600);
    wait::until("the bad file to be reported", || unusable() == Some(2));
    assert_eq!(status(&server, "orders", &first), 200);
    fs::remove_file(home.path().join("orders")).unwrap();
    until_status(&server, "orders", &first, 401);
    for name in ["stock", "exposed"] {
        fs::remove_file(home.path().join(name)).unwrap();
    }
    until_status(&server, "stock", &second, 401);
    wait::until("the end of all complaints", || unusable() == Some(0));
    wait::until("both removals to be logged", || {
        let output = server.process().output();
        output.matches("event=application_removed").count() == 2
    });
}
