//! Every cut of an exchange; see `tests::cuts`.

use std::io::Write;
use std::time::Instant;

use tests::actors::setting;
use tests::cuts::{Share, Walk};

/// Broken laws that are printed.
const MAX_LINES: usize = 200;

/// Takes minutes, so that it runs by itself: `make cuts`.
#[test]
#[ignore = "make cuts"]
fn no_cut_of_an_exchange_breaks_a_law() {
    let one_of = setting::number("POSTERN_TEST_CUTS_ONE_OF", 1);
    let walk = Walk {
        share: match one_of {
            1 => Share::All,
            of => Share::One(of as u64),
        },
        seed: setting::number("POSTERN_TEST_CUTS_SEED", 1) as u64,
        only: std::env::var("POSTERN_TEST_CUTS_ONLY").unwrap_or_default(),
    };
    let began = Instant::now();
    let found = walk.run(true);
    let rate = found.cuts as f64 / began.elapsed().as_secs_f64();
    let summary = format!(
        "{} exchanges, {} of {} cuts, {rate:.0} a second, {} repeated, {} red",
        found.exchanges,
        found.cuts,
        found.planned,
        found.repeated,
        found.red.len()
    );
    let _ = writeln!(std::io::stderr(), "{summary}");
    if found.dropped > 0 {
        let dropped = found.dropped;
        let _ = writeln!(
            std::io::stderr(),
            "the kernel's table of connections was full: {dropped} packets dropped"
        );
    }
    for red in found.red.iter().take(MAX_LINES) {
        let _ = writeln!(std::io::stderr(), "red: {red}");
    }
    assert!(found.red.is_empty(), "{summary}");
}
