//! Sessions: the time until a fleet rejects a revoked token, the CPU of its polls, and the CPU of a
//! refresh beside those of a login and of a token for an application. `make bench-sessions`.
//!
//! A poll is a new connection with three requests, as a sidecar makes it: the key, the key set and
//! the end of the revocation list, of which the second is normally a 304.
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a program at a terminal; a measurement that cannot be taken ends with a message"
)]

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bench::cpu::{self, microseconds_each};
use bench::document;
use bench::keep_alive::{KeepAlive, get, get_with_token, post, post_json};
use bench::settings::Settings;
use bench::statistics::Summary;
use postern_token::revocations::Chain;
use tests::actors::applications::register_in;
use tests::actors::auth_server::{AuthServer, AuthServerPlan, LOGIN, SECRET_KEY, credentials};
use tests::actors::programs::{Program, repository};
use tests::actors::sidecar::{EVERY_SECOND, Sidecar, SidecarPlan};
use tests::services::redis_server::Redis;
use tests::services::socket_server::{Reply, SocketServer, response};

/// The minute of the product, scaled down.
const POLL: Duration = Duration::from_secs(1);
const SIMULATED: usize = 97;
const REAL: usize = 3;
const FLEETS: [usize; 2] = [100, 1_000];
const CONNECTIONS: usize = 8;
/// Refreshes of one session.
const REFRESHES: usize = 31;
const JWKS: &str = "/auth/.well-known/jwks.json";
const LIST: &str = "/auth/.well-known/revocations";
const TOKEN: &str = "/auth/oauth/token";
const PATH: &str = "/orders/list";

fn main() {
    let settings = Settings::from_environment(5, 0.0);
    let report = format!(
        "{}\n{}\n{}",
        revocation(&settings),
        polls(&settings),
        grants(&settings)
    );
    println!("{report}");
    if settings.write {
        let file = repository().join("docs/performance.md");
        document::write_part(&file, "sessions", &report);
    }
}

fn plan() -> AuthServerPlan {
    AuthServerPlan::new()
        .flags(["--signing-type", "ecdsa", "--refresh-tokens"])
        .flags(["--token-lifetime", "300"])
}

fn of(values: &[f64]) -> Summary {
    Summary::of(values).expect("at least one value")
}

/// Measures the times from a logout until the pollers have the new list, and until each sidecar
/// rejects the token.
fn revocation(settings: &Settings) -> String {
    let server = plan().ready();
    let service = SocketServer::start(|_| Reply::Bytes(response("200 OK", &[], b"echo")));
    let upstream = format!("http://{}", service.address());
    let start = |_| {
        let plan = SidecarPlan::to(&upstream, &server.url());
        let flags = ["--signing-type", "ecdsa"];
        let plan = plan.app_name("").flags(flags);
        plan.flags(EVERY_SECOND).ready()
    };
    let sidecars: Vec<Sidecar> = (0..REAL).map(start).collect();
    let (mut lists, mut rejections) = (Vec::new(), Vec::new());
    for _ in 0..settings.rounds {
        let (list, rejected) = one_revocation(&server, &sidecars);
        lists.extend(list);
        rejections.extend(rejected);
    }
    format!(
        "| after a logout, of {} polls a second apart | median (lowest–highest) |\n|---|---|\n\
         | seconds until a simulated sidecar has the list ({SIMULATED}, {} logouts) | {:.2} |\n\
         | seconds until a real sidecar responds 401 ({REAL}, {} logouts) | {:.2} |\n",
        SIMULATED + REAL,
        settings.rounds,
        of(&lists),
        settings.rounds,
        of(&rejections)
    )
}

