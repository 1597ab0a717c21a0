//! What the command line asked for besides serving.

pub(crate) mod application;
pub(crate) mod check;
pub(crate) mod keys;
pub(crate) mod token;
pub(crate) mod user;

use std::io::Write;

use process::exit::Failure;

/// For a person, on standard error, beside a result that says less.
fn remark(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A command's result, on standard output: the only thing that ever stands there.
fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .map_err(|error| Failure::Software(format!("standard output: {error}")))
}
