//! Files without an end: a pipe without a writer, and an endless device.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;
use tests::auth_server::{AuthServerPlan, LOGIN};
use tests::certificates::{Authority, write_private};
use tests::clock;
use tests::echo_service::EchoService;
use tests::keys::SigningType;
use tests::process::{CommandLine, Finished, Process};
use tests::programs::Program;
use tests::sidecar::{EVERY_SECOND, SidecarPlan};
use tests::tables::Verdicts;
use tests::token_forge::Forge;
use tests::users_file::UsersFile;
use tests::wait;

use super::command_line::CONFIG;

const HANGS: &str = "reading takes too long";

/// Replaces `file` in one step by a pipe that only its owner may read.
fn hang(file: &Path) {
    let pipe = file.with_extension("pipe");
    let made = Command::new("mkfifo")
        .args(["-m", "600"])
        .arg(&pipe)
        .status();
    assert!(made.unwrap().success());
    fs::rename(pipe, file).unwrap();
}

/// Replaces the pipe by a file.
fn repair(file: &Path, text: &str) {
    let new = file.with_extension("new");
    write_private(&new, text);
    fs::rename(new, file).unwrap();
}

/// Returns the number of log lines about one of the files.
fn complaints(process: &Process, file: &Path) -> usize {
    let (log, file) = (process.output(), file.display().to_string());
    log.lines()
        .filter(|line| line.contains(HANGS) && line.contains(&file))
        .count()
}

fn until_complained(process: &Process, file: &Path) {
    wait::until("the complaint", || {
        (complaints(process, file) > 0).then_some(())
    });
}

fn ends_by_itself(process: Process) {
    process.terminate();
    assert_eq!(process.finished().code, Some(0));
}

#[test]
fn a_sidecar_serves_on_while_its_files_hang() {
    let home = tempfile::tempdir().unwrap();
    let (config, keys) = (home.path().join("s.toml"), home.path().join("keys.pem"));
    let (first, second) = (
        Forge::new(SigningType::Ecdsa),
        Forge::new(SigningType::Ecdsa),
    );
    repair(&config, "public-path = [\"/first\"]");
    repair(&keys, &first.trusted().served());
    let service = EchoService::start();
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--public-key-file",
        keys.to_str().unwrap(),
        "--algorithms",
        "ES256",
        "--issuer",
        "auth",
        "--audience",
        "orders",
        "--lame-duck",
        "0",
    ];
    let flags = flags.iter().chain(&EVERY_SECOND);
    let sidecar = SidecarPlan::of_issuer(&service, flags).start().ready();
    let open = |path: &str| sidecar.anonymous().get(path).status();
    let known = |forge: &Forge| {
        let token = forge.token(clock::now(), &json!({"iss": "auth", "aud": "orders"}));
        sidecar.bearing(&token).get("/a").status()
    };
    assert_eq!(
        (open("/first"), known(&first), known(&second)),
        (200, 200, 401)
    );

    hang(&config);
    hang(&keys);
    until_complained(sidecar.process(), &config);
    until_complained(sidecar.process(), &keys);
    assert_eq!(
        (open("/first"), known(&first), known(&second)),
        (200, 200, 401)
    );

    repair(&config, "public-path = [\"/second\"]");
    repair(&keys, &second.trusted().served());
    wait::until("the other configuration and the other key", || {
        let now = (open("/first"), open("/second"), known(&second));
        (now == (401, 200, 200)).then_some(())
    });
    assert_eq!(complaints(sidecar.process(), &config), 1);

    hang(&config);
    hang(&keys);
    wait::until("the configuration to hang again", || {
        (complaints(sidecar.process(), &config) > 1).then_some(())
    });
    ends_by_itself(sidecar.into_process());
}

#[test]
fn an_auth_server_serves_on_while_its_files_hang() {
    let users = UsersFile::with("ada", "enchantress");
    let (authority, text) = (Authority::new(), fs::read_to_string(users.path()).unwrap());
    let certificate = authority.issue("auth");
    let server = AuthServerPlan::new()
        .flags(["--users", &users.location(), "--lame-duck", "0"])
        .tls(&authority, &certificate)
        .start()
        .ready();
    let logs_in = |password: &str| {
        let credentials = json!({"username": "ada", "password": password});
        server.anonymous().post(LOGIN, &credentials).status() == 200
    };
    hang(&users.path());
    hang(&certificate.key);
    until_complained(server.process(), &users.path());
    until_complained(server.process(), &certificate.key);
    assert!(logs_in("enchantress"));

    let fresh = authority.issue("other");
    fs::copy(&fresh.cert, &certificate.cert).unwrap();
    repair(&certificate.key, &fs::read_to_string(&fresh.key).unwrap());
    repair(&users.path(), &text);
    for line in [
        "TLS certificate: the new content is used from now on",
        "users file: usable again",
    ] {
        wait::until(line, || {
            server.process().output().contains(line).then_some(())
        });
    }
    assert_eq!(complaints(server.process(), &users.path()), 1);
    assert_eq!(complaints(server.process(), &certificate.key), 1);
    assert!(logs_in("enchantress"));

    hang(&users.path());
    wait::until("the file of users to hang again", || {
        (complaints(server.process(), &users.path()) > 1).then_some(())
    });
    ends_by_itself(server.into_process());
}

