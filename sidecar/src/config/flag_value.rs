//! The value of one flag, and the error that names it.

use std::fmt::Display;

use runtime::process::exit::ExitError;

/// Parses the value of a flag.
pub(super) fn parsed<T: std::str::FromStr<Err: Display>>(
    flag: &str,
    value: &str,
) -> Result<T, ExitError> {
    value
        .parse()
        .map_err(|error| flag_error(flag, value, error))
}

/// Returns the error that names the flag and its value.
pub(super) fn flag_error(flag: &str, value: impl Display, why: impl Display) -> ExitError {
    ExitError::Config(format!("--{flag} '{value}': {why}"))
}
