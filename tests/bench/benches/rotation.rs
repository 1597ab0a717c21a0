//! Rotation without a rejection, and revocation in time: two auth servers on one store, a sidecar
//! behind each, and users who log in and work all the while. `make bench-rotation`; exits with 1
//! when a target is missed.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a program at a terminal; a measurement that cannot be taken ends with a message"
)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bench::keep_alive::{ReopenedConnection, get_with_token, post_json};
use bench::settings::Settings;
use bench::statistics::Summary;
use tempfile::TempDir;
use tests::auth_server::{AuthServer, AuthServerPlan, LOGIN, credentials, file_store};
use tests::programs::Program;
use tests::redis_server::RedisServer;
use tests::sidecar::{EVERY_SECOND, Sidecar, SidecarPlan};
use tests::socket_server::{Reply, SocketServer, response};
use tests::token_forge::header_of;
use tests::wait;

/// The product's 30 s, 150 s and 18 000 s, scaled down: a minute's tick becomes a second's.
const STORE_POLL_INTERVAL: Duration = Duration::from_secs(1);
const LEAD_SECONDS: &str = "4";
const TOKEN_LIFETIME: Duration = Duration::from_secs(8);
const TICK: Duration = Duration::from_secs(1);
/// Age of a token at its owner's next login.
const SESSION: Duration = Duration::from_secs(5);
/// Time for a fetch, a key's generation and two busy cores, on top of the configured periods.
const SLACK: Duration = Duration::from_secs(1);

const PEOPLE: u32 = 8;
/// Rate of all users together.
const REQUESTS_PER_SECOND: f64 = 640.0;
const LEAST_REQUESTS_PER_SECOND: f64 = 500.0;
/// Requests to each sidecar between two logins.
const REQUESTS_PER_LOGIN: usize = 10;
const PATH: &str = "/orders/list";

