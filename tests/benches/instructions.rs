//! Instruction counts of the sidecar for a request of each kind.
//!
//! Counted by valgrind, so that a busy machine gives the same figures as an idle one. Growth by
//! more than the tolerance of `data/instructions.toml` fails.
//!
//! System calls are not counted, and cryptography runs without the newest vector instructions,
//! which valgrind does not know.
//!
//! `make bench-instructions` builds the sidecar as it is released and names it in
//! `POSTERN_BENCH_SIDECAR`.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program of one purpose, which ends when something is missing"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};
use tests::clock;
use tests::echo_service::EchoService;
use tests::fake_auth_server::FakeAuthServer;
use tests::keys::SigningType;
use tests::message::Message;
use tests::programs::repository;
use tests::sidecar::{NEVER, Sidecar, SidecarPlan};
use tests::token_forge::Forge;

/// Spreads occasional work (a table that grows) thin.
const REQUESTS: usize = 400;
/// Requests that fill pools and tables before the counting begins.
const WARM_UP: usize = 50;

fn main() -> ExitCode {
    let Some(sidecar) = std::env::var_os("POSTERN_BENCH_SIDECAR").map(PathBuf::from) else {
        println!("POSTERN_BENCH_SIDECAR is not set: run `make bench-instructions`");
        return ExitCode::FAILURE;
    };
    let limits: Limits = read_limits();
    let (forge, service) = (Forge::new(SigningType::Rsa), EchoService::start());
    let auth_server = FakeAuthServer::serving(&forge.trusted().served());
    let race = |patterns: usize, rows: &[Row]| {
        let pass: Vec<_> = (0..patterns).map(|n| format!("/static-{n}/**")).collect();
        let plan = SidecarPlan::new(&service, &auth_server.url())
            .flags(NEVER)
            .public_paths(pass);
        count(plan, &sidecar, &forge, &service, rows)
    };
    let mut counted = race(1, &ROWS);
    counted.extend(race(1000, &WITH_A_LONG_PASS_LIST));
    report(&limits, &counted)
}

/// One kind of request.
struct Row {
    name: &'static str,
    path: &'static str,
    token: Token,
    status: u16,
}

enum Token {
    None,
    Known,
    New,
    /// Three parts, the right header, and a signature of no key.
    Garbage,
}

const ROWS: [Row; 6] = [
    Row {
        name: "known-token",
        path: "/orders/list",
        token: Token::Known,
        status: 200,
    },
    Row {
        name: "new-token",
        path: "/orders/list",
        token: Token::New,
        status: 200,
    },
    Row {
        name: "garbage-token",
        path: "/orders/list",
        token: Token::Garbage,
        status: 401,
    },
    Row {
        name: "no-token",
        path: "/orders/list",
        token: Token::None,
        status: 401,
    },
    Row {
        name: "passed",
        path: "/orders/static-0/a.css",
        token: Token::None,
        status: 200,
    },
    Row {
        name: "user-details",
        path: "/orders/current/user/details",
        token: Token::Known,
        status: 200,
    },
];

const WITH_A_LONG_PASS_LIST: [Row; 2] = [
    Row {
        name: "known-token-1000-patterns",
        path: "/orders/list",
        token: Token::Known,
        status: 200,
    },
    Row {
        name: "passed-1000-patterns",
        path: "/orders/static-999/a.css",
        token: Token::None,
        status: 200,
    },
];

/// Returns the instructions for one request of each row.
fn count(
    plan: SidecarPlan,
    program: &Path,
    forge: &Forge,
    service: &EchoService,
    rows: &[Row],
) -> Vec<(&'static str, u64)> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("counts");
    let valgrind = [
        "valgrind",
        "--tool=callgrind",
        "--instr-atstart=no",
        &format!("--callgrind-out-file={}", file.display()),
        program.to_str().unwrap(),
    ];
    let sidecar = plan.under(valgrind).ready();
    control(&sidecar, "--instr=on");
    let mut dumps = 0;
    rows.iter()
        .map(|row| {
            let mut client = Connection::open(&sidecar);
            let requests = requests(row, forge);
            let (warm_up, counted) = requests.split_at(WARM_UP);
            client.send_all(warm_up, row.status);
            control(&sidecar, "--zero");
            client.send_all(counted, row.status);
            control(&sidecar, "--dump");
            service.take_requests();
            dumps += 1;
            let dump = file.with_extension(dumps.to_string());
            (row.name, total(&dump) / REQUESTS as u64)
        })
        .collect()
}

fn requests(row: &Row, forge: &Forge) -> Vec<Vec<u8>> {
    let now = clock::now();
    let known = forge.token(now, &Value::Null);
    (0..WARM_UP + REQUESTS)
        .map(|n| {
            let token = match row.token {
                Token::None => None,
                Token::Known => Some(known.clone()),
                Token::New => Some(forge.token(now, &json!({"jti": n.to_string()}))),
                Token::Garbage => {
                    let (header, _) = known.split_once('.').unwrap();
                    Some(format!("{header}.{n:0500}.{n:0342}"))
                }
            };
            let field = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
            let field = field.unwrap_or_default();
            format!(
                "GET {} HTTP/1.1\r\nHost: orders.example\r\nUser-Agent: bench\r\nAccept: */*\r\n{field}\r\n",
                row.path
            )
            .into_bytes()
        })
        .collect()
}

/// A client that stays connected.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(sidecar: &Sidecar) -> Self {
        Self(BufReader::new(
            TcpStream::connect(sidecar.address()).unwrap(),
        ))
    }

    fn send_all(&mut self, requests: &[Vec<u8>], status: u16) {
        for request in requests {
            self.0.get_mut().write_all(request).unwrap();
            let response = Message::read_response(&mut self.0, "GET").unwrap().unwrap();
            assert_eq!(response.status(), status, "{}", response.text());
        }
    }
}

fn control(sidecar: &Sidecar, what: &str) {
    let done = Command::new("callgrind_control")
        .args([what, &sidecar.process().id().to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(done.unwrap().success(), "callgrind_control {what}");
}

fn total(dump: &Path) -> u64 {
    let text = fs::read_to_string(dump).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("totals: "));
    line.unwrap().parse().unwrap()
}

/// The contents of `data/instructions.toml`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Limits {
    tolerance_percent: u64,
    instructions: BTreeMap<String, u64>,
}

fn read_limits() -> Limits {
    let path = repository().join("tests/data/instructions.toml");
    toml::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn report(limits: &Limits, counted: &[(&str, u64)]) -> ExitCode {
    let mut grown = false;
    println!("{:<28}{:>10}{:>10}", "instructions for", "now", "recorded");
    for (name, now) in counted {
        let recorded = limits.instructions.get(*name).copied().unwrap_or_default();
        let max = recorded * (100 + limits.tolerance_percent) / 100;
        let least = recorded * (100 - limits.tolerance_percent) / 100;
        let remark = match now {
            now if *now > max => "  grown",
            now if *now < least => "  record the new figure in tests/data/instructions.toml",
            _ => "",
        };
        grown |= *now > max;
        println!("{name:<28}{now:>10}{recorded:>10}{remark}");
    }
    if grown {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
