//! Commands beside `serve`: they query a running sidecar, or read the configuration.

pub(crate) mod check;
pub(crate) mod drain;
pub(crate) mod explain;
pub(crate) mod wait;

use std::fmt::Display;

use postern_process::exit::ExitError;

/// Returns the error for a response that a sidecar's admin port does not give.
fn not_a_sidecar(why: impl Display) -> ExitError {
    ExitError::Unavailable(format!("not the admin port of a sidecar: {why}"))
}
