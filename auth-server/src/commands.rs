//! What the command line asked for besides serving.

pub(crate) mod application;
pub(crate) mod check;
pub(crate) mod keys;
pub(crate) mod token;
pub(crate) mod user;

use std::io::Write;

use runtime::exit::Failure;
use runtime::output;

/// For a person, on standard error, beside a result that says less.
fn remark(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A command's result, with the end of its last line.
fn print(text: &str) -> Result<(), Failure> {
    output::print(&format!("{text}\n"))
}
