//! Users of a file: who may log in, and the limit of attempts.

use std::fs;
use std::sync::mpsc;
use std::thread;

use serde_json::json;
use tests::actors::auth_server::{AuthServer, AuthServerPlan, LOGIN, USER_DETAILS};
use tests::actors::expect::has;
use tests::actors::programs::Program;
use tests::actors::sessions::PASSWORD;
use tests::actors::users_file::UsersFile;
use tests::wait;
use tests::wire::message::Message;

fn server_of(users: &UsersFile, flags: &[&str]) -> AuthServer {
    AuthServerPlan::new()
        .flags(["--users", &users.location()])
        .flags(flags)
        .ready()
}

/// Waits until the server has reloaded the file for the `times`-th time. It polls every two
/// seconds.
fn until_reread(server: &AuthServer, times: usize) {
    wait::until("the server to take over the file", || {
        server.until_logged("event=users_changed") >= times
    });
}

/// Waits until the delay after the last failure is over.
fn until_let_in(server: &AuthServer, account: &str) -> Message {
    wait::until("the end of the wait", || {
        let response = server.login_as(account, PASSWORD);
        (response.status() == 200).then_some(response)
    })
}

/// Creates a file with Ada, whose password check takes no time: the tests count the checks.
fn quickly_checked() -> UsersFile {
    let users = UsersFile::with("ada", PASSWORD);
    let entry = r#"[[user]]
account = "ada"
id = "42"
password = "$argon2id$v=19$m=8,t=1,p=1$YSBzYWx0IG9mIDE2IGJ5dA$qKOdcpNL6caJhvFPf15S8ZE/Dss9+XHe1WJZrW8bk8M"
"#;
    fs::write(users.path(), entry).unwrap();
    users
}

fn behind_a_gateway(users: &UsersFile) -> AuthServer {
    server_of(
        users,
        &["--trusted-proxy=127.0.0.1", "--login-rate-limit=0"],
    )
}

/// Logs Ada in through the gateway.
fn login_from(server: &AuthServer, address: &str, password: &str) -> Message {
    login_at(server, address, "ada", password)
}

fn login_at(server: &AuthServer, address: &str, account: &str, password: &str) -> Message {
    let client = server.anonymous();
    let request = client
        .request("POST", LOGIN)
        .line(format!("X-Forwarded-For: {address}"))
        .json(&json!({"username": account, "password": password}));
    client.send(&request)
}

#[test]
fn only_a_user_of_the_file_gets_a_token_and_it_says_who_that_is() {
    let users = UsersFile::new();
    users.add("ada", PASSWORD, &["--id=42", "--nick-name=Ada Löwe"]);
    let server = server_of(&users, &[]);
    for (account, password) in [("ada", "wrong"), ("bob", PASSWORD), ("ADA", PASSWORD)] {
        let rejected = server.login_as(account, password).verdict();
        assert_eq!(rejected, "401 login_failed", "{account} with {password}");
        // Each account has a short delay now.
    }
    let response = until_let_in(&server, "ada");
    assert_eq!(response.json()["data"]["info"]["nickName"], "Ada Löwe");
    let token = response.access_token();
    let user = server.anonymous().bearing(&token).get(USER_DETAILS).json();
    assert_eq!(user["data"]["id"], "42");
    assert_eq!(user["data"]["account"], "ada");
}

#[test]
fn a_new_password_and_the_end_of_a_user_count_at_once() {
    let users = UsersFile::with("ada", "first password");
    users.add("bob", PASSWORD, &[]);
    let server = server_of(&users, &[]);
    assert_eq!(server.login_as("ada", "first password").status(), 200);
    users.done("set-password", "ada", "second password");
    until_reread(&server, 1);
    assert_eq!(server.login_as("ada", "second password").status(), 200);
    users.done("disable", "bob", "");
    until_reread(&server, 2);
    for (account, password) in [("ada", "first password"), ("bob", PASSWORD)] {
        let rejected = server.login_as(account, password).verdict();
        assert_eq!(rejected, "401 login_failed", "{account}");
    }
    users.done("enable", "bob", "");
    until_reread(&server, 3);
    until_let_in(&server, "bob");
}

#[test]
fn a_command_for_a_missing_account_fails_before_it_prompts() {
    let users = UsersFile::with("ada", PASSWORD);
    for command in ["set-password", "disable", "enable", "remove"] {
        users.command(command, "bob", &[], "").says(64, "bob");
    }
    users
        .command("add", "ada", &["--password-stdin"], "other")
        .says(64, "");
}