fn one_revocation(server: &AuthServer, sidecars: &[Sidecar]) -> (Vec<f64>, Vec<f64>) {
    let token = server.login();
    let (begun, known) = (Barrier::new(SIMULATED + REAL + 1), cursor(server.address()));
    thread::scope(|scope| {
        let (begun, known, token) = (&begun, &known, &token);
        let poller = |number: u32| {
            move || {
                begun.wait();
                let from = Instant::now();
                // Spread over the second, as sidecars with other clocks.
                thread::sleep(POLL / 100 * number);
                while cursor(server.address()) == *known {
                    thread::sleep(POLL);
                }
                from.elapsed().as_secs_f64()
            }
        };
        let simulated = (0..u32::try_from(SIMULATED).expect("a small number"))
            .map(|number| scope.spawn(poller(number)));
        let simulated: Vec<_> = simulated.collect();
        let real = sidecars.iter().map(|sidecar| {
            scope.spawn(move || {
                let mut line = KeepAlive::connect(sidecar.address()).expect("a connection");
                let request = get_with_token(PATH, token);
                let mut status = || line.exchange(&request).expect("a response");
                assert_eq!(status(), 200, "before the logout");
                begun.wait();
                let from = Instant::now();
                while status() != 401 {
                    thread::sleep(Duration::from_millis(5));
                }
                from.elapsed().as_secs_f64()
            })
        });
        let real: Vec<_> = real.collect();
        begun.wait();
        let mut line = KeepAlive::connect(server.address()).expect("a connection");
        let status = line.exchange(&form("/auth/oauth/revoke", &[], &format!("token={token}")));
        assert_eq!(status.expect("a response"), 200, "a logout");
        let seconds = |threads: Vec<thread::ScopedJoinHandle<'_, f64>>| {
            let seconds = threads
                .into_iter()
                .map(|it| it.join().expect("it came to its end"));
            seconds.collect()
        };
        (seconds(simulated), seconds(real))
    })
}

/// Fetches the list on a connection of its own; returns the name of its lines.
fn cursor(address: SocketAddr) -> String {
    let list = fetched(address, LIST);
    let list = String::from_utf8_lossy(list.body());
    let lines = list.lines().skip(1);
    let chain = lines.fold(Chain::default(), |chain, line| chain.next(line));
    chain.cursor()
}

fn fetched(address: SocketAddr, path: &str) -> KeepAlive {
    let mut line = KeepAlive::connect(address).expect("a connection");
    assert_eq!(line.exchange(&get(path, &[])).expect("a response"), 200);
    line
}

/// Measures the CPU of the auth server for each poll of a fleet.
fn polls(settings: &Settings) -> String {
    let server = plan().ready();
    let mut list = KeepAlive::connect(server.address()).expect("a connection");
    let logout = format!("token={}", server.login());
    let status = list.exchange(&form("/auth/oauth/revoke", &[], &logout));
    assert_eq!(status.expect("a response"), 200, "a logout");
    let key = get(&format!("/auth{SECRET_KEY}"), &[]);
    let version = fetched(server.address(), JWKS);
    let version = version.header("etag").expect("a version");
    let jwks = get(JWKS, &[&format!("If-None-Match: {version}")]);
    let list = get(&format!("{LIST}?after={}", cursor(server.address())), &[]);
    let full = [(&key, 200), (&jwks, 304), (&list, 200)];
    let mut text = "| auth server's CPU for | µs a poll | ms a minute, 100 sidecars | 1,000 sidecars |\n|---|---|---|---|\n".to_owned();
    let (mut cells, mut each) = (Vec::new(), Vec::new());
    for fleet in FLEETS {
        let fleet = settings.amount(fleet, 10);
        let rounds = settings.amount(20_000 / fleet, 1);
        let cost = poll_cost(&server, &full, fleet, rounds);
        each.push(cost);
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        cells.push(format!("{:.0}", cost * fleet as f64 / 1e3));
    }
    let (each, cells) = (of(&each), cells.join(" | "));
    let _ = writeln!(text, "| the poll of each minute | {each:.0} | {cells} |");
    text
}

fn poll_cost(
    server: &AuthServer,
    requests: &[(&Vec<u8>, u16)],
    fleet: usize,
    rounds: usize,
) -> f64 {
    let process = server.process().id();
    let before = cpu::time_of(process);
    for _ in 0..rounds {
        // All connections of a round are open at once.
        let open = (0..fleet).map(|_| KeepAlive::connect(server.address()));
        let mut open: Vec<_> = open.map(|it| it.expect("a connection")).collect();
        for line in &mut open {
            for (request, expected) in requests {
                assert_eq!(line.exchange(request).expect("a response"), *expected);
            }
        }
    }
    microseconds_each(cpu::time_of(process) - before, (fleet * rounds) as u64)
}

