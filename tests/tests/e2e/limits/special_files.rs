//! Paths that lead to no file: a pipe without a writer, and an endless device.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tests::actors::process::{CommandLine, Finished};
use tests::actors::programs::Program;
use tests::tables::Verdicts;
use tests::wire::certificates::Authority;

use crate::e2e::configuration::command_line::CONFIG;

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

/// A program and the flags with a file that cannot be read, `FILE`, beside good ones.
const ROWS: &str = "
sidecar SERVER --config FILE
sidecar SERVER --tls-cert FILE --tls-key KEY
sidecar SERVER --tls-cert CERT --tls-key FILE
sidecar SERVER --tls-cert CERT --tls-key KEY --client-ca FILE
sidecar SERVER --auth-ca FILE
sidecar SERVER --upstream https://127.0.0.1:1 --upstream-ca FILE
sidecar --issuer i --audience a --jwks FILE
auth-server --config FILE
auth-server --users file:FILE
auth-server --tls-cert FILE --tls-key KEY
auth-server --store rediss://127.0.0.1:1 --store-ca FILE
auth-server --store redis://127.0.0.1:1 --store-password-file FILE";

#[test]
fn a_pipe_or_a_device_stops_a_start_and_a_check_by_name() {
    let server = "--auth-server https://127.0.0.1:1/auth --app-id orders --app-secret s";
    let home = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = authority.issue("one");
    let (cert, key) = certificate.paths();
    let mut verdicts = Verdicts::default();
    for file in unreadable(&home) {
        let rows = ROWS.replace("SERVER", server).replace("CERT", cert);
        let rows = rows
            .replace("KEY", key)
            .replace("FILE", file.to_str().unwrap());
        let ends: Vec<_> = std::thread::scope(|scope| {
            let of_row = |row: &str| {
                let (program, flags) = row.split_once(' ').unwrap();
                let program = Program::ALL.into_iter().find(|one| one.name() == program);
                ["serve", "check"].map(|command| {
                    let line = program.unwrap().command().arguments([command]);
                    let line =
                        line.arguments(["--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"]);
                    let line = line.arguments(flags.split(' '));
                    scope.spawn(move || line.run())
                })
            };
            let ends: Vec<_> = rows.trim().lines().map(|row| (row, of_row(row))).collect();
            let joined = ends
                .into_iter()
                .map(|(row, ends)| (row, ends.map(|end| end.join().unwrap())));
            joined.collect()
        });
        for (row, ends) in ends {
            for end in ends {
                verdicts.row(row, rejected(&end, &file));
            }
        }
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