#[test]
fn a_user_gets_in_while_a_whole_network_fails_in_their_name() {
    let users = quickly_checked();
    let server = behind_a_gateway(&users);
    let known = "198.51.100.250";
    assert_eq!(login_from(&server, known, PASSWORD).status(), 200);

    let addresses = (1..250).map(|host| format!("198.51.100.{host}"));
    let mut guesses = addresses.map(|from| (login_from(&server, &from, "wrong"), from));
    let rejected = guesses.find(|(response, _)| response.status() == 429);
    let (limited, rejected) = rejected.expect("one that waits though it has never failed itself");
    assert_eq!(limited.verdict(), "429 too_many_attempts");
    let wait = limited.header("retry-after").concat();
    let text = limited.text();
    assert!(text.contains(&format!("; try again in {wait} s")), "{text}");
    for address in ["203.0.113.1", "2001:db8::1", known] {
        let user = login_from(&server, address, PASSWORD);
        assert_eq!(user.status(), 200, "{address}: {}", user.text());
    }
    wait::until("a turn of the network", || {
        login_from(&server, &rejected, "wrong").status() == 401
    });
}

/// Creates a file whose passwords are checked for about a second each.
fn slowly_checked() -> UsersFile {
    let users = quickly_checked();
    let slow = "$argon2id$v=19$m=100000,t=10,p=1$YSBzYWx0IG9mIDE2IGJ5dA$qKOdcpNL6caJhvFPf15S8ZE/Dss9+XHe1WJZrW8bk8M";
    let entry =
        |n| format!("[[user]]\naccount = \"slow-{n}\"\nid = \"{n}\"\npassword = \"{slow}\"\n");
    let quick = fs::read_to_string(users.path()).unwrap();
    fs::write(users.path(), quick + &entry(1) + &entry(2)).unwrap();
    users
}

#[test]
fn a_flood_of_logins_from_many_networks_is_turned_away_and_ends() {
    let users = slowly_checked();
    let server = behind_a_gateway(&users);
    let guess = |n: usize| login_at(&server, &format!("10.{n}.0.1"), &format!("nobody-{n}"), "x");
    let owner = || login_from(&server, "192.0.2.1", "enchantress").status();
    assert_eq!(owner(), 200);
    let responses: Vec<_> = thread::scope(|scope| {
        let guesses: Vec<_> = (0..100).map(|n| scope.spawn(move || guess(n))).collect();
        // A client that has logged in before has a place of its own.
        for _ in 0..3 {
            assert_eq!(owner(), 200);
        }
        let responses = guesses.into_iter().map(|guess| guess.join().unwrap());
        responses.collect()
    });
    let count = |expected: &str| {
        let is_expected = |response: &&Message| response.verdict() == expected;
        responses.iter().filter(is_expected).count()
    };
    let (checked, away) = (count("401 login_failed"), count("503 server_busy"));
    assert_eq!(checked + away, 100);
    assert!(checked > 0 && away > 0, "{checked} {away}");
    let user = login_from(&server, "192.0.2.2", PASSWORD);
    assert_eq!(user.status(), 200);
}

/// A first login has no place of its own: it takes turns with the flood.
#[test]
fn a_flood_from_one_address_keeps_no_other_client_waiting() {
    let quick = fs::read_to_string(quickly_checked().path()).unwrap();
    let users = UsersFile::with("bob", PASSWORD);
    users.add("eve", PASSWORD, &[]);
    let slow = fs::read_to_string(users.path()).unwrap();
    fs::write(users.path(), slow + &quick).unwrap();
    let server = behind_a_gateway(&users);
    let (ended, first) = mpsc::channel();
    thread::scope(|scope| {
        for n in 0..200 {
            let (server, ended) = (&server, ended.clone());
            scope.spawn(move || {
                let guess = login_at(server, "192.0.2.1", &format!("nobody-{n}"), "x");
                ended.send(guess.verdict()).unwrap();
            });
        }
        assert_eq!(first.recv().unwrap(), "401 login_failed");
        for address in ["192.0.2.2", "198.51.100.1", "2001:db8::1"] {
            let user = login_from(&server, address, PASSWORD);
            assert_eq!(user.status(), 200, "{address}: {}", user.text());
        }
        let through = first.try_iter().count();
        assert!(through < 150, "{through} were served before");
    });
}

