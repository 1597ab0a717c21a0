//! The account of every request: it is sent, and has one end.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A column of the account.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    Sent,
    /// By the service, with the marks of the request.
    Served,
    /// A bad request, one at which the service dies, or one that met a stop.
    Rejected,
    /// Its client left, as it meant to.
    Left,
    Wrong,
}

type Rows = BTreeMap<(&'static str, &'static str), [i64; 5]>;

/// The counts of each kind of request of each kind of client.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Rows>);

impl Ledger {
    pub(crate) fn count(&self, client: &'static str, kind: &'static str, column: Count) {
        self.rows().entry((client, kind)).or_default()[column as usize] += 1;
    }

    pub(crate) fn sent(&self) -> i64 {
        self.rows().values().map(|[sent, ..]| sent).sum()
    }

    /// Prints the account; returns true if every request had the end that it deserves.
    pub(crate) fn report(&self) -> bool {
        println!("      sent    served  rejected      left     wrong      lost");
        let (mut all, mut is_right) = ([0; 6], true);
        let print = |counts: [i64; 6], of: &str| {
            println!(
                "{} {of}",
                counts.map(|count| format!("{count:10}")).concat()
            );
        };
        for ((client, kind), [sent, served, rejected, left, wrong]) in &*self.rows() {
            let lost = sent - served - rejected - left - wrong;
            let counts = [*sent, *served, *rejected, *left, *wrong, lost];
            print(counts, &format!("{client}: {kind}"));
            is_right &= counts[4..] == [0, 0];
            all = std::array::from_fn(|column| all[column] + counts[column]);
        }
        print(all, "in all");
        is_right
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
