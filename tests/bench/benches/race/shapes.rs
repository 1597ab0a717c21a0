//! Other requests than small GETs over plain HTTP: larger bodies, TLS, more header fields, fewer and
//! more connections, a second worker thread. Every contestant verifies the same repeated token.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bench::cpu::microseconds_each;
use bench::settings::Settings;
use bench::wrk::{self, Load, Tokens};
use bench::{h2load, machine};
use tests::wire::certificates::Authority;

use crate::contestants::{Running, Setup};
use crate::field::Field;
use crate::measurements::{CONNECTIONS, PATH, load};
use crate::results::{Results, Who};
use crate::upstream::FILES;

/// The contestants, in the order of the table.
pub(crate) const CONTESTANTS: [Who; 3] = [Who::Sidecar, Who::HaproxyJwt, Who::EnvoyJwtCached];

pub(crate) const TLS_CHUNKED: &str = "TLS, chunked response of 16 KiB";

const HTTP_2: &str = "HTTP/2, 8 connections with 10 streams";
const BODY: &str = "request body of 16 KiB";
const BODY_BYTES: usize = 16 * 1024;

struct Shape {
    name: &'static str,
    path: &'static str,
    connections: usize,
    body: Option<usize>,
    fields: usize,
}

impl Shape {
    const fn new(name: &'static str, path: &'static str) -> Self {
        Self {
            name,
            path,
            connections: CONNECTIONS,
            body: None,
            fields: wrk::USUAL_FIELDS,
        }
    }
}

/// Shapes over plain HTTP, with one worker thread.
fn plain_shapes() -> [Shape; 10] {
    let [(short, _), (long, _), (chunked, _)] = FILES;
    let small = |name| Shape::new(name, PATH);
    [
        Shape::new("response of 16 KiB", short),
        Shape::new("response of 1 MiB", long),
        Shape::new("chunked response of 16 KiB", chunked),
        Shape {
            body: Some(BODY_BYTES),
            ..small(BODY)
        },
        Shape {
            fields: 5,
            ..small("5 header fields")
        },
        Shape {
            fields: 20,
            ..small("20 header fields")
        },
        Shape {
            fields: 60,
            ..small("60 header fields")
        },
        Shape {
            connections: 1,
            ..small("1 connection")
        },
        Shape {
            connections: 100,
            ..small("100 connections")
        },
        Shape {
            connections: 1000,
            ..small("1 000 connections")
        },
    ]
}

/// Measures every shape.
pub(crate) fn measure(field: &Field, settings: &Settings, token: &str, results: &mut Results) {
    if machine::find("h2load").is_some() {
        let run = |address| h2load::run(address, PATH, token, settings.turn);
        let measured = rounds(&field.running, settings, run);
        results.shapes.push((HTTP_2.to_owned(), measured));
    }
    let mut measure = |name: String, running: &BTreeMap<Who, Running>, load: Load<'_>| {
        println!("{name}");
        let load = Load {
            length: settings.turn,
            ..load
        };
        let measured = rounds(running, settings, |address| {
            let seen = wrk::run(address, &load);
            assert_eq!(seen.rejected, 0, "good requests were rejected");
            seen.requests
        });
        let ours = measured.get(&Who::Sidecar).cloned().unwrap_or_default();
        if load.connections != CONNECTIONS {
            results.connections.insert(load.connections, ours);
        } else if load.fields != wrk::USUAL_FIELDS {
            results.fields.insert(load.fields, ours);
        }
        results.shapes.push((name, measured));
    };
    for shape in plain_shapes() {
        let load = Load {
            body: shape.body,
            fields: shape.fields,
            ..load(shape.path, shape.connections, Tokens::One(token))
        };
        measure(shape.name.to_owned(), &field.running, load);
    }
    let reusing = field.verifying(Setup {
        flags: &["--upstream-reuse-after-body"],
        ..Setup::PLAIN
    });
    let body = Load {
        body: Some(BODY_BYTES),
        ..load(PATH, CONNECTIONS, Tokens::One(token))
    };
    measure(
        format!("{BODY}, `--upstream-reuse-after-body`"),
        &reusing,
        body,
    );
    let authority = Authority::new();
    let certificate = authority.issue("race");
    let with_tls = field.verifying(Setup {
        tls: Some(&certificate),
        ..Setup::PLAIN
    });
    let [.., (chunked, _)] = FILES;
    for (name, path) in [("TLS", PATH), (TLS_CHUNKED, chunked)] {
        let load = Load {
            tls: true,
            ..load(path, CONNECTIONS, Tokens::One(token))
        };
        measure(name.to_owned(), &with_tls, load);
    }
    let with_two = field.verifying(Setup {
        threads: 2,
        ..Setup::PLAIN
    });
    let load = load(PATH, CONNECTIONS, Tokens::One(token));
    measure("two worker threads".to_owned(), &with_two, load);
}

/// Returns the CPU µs for a request, by contestant and round; `run` returns how many it has sent.
fn rounds(
    running: &BTreeMap<Who, Running>,
    settings: &Settings,
    run: impl Fn(SocketAddr) -> u64,
) -> BTreeMap<Who, Vec<f64>> {
    let mut rounds = BTreeMap::<_, Vec<_>>::new();
    for _ in 0..settings.rounds.min(3) {
        for who in CONTESTANTS {
            let Some(running) = running.get(&who) else {
                continue;
            };
            let before = running.cpu_time();
            let requests = run(running.address);
            let spent = running.cpu_time() - before;
            let each = microseconds_each(spent, requests);
            rounds.entry(who).or_default().push(each);
        }
    }
    rounds
}