#[test]
fn a_gateway_that_names_no_client_is_warned_about_once() {
    let users = quickly_checked();
    for (flags, addresses, warning) in [
        (
            &[][..],
            ["198.51.100.1", "198.51.100.2"],
            "without --trusted-proxy",
        ),
        (
            &["--trusted-proxy=127.0.0.1"],
            ["nowhere", "elsewhere"],
            "of a trusted proxy holds no address",
        ),
    ] {
        let server = server_of(&users, flags);
        for address in addresses {
            login_from(&server, address, "wrong");
        }
        let output = wait::until("the second login's line", || {
            let output = server.process().output();
            (output.matches(" client=127.0.0.1").count() >= 2).then_some(output)
        });
        let line = format!("X-Forwarded-For {warning}");
        assert_eq!(output.matches(&line).count(), 1, "{output}");
        assert!(!addresses.iter().any(|it| output.contains(it)), "{output}");
    }
}

#[test]
fn a_short_password_needs_a_flag_and_the_account_is_never_one() {
    let users = UsersFile::new();
    let add = |account: &str, flags: &[&str], password: &str| {
        let flags = [flags, &["--password-stdin"]].concat();
        users.command("add", account, &flags, password)
    };
    for (password, code) in [("x", 64), ("seven77", 64), ("größer8!", 0)] {
        let end = add("ada", &[], password);
        assert_eq!(end.code, Some(code), "{password}: {}", end.stderr);
        let said = end.stderr.contains("--allow-short");
        assert_eq!(said, code == 64, "{}", end.stderr);
    }
    assert_eq!(add("bob", &["--allow-short"], "x").code, Some(0));
    let changed = users.command("set-password", "ada", &["--password-stdin"], "x");
    changed.says(64, "");
    let guessable = add("Enchantress", &[], PASSWORD);
    guessable.says(64, "the password is the account");
    assert!(!guessable.stdout.contains(PASSWORD));
}

#[test]
fn control_characters_reach_neither_the_file_nor_the_list() {
    let users = UsersFile::with("ada", PASSWORD);
    let forged = "n\u{1b}]0;pwn\u{7}\nroot\tX\tenabled\tfake";
    for flag in ["--nick-name", "--telephone", "--tenant-id", "--grade"] {
        let flags = [flag, forged, "--password-stdin"];
        let end = users.command("add", "eve", &flags, PASSWORD);
        end.says(78, "control character");
    }
    let text = fs::read_to_string(users.path()).unwrap();
    let named = "nickName = \"Ada \u{202e}O'Neil\"\n";
    let tampered = format!("{text}{named}telephone = \"\\u001b[31m\"\n");
    fs::write(users.path(), tampered).unwrap();
    let listed = users.list();
    listed.says(0, "");
    assert_eq!(listed.stdout.lines().count(), 1, "{}", listed.stdout);
    has(&listed.stdout, r#""nickName":"Ada \u202eO'Neil""#);
}

#[test]
fn passwords_of_uneven_cost_are_warned_about_and_made_even() {
    let users = UsersFile::new();
    let cheap = "$argon2id$v=19$m=8,t=1,p=1$YSBzYWx0IG9mIDE2IGJ5dA$qKOdcpNL6caJhvFPf15S8ZE/Dss9+XHe1WJZrW8bk8M";
    let costly = cheap.replace("m=8,t=1", "m=16,t=2");
    let entries = [("ada", cheap), ("bob", cheap), ("eve", &costly)].map(|(account, hash)| {
        format!("[[user]]\naccount = {account:?}\nid = {account:?}\npassword = {hash:?}\n")
    });
    fs::write(users.path(), entries.concat()).unwrap();
    let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(users.path(), owner_only).unwrap();
    let warning = "1 of 3 passwords have other argon2id parameters than most (m=8,t=1,p=1)";
    let check = Program::AuthServer.run(&["check", "--users", &users.location()]);
    has(&check.stdout, warning);
    let server = server_of(&users, &[]);
    server.until_logged(warning);

    users.done("set-password", "eve", PASSWORD);
    users.add("joe", PASSWORD, &[]);
    let text = fs::read_to_string(users.path()).unwrap();
    assert_eq!(text.matches("m=8,t=1,p=1").count(), 4, "{text}");
}

#[test]
fn a_command_waits_for_no_other_user_and_not_for_ever() {
    let users = UsersFile::with("ada", PASSWORD);
    // Any user who may read the directory can lock it.
    let directory = fs::File::open(users.path().parent().unwrap()).unwrap();
    directory.lock().unwrap();
    users.done("disable", "ada", "");

    let lock = users.path().with_extension("toml.lock");
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&lock).unwrap());
    assert_eq!(mode & 0o7777, 0o600);
    let held = fs::File::open(&lock).unwrap();
    held.lock().unwrap();
    let end = users.command("enable", "ada", &[], "");
    end.says(69, "users.toml.lock: locked by another process");
    assert_eq!(end.stderr.lines().count(), 1, "{}", end.stderr);
    drop(held);
    users.done("enable", "ada", "");
}
