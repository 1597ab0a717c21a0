//! A log without a reader: a log driver that hangs, a pipe whose reader pauses.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use tests::actors::auth_server::{admin_get, file_store};
use tests::actors::client::Request;
use tests::actors::expect::has;
use tests::actors::process::{CommandLine, Process};
use tests::actors::programs::Program;
use tests::actors::token_forge::Forge;
use tests::keys::SigningType;
use tests::services::echo_service::EchoService;
use tests::wait;
use tests::wire::raw_client::{self, RawClient};

/// A program whose standard error is a pipe, and the pipe.
struct Unread {
    process: Process,
    address: SocketAddr,
    admin: SocketAddr,
    pipe: File,
    _home: TempDir,
}

impl Unread {
    fn start(program: Program, flags: &[&str], home: TempDir) -> Self {
        let path = home.path().join("log");
        let made = Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        // Opened for writing as well, the open does not wait for a writer.
        let pipe = OpenOptions::new().read(true).write(true).open(&path);
        let mut process = CommandLine::new("sh")
            .arguments(["-c", "exec \"$0\" \"$@\" 2>\"$PIPE\""])
            .arguments([program.path()])
            .arguments(["serve", "--listen", "127.0.0.1:0"])
            .arguments(["--admin-listen", "127.0.0.1:0", "--access-log", "all"])
            .arguments(flags)
            .environment("PIPE", &path)
            .start();
        let mut announced = |prefix: &str| process.announced(prefix).trim().parse().unwrap();
        let (address, admin) = (announced("listening on "), announced("admin listening on "));
        Self {
            process,
            address,
            admin,
            pipe: pipe.unwrap(),
            _home: home,
        }
    }

    fn status(&self, target: &str) -> u16 {
        let request = Request::new("GET", target).bytes(&self.address.to_string());
        raw_client::exchange(self.address, "GET", &request).status()
    }

    fn dropped_lines(&self) -> u64 {
        let metrics = admin_get(self.admin, "/metrics").text();
        let line = metrics
            .lines()
            .find(|line| !line.starts_with('#') && line.contains("_log_lines_dropped_total "));
        line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Fills the pipe and its buffer with log lines, through rejected requests for `target`; each has
    /// its line, unlike those of a program that logs rejections alone.
    fn fill(&self, target: &str) {
        const AT_ONCE: usize = 100;
        let mut client = RawClient::connect(self.address);
        let request = Request::new("GET", target).bytes(&self.address.to_string());
        wait::until("dropped lines", || {
            client.send(&request.repeat(AT_ONCE));
            for _ in 0..AT_ONCE {
                assert_eq!(client.response("GET").status(), 401);
            }
            self.dropped_lines() > 0
        });
    }

    fn ends_by_itself(self) {
        self.process.terminate();
        assert_eq!(self.process.finished().code, Some(0));
    }
}

fn auth_server() -> Unread {
    let home = tempfile::tempdir().unwrap();
    let store = file_store(&home.path().join("data"));
    Unread::start(Program::AuthServer, &["--store", &store], home)
}

fn sidecar(service: &EchoService) -> Unread {
    let home = tempfile::tempdir().unwrap();
    let keys = home.path().join("keys.pem");
    std::fs::write(&keys, Forge::new(SigningType::Ecdsa).trusted().served()).unwrap();
    let flags = [
        "--upstream",
        &service.url(),
        "--jwks",
        path(&keys),
        "--issuer=auth",
        "--audience",
        "orders",
        "--public-path=/open",
    ];
    Unread::start(Program::Sidecar, &flags, home)
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_sidecar_whose_log_is_not_read_serves_on_and_ends() {
    let service = EchoService::start();
    let sidecar = sidecar(&service);
    sidecar.fill("/closed");
    assert_eq!(sidecar.status("/open"), 200);
    sidecar.ends_by_itself();
}

#[test]
fn a_flood_of_other_lines_costs_no_audit_line() {
    const LOGINS: usize = 40;
    let server = auth_server();
    server.fill("/auth/current/user/details");
    assert_eq!(admin_get(server.admin, "/readyz").status(), 200);
    let login = Request::new("POST", "/auth/oauth/jwt/token")
        .line("Content-Type: application/json")
        .body(r#"{"username": "ada", "password": "x"}"#)
        .bytes(&server.address.to_string());
    for _ in 0..LOGINS {
        let response = raw_client::exchange(server.address, "POST", &login);
        assert_eq!(response.status(), 200);
    }
    let log = BufReader::new(server.pipe.try_clone().unwrap());
    let logins = log.lines().map(Result::unwrap);
    let logins = logins.filter(|line| line.contains("login_succeeded"));
    assert_eq!(logins.take(LOGINS).count(), LOGINS);
    let metrics = admin_get(server.admin, "/metrics").text();
    has(&metrics, "_audit_lines_dropped_total 0\n");
    server.ends_by_itself();
}

#[test]
fn the_log_counts_the_missing_lines_once_it_is_read_again() {
    let service = EchoService::start();
    let sidecar = sidecar(&service);
    sidecar.fill("/closed");
    let log = BufReader::new(sidecar.pipe.try_clone().unwrap());
    let lines = log.lines().map(Result::unwrap);
    let line = lines
        .into_iter()
        .find(|line| line.contains("the log was not read"));
    // A request's line may be dropped after its response: count once no line is dropped any more.
    let dropped = sidecar.dropped_lines();
    assert!(line.unwrap().contains(&format!("lines={dropped}")));
    sidecar.ends_by_itself();
}
