//! Key refresh of a fleet: as many sidecars as descriptors allow, up to 10 000, fetch the keys in
//! the same moment. `make bench-fleet`.
//!
//! A tick is two requests: the contract's key endpoint, and the key set, which is normally a 304.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a program at a terminal; a measurement that cannot be taken ends with a message"
)]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::cpu::{self, microseconds_each};
use bench::keep_alive::{Head, get};
use bench::settings::Settings;
use bench::statistics::Summary;
use postern_transport::net::fd_limit;
use tests::actors::auth_server::{AuthServer, AuthServerPlan, SECRET_KEY};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Barrier, mpsc};

const FLEET: usize = 10_000;
const TARGET_MICROSECONDS: f64 = 30.0;
const TARGET_SECONDS: f64 = 1.0;
/// Longer than the opening of all connections, so that the server closes no idle one meanwhile.
const REQUEST_TIMEOUT: &str = "120";

/// State of a sidecar's connection between ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Connections {
    /// Opened before the tick.
    Open,
    /// Opened in the tick for its two requests.
    New,
}

fn main() {
    let settings = Settings::from_environment(5, 0.0);
    let fleet = settings.amount(FLEET, 50).min(fd_limit::for_clients());
    if fleet < FLEET && !settings.smoke {
        println!(
            "scaled down to {fleet} connections: the limit of open files is {}",
            fleet + 100
        );
    }
    let server = AuthServerPlan::new()
        .flags(["--request-timeout", REQUEST_TIMEOUT])
        .ready();
    let process = server.process().id();
    println!("auth server {}", cpu::share_processors(process));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    for connections in [Connections::Open, Connections::New] {
        let rounds: Vec<_> = (0..settings.rounds)
            .map(|_| runtime.block_on(tick(&server, fleet, connections)))
            .collect();
        report(connections, fleet, &rounds, &settings);
    }
}

/// One tick of the whole fleet.
struct Tick {
    microseconds_each: f64,
    /// Seconds until the last sidecar had its responses.
    seconds: f64,
    /// CPU time of the fleet itself, which shows if it was the bottleneck.
    fleet_cpu_seconds: f64,
}

fn report(connections: Connections, fleet: usize, rounds: &[Tick], settings: &Settings) {
    let summary = |of: fn(&Tick) -> f64| {
        let values: Vec<_> = rounds.iter().map(of).collect();
        Summary::of(&values).expect("at least one round")
    };
    let (cpu, all) = (
        summary(|tick| tick.microseconds_each),
        summary(|tick| tick.seconds),
    );
    let how = match connections {
        Connections::Open => "connections open before the tick",
        Connections::New => "a new connection each",
    };
    println!("{fleet} sidecars, {how}:");
    println!(
        "  CPU of the auth server for a request: {cpu:.1} µs (target ≤ {TARGET_MICROSECONDS} µs: {})",
        settings.verdict(cpu.median <= TARGET_MICROSECONDS)
    );
    println!(
        "  all served after {all} s (target ≤ {TARGET_SECONDS} s: {})",
        settings.verdict(all.median <= TARGET_SECONDS)
    );
    let own = summary(|tick| tick.fleet_cpu_seconds);
    println!("  the simulated fleet itself used {own} s of CPU meanwhile");
}

/// The requests of each sidecar.
struct Poll {
    address: SocketAddr,
    key: Vec<u8>,
    jwks: Vec<u8>,
}

async fn tick(server: &AuthServer, fleet: usize, connections: Connections) -> Tick {
    let poll = Arc::new(poll(server.address()).await);
    let (start, mut done) = (Arc::new(Barrier::new(fleet + 1)), mpsc::unbounded_channel());
    for number in 0..fleet {
        let (poll, start, done) = (Arc::clone(&poll), Arc::clone(&start), done.0.clone());
        tokio::spawn(async move {
            let outcome = sidecar(number, &poll, &start, connections).await;
            let _ = done.send(outcome.map(|()| Instant::now()));
        });
    }
    drop(done.0);
    // The set-up is staggered; it is not part of the measurement.
    start.wait().await;
    let process = server.process().id();
    let (before, own, begun) = (
        cpu::time_of(process),
        cpu::time_of(std::process::id()),
        Instant::now(),
    );
    start.wait().await;
    let mut last = Duration::ZERO;
    while let Some(outcome) = done.1.recv().await {
        let served = outcome.unwrap_or_else(|error| panic!("a sidecar was not served: {error}"));
        last = last.max(served - begun);
    }
    let spent = cpu::time_of(process) - before;
    let own = cpu::time_of(std::process::id()) - own;
    Tick {
        fleet_cpu_seconds: own.as_secs_f64(),
        microseconds_each: microseconds_each(spent, 2 * fleet as u64),
        seconds: last.as_secs_f64(),
    }
}

/// Fetches the version of the key set, as a sidecar has it after its first tick.
async fn poll(address: SocketAddr) -> Poll {
    let key = get(&format!("/auth{SECRET_KEY}"), &[]);
    let path = "/auth/.well-known/jwks.json";
    let mut stream = connect(address, 0).await.expect("a connection");
    let response = exchange(&mut stream, &get(path, &[])).await;
    let (_, head) = response.expect("the key set");
    let version = head
        .split("\r\n")
        .find_map(|line| line.strip_prefix("etag: "))
        .expect("a version");
    let known = format!("If-None-Match: {version}");
    Poll {
        address,
        key,
        jwks: get(path, &[&known]),
    }
}

/// Waits at the barrier twice: until all are ready, and for the tick.
async fn sidecar(
    number: usize,
    poll: &Poll,
    start: &Barrier,
    connections: Connections,
) -> io::Result<()> {
    let open = match connections {
        Connections::Open => Some(connect(poll.address, number).await?),
        Connections::New => None,
    };
    start.wait().await;
    start.wait().await;
    let mut stream = match open {
        Some(stream) => stream,
        None => connect(poll.address, number).await?,
    };
    for (request, expected) in [(&poll.key, 200), (&poll.jwks, 304)] {
        let (status, _) = exchange(&mut stream, request).await?;
        assert_eq!(status, expected, "a poll");
    }
    Ok(())
}

/// Connects each sidecar from an address of its own, as in a cluster: with a single one, the search
/// for a free port among tens of thousands costs more than the request.
async fn connect(address: SocketAddr, number: usize) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // All of 127.0.0.0/8 is local on Linux; elsewhere only 127.0.0.1 is.
    if cfg!(target_os = "linux") {
        let [.., high, low] = (number + 1).to_be_bytes();
        socket.bind(([127, 1, high, low], 0).into())?;
    }
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends one request; returns the status and the head of the response.
async fn exchange(stream: &mut TcpStream, request: &[u8]) -> io::Result<(u16, String)> {
    stream.write_all(request).await?;
    let mut buffer = [0; 4096];
    let mut filled = 0;
    loop {
        let count = stream.read(&mut buffer[filled..]).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += count;
        match Head::parse(&buffer[..filled])? {
            Some(head) if filled >= head.body.end => {
                let text = String::from_utf8_lossy(&buffer[..head.body.start]);
                return Ok((head.status, text.into_owned()));
            }
            _ => {}
        }
    }
}
