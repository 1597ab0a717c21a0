//! The measurements, in rounds with a turn of every contestant: a disturbance of the machine
//! affects all of them.

use std::net::SocketAddr;
use std::time::Duration;

use bench::cpu::{self, microseconds_each};
use bench::keep_alive::{KeepAlive, get_with_token};
use bench::load::{OpenLoop, each_once};
use bench::settings::Settings;
use bench::wrk::{self, Load, Tokens};

use crate::contestants::Running;
use crate::field::Field;
use crate::results::{Results, Rounds, Who, Work};
use crate::tokens::Bad;
use crate::upstream::BODY;
use crate::{capabilities, shapes};

/// Connections of the closed loops.
pub(crate) const CONNECTIONS: usize = 32;
/// Requests a second of the open loop.
const RATE: f64 = 5000.0;
/// Path of all requests.
pub(crate) const PATH: &str = "/orders/list";
/// Requests to a process before its turn.
const WARM_UP: usize = 2000;
/// First number of the tokens that are in no file.
const OTHER_TOKENS: usize = 10_000_000;

/// Every turn of the closed loop.
const TURNS: [(Work, Who); 10] = [
    (Work::Plain, Who::Sidecar),
    (Work::Plain, Who::Haproxy),
    (Work::Plain, Who::Nginx),
    (Work::Plain, Who::Envoy),
    (Work::Repeated, Who::Sidecar),
    (Work::Repeated, Who::HaproxyJwt),
    (Work::Repeated, Who::EnvoyJwtCached),
    (Work::Fresh, Who::Sidecar),
    (Work::Fresh, Who::HaproxyJwt),
    (Work::Fresh, Who::EnvoyJwt),
];

/// Runs all measurements, one after the other.
pub(crate) fn measure(field: &Field, settings: &Settings) -> Results {
    let token = field.issuer.token(OTHER_TOKENS);
    let mut results = Results {
        token_bytes: token.len(),
        ..Results::default()
    };
    check(field, &token);
    closed_loop(field, settings, &token, &mut results);
    one_connection(field, settings, &token, &mut results);
    open_loop(field, settings, &token, &mut results);
    shapes::measure(field, settings, &token, &mut results);
    rejections(field, settings, &mut results);
    pass_list(field, settings, &token, &mut results);
    capabilities::measure(field, settings, &token, &mut results);
    memory(field, settings, &mut results);
    idle_connections(field, settings, &token, &mut results);
    results
}

/// Checks that every contestant accepts a good token and rejects a bad one; its figures would mean
/// nothing otherwise.
fn check(field: &Field, token: &str) {
    // The last character of such a signature is one of A, Q, g and w.
    let (body, last) = token.split_at(token.len() - 1);
    let forged = format!("{body}{}", if last == "A" { "Q" } else { "A" });
    for (who, running) in &field.running {
        let mut connection = KeepAlive::connect(running.address).expect("a connection");
        let status = connection.exchange(&get_with_token(PATH, token));
        assert_eq!(status.expect("a response"), 200, "{who:?} and a good token");
        assert_eq!(connection.body(), BODY.as_bytes(), "{who:?}");
        let mut connection = KeepAlive::connect(running.address).expect("a connection");
        let status = connection.exchange(&get_with_token(PATH, &forged));
        let expected = match who {
            Who::Sidecar | Who::HaproxyJwt | Who::EnvoyJwt | Who::EnvoyJwtCached => 401,
            Who::Haproxy | Who::Nginx | Who::Envoy | Who::Direct => 200,
        };
        assert_eq!(status.expect("a response"), expected, "{who:?}, forged");
    }
}

/// Returns the load of most measurements: GETs without TLS for a second.
pub(crate) const fn load<'a>(path: &'a str, connections: usize, tokens: Tokens<'a>) -> Load<'a> {
    Load {
        tls: false,
        path,
        connections,
        length: Duration::from_secs(1),
        tokens,
        body: None,
        fields: wrk::USUAL_FIELDS,
    }
}

/// Runs one turn; returns CPU µs for each request, and the result of `wrk`. All responses are of
/// one kind.
fn turn(
    running: &Running,
    tokens: Tokens<'_>,
    path: &str,
    settings: &Settings,
) -> (f64, wrk::Seen) {
    let before = running.cpu_time();
    let seen = wrk::run(
        running.address,
        &Load {
            length: settings.turn,
            ..load(path, CONNECTIONS, tokens)
        },
    );
    let spent = running.cpu_time() - before;
    (microseconds_each(spent, seen.requests), seen)
}

