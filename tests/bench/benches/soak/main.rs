//! Ten minutes of mixed traffic, with clients and services that are bad, slow or die,
//! reloads, and at the end a stop in the middle of it.
//!
//! Each request has to get the response that it deserves, memory has to stay constant and within
//! its documented bound, and every permit has to be free at the end. `make bench-soak`; exits with
//! 1 otherwise.
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a program at a terminal; a measurement that cannot be taken ends with a message"
)]

mod clients;
mod ledger;
mod service;
mod work;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bench::settings::Settings;
use tests::actors::sidecar::{EVERY_SECOND, Sidecar, SidecarPlan};
use tests::actors::token_forge::Forge;
use tests::keys::SigningType;
use tests::services::fake_auth_server::FakeAuthServer;
use tests::services::h2_service::H2Service;
use tests::wait;
use tests::wire::h2_frames::FrameClient;

use self::clients::{Client, Soak, leave, leave_streams, over_http1, over_http2, streams, tunnels};
use self::ledger::Ledger;
use self::work::{LEFT, Mix, STREAMS, TO_HTTP_1, TO_HTTP_2, TUNNELS};

/// Time for some reloads, and for rounds of abuse.
const SMOKE: Duration = Duration::from_secs(6);
const SAMPLES: u32 = 120;
/// Samples before memory has to stay constant, and the tolerance in mebibytes.
const WARM_UP: usize = 24;
const TOLERANCE: f64 = 4.0;
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);
/// In turn. Each change of the issuer has all tokens verified again.
const CONFIGURATIONS: [&str; 2] = [
    "public-path = [\"/public/**\"]\nissuer = \"auth\"",
    "public-path = [\"/public/**\", \"/more/**\"]",
];
/// Two clients that hold all they can leave a ninth, which is more than the others need.
const MAX_REQUESTS: u32 = 200;
const MAX_CONNECTIONS: u32 = 100;
/// Bounds in mebibytes, from docs/limits.md: the process with its tables, a connection, and a
/// request to a service of each version.
const PROCESS: f64 = 30.0;
const FOR_EACH_CONNECTION: f64 = 0.25;
const FOR_EACH_REQUEST: [f64; 2] = [0.75, 1.25];

/// A name, the number of these clients, their pause in milliseconds, and their requests.
type Kind = (&'static str, usize, u64, Mix, fn(&Client<'_>));

/// The clients of the sidecar in front of a service of each version.
const CLIENTS: [&[Kind]; 2] = [
    &[
        ("HTTP/1.1", 8, 0, TO_HTTP_1, over_http1),
        ("HTTP/2", 2, 10, TO_HTTP_1, over_http2),
        ("WebSocket", 2, 10, TUNNELS, tunnels),
        ("HTTP/1.1", 1, 50, LEFT, leave),
        ("HTTP/2", 1, 50, LEFT, leave_streams),
    ],
    &[
        ("HTTP/1.1 to HTTP/2", 2, 20, TO_HTTP_2, over_http1),
        ("gRPC", 2, 50, TO_HTTP_2, over_http2),
        ("gRPC", 2, 20, STREAMS, streams),
        ("HTTP/1.1 to HTTP/2", 1, 50, LEFT, leave),
        ("gRPC", 1, 50, LEFT, leave_streams),
    ],
];
/// The paths of abuse: one below the limit of unsent bytes at the end of a handler, and one with more
/// bytes than a stream's window towards a service of HTTP/2.
const UNREAD: [&str; 2] = ["/orders/public/file", "/orders/public/large"];

