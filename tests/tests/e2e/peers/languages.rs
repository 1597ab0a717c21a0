//! The demo services behind a sidecar: none of them holds auth code, and each receives the same
//! user. The commands are those of docs/languages.md.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tests::actors::client::Request;
use tests::actors::process::{CommandLine, Process};
use tests::actors::programs::repository;
use tests::actors::sidecar::Sidecar;
use tests::actors::stack::ForgedStack;
use tests::wire::clock;
use tests::wire::raw_client::exchange;
use tests::{skip, wait};

/// Characters that headers and JSON parsers can damage.
const NICK_NAME: &str = "Žofie 小明 🦊 \"q\" \\ \u{7f}\n</script>";

/// Header lines that a service with names folded as in CGI takes for the user.
const ALIASES: [&str; 4] = [
    "X-Current-User: {\"account\":\"root\"}",
    "X_Current_User: {\"account\":\"root\"}",
    "x_current-user: {\"account\":\"root\"}",
    "X.Current.User: {\"account\":\"root\"}",
];

#[test]
fn a_service_in_each_language_reads_the_user_and_no_alias() {
    with_each_service(reads_the_user);
}

/// Services read the two texts that are compared: the path as it came, or decoded once.
#[test]
fn a_service_in_each_language_reads_the_path_that_is_compared() {
    with_each_service(reads_the_path);
}

/// Calls `check` with each service, and the address of one that is started.
fn with_each_service(check: impl Fn(&str, &str) + Sync) {
    let directory = tempfile::tempdir().unwrap();
    let python = ["python3", "service.py"];
    std::thread::scope(|scope| {
        for (language, command, how) in [
            ("python", &python[..], "python3"),
            ("wsgi", &python, "python3"),
            ("node", &["node", "service.js"], "nodejs"),
            ("java", &["java", "Service.java"], "default-jdk-headless"),
            ("php", &["php", "-S", "127.0.0.1:0", "index.php"], "php-cli"),
            ("go", &["go"], "golang-go"),
        ] {
            if !is_installed(command[0]) {
                let how = format!("apt-get install {how}");
                skip::skip(&format!("the demo service in {language}"), &how);
                continue;
            }
            let (directory, check) = (directory.path(), &check);
            scope.spawn(move || {
                let mut service = match language {
                    "go" => start(language, &[&go_service(directory)]),
                    _ => start(language, command),
                };
                let address = announced(&mut service);
                check(language, &address);
            });
        }
    });
}

/// Builds the service in Go. Not `go run`: it would be a child process of that, and outlive it.
pub(crate) fn go_service(directory: &Path) -> String {
    let program = directory.join("service").display().to_string();
    let source = demo().join("go/service.go");
    let built = with_home("go")
        .arguments(["build", "-o", &program])
        .arguments([source])
        .run();
    assert_eq!(built.code, Some(0), "{}", built.stderr);
    program
}

fn reads_the_path(language: &str, address: &str) {
    let public = ["--public-path", "/a/*/c"];
    let stack = ForgedStack::before(&format!("http://{address}"), &public);
    let mut read = 0;
    for mark in "!\"$&'()*+,-:<=>@[]^_`{|}~".chars() {
        let escape = u32::from(mark);
        let raw = (!"\"<>`{}".contains(mark)).then(|| mark.to_string());
        let escapes = [format!("%{escape:02X}"), format!("%{escape:02x}")];
        for text in escapes.into_iter().chain(raw) {
            let (path, decoded) = (
                format!("/orders/a/b{text}/c"),
                format!("/orders/a/b{mark}/c"),
            );
            let request = Request::new("GET", path.as_str()).bytes("shop.example");
            let response = exchange(stack.sidecar.address(), "GET", &request);
            // Java's server accepts no bracket, bar or circumflex.
            if response.status() != 200 {
                let verdict = response.verdict();
                assert!(
                    language == "java" && "[]|^".contains(&text),
                    "{language} {path}: {verdict}"
                );
                continue;
            }
            let seen = response.json();
            let is_compared = [&*path, &decoded].contains(&seen["path"].as_str().unwrap());
            assert!(is_compared, "{language} {path}: {seen}");
            read += 1;
        }
    }
    assert!(read >= 65, "{language}: {read}");
}