fn main() -> ExitCode {
    let settings = Settings::from_environment(5, 0.0);
    let system = System::start();
    let unbroken = rotations(&system, &settings) & revocations(&system, &settings);
    if unbroken {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Two replicas, or a single server where there is no Redis.
struct System {
    sidecars: Vec<Sidecar>,
    auth_servers: Vec<AuthServer>,
    store: String,
    service: SocketServer,
    _redis: Option<RedisServer>,
    _directory: TempDir,
}

impl System {
    fn start() -> Self {
        let (redis, own) = (
            RedisServer::start(),
            tempfile::tempdir().expect("a directory"),
        );
        let store = match &redis {
            Some(redis) => redis.url(),
            None => file_store(own.path()),
        };
        let replicas = if redis.is_some() { 2 } else { 1 };
        let auth_servers: Vec<_> = (0..replicas).map(|_| auth_server(&store)).collect();
        let service = SocketServer::start(|_| Reply::Bytes(response("200 OK", &[], b"echo")));
        let upstream = format!("http://{}", service.address());
        let sidecar = |server: &AuthServer| {
            let plan = SidecarPlan::to(&upstream, &server.url());
            plan.app_name("").flags(EVERY_SECOND).ready()
        };
        println!("{replicas} auth server(s) on {store}, a sidecar behind each");
        Self {
            sidecars: auth_servers.iter().map(sidecar).collect(),
            auth_servers,
            store,
            service,
            _redis: redis,
            _directory: own,
        }
    }

    /// Runs `auth-server keys …` and returns its output.
    fn keys(&self, arguments: &[&str]) -> String {
        let end = Program::AuthServer
            .command()
            .arguments(["keys"])
            .arguments(arguments)
            .arguments(["--store", &self.store])
            .run();
        assert_eq!(end.code, Some(0), "keys {arguments:?}: {}", end.stderr);
        end.stdout
    }
}

fn auth_server(store: &str) -> AuthServer {
    let seconds = |duration: Duration| duration.as_secs().to_string();
    AuthServerPlan::new()
        .store(store)
        .flags(["--store-poll-interval", &seconds(STORE_POLL_INTERVAL)])
        .flags(["--rotation-lead", LEAD_SECONDS])
        .flags(["--token-lifetime", &seconds(TOKEN_LIFETIME)])
        .ready()
}

/// Publishes a next key and waits until every server signs with it.
fn rotate(system: &System) {
    let printed = system.keys(&["rotate", "--rotation-lead", LEAD_SECONDS]);
    let kid = printed.split(' ').next().expect("a key id").to_owned();
    wait::until("every server to sign with the next key", || {
        let signs = |server: &AuthServer| kid_of(&server.login()) == kid;
        system.auth_servers.iter().all(signs)
    });
}

fn kid_of(token: &str) -> String {
    let header = header_of(token);
    header["kid"].as_str().expect("a key id").to_owned()
}

/// Results of all users.
#[derive(Default)]
struct Traffic {
    over: AtomicBool,
    logins: AtomicU64,
    requests: AtomicU64,
    rejections: Mutex<BTreeMap<String, u64>>,
}

impl Traffic {
    fn rejected(&self, what: String) {
        let mut rejections = self.rejections.lock().expect("no thread panicked");
        *rejections.entry(what).or_default() += 1;
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// A user who logs in at one server and works behind every sidecar.
struct Person<'t> {
    traffic: &'t Traffic,
    server: ReopenedConnection,
    sidecars: Vec<ReopenedConnection>,
    login: Vec<u8>,
}

impl Person<'_> {
    /// Runs until the end flag; each turn has its time.
    fn live(mut self, number: u32) {
        let begun = Instant::now();
        let mut turn = 0_u32;
        let pause = Duration::from_secs_f64(f64::from(PEOPLE) / REQUESTS_PER_SECOND);
        let offset = pause / PEOPLE * number;
        while !self.traffic.is_over() {
            let Some(token) = self.log_in() else { continue };
            let (request, issued) = (get_with_token(PATH, &token), Instant::now());
            for _ in 0..REQUESTS_PER_LOGIN {
                for sidecar in 0..self.sidecars.len() {
                    let due = begun + offset + pause * turn;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    turn += 1;
                    if issued.elapsed() < SESSION {
                        self.work(sidecar, &request, &token);
                    }
                }
            }
        }
    }

    fn log_in(&mut self) -> Option<String> {
        self.traffic.logins.fetch_add(1, Ordering::Relaxed);
        match self.server.exchange(&self.login) {
            Ok((200, body)) => Some(token_in(&body)),
            other => {
                self.traffic
                    .rejected(format!("login: {}", described(&other)));
                None
            }
        }
    }

    fn work(&mut self, sidecar: usize, request: &[u8], token: &str) {
        self.traffic.requests.fetch_add(1, Ordering::Relaxed);
        let outcome = self.sidecars[sidecar].exchange(request);
        if !matches!(outcome, Ok((200, _))) {
            let kid = kid_of(token);
            self.traffic
                .rejected(format!("request ({kid}): {}", described(&outcome)));
        }
    }
}

fn described(outcome: &std::io::Result<(u16, Vec<u8>)>) -> String {
    match outcome {
        Ok((status, body)) => format!("{status} {}", String::from_utf8_lossy(body)),
        Err(error) => format!("no response: {error}"),
    }
}

fn token_in(body: &[u8]) -> String {
    let envelope: serde_json::Value = serde_json::from_slice(body).expect("an envelope");
    let token = envelope["data"]["access_token"].as_str();
    token.expect("a token").to_owned()
}

/// Returns true if no request was rejected.
fn rotations(system: &System, settings: &Settings) -> bool {
    let count = settings.amount(20, 2);
    let traffic = Traffic::default();
    let begun = Instant::now();
    thread::scope(|scope| {
        for number in 0..PEOPLE {
            let server = &system.auth_servers[number as usize % system.auth_servers.len()];
            let person = Person {
                traffic: &traffic,
                server: ReopenedConnection::to(server.address()),
                login: post_json(&format!("/auth{LOGIN}"), &credentials().to_string()),
                sidecars: system
                    .sidecars
                    .iter()
                    .map(|s| ReopenedConnection::to(s.address()))
                    .collect(),
            };
            scope.spawn(move || person.live(number));
        }
        for rotation in 1..=count {
            rotate(system);
            system.service.forget();
            let seconds = begun.elapsed().as_secs_f64();
            println!("rotation {rotation} of {count} after {seconds:.0} s");
        }
        traffic.over.store(true, Ordering::Relaxed);
    });
    let seconds = begun.elapsed().as_secs_f64();
    let requests = traffic.requests.load(Ordering::Relaxed);
    let logins = traffic.logins.load(Ordering::Relaxed);
    let rejections = traffic.rejections.into_inner().expect("no thread panicked");
    let failed: u64 = rejections.values().sum();
    let rate = requests as f64 / seconds;
    println!(
        "{count} rotations in {seconds:.0} s: {requests} requests through sidecars ({rate:.0}/s), \
         {logins} logins ({:.0}/s), {failed} without a 200 (target: 0)",
        logins as f64 / seconds,
    );
    for (rejection, times) in rejections {
        println!("  {times} × {rejection}");
    }
    let busy = settings.smoke || rate >= LEAST_REQUESTS_PER_SECOND;
    if !busy {
        println!("fewer than {LEAST_REQUESTS_PER_SECOND} requests/s: this run proves nothing");
    }
    failed == 0 && busy
}

/// Returns true if every sidecar rejects a revoked key's tokens in time.
fn revocations(system: &System, settings: &Settings) -> bool {
    let bound = STORE_POLL_INTERVAL + TICK;
    let mut worst = Vec::new();
    for _ in 0..settings.rounds {
        worst.push(revocation(system).as_secs_f64());
    }
    let summary = Summary::of(&worst).expect("at least one round");
    println!(
        "revoked key: the last sidecar rejected its tokens after {summary} s; store poll {STORE_POLL_INTERVAL:?} + \
         one poll {TICK:?} = {bound:?} (asserted with {SLACK:?} for the work)"
    );
    summary.highest <= (bound + SLACK).as_secs_f64()
}

/// Measures the time from the revocation in the store until every sidecar rejects two tokens: one
/// that it has accepted many times and one that it has never seen.
fn revocation(system: &System) -> Duration {
    let used = system.auth_servers[0].login();
    let unused = system.auth_servers[0].login();
    let mut lines: Vec<_> = system
        .sidecars
        .iter()
        .map(|s| ReopenedConnection::to(s.address()))
        .collect();
    for line in &mut lines {
        for _ in 0..10 {
            assert_eq!(status(line, &used), 200, "before the revocation");
        }
    }
    system.keys(&["revoke", &kid_of(&used)]);
    let revoked = Instant::now();
    wait::until(
        "every sidecar to reject the tokens of the revoked key",
        || {
            let rejected = |line: &mut ReopenedConnection| status(line, &used) == 401;
            lines.iter_mut().all(rejected)
        },
    );
    let took = revoked.elapsed();
    for (line, server) in lines.iter_mut().zip(&system.auth_servers) {
        assert_eq!(status(line, &unused), 401, "a token that was never seen");
        assert_eq!(status(line, &server.login()), 200, "a new login");
    }
    took
}

fn status(line: &mut ReopenedConnection, token: &str) -> u16 {
    let outcome = line.exchange(&get_with_token(PATH, token));
    outcome
        .unwrap_or_else(|error| panic!("no response: {error}"))
        .0
}