fn main() -> ExitCode {
    let mut settings = Settings::from_environment(1, 600.0);
    if settings.smoke {
        settings.turn = settings.turn.max(SMOKE);
    }
    let soak = Soak {
        forge: Forge::new(SigningType::Ecdsa),
        ledger: Ledger::default(),
        stopping: AtomicBool::new(false),
    };
    let auth_server = FakeAuthServer::serving(&soak.forge.trusted().served());
    let http_2_service = H2Service::start();
    let http_1_service = format!("http://{}", service::start());
    let sidecars = [http_1_service, http_2_service.url()].map(|upstream| {
        SidecarPlan::to(&upstream, &auth_server.url())
            .config(CONFIGURATIONS[0])
            .flags(["--max-requests", &MAX_REQUESTS.to_string()])
            .flags(["--max-connections", &MAX_CONNECTIONS.to_string()])
            .flags(["--signing-type=ecdsa", "--lame-duck=1"])
            .flags(EVERY_SECOND)
            .ready()
    });
    let (samples, held) = thread::scope(|scope| {
        let soak = &soak;
        let mut threads = Vec::new();
        for ((sidecar, kinds), path) in sidecars.iter().zip(CLIENTS).zip(UNREAD) {
            let address = sidecar.address();
            threads.push(scope.spawn(move || clients::hold(soak, address, path)));
            for &(name, count, pause, mix, work) in kinds {
                let pause = Duration::from_millis(pause);
                for nth in 0..count {
                    let client = Client {
                        soak,
                        address,
                        name,
                        nth,
                        pause,
                        mix,
                    };
                    threads.push(scope.spawn(move || work(&client)));
                }
            }
        }
        let samples = watch(&sidecars, &http_2_service, settings.turn, &soak.ledger);
        soak.stopping.store(true, Ordering::SeqCst);
        let held = sidecars.each_ref().map(stop);
        // A panic leaves its request without an end.
        threads.into_iter().for_each(|thread| drop(thread.join()));
        (samples, held)
    });
    let mut good = soak.ledger.report();
    let rise = rise(&samples[WARM_UP..]);
    println!(
        "after the first fifth the maximum of memory rose by {rise:.1} MiB, at most {TOLERANCE:.1}"
    );
    good &= settings.smoke || rise <= TOLERANCE;
    for ((sidecar, held), for_each_request) in sidecars.into_iter().zip(held).zip(FOR_EACH_REQUEST)
    {
        good &= has_ended(sidecar, held, for_each_request);
    }
    match good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Reloads, and samples the memory of the first sidecar in MiB, until the time is over.
fn watch(
    sidecars: &[Sidecar],
    http_2_service: &H2Service,
    length: Duration,
    ledger: &Ledger,
) -> Vec<f64> {
    let began = Instant::now();
    let mut reloads = 0;
    let sample = |number| {
        let due = began + length * number / SAMPLES;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // The service keeps every request that it receives.
        http_2_service.forget();
        if began.elapsed() > RELOAD_INTERVAL * (reloads + 1) {
            reloads += 1;
            let configuration = CONFIGURATIONS[reloads as usize % CONFIGURATIONS.len()];
            for sidecar in sidecars {
                sidecar.reload(configuration, "applied");
            }
        }
        let resident = mebibytes(sidecars[0].process().resident_kib());
        if number % 12 == 0 {
            let (seconds, requests) = (began.elapsed().as_secs(), ledger.sent());
            println!(
                "{seconds:>4} s {requests:>9} requests {reloads:>4} reloads {resident:>6.1} MiB"
            );
        }
        resident
    };
    (1..=SAMPLES).map(sample).collect()
}

fn mebibytes(kib: Option<u64>) -> f64 {
    let kib = kib.expect("memory in /proc");
    f64::from(u32::try_from(kib).expect("less than a TiB")) / 1024.0
}

/// Returns the rise of the maximum from the first half to the second: a leak rises, and mixed traffic
/// goes up and down.
fn rise(values: &[f64]) -> f64 {
    let (first, second) = values.split_at(values.len() / 2);
    let max = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    max(second) - max(first)
}

/// Begins a stop in the middle of the traffic. The returned connection, which does not react to it,
/// keeps the process alive until `has_ended` has seen that no request is left.
fn stop(sidecar: &Sidecar) -> FrameClient {
    let held = FrameClient::connect(sidecar.address());
    sidecar.process().terminate();
    held
}

/// Returns true if no request is left, memory was within its bound, and the process ends well.
fn has_ended(sidecar: Sidecar, held: FrameClient, for_each_request: f64) -> bool {
    let in_flight = || sidecar.metric("postern_sidecar_requests_in_flight");
    let is_idle = wait::within(wait::TIMEOUT, || in_flight() == Some(0)).is_some();
    let bound = PROCESS
        + f64::from(MAX_REQUESTS) * for_each_request
        + f64::from(MAX_CONNECTIONS) * FOR_EACH_CONNECTION;
    let peak = mebibytes(sidecar.process().peak_resident_kib());
    drop(held);
    let end = sidecar.into_process().finished();
    let is_drained = end.stderr.contains("drained: every request is complete");
    println!(
        "at most {peak:.1} of {bound:.1} MiB; no request in flight: {is_idle}; drained: {is_drained}; code {:?}",
        end.code
    );
    is_idle && peak <= bound && is_drained && end.code == Some(0)
}