fn reads_the_user(language: &str, address: &str) {
    let stack = ForgedStack::before(
        &format!("http://{address}"),
        &["--public-path", "/public/**"],
    );
    let sidecar = &stack.sidecar;
    let anonymous = sidecar.anonymous().get("/list");
    assert_eq!(anonymous.verdict(), "401 token_missing");

    let claims = json!({"nickName": NICK_NAME, "username": "žofie"});
    let token = stack.forge.token(clock::now(), &claims);
    for aliases in [&[][..], &ALIASES] {
        let seen = fetch(sidecar, "/orders/list", Some(&token), aliases);
        assert_eq!(seen["service"], language);
        assert_eq!(seen["path"], "/orders/list");
        assert_eq!(seen["user"]["account"], "žofie", "{aliases:?}: {seen}");
        assert_eq!(seen["user"]["nickName"], NICK_NAME, "{aliases:?}: {seen}");
    }
    let seen = fetch(sidecar, "/orders/public/page", None, &ALIASES);
    assert_eq!(seen["user"], Value::Null, "{seen}");
}

pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

pub(crate) fn start(language: &str, command: &[&str]) -> Process {
    let directory = demo().join(language);
    let arguments = command[1..].iter().map(|word| {
        let file = directory.join(word);
        if file.is_file() {
            file.into_os_string()
        } else {
            OsString::from(word)
        }
    });
    with_home(command[0]).arguments(arguments).start()
}

/// Sets the home directory: Go compiles its library once, into a cache below it.
fn with_home(program: &str) -> CommandLine {
    let home = std::env::var_os("HOME").unwrap_or_else(|| "/tmp".into());
    CommandLine::new(program).environment("HOME", home)
}

/// Returns the address of the service; PHP reports it in another form, on stderr.
pub(crate) fn announced(service: &mut Process) -> String {
    wait::until("the service to say where it listens", || {
        assert!(service.ended().is_none(), "{}", service.output());
        let output = service.output();
        let after = |text: &str| {
            let (_, rest) = output.split_once(text)?;
            rest.split_once(['\n', ')'])
                .map(|(address, _)| address.trim().to_owned())
        };
        after("listening on ").or_else(|| after("Development Server (http://"))
    })
}

/// Returns the request as the service saw it, behind the sidecar.
fn fetch(sidecar: &Sidecar, path: &str, token: Option<&str>, lines: &[&str]) -> Value {
    let bearer = token.map(|token| format!("Authorization: Bearer {token}"));
    let request = Request::new("GET", path).lines(lines).lines(bearer);
    let response = exchange(sidecar.address(), "GET", &request.bytes("shop.example"));
    assert_eq!(response.status(), 200, "{}", response.text());
    response.json()
}

fn demo() -> PathBuf {
    repository().join("deploy/demo")
}

#[test]
fn the_lines_in_the_document_are_those_of_the_services() {
    let document = fs::read_to_string(repository().join("docs/languages.md")).unwrap();
    let mut displayed = Vec::new();
    for block in document.split("<!-- from: ").skip(1) {
        let (file, rest) = block.split_once(" -->\n```").unwrap();
        let (_, code) = rest.split_once('\n').unwrap();
        let (code, _) = code.split_once("```\n").unwrap();
        let source = fs::read_to_string(repository().join(file)).unwrap();
        assert!(source.contains(code), "{file} does not hold:\n{code}");
        assert!(
            code.to_lowercase()
                .replace('_', "-")
                .contains("x-current-user"),
            "{file}: the header is not in what is shown"
        );
        displayed.push(repository().join(file));
    }
    for service in services() {
        assert!(
            displayed.iter().any(|file| file.starts_with(&service)),
            "docs/languages.md shows nothing of {}",
            service.display()
        );
    }
}

#[test]
fn no_demo_service_holds_auth_code() {
    for service in services() {
        for file in files(&service) {
            let source = fs::read_to_string(&file).unwrap().to_lowercase();
            for word in ["authorization", "bearer", "jwt", "secret", "signature"] {
                assert!(!source.contains(word), "{}: {word}", file.display());
            }
        }
    }
}

fn services() -> Vec<PathBuf> {
    let entries = files(&demo());
    let directories: Vec<PathBuf> = entries.into_iter().filter(|path| path.is_dir()).collect();
    assert!(directories.len() >= 5, "{directories:?}");
    directories
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}
