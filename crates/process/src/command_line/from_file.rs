//! The flags that a command line lacks, for the chosen subcommand: added from variables, below them from
//! the configuration file, and below the file from the defaults of an image.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use super::config_file::ConfigFile;
use super::sources::{chosen_subcommand, value_source};
use super::{VARIABLE_PREFIX, all_settings, default_variable, setting_named, settings};
use crate::exit::ExitError;
use crate::files::bounded_read::LINE_END;

/// Returns the flags of the settings of the chosen subcommand that are not given yet. Every key must
/// be a setting of the program, whose file has further keys; `variable` returns the value of a
/// variable.
pub(super) fn arguments(
    command: &Command,
    given: &ArgMatches,
    file: Option<(&ConfigFile, &[&str])>,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Vec<OsString>, ExitError> {
    if let Some((file, further)) = file {
        reject_wrong_keys(file, command, further)?;
    }
    let (chosen, given) = chosen_subcommand(command, given);
    let mut arguments = Vec::new();
    for setting in settings(chosen) {
        let Some(flag) = setting.get_long() else {
            continue;
        };
        match (value_source(setting, given), file) {
            // The command line ranks above every other source.
            (Some(ValueSource::CommandLine), _) => {}
            (Some(ValueSource::EnvVariable), _) => {
                // A variable becomes a flag, without the line end that clap would add to the value.
                let name = setting.get_env().unwrap_or_default().to_string_lossy();
                if let Some(value) = variable(&name) {
                    arguments.push(argument(flag, value));
                }
            }
            (_, Some((file, _))) if file.has(flag) => {
                arguments.extend(file.arguments_for(flag, setting)?);
            }
            _ => {
                if let Some(value) = variable(&default_variable(flag)) {
                    arguments.push(argument(flag, value));
                }
            }
        }
    }
    Ok(arguments)
}

/// Returns the flag with the value of a variable, without the line end of the file that the value was
/// copied from.
fn argument(flag: &str, value: OsString) -> OsString {
    let value = match value.into_string() {
        Ok(text) => text.trim_end_matches(LINE_END).into(),
        Err(value) => value,
    };
    // Join flag and value as bytes: a path in a variable need not be UTF-8.
    let mut argument = OsString::from(format!("--{flag}="));
    argument.push(value);
    argument
}

/// Rejects unknown keys and secrets.
fn reject_wrong_keys(
    file: &ConfigFile,
    command: &Command,
    further: &[&str],
) -> Result<(), ExitError> {
    for key in file.keys() {
        match setting_named(command, key) {
            None => {
                let mut why = "is no setting of this program".to_owned();
                let names = all_settings(command).into_iter().filter_map(Arg::get_long);
                if let Some(meant) = alike(key, names.chain(further.iter().copied())) {
                    why += &format!("; `{meant}` is");
                }
                return Err(file.reject(key, &why));
            }
            Some(setting) if setting.is_hide_env_values_set() => {
                return Err(file.reject(key, &format!("is a secret: give `{key}-file` instead")));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Returns the name that is most like a misspelt one.
#[must_use]
pub fn alike<'n>(misspelt: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    const ENOUGH: f64 = 0.9;
    let misspelt = own_part(misspelt);
    let mut best = None;
    let mut most = ENOUGH;
    for name in names {
        let likeness = strsim::jaro_winkler(&misspelt, &own_part(name));
        // Of equally good names the last one.
        if likeness > ENOUGH && likeness >= most {
            best = Some(name);
            most = likeness;
        }
    }
    best
}

/// Returns a name without the prefix of variables, which would make all variables alike.
fn own_part(name: &str) -> String {
    name.strip_prefix(VARIABLE_PREFIX)
        .unwrap_or(name)
        .replace('_', "-")
}
