//! Ten minutes at full load, with one bad request in twenty and clients that hold resources.
//!
//! Memory has to stay constant and within its documented bound, every slot has to be freed, and
//! each request has to get the right response. `make bench-soak`; exits with 1 otherwise.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a program at a terminal; a measurement that cannot be taken ends with a message"
)]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bench::keep_alive::{KeepAlive, get, get_with_token};
use bench::settings::Settings;
use serde_json::{Value, json};
use tests::abuse::Abuse;
use tests::auth_server::admin_get;
use tests::clock;
use tests::fake_auth_server::FakeAuthServer;
use tests::h2_service::H2Service;
use tests::keys::SigningType;
use tests::raw_client::exchange;
use tests::sidecar::{EVERY_SECOND, Sidecar, SidecarPlan};
use tests::socket_server::{Reply, SocketServer, response};
use tests::token_forge::Forge;
use tests::wait;

const PATH: &str = "/orders/list";
const CLIENTS: usize = 16;
/// One request in this many is bad.
const BAD: usize = 20;
/// Requests of a token before its owner gets another: the cache fills up, and keeps changing.
const REQUESTS_PER_TOKEN: usize = 5;
/// Share of the time after which memory has to stay constant.
const WARM_UP: f64 = 0.2;
const SAMPLES: u32 = 120;
/// Tolerance in mebibytes.
const TOLERANCE: f64 = 2.0;

/// A public path; its response is just below the limit of unsent bytes at the end of its handler.
const PUBLIC_PATH: &str = "/orders/public/file";
const FILE_BYTES: usize = 65_000;
/// A path with more bytes than a stream's window towards an HTTP/2 service.
const LARGE_PATH: &str = "/orders/public/large";
/// Interval between rounds of abuse; each holds its connections until the next.
const ROUND: Duration = Duration::from_secs(2);
/// A fifth of them is more than the clients with tokens need.
const MAX_REQUESTS: u32 = 100;
const MAX_CONNECTIONS: u32 = 100;
/// Short timeouts free everything soon after the last abuse.
const SHORT_TIMEOUTS: [&str; 8] = [
    "--request-header-timeout",
    "3",
    "--request-body-timeout",
    "3",
    "--downstream-write-timeout",
    "3",
    "--upstream-read-timeout",
    "3",
];
/// Bounds in mebibytes, from docs/limits.md: the process with its tables, a request, a
/// connection.
const PROCESS: f64 = 30.0;
const FOR_EACH_REQUEST: f64 = 0.75;
const FOR_EACH_REQUEST_OF_HTTP_2: f64 = 1.25;
const FOR_EACH_CONNECTION: f64 = 0.25;

