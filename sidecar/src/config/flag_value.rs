//! The value of one flag, and the error that names it.

use std::fmt::Display;

use runtime::command_line::not_empty;
use runtime::process::exit::ExitError;

/// Returns the value if there is one; an empty one is an error, because it would disable the check.
pub(super) fn given(flag: &str, value: Option<&str>) -> Result<Option<String>, ExitError> {
    let given = value.map(not_empty).transpose();
    given.map_err(|error| flag_error(flag, "", error))
}

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
