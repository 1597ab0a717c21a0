//! The error about the value of one flag.

use std::fmt::Display;

use postern_process::exit::ExitError;

/// Returns the error that names the flag and its value.
pub(super) fn flag_error(flag: &str, value: impl Display, why: impl Display) -> ExitError {
    ExitError::Config(format!("--{flag} '{value}': {why}"))
}