fn main() -> ExitCode {
    let mut settings = Settings::from_environment(1, 600.0);
    if settings.smoke {
        settings.turn = settings.turn.max(Duration::from_secs(3));
    }
    let forge = Forge::new(SigningType::Ecdsa);
    let auth_server = FakeAuthServer::serving(&forge.trusted().served());
    let service = SocketServer::start(|request| {
        let file = [b'x'; FILE_BYTES];
        let open = request.target() == PUBLIC_PATH.as_bytes();
        Reply::Bytes(response("200 OK", &[], if open { &file } else { b"echo" }))
    });
    let http_2_service = H2Service::start();
    let in_front_of = |upstream: &str| {
        SidecarPlan::to(upstream, &auth_server.url())
            .flags(["--signing-type", "ecdsa", "--public-path", "/public/**"])
            .flags(["--max-requests", &MAX_REQUESTS.to_string()])
            .flags(["--max-connections", &MAX_CONNECTIONS.to_string()])
            .flags(SHORT_TIMEOUTS)
            .flags(EVERY_SECOND)
            .ready()
    };
    let sidecar = in_front_of(&format!("http://{}", service.address()));
    let to_http_2 = in_front_of(&http_2_service.url());
    let traffic = Traffic::default();
    let memory = thread::scope(|scope| {
        let (traffic, forge) = (&traffic, &forge);
        for client in 0..CLIENTS {
            let address = sidecar.address();
            scope.spawn(move || send(client, address, forge, traffic));
        }
        let address = to_http_2.address();
        scope.spawn(move || echo(address, forge, traffic));
        for (path, sidecar) in [(PUBLIC_PATH, &sidecar), (LARGE_PATH, &to_http_2)] {
            let address = sidecar.address();
            scope.spawn(move || hold(address, path, forge, traffic));
        }
        let memory = watch(&sidecar, &service, settings.turn, traffic);
        traffic.over.store(true, Ordering::Relaxed);
        memory
    });
    let flat = report(&memory, &traffic, &settings);
    let bounded = report_bounds(&[
        (&sidecar, FOR_EACH_REQUEST),
        (&to_http_2, FOR_EACH_REQUEST_OF_HTTP_2),
    ]);
    if flat && bounded {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Holds connections, slots and memory in every way in turn, with a token and without.
fn hold(address: SocketAddr, path: &str, forge: &Forge, traffic: &Traffic) {
    let token = forge.token(clock::now(), &Value::Null);
    let mut last = Vec::new();
    while !traffic.over.load(Ordering::Relaxed) {
        let round: Vec<_> = ["", &*token]
            .iter()
            .flat_map(|bearer| Abuse::ALL.map(|abuse| abuse.begin(address, path, bearer)))
            .collect();
        // Closes the connections of the previous round.
        drop(std::mem::replace(&mut last, round));
        thread::sleep(ROUND);
    }
}

/// Sends requests to the HTTP/2 service, which has one connection for all users.
fn echo(address: SocketAddr, forge: &Forge, traffic: &Traffic) {
    let token = forge.token(clock::now(), &Value::Null);
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: 4\r\n\r\necho"
    );
    while !traffic.over.load(Ordering::Relaxed) {
        let response = exchange(address, "POST", request.as_bytes());
        traffic.took(response.status(), 200);
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns true if every slot is free again and memory is within its bound, with the responses
/// still unread.
fn report_bounds(sidecars: &[(&Sidecar, f64)]) -> bool {
    let mut good = true;
    for (sidecar, for_each_request) in sidecars {
        let free = wait::within(wait::TIMEOUT, || {
            let metrics = admin_get(sidecar.admin(), "/metrics").text();
            metrics.contains("_requests_in_flight 0\n")
        });
        let bound = PROCESS
            + f64::from(MAX_REQUESTS) * for_each_request
            + f64::from(MAX_CONNECTIONS) * FOR_EACH_CONNECTION;
        let peak = mebibytes(sidecar.process().peak_resident_kib());
        println!(
            "at most {peak:.1} of {bound:.1} MiB resident; all places free again: {}",
            free.is_some()
        );
        good &= free.is_some() && peak <= bound;
    }
    good
}

#[derive(Default)]
struct Traffic {
    over: AtomicBool,
    responses: AtomicU64,
    /// Requests with an unexpected response.
    wrong: AtomicU64,
}

impl Traffic {
    fn took(&self, status: u16, deserved: u16) {
        self.responses.fetch_add(1, Ordering::Relaxed);
        if status != deserved {
            println!("{status} instead of {deserved}");
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Resident and anonymous memory in MiB.
#[derive(Debug, Clone, Copy)]
struct Sample {
    resident: f64,
    anonymous: f64,
}

fn watch(
    sidecar: &Sidecar,
    service: &SocketServer,
    length: Duration,
    traffic: &Traffic,
) -> Vec<Sample> {
    let began = Instant::now();
    (1..=SAMPLES)
        .map(|number| {
            let due = began + length * number / SAMPLES;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            // The service keeps every request that it receives.
            service.forget();
            let process = sidecar.process();
            let sample = Sample {
                resident: mebibytes(process.resident_kib()),
                anonymous: mebibytes(process.anonymous_kib()),
            };
            if number % 12 == 0 {
                println!(
                    "{:>4.0} s  {:>9} requests  {:.1} MiB resident  {:.1} MiB anonymous",
                    began.elapsed().as_secs_f64(),
                    traffic.responses.load(Ordering::Relaxed),
                    sample.resident,
                    sample.anonymous,
                );
            }
            sample
        })
        .collect()
}

fn mebibytes(kib: Option<u64>) -> f64 {
    let kib = kib.expect("memory in /proc");
    f64::from(u32::try_from(kib).expect("less than a TiB")) / 1024.0
}

fn report(memory: &[Sample], traffic: &Traffic, settings: &Settings) -> bool {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a few dozen samples"
    )]
    let warm = (f64::from(SAMPLES) * WARM_UP) as usize;
    let steady = memory.get(warm..).unwrap_or_default();
    let resident = rise(steady.iter().map(|sample| sample.resident));
    let anonymous = rise(steady.iter().map(|sample| sample.anonymous));
    let wrong = traffic.wrong.load(Ordering::Relaxed);
    println!(
        "after the first {:.0} s memory rose by {resident:.1} MiB (anonymous: {anonymous:.1}), at most {:.1}: {}",
        settings.turn.as_secs_f64() * WARM_UP,
        2.0 * TOLERANCE,
        settings.verdict(resident <= 2.0 * TOLERANCE),
    );
    println!(
        "{} requests, {wrong} with a wrong response",
        traffic.responses.load(Ordering::Relaxed)
    );
    let flat = settings.smoke || resident <= 2.0 * TOLERANCE;
    flat && wrong == 0
}

/// Returns the largest rise from a value to a later one: a leak rises, and a machine with other work
/// to do may let memory fall.
fn rise(values: impl Iterator<Item = f64>) -> f64 {
    let lowest_and_rise = values.fold((f64::INFINITY, 0.0_f64), |(lowest, rise), value| {
        let lowest = lowest.min(value);
        (lowest, rise.max(value - lowest))
    });
    lowest_and_rise.1
}

/// A request, its expected status, and a flag that its connection ends.
struct Deserved {
    request: Vec<u8>,
    status: u16,
    closes: bool,
}

fn send(client: usize, address: SocketAddr, forge: &Forge, traffic: &Traffic) {
    let connect = || KeepAlive::connect(address).expect("a connection");
    let bad = bad_requests(forge);
    let mut bad = bad.iter().cycle().skip(client);
    let mut connection = connect();
    for round in 0.. {
        let user = format!("{client}-{round}");
        let token = forge.token(clock::now(), &json!({"userId": user}));
        let good = Deserved {
            request: get_with_token(PATH, &token),
            status: 200,
            closes: false,
        };
        for number in (round * REQUESTS_PER_TOKEN..).take(REQUESTS_PER_TOKEN) {
            if traffic.over.load(Ordering::Relaxed) {
                return;
            }
            let deserved = if number % BAD == BAD - 1 {
                bad.next().expect("a cycle")
            } else {
                &good
            };
            let status = connection.exchange(&deserved.request);
            let status = status.unwrap_or_else(|error| panic!("no response: {error}"));
            traffic.took(status, deserved.status);
            if deserved.closes {
                connection = connect();
            }
        }
    }
}

fn bad_requests(forge: &Forge) -> Vec<Deserved> {
    let now = clock::now();
    let good = forge.token(now, &Value::Null);
    let bad = |request: Vec<u8>, status, closes| Deserved {
        request,
        status,
        closes,
    };
    let with = |token: &str| bad(get_with_token(PATH, token), 401, false);
    let twice = format!("Authorization: Bearer {good}");
    let lengths = ["Content-Length: 0"; 2];
    let long = format!("X-Long: {}", "x".repeat(200_000));
    vec![
        with("not.a.token"),
        with(&"A".repeat(4000)),
        with(&forge.token(now, &json!({"exp": now - 3600}))),
        with(&forge.untrusted_token(now, &Value::Null)),
        with(&forge.token(now, &json!({"username": 1}))),
        bad(get(PATH, &[]), 401, false),
        bad(get_with_token("/orders/%2e%2e/admin", &good), 400, false),
        bad(get(PATH, &[&twice, &twice]), 400, false),
        bad(get(PATH, &[&twice, lengths[0], lengths[1]]), 400, true),
        bad(get(PATH, &[&twice, &long]), 431, true),
        bad(b"GARBAGE\r\n\r\n".to_vec(), 400, true),
    ]
}