/// Compares the CPU of the three ways to a token, in both stores.
fn grants(settings: &Settings) -> String {
    let mut text = "| CPU µs of the auth server (a second of one core) | file store | Redis |\n|---|---|---|\n".to_owned();
    let redis = Redis::start();
    let home = tempfile::tempdir().expect("a directory");
    let stores = [
        Some(tests::actors::auth_server::file_store(home.path())),
        redis.as_ref().map(Redis::url),
    ];
    let costs: Vec<_> = stores
        .iter()
        .map(|store| Some(costs(store.as_deref()?, settings)))
        .collect();
    for (row, name) in NAMES.iter().enumerate() {
        let cells: Vec<_> = costs
            .iter()
            .map(|costs| match costs {
                Some(costs) => format!("{:.0} ({:.0})", costs[row], 1e6 / costs[row]),
                None => "–".to_owned(),
            })
            .collect();
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
    text
}

const NAMES: [&str; 4] = [
    "a login without a refresh token",
    "a login with one",
    "a refresh",
    "a token for an application",
];

fn costs(store: &str, settings: &Settings) -> [f64; 4] {
    let secret = register_in(store, "jobs");
    let words = ["application", "grant", "--app-id=jobs", "--audience=x"];
    let granted = Program::AuthServer.run(&[&words[..], &["--store", store]].concat());
    assert_eq!(granted.code, Some(0), "{}", granted.stderr);
    let basic = STANDARD.encode(format!("jobs:{secret}"));
    let login = post_json(&format!("/auth{LOGIN}"), &credentials().to_string());
    let application = form(
        TOKEN,
        &[&format!("Authorization: Basic {basic}")],
        "grant_type=client_credentials",
    );
    let bare = {
        let server = AuthServerPlan::new().store(store);
        let server = server.flags(["--signing-type", "ecdsa"]).ready();
        cost(&server, settings, |line| {
            assert_eq!(line.exchange(&login).expect("a response"), 200);
        })
    };
    let server = plan().store(store).ready();
    let with = cost(&server, settings, |line| {
        assert_eq!(line.exchange(&login).expect("a response"), 200);
    });
    let refreshes = refresh_cost(&server, settings, &login);
    let applications = cost(&server, settings, |line| {
        assert_eq!(line.exchange(&application).expect("a response"), 200);
    });
    [bare, with, refreshes, applications]
}

/// Returns the CPU for each call, of several connections at once.
fn cost(server: &AuthServer, settings: &Settings, call: impl Fn(&mut KeepAlive) + Sync) -> f64 {
    let (process, count) = (server.process().id(), settings.amount(500, 5));
    let before = cpu::time_of(process);
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut line = KeepAlive::connect(server.address()).expect("a connection");
                (0..count).for_each(|_| call(&mut line));
            });
        }
    });
    microseconds_each(cpu::time_of(process) - before, (CONNECTIONS * count) as u64)
}

/// Refreshes sessions again and again. None gets more access tokens than its record has places for:
/// each further one would be a revocation as well.
fn refresh_cost(server: &AuthServer, settings: &Settings, login: &[u8]) -> f64 {
    let (process, sessions) = (server.process().id(), settings.amount(16, 1));
    let begin = |line: &mut KeepAlive| {
        assert_eq!(line.exchange(login).expect("a response"), 200);
        refresh_token(line)
    };
    let lines = (0..CONNECTIONS).map(|_| {
        let mut line = KeepAlive::connect(server.address()).expect("a connection");
        let tokens: Vec<_> = (0..sessions).map(|_| begin(&mut line)).collect();
        (line, tokens)
    });
    let lines: Vec<_> = lines.collect();
    let before = cpu::time_of(process);
    thread::scope(|scope| {
        for (mut line, tokens) in lines {
            scope.spawn(move || {
                for token in tokens {
                    refresh_often(&mut line, token);
                }
            });
        }
    });
    let count = CONNECTIONS * sessions * REFRESHES;
    microseconds_each(cpu::time_of(process) - before, count as u64)
}

fn refresh_often(line: &mut KeepAlive, mut token: String) {
    for _ in 0..REFRESHES {
        let body = format!("grant_type=refresh_token&refresh_token={token}");
        let status = line.exchange(&form(TOKEN, &[], &body));
        assert_eq!(status.expect("a response"), 200, "a refresh");
        token = refresh_token(line);
    }
}

fn refresh_token(line: &KeepAlive) -> String {
    let body: serde_json::Value = serde_json::from_slice(line.body()).expect("JSON");
    let token = [&body, &body["data"]]
        .into_iter()
        .find_map(|it| it["refresh_token"].as_str());
    token.expect("a refresh token").to_owned()
}

fn form(path: &str, lines: &[&str], body: &str) -> Vec<u8> {
    let lines = [&["Content-Type: application/x-www-form-urlencoded"], lines].concat();
    post(path, &lines, body)
}
