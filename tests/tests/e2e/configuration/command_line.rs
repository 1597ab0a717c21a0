//! Bad flags and configuration (lesson D29): one line that names the flag. Exit code 64 for a
//! malformed command line, 78 for a setting that is missing or unusable.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};
use tests::actors::auth_server::{AuthServer, file_store};
use tests::actors::expect::has;
use tests::actors::process::Finished;
use tests::actors::programs::Program;
use tests::actors::users_file::UsersFile;
use tests::tables::{Verdicts, load};
use tests::wire::certificates::write_private;
use tests::wire::free_address::free_address;

const USAGE: i32 = 64;
pub(crate) const CONFIG: i32 = 78;

/// The flags that the sidecar requires.
pub(crate) const SIDECAR: [&str; 7] = [
    "serve",
    "--auth-server",
    "http://127.0.0.1:1/auth",
    "--app-id",
    "orders",
    "--app-secret",
    "s",
];

pub(crate) fn run(program: Program, arguments: &[&str]) -> Finished {
    program.run(arguments)
}

/// The command lines of a program in `bad_flags.toml`.
#[derive(Deserialize)]
struct BadFlags {
    usage: Vec<Vec<String>>,
    config: Vec<Vec<String>>,
}

#[test]
fn an_empty_list_and_a_missing_store_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let nowhere = format!("file:{}/nowhere", directory.path().display());
    let users = directory.path().join("users.toml");
    write_private(&users, "");
    let users = format!("file:{}", users.display());
    let server = AuthServer::start();
    let store = file_store(&server.home().join("data"));
    let missing = "nowhere: is not there yet";
    let any = "any appId and appSecret get the key";
    for (words, said) in [
        (["user", "list", "--users", &nowhere], missing),
        (["application", "list", "--store", &nowhere], missing),
        (["user", "list", "--users", &users], "holds no user"),
        (["application", "list", "--store", &store], any),
    ] {
        let end = Program::AuthServer.run(&words);
        assert_eq!((end.code, &*end.stdout), (Some(0), ""), "{}", end.stderr);
        has(&end.stderr, said);
    }
}

#[test]
fn lists_are_lines_of_json() {
    let directory = tempfile::tempdir().unwrap();
    let users = UsersFile::new();
    users.add("ada", "correct horse", &["--role", "buyer"]);
    let store = file_store(directory.path());
    let add = ["application", "add", "--app-id=orders", "--store", &store];
    assert_eq!(Program::AuthServer.run(&add).code, Some(0));
    let json = |words: &[&str]| -> Value {
        let end = Program::AuthServer.run(words);
        assert_eq!(end.code, Some(0), "{}", end.stderr);
        serde_json::from_str(&end.stdout).unwrap()
    };
    let applications = json(&["application", "list", "--store", &store]);
    assert_eq!(applications, json!({"id": "orders", "secrets": 1}));
    let user = json(&["user", "list", "--users", &users.location()]);
    assert_eq!(user["account"], "ada");
    let found = (&user["enabled"], &user["roles"], user.get("password"));
    assert_eq!(found, (&json!(true), &json!(["buyer"]), None));
}

#[test]
fn a_bad_flag_is_one_line_that_names_it() {
    let mut verdicts = Verdicts::default();
    for (name, table) in load::<BTreeMap<String, BadFlags>>("bad_flags.toml") {
        let mut programs = Program::ALL.into_iter().chain([Program::Kubernetes]);
        let program = programs.find(|one| one.name() == name);
        for (code, rows) in [(USAGE, &table.usage), (CONFIG, &table.config)] {
            for row in rows {
                let words: Vec<_> = row.iter().map(String::as_str).collect();
                let (mentions, words) = words.split_last().unwrap();
                let end = program.unwrap().run(words);
                let one_line = end.stderr.lines().count() == 1 && end.stdout.is_empty();
                let hidden = !end.stderr.contains("hush");
                let said = end.stderr.contains(mentions) && hidden;
                let good = end.code == Some(code) && one_line && said;
                let difference = format!("exit {:?}, not {code}: {}", end.code, end.stderr);
                verdicts.row(&format!("{name} {row:?}"), (!good).then_some(difference));
            }
        }
    }
    verdicts.conclude();
}

#[test]
fn help_and_version_are_output_and_no_errors() {
    for program in Program::ALL {
        for flag in ["--help", "--version", "-h", "-V"] {
            let end = program.run(&[flag]);
            let found = (end.code, end.stderr.as_str());
            assert_eq!(found, (Some(0), ""), "{} {flag}", program.name());
            has(&end.stdout, program.name());
        }
    }
}

#[test]
fn healthcheck_requests_the_admin_port() {
    let server = AuthServer::start();
    let admin = server.admin().to_string();
    for (address, code) in [(admin, 0), (free_address().to_string(), 69)] {
        let end = Program::AuthServer.run(&["healthcheck", "--admin-listen", &address]);
        assert_eq!(end.code, Some(code), "{}", end.stderr);
    }
}

/// Returns the exit code and the error line of a command whose standard output is `stdout`.
fn end_with(program: Program, words: &[&str], stdout: impl Into<Stdio>) -> (Option<i32>, String) {
    let mut command = Command::new(program.path());
    command.args(words).env_clear().stdin(Stdio::null());
    command.stdout(stdout).stderr(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), complaint)
}

#[test]
fn a_closed_reader_is_no_failure_and_a_full_disk_is() {
    let check = [&["check"], &SIDECAR[1..]].concat();
    for (program, words) in [
        (Program::AuthServer, &["check"][..]),
        (Program::Sidecar, &check),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, result) = end_with(program, words, writer);
        assert_eq!(code, Some(0), "{result}");
        assert!(result.starts_with("usable, "), "{result}");
        let full = std::fs::File::create("/dev/full").unwrap();
        let (code, complaint) = end_with(program, words, full);
        assert_eq!(code, Some(70), "{complaint}");
        assert!(
            complaint.starts_with("error: standard output: "),
            "{complaint}"
        );
    }
}

#[test]
fn a_new_secret_that_cannot_be_printed_is_a_failure() {
    let directory = tempfile::tempdir().unwrap();
    let store = file_store(directory.path());
    for command in ["add", "rotate-secret"] {
        let words = ["application", command, "--app-id=orders", "--store", &store];
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, complaint) = end_with(Program::AuthServer, &words, writer);
        assert_eq!(code, Some(70), "{command}: {complaint}");
        has(&complaint, "the secret of --app-id orders is lost");
    }
}
