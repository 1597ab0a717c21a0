//! Paths that lead to no file: a pipe without a writer, and an endless device.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tests::certificates::Authority;
use tests::process::{CommandLine, Finished};
use tests::programs::Program;
use tests::tables::Verdicts;

use super::command_line::CONFIG;

/// Returns a pipe, and a link to an endless device, which root may own like any secret.
fn unreadable(home: &TempDir) -> [PathBuf; 2] {
    let [pipe, endless] = ["pipe", "endless"].map(|name| home.path().join(name));
    let made = Command::new("mkfifo")
        .args(["-m", "600"])
        .arg(&pipe)
        .status();
    assert!(made.unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
    [pipe, endless]
}

/// Returns the output unless one line names the file and the reason, and nothing has started.
fn rejected(end: &Finished, file: &Path) -> Option<String> {
    let why = ["is not a regular file", "is open to others"];
    let good = end.code == Some(CONFIG)
        && end.stderr.matches("error: ").count() == 1
        && end.stderr.contains(file.to_str().unwrap())
        && why.iter().any(|why| end.stderr.contains(why));
    (!good).then(|| format!("exit {:?}: {}{}", end.code, end.stdout, end.stderr))
}

#[test]
fn a_pipe_or_a_device_stops_a_start_and_a_check_by_name() {
    let home = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = authority.issue("one");
    let [cert, key] = [&certificate.cert, &certificate.key].map(|file| file.to_str().unwrap());
    let of_server = [
        "--auth-server=https://127.0.0.1:1/auth",
        "--app-id",
        "orders",
        "--app-secret=s",
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
        let of_issuer = [vec!["--jwks", path]]
            .map(|flags| (Program::Sidecar, [&of_issuer[..], &flags].concat()));
        let auth_server = [
            vec!["--config", path],
            vec!["--users", &users],
            vec!["--tls-cert", path, "--tls-key", key],
            vec!["--store", "rediss://127.0.0.1:1", "--store-ca", path],
            vec!["--store=redis://127.0.0.1:1", "--store-password-file", path],
        ]
        .map(|flags| (Program::AuthServer, flags));
        let rows: Vec<_> = sidecar
            .into_iter()
            .chain(of_issuer)
            .chain(auth_server)
            .collect();
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
fn explain_takes_no_fields_without_end() {
    let flags = ["explain", "/", "-H", "@-"];
    let line = CommandLine::new(Program::Sidecar.path()).arguments(flags);
    let end = line.input("X: y\n".repeat(100_000)).run();
    end.says(64, "standard input: is longer than");
}