pub(crate) fn good_turn(
    running: &Running,
    tokens: Tokens<'_>,
    path: &str,
    settings: &Settings,
) -> (f64, wrk::Seen) {
    let (cpu, seen) = turn(running, tokens, path, settings);
    assert_eq!(seen.rejected, 0, "good requests were rejected");
    (cpu, seen)
}

pub(crate) fn warm_up(address: SocketAddr, request: &[u8], settings: &Settings) {
    let count = settings.amount(WARM_UP, 50);
    each_once(address, CONNECTIONS, count, |_| request);
}

fn closed_loop(field: &Field, settings: &Settings, token: &str, results: &mut Results) {
    for round in 1..=settings.rounds {
        println!("closed loop, round {round} of {}", settings.rounds);
        for (work, who) in TURNS {
            let Some(running) = field.running.get(&who) else {
                continue;
            };
            let new = match (work, who) {
                // The cache of the previous round holds these tokens.
                (Work::Fresh, Who::Sidecar) => Some(field.sidecar(&[])),
                (Work::Plain, Who::Sidecar) => Some(field.sidecar(&public_path())),
                _ => None,
            };
            let running = new.as_ref().unwrap_or(running);
            let (tokens, request) = match work {
                // Contestants that ignore the token carry it too, so that all loads are equal.
                Work::Plain | Work::Repeated => (Tokens::One(token), get_with_token(PATH, token)),
                Work::Fresh => (
                    Tokens::Each(field.fresh_tokens.path()),
                    get_with_token(PATH, token),
                ),
            };
            warm_up(running.address, &request, settings);
            let (cpu, seen) = good_turn(running, tokens, PATH, settings);
            let (work_name, name) = (work.name(), who.name());
            println!("  {name}, {work_name}: {cpu:.1} µs, {:.0}/s", seen.rate);
            results.cpu.entry((work, who)).or_default().push(cpu);
            let rates = results.rate.entry((work, who)).or_default();
            // With tokens that run out, the loop ends before wrk's clock does.
            rates.extend((work != Work::Fresh).then_some(seen.rate));
        }
        results.signature.push(signature_check(field, settings));
    }
}

/// Returns the flags with which no request needs a token.
fn public_path() -> [String; 2] {
    ["--public-path".to_owned(), PATH.to_owned()]
}

/// Measures the signature check in this process: the only part of a new token's cost that needs a
/// faster library.
fn signature_check(field: &Field, settings: &Settings) -> f64 {
    let check = field.issuer.signature_check();
    let count = settings.amount(5000, 50);
    let before = cpu::time_of(std::process::id());
    for _ in 0..count {
        check();
    }
    let spent = cpu::time_of(std::process::id()) - before;
    microseconds_each(spent, count as u64)
}

/// Pins the contestant to one processor, client and service to the others; with so little work, the
/// scheduler's choice would decide the figures.
fn apart(field: &Field, processors: usize) -> bool {
    let others = processors.min(1)..processors;
    let mut contestants = field.running.values();
    processors > 1
        && cpu::pin(std::process::id(), others.clone())
        && field.upstream.pin(others)
        && contestants.all(|running| running.pin(0..1))
}

fn together(field: &Field, processors: usize) {
    cpu::pin(std::process::id(), 0..processors);
    for running in field.running.values().chain([&field.upstream]) {
        running.pin(0..processors);
    }
}

fn one_connection(field: &Field, settings: &Settings, token: &str, results: &mut Results) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if apart(field, processors) {
        println!("one connection, the contestant on a processor of its own");
    } else {
        println!("one connection");
    }
    let contestants = [
        Who::Haproxy,
        Who::Sidecar,
        Who::HaproxyJwt,
        Who::EnvoyJwtCached,
    ];
    for _ in 0..settings.rounds {
        let others = contestants
            .iter()
            .filter_map(|who| Some((*who, field.running.get(who)?)));
        for (who, running) in [(Who::Direct, &field.upstream)].into_iter().chain(others) {
            let seen = wrk::run(running.address, &load(PATH, 1, Tokens::One(token)));
            results.p50.entry(who).or_default().push(seen.p50);
        }
    }
    together(field, processors);
}

