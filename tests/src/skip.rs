//! What cannot run here says so, and says how to get it. In CI nothing may be missing.

use std::io::Write;

/// Prints `SKIP what – how`. Panics in CI, where a test that did not run must not look like one
/// that passed.
///
/// Written past the test runner's capture, which would otherwise hide the line of a test that
/// ends well.
pub fn skip(what: &str, how_to_get_it: &str) {
    let line = format!("SKIP {what} – {how_to_get_it}");
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{line} (a skip fails when CI=true)"
    );
    // A closed stderr leaves nobody to tell.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
