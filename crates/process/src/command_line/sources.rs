//! The source of each setting of the chosen command, as clap reports it: a failure names it, because
//! a setting of a file or a variable is not on the command line.

use std::ffi::{OsStr, OsString};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use super::config_file::ConfigFile;
use super::{WithFile, command, default_variable, file_of, is_set, lenient_matches, settings};
use crate::exit::ExitError;

/// The end of a command line error; a source is added in front of it.
pub(super) const SEE_HELP: &str = "; see --help";

/// Adds the variable or the file to the settings that the failure names. A defect of the program
/// itself stays as it is.
#[must_use]
pub fn with_sources<C: WithFile>(failure: ExitError) -> ExitError {
    // A defect of the program is not about a setting, even if its text names a flag.
    if matches!(failure, ExitError::Software(_)) {
        return failure;
    }
    failure.reworded(sourced::<C>)
}

/// Adds the variable or the file to the settings that the text names.
#[must_use]
pub fn sourced<C: WithFile>(text: &str) -> String {
    Sources::from_process::<C>().map_or_else(|| text.to_owned(), |sources| sources.describe(text))
}

/// Returns a line for each key of the file that a variable overrides.
#[must_use]
pub fn overridden_keys<C: WithFile>() -> Vec<String> {
    Sources::from_process::<C>().map_or(Vec::new(), |sources| sources.overridden())
}

/// The settings that command line and environment give to the chosen command, and the file.
pub(super) struct Sources {
    pub(super) command: Command,
    given: ArgMatches,
    file: Option<ConfigFile>,
}

impl Sources {
    pub(super) fn from_process<C: WithFile>() -> Option<Self> {
        Self::from_arguments::<C>(&std::env::args_os().collect::<Vec<_>>())
    }

    /// Returns `None` where help was requested.
    pub(super) fn from_arguments<C: WithFile>(arguments: &[OsString]) -> Option<Self> {
        let given = lenient_matches::<C>(arguments).ok()?;
        let file = file_of(&given).and_then(|path| ConfigFile::read(path).ok());
        let command = command::<C>();
        let (command, given) = chosen_subcommand(&command, &given);
        Some(Self {
            command: command.clone(),
            given: given.clone(),
            file,
        })
    }

    /// Returns the settings on the command line itself with their values.
    pub(super) fn typed(&self) -> impl Iterator<Item = (&Arg, Vec<&OsStr>)> {
        let is_typed =
            |setting: &&Arg| value_source(setting, &self.given) == Some(ValueSource::CommandLine);
        let values = |setting: &Arg| self.given.get_raw(setting.get_id().as_str());
        settings(&self.command)
            .filter(is_typed)
            .map(move |setting| (setting, values(setting).into_iter().flatten().collect()))
    }

    fn overridden(&self) -> Vec<String> {
        settings(&self.command)
            .filter_map(|setting| {
                let variable = self.variable(setting)?;
                let (key, file) = self.key(setting)?;
                Some(format!("{variable} overrides {key} in {file}"))
            })
            .collect()
    }

    pub(super) fn describe(&self, text: &str) -> String {
        let (described, end) = match text.strip_suffix(SEE_HELP) {
            Some(described) => (described, SEE_HELP),
            None => (text, ""),
        };
        let mut described = described.to_owned();
        for setting in settings(&self.command) {
            // Search the text as it was: the added sources name flags as well.
            let flag = setting.get_long().filter(|flag| is_named(flag, text));
            if let Some((flag, source)) = flag.zip(self.describe_source(setting, text)) {
                described += &format!("; --{flag} comes from {source}");
            }
        }
        described + end
    }

    /// Returns the variable or the file; `None` for a typed flag, a default, and a text that begins with
    /// the file.
    fn describe_source(&self, setting: &Arg, text: &str) -> Option<String> {
        if value_source(setting, &self.given) == Some(ValueSource::CommandLine) {
            return None;
        }
        match self.key(setting) {
            Some((_, file)) if self.variable(setting).is_none() && text.starts_with(&file) => None,
            _ => self.source(setting),
        }
    }

    /// Returns the source of the setting; `None` for a default of the program.
    pub(super) fn source(&self, setting: &Arg) -> Option<String> {
        if value_source(setting, &self.given) == Some(ValueSource::CommandLine) {
            return Some("the command line".to_owned());
        }
        if let Some(variable) = self.variable(setting) {
            return Some(variable);
        }
        if let Some((key, file)) = self.key(setting) {
            return Some(format!("{key} in {file}"));
        }
        let variable = default_variable(setting.get_long()?);
        is_set(&variable).then_some(variable)
    }

    pub(super) fn is_in_file(&self, key: &str) -> bool {
        self.file.as_ref().is_some_and(|file| file.has(key))
    }

    /// Returns the variable that gives the setting.
    fn variable(&self, setting: &Arg) -> Option<String> {
        if value_source(setting, &self.given) != Some(ValueSource::EnvVariable) {
            return None;
        }
        Some(setting.get_env()?.to_string_lossy().into_owned())
    }

    /// Returns the setting's quoted key and the path of the file that has it.
    fn key(&self, setting: &Arg) -> Option<(String, String)> {
        let (key, file) = (setting.get_long()?, self.file.as_ref()?);
        let path = || file.path().display().to_string();
        file.has(key).then(|| (format!("`{key}`"), path()))
    }
}

/// Descends to the subcommand that the command line names.
pub(super) fn chosen_subcommand<'a>(
    command: &'a Command,
    given: &'a ArgMatches,
) -> (&'a Command, &'a ArgMatches) {
    given
        .subcommand()
        .and_then(|(name, given)| Some((command.find_subcommand(name)?, given)))
        .map_or((command, given), |(command, given)| {
            chosen_subcommand(command, given)
        })
}

pub(super) fn value_source(setting: &Arg, given: &ArgMatches) -> Option<ValueSource> {
    given.value_source(setting.get_id().as_str())
}

/// Returns true if the text has the flag as a word of its own.
fn is_named(flag: &str, text: &str) -> bool {
    let flag = format!("--{flag}");
    // `--listen` is no word of its own within `--listen-admin`.
    let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '-';
    text.match_indices(&flag).any(|(start, _)| {
        !text
            .get(start + flag.len()..)
            .unwrap_or_default()
            .starts_with(goes_on)
    })
}