/// Returns a pipe, and a link to an endless device, which root may own like any secret.
fn unreadable(home: &TempDir) -> [PathBuf; 2] {
    let [pipe, endless] = ["pipe", "endless"].map(|name| home.path().join(name));
    hang(&pipe);
    std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
    [pipe, endless]
}

/// Returns the output unless one line names the file and the reason, and nothing has started.
fn rejected(end: &Finished, file: &Path) -> Option<String> {
    let why = [HANGS, "is longer than", "is open to others"];
    let good = end.code == Some(CONFIG)
        && end.stderr.matches("error: ").count() == 1
        && end.stderr.contains(file.to_str().unwrap())
        && why.iter().any(|why| end.stderr.contains(why));
    (!good).then(|| format!("exit {:?}: {}{}", end.code, end.stdout, end.stderr))
}

#[test]
fn a_file_that_hangs_stops_a_start_and_a_check_by_name() {
    let home = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = authority.issue("one");
    let [cert, key] = [&certificate.cert, &certificate.key].map(|file| file.to_str().unwrap());
    let of_server = [
        "--auth-server",
        "https://127.0.0.1:1/auth",
        "--app-id",
        "orders",
        "--app-secret",
        "s",
    ];
    let of_issuer = ["--issuer", "i", "--audience", "a"];
    let mut verdicts = Verdicts::default();
    for file in unreadable(&home) {
        let path = file.to_str().unwrap();
        let users = format!("file:{path}");
        let sidecar = [
            vec!["--config", path],
            vec!["--tls-cert", path, "--tls-key", key],
            vec!["--tls-cert", cert, "--tls-key", path],
            vec!["--tls-cert", cert, "--tls-key", key, "--client-ca", path],
            vec!["--auth-ca", path],
            vec!["--upstream", "https://127.0.0.1:1", "--upstream-ca", path],
        ]
        .map(|flags| (Program::Sidecar, [&of_server[..], &flags].concat()));
        let of_issuer = [
            vec!["--jwks-file", path],
            vec!["--public-key-file", path, "--algorithms", "ES256"],
        ]
        .map(|flags| (Program::Sidecar, [&of_issuer[..], &flags].concat()));
        let auth_server = [
            vec!["--config", path],
            vec!["--users", &users],
            vec!["--tls-cert", path, "--tls-key", key],
            vec!["--store", "rediss://127.0.0.1:1", "--store-ca", path],
            vec![
                "--store",
                "redis://127.0.0.1:1",
                "--store-password-file",
                path,
            ],
        ]
        .map(|flags| (Program::AuthServer, flags));
        let rows: Vec<_> = sidecar
            .into_iter()
            .chain(of_issuer)
            .chain(auth_server)
            .collect();
        // Each run waits for seconds, and uses no CPU.
        std::thread::scope(|scope| {
            let ends = ["serve", "check"].map(|command| {
                let start = |(program, flags): &(Program, Vec<&str>)| {
                    let line = CommandLine::new(program.path())
                        .arguments([command, "--listen", "127.0.0.1:0"])
                        .arguments(["--admin-listen", "127.0.0.1:0"])
                        .arguments(flags);
                    let name = format!("{command} {flags:?}");
                    scope.spawn(move || (name, line.run()))
                };
                rows.iter().map(start).collect::<Vec<_>>()
            });
            for end in ends.into_iter().flatten() {
                let (name, end) = end.join().unwrap();
                verdicts.row(&name, rejected(&end, &file));
            }
        });
    }
    verdicts.conclude();
}

#[test]
fn a_command_gives_up_a_file_that_hangs_or_never_ends() {
    let home = tempfile::tempdir().unwrap();
    let mut verdicts = Verdicts::default();
    for file in unreadable(&home) {
        let path = file.to_str().unwrap();
        let users = format!("file:{path}");
        for (program, words) in [
            (
                Program::AuthServer,
                &["token", "inspect", "--key-file", path][..],
            ),
            (Program::AuthServer, &["user", "list", "--users", &users]),
        ] {
            let line = CommandLine::new(program.path()).arguments(words);
            let end = line.input("a.b.c\n").run();
            verdicts.row(&format!("{words:?}"), rejected(&end, &file));
        }
    }
    verdicts.conclude();
}

#[test]
fn explain_takes_no_fields_without_end() {
    let flags = ["explain", "/", "-H", "@-"];
    let line = CommandLine::new(Program::Sidecar.path()).arguments(flags);
    let end = line.input("X: y\n".repeat(100_000)).run();
    assert_eq!(end.code, Some(64), "{}", end.stdout);
    assert!(
        end.stderr.contains("standard input: is longer than"),
        "{}",
        end.stderr
    );
}
