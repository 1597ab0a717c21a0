//! Settings as they were pasted, from any source.

use std::ffi::OsStr;

use clap::{Arg, ArgMatches, Command};
use postern_http::host::host_port::is_url;
use postern_http::pasted::{error_of, error_of_list, error_of_secret, is_separator};

use super::settings;
use super::sources::chosen_subcommand;
use crate::exit::ExitError;

/// Rejects the first setting of the chosen command whose value has characters around it, or in it,
/// that no value has.
///
/// # Errors
/// [`ExitError::Config`] that names the flag.
pub(super) fn reject(command: &Command, given: &ArgMatches) -> Result<(), ExitError> {
    let (command, given) = chosen_subcommand(command, given);
    for setting in settings(command) {
        let values: Vec<_> = given
            .get_raw(setting.get_id().as_str())
            .into_iter()
            .flatten()
            .collect();
        if let Some(why) = error(setting, &values) {
            return Err(ExitError::Config(format!(
                "--{}: {why}",
                setting.get_long().unwrap_or_default()
            )));
        }
    }
    Ok(())
}

fn error(setting: &Arg, values: &[&OsStr]) -> Option<&'static str> {
    let texts: Option<Vec<&str>> = values.iter().map(|value| value.to_str()).collect();
    let Some(texts) = texts else {
        return Some("is not UTF-8");
    };
    let text = texts.join(",");
    let value_name = setting.get_value_names().unwrap_or_default().first();
    match value_name.map_or("", |name| name.as_str()) {
        // A path may hold a $(NAME) of its own.
        "JSON" => None,
        "PATTERN" => error_of_list(&text),
        _ if setting.is_hide_env_values_set() => error_of_secret(&text),
        _ if setting.get_value_delimiter().is_some() => {
            error_of_list(&text).or(error_of(text.trim()))
        }
        _ if is_url(&text) && text.trim().contains(char::is_whitespace) => {
            Some("holds a blank or a line end")
        }
        name if name.contains("FILE") && text.starts_with("file://") => {
            Some("is a URL: write the path alone, without file://")
        }
        _ => error_of(&text),
    }
}

/// Returns a warning for each member of a list of names that may be meant as several members. Names
/// of claims may hold a blank.
pub fn joined_members<'m>(flag: &str, members: impl IntoIterator<Item = &'m str>) -> Vec<String> {
    let mut warnings = Vec::new();
    for member in members {
        if member.contains(is_separator) && member.matches('=').count() != 1 {
            warnings.push(format!(
                "--{flag} '{member}': is one member of the list: commas separate several, as in a,b"
            ));
        }
    }
    warnings
}
