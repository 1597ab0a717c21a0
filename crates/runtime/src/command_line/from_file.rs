//! The flags that the configuration file, and below it the defaults of an image, add to a command
//! line: those of the chosen subcommand that neither the command line nor the environment has.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use super::config_file::ConfigFile;
use super::former_names::names;
use super::{all_settings, default_variable, settings};
use crate::process::exit::ExitError;

/// The flags of the settings in the configuration file, and those of defaults.
#[derive(Debug, Default)]
pub(super) struct FromFile {
    pub(super) path: PathBuf,
    keys: Vec<String>,
    pub(super) arguments: Vec<OsString>,
}

impl FromFile {
    /// Takes the settings of the chosen subcommand that are not given yet. Every key must be a
    /// setting of the program; `variable` returns the value of a default.
    pub(super) fn resolve(
        command: &Command,
        given: &ArgMatches,
        file: Option<ConfigFile>,
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Self, ExitError> {
        if let Some(file) = &file {
            reject_wrong_keys(file, command)?;
        }
        let (chosen, given) = chosen_subcommand(command, given);
        let mut resolved = Self::default();
        for setting in settings(chosen).filter(|setting| !is_given(setting, given)) {
            let in_file = file.as_ref().and_then(|file| {
                let key = names(setting).find(|name| file.has(name))?;
                Some((file, key))
            });
            let Some((file, key)) = in_file else {
                resolved.arguments.extend(default(setting, variable));
                continue;
            };
            let arguments = file.arguments_for(key, setting)?;
            if !arguments.is_empty() {
                // clap's messages have the present name.
                resolved.keys.extend(setting.get_long().map(str::to_owned));
                resolved.arguments.extend(arguments);
            }
        }
        resolved.path = file.map(ConfigFile::into_path).unwrap_or_default();
        Ok(resolved)
    }

    /// Returns true if a line of clap's message is about a flag of the file.
    pub(super) fn is_named_in(&self, line: &str) -> bool {
        let names = |key: &String| {
            let flag = format!("'--{key}");
            let mut ends = [" ", "'", "["].into_iter();
            ends.any(|end| line.contains(&format!("{flag}{end}")))
        };
        self.keys.iter().any(names)
    }
}

fn default(setting: &Arg, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<OsString> {
    let flag = setting.get_long()?;
    let mut argument = OsString::from(format!("--{flag}="));
    argument.push(variable(&default_variable(flag))?);
    Some(argument)
}

/// Rejects unknown keys, secrets, and a setting under two names.
fn reject_wrong_keys(file: &ConfigFile, command: &Command) -> Result<(), ExitError> {
    let known = all_settings(command);
    let named = |key: &str| {
        let mut settings = known.iter();
        let setting = settings.find(|setting| names(setting).any(|name| name == key))?;
        Some((setting, setting.get_long()?))
    };
    for key in file.keys() {
        match named(key) {
            None => {
                let meant = named(&key.replace('_', "-"));
                let meant = meant.map(|(_, name)| format!("; `{name}` is"));
                let why = format!("is no setting of this program{}", meant.unwrap_or_default());
                return Err(file.reject(key, &why));
            }
            Some((setting, name)) if setting.is_hide_env_values_set() => {
                let advice = format!("is a secret: give `{name}-file` instead");
                return Err(file.reject(key, &advice));
            }
            Some((_, name)) if name != key && file.has(name) => {
                let why = format!("and `{name}` are two names of one setting");
                return Err(file.reject(key, &why));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn chosen_subcommand<'a>(
    command: &'a Command,
    given: &'a ArgMatches,
) -> (&'a Command, &'a ArgMatches) {
    let next = given
        .subcommand()
        .and_then(|(name, given)| Some((command.find_subcommand(name)?, given)));
    next.map_or((command, given), |(command, given)| {
        chosen_subcommand(command, given)
    })
}

fn is_given(setting: &Arg, given: &ArgMatches) -> bool {
    let source = given.value_source(setting.get_id().as_str());
    matches!(
        source,
        Some(ValueSource::CommandLine | ValueSource::EnvVariable)
    )
}
