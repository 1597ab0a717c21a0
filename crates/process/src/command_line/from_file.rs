//! The flags that the configuration file, and below it the defaults of an image, add to a command
//! line: those of the chosen subcommand that neither the command line nor the environment has.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use super::config_file::ConfigFile;
use super::sources::{chosen_subcommand, source};
use super::{all_settings, default_variable, setting_named, settings};
use crate::exit::ExitError;

/// Returns the flags of the settings of the chosen subcommand that are not given yet. Every key must
/// be a setting of the program, whose file has further keys; `variable` returns the value of a
/// default.
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
    for setting in settings(chosen).filter(|setting| !is_given(setting, given)) {
        let in_file = file.and_then(|(file, _)| {
            let key = setting.get_long()?;
            file.has(key).then_some((file, key))
        });
        match in_file {
            Some((file, key)) => arguments.extend(file.arguments_for(key, setting)?),
            None => arguments.extend(default(setting, variable)),
        }
    }
    Ok(arguments)
}

fn default(setting: &Arg, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<OsString> {
    let flag = setting.get_long()?;
    let mut argument = OsString::from(format!("--{flag}="));
    argument.push(variable(&default_variable(flag))?);
    Some(argument)
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
                let known = all_settings(command).into_iter();
                let names = known.filter_map(Arg::get_long);
                let meant = alike(key, names.chain(further.iter().copied()));
                let meant = meant.map(|name| format!("; `{name}` is"));
                let why = format!("is no setting of this program{}", meant.unwrap_or_default());
                return Err(file.reject(key, &why));
            }
            Some(setting) if setting.is_hide_env_values_set() => {
                let advice = format!("is a secret: give `{key}-file` instead");
                return Err(file.reject(key, &advice));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Returns the name that is most like a misspelt one.
fn alike<'n>(key: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    const ENOUGH: f64 = 0.9;
    let key = key.replace('_', "-");
    let likeness = names.map(|name| (strsim::jaro_winkler(&key, name), name));
    let best = likeness.max_by(|one, other| one.0.total_cmp(&other.0));
    best.filter(|(likeness, _)| *likeness > ENOUGH)
        .map(|(_, name)| name)
}

fn is_given(setting: &Arg, given: &ArgMatches) -> bool {
    matches!(
        source(setting, given),
        Some(ValueSource::CommandLine | ValueSource::EnvVariable)
    )
}
