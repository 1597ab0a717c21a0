//! The value of one flag, and the error that names it.

use std::fmt::Display;

use runtime::command_line::not_empty;
use runtime::exit::Failure;

/// Returns what is given, if anything is: an empty one is no wish to leave the check out.
pub(super) fn given(flag: &str, value: Option<&str>) -> Result<Option<String>, Failure> {
    let given = value.map(not_empty).transpose();
    given.map_err(|error| refused(flag, "", error))
}

/// Parses the value of a flag.
pub(super) fn parsed<T: std::str::FromStr<Err: Display>>(
    flag: &str,
    value: &str,
) -> Result<T, Failure> {
    value.parse().map_err(|error| refused(flag, value, error))
}

/// Returns the error that names the flag and its value.
pub(super) fn refused(flag: &str, value: impl Display, why: impl Display) -> Failure {
    Failure::Config(format!("--{flag} '{value}': {why}"))
}
