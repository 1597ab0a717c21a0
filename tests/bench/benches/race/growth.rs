//! Growth: the cost of a request in the sidecar against the number of connections and of header
//! fields.

use std::collections::BTreeMap;

use bench::cpu::microseconds_each;
use bench::settings::Settings;
use bench::wrk::{self, Load, Tokens};

use crate::field::Field;
use crate::measurements::{CONNECTIONS, PATH, load};
use crate::results::{Results, Rounds};

const NUMBERS_OF_CONNECTIONS: [usize; 5] = [1, 10, 100, 1000, 3000];
const NUMBERS_OF_FIELDS: [usize; 4] = [5, 20, 40, 60];
pub(crate) const MANY_CONNECTIONS: [&str; 2] = ["--max-connections", "12000"];

/// CPU µs for a request, by size.
pub(crate) type Growth = BTreeMap<usize, Rounds>;

pub(crate) fn measure(field: &Field, settings: &Settings, token: &str, results: &mut Results) {
    println!("growth");
    let sidecar = field.sidecar(&MANY_CONNECTIONS.map(String::from));
    let usual = load(PATH, CONNECTIONS, Tokens::One(token));
    let cost = |load: Load<'_>| {
        let before = sidecar.cpu_time();
        let length = settings.turn;
        let seen = wrk::run(sidecar.address, &Load { length, ..load });
        assert_eq!(seen.rejected, 0, "good requests were rejected");
        microseconds_each(sidecar.cpu_time() - before, seen.requests)
    };
    for _ in 0..settings.rounds.min(3) {
        for connections in NUMBERS_OF_CONNECTIONS {
            let connections = settings.amount(connections, connections.min(32));
            let each = cost(Load {
                connections,
                ..usual
            });
            results
                .connections
                .entry(connections)
                .or_default()
                .push(each);
        }
        for fields in NUMBERS_OF_FIELDS {
            let each = cost(Load { fields, ..usual });
            results.fields.entry(fields).or_default().push(each);
        }
    }
}
