//! Lines about rejections, which clients cause at will: a bounded number a second for each reason, and one
//! line with the number of the further rejections.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::info;

/// Lines a second for one reason: enough to see which client it is, and below journald's default rate.
const MAX_A_SECOND: u64 = 50;
const SECOND: Duration = Duration::from_secs(1);

static RATES: Mutex<Rates> = Mutex::new(Rates {
    of: BTreeMap::new(),
    is_reported: false,
});

/// A kind of rejection: one of the access log, or an audit event with its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectionLine {
    /// The reason code of a request.
    Access(&'static str),
    /// The name and the outcome of an event.
    Audit(&'static str, &'static str),
}

/// The rates of all kinds, as many as the programs have reasons.
#[derive(Debug)]
struct Rates {
    of: BTreeMap<RejectionLine, Rate>,
    /// True while a thread reports the counted rejections.
    is_reported: bool,
}

#[derive(Debug)]
struct Rate {
    began: Instant,
    logged: u64,
    /// Rejections without a line, not reported yet.
    counted: u64,
}

impl RejectionLine {
    /// Returns true if a rejection gets its own line, and otherwise counts it for the common line.
    #[must_use]
    pub fn takes_line(self) -> bool {
        let mut rates = RATES.lock();
        let has_line = rates.take(self, Instant::now());
        if !has_line && !rates.is_reported {
            let reporting = thread::Builder::new().name("rejection lines".to_owned());
            // Without a thread the count stays, and the next rejection tries again.
            rates.is_reported = reporting.spawn(report).is_ok();
        }
        has_line
    }

    fn log(self, lines: u64) {
        match self {
            Self::Access(reason) => {
                info!(target: "access", reason, lines, "more requests were rejected");
            }
            Self::Audit(event, outcome) => {
                info!(target: "audit", %event, %outcome, lines, "more of these events");
            }
        }
    }
}

impl Rates {
    fn take(&mut self, rejection: RejectionLine, now: Instant) -> bool {
        let rate = self.of.entry(rejection).or_insert(Rate {
            began: now,
            logged: 0,
            counted: 0,
        });
        // A new second begins with the first rejection after the former one.
        if now.saturating_duration_since(rate.began) >= SECOND {
            (rate.began, rate.logged) = (now, 0);
        }
        let has_line = rate.logged < MAX_A_SECOND;
        if has_line {
            rate.logged += 1
        } else {
            rate.counted += 1
        }
        has_line
    }

    /// Returns the numbers to report, and sets the counts to 0.
    fn counted(&mut self) -> Vec<(RejectionLine, u64)> {
        let mut counted = Vec::new();
        for (rejection, rate) in &mut self.of {
            let lines = std::mem::take(&mut rate.counted);
            if lines > 0 {
                counted.push((*rejection, lines));
            }
        }
        counted
    }
}

/// Reports once a second, until nothing is counted any more.
fn report() {
    loop {
        thread::sleep(SECOND);
        let counted = {
            let mut rates = RATES.lock();
            let counted = rates.counted();
            // Set under one lock with the counts, so that a later rejection starts a thread for its report.
            rates.is_reported = !counted.is_empty();
            counted
        };
        if counted.is_empty() {
            return;
        }
        for (rejection, lines) in counted {
            rejection.log(lines);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_lines_a_second_and_the_others_are_counted() {
        let mut rates = Rates {
            of: BTreeMap::new(),
            is_reported: false,
        };
        let [one, other] = [RejectionLine::Access("a"), RejectionLine::Audit("a", "b")];
        let began = Instant::now();
        let mut logged = |rejection, times, now| {
            let lines = (0..times).filter(|_| rates.take(rejection, now)).count();
            (lines as u64, rates.counted())
        };
        let nothing = Vec::new();
        assert_eq!(logged(one, 49, began), (49, nothing.clone()));
        assert_eq!(logged(one, 11, began), (1, vec![(one, 10)]));
        assert_eq!(logged(other, 50, began), (50, nothing.clone()));
        assert_eq!(logged(one, 2, began + SECOND / 2), (0, vec![(one, 2)]));
        assert_eq!(logged(one, 1, began + SECOND), (1, nothing));
    }
}
