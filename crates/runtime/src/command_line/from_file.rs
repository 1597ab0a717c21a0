//! The flags that the configuration file, and below it the defaults of an image, add to a command
//! line: those of the chosen subcommand that neither the command line nor the environment has.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use super::config_file::ConfigFile;
use super::sources::{chosen_subcommand, source};
use super::{all_settings, default_variable, setting_named, settings};
use crate::process::exit::ExitError;

/// The flags of the settings in the configuration file, and those of defaults.
#[derive(Debug, Default)]
pub(super) struct FromFile {
    pub(super) path: PathBuf,
    keys: Vec<String>,
    pub(super) arguments: Vec<OsString>,
}

impl FromFile {
    /// Takes the settings of the chosen subcommand that are not given yet. Every key must be a setting
    /// of the program, whose file has further keys; `variable` returns the value of a default.
    pub(super) fn resolve(
        command: &Command,
        given: &ArgMatches,
        file: Option<(&ConfigFile, &[&str])>,
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Self, ExitError> {
        if let Some((file, further)) = file {
            reject_wrong_keys(file, command, further)?;
        }
        let file = file.map(|(file, _)| file);
        let (chosen, given) = chosen_subcommand(command, given);
        let mut resolved = Self::default();
        for setting in settings(chosen).filter(|setting| !is_given(setting, given)) {
            let in_file = file.and_then(|file| {
                let key = setting.get_long()?;
                file.has(key).then_some((file, key))
            });
            let Some((file, key)) = in_file else {
                resolved.arguments.extend(default(setting, variable));
                continue;
            };
            let arguments = file.arguments_for(key, setting)?;
            if !arguments.is_empty() {
                resolved.keys.push(key.to_owned());
                resolved.arguments.extend(arguments);
            }
        }
        resolved.path = file.map(|file| file.path().to_owned()).unwrap_or_default();
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