fn open_loop(field: &Field, settings: &Settings, token: &str, results: &mut Results) {
    println!("open loop, {RATE} requests/s");
    let load = OpenLoop {
        rate: RATE,
        connections: CONNECTIONS,
        length: settings.turn,
    };
    let request = get_with_token(PATH, token);
    let contestants = [
        Who::Sidecar,
        Who::HaproxyJwt,
        Who::EnvoyJwtCached,
        Who::Haproxy,
    ];
    for _ in 0..settings.rounds {
        for who in contestants {
            let Some(running) = field.running.get(&who) else {
                continue;
            };
            let latencies = load.run(running.address, &request);
            let (p50, p99) = results.open_loop.entry(who).or_default();
            p50.push(latencies.percentile(0.5));
            p99.push(latencies.percentile(0.99));
        }
    }
}

fn rejections(field: &Field, settings: &Settings, results: &mut Results) {
    let sidecar = &field.running[&Who::Sidecar];
    let short = Settings {
        turn: settings.turn.min(Duration::from_secs(2)),
        ..*settings
    };
    for kind in Bad::ALL {
        println!("rejections: {}", kind.description());
        let count = if kind == Bad::Expired { 10_000 } else { 40_000 };
        let file = field.issuer.bad_file(kind, settings.amount(count, 200));
        let mut rounds = Rounds::new();
        for _ in 0..settings.rounds.min(3) {
            let (cpu, seen) = turn(sidecar, Tokens::Each(file.path()), PATH, &short);
            assert_eq!(seen.rejected, seen.requests, "{kind:?}: a bad token passed");
            rounds.push(cpu);
        }
        results.rejections.push((kind, rounds));
    }
}

/// Measures pass lists; the path is in the tree of the patterns, matches no pattern and so needs a
/// token.
fn pass_list(field: &Field, settings: &Settings, token: &str, results: &mut Results) {
    let path = "/public/orders/list";
    println!("pass list");
    let with = |count: usize| {
        let patterns = (0..count).map(|n| format!("--public-path=/public/area-{n:04}/**"));
        (count, field.sidecar(&patterns.collect::<Vec<_>>()))
    };
    let sidecars = [with(1), with(30), with(1000)];
    for _ in 0..settings.rounds {
        for (count, running) in &sidecars {
            warm_up(running.address, &get_with_token(path, token), settings);
            let (cpu, _) = good_turn(running, Tokens::One(token), path, settings);
            results.pass_list.entry(*count).or_default().push(cpu);
        }
    }
}

/// Measures each verifying contestant after a new start: idle, and after many different tokens.
fn memory(field: &Field, settings: &Settings, results: &mut Results) {
    println!("memory");
    let tokens = std::fs::read_to_string(field.fresh_tokens.path()).expect("the tokens");
    let requests: Vec<_> = tokens
        .lines()
        .take(10_000)
        .map(|token| get_with_token(PATH, token))
        .collect();
    for _ in 0..settings.rounds.min(3) {
        let fresh = field.sidecar(&[]);
        let idle = fresh.resident_mib();
        each_once(fresh.address, CONNECTIONS, requests.len(), |n| &requests[n]);
        let (before, after) = results.memory.entry(Who::Sidecar).or_default();
        before.push(idle);
        after.push(fresh.resident_mib());
    }
    // The others have served far more by now.
    for (who, running) in &field.running {
        if *who != Who::Sidecar {
            let (idle, after) = results.memory.entry(*who).or_default();
            idle.extend(field.idle_mib.get(who));
            after.push(running.resident_mib());
        }
    }
}

fn idle_connections(field: &Field, settings: &Settings, token: &str, results: &mut Results) {
    // One client alone may have four fifths of the connections.
    let count = settings.amount(7_000, 20);
    println!("{count} idle connections");
    let request = get_with_token(PATH, token);
    for _ in 0..settings.rounds.min(3) {
        let sidecar = field.sidecar(&["--max-connections".to_owned(), "9500".to_owned()]);
        let connect = |_| KeepAlive::connect(sidecar.address).expect("a connection");
        let mut connections: Vec<_> = (0..count).map(connect).collect();
        // The last connection is accepted, and so are all before it.
        let last = connections.last_mut().expect("one at least");
        last.exchange(&request).expect("a response");
        let (unused, used) = &mut results.idle_connections;
        unused.push(sidecar.resident_mib());
        for connection in &mut connections {
            connection.exchange(&request).expect("a response");
        }
        used.push(sidecar.resident_mib());
    }
}
