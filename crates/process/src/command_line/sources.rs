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
    match Sources::from_process::<C>() {
        Some(sources) => sources.describe(text),
        None => text.to_owned(),
    }
}

/// Returns a line for each key of the file that a variable overrides.
#[must_use]
pub fn overridden_keys<C: WithFile>() -> Vec<String> {
    match Sources::from_process::<C>() {
        Some(sources) => sources.overridden(),
        None => Vec::new(),
    }
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
        let typed = settings(&self.command).filter(move |setting| self.is_typed(setting));
        typed.map(move |setting| {
            let values = self.given.get_raw(setting.get_id().as_str());
            (setting, values.into_iter().flatten().collect())
        })
    }

    fn overridden(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for setting in settings(&self.command) {
            if let Some(variable) = self.variable(setting)
                && let Some(key) = self.key_in_file(setting)
            {
                lines.push(format!("{variable} overrides {key}"));
            }
        }
        lines
    }

    /// Returns the text of a failure with the source of each setting that it names, in front of [`SEE_HELP`].
    pub(super) fn describe(&self, text: &str) -> String {
        let (described, end) = match text.strip_suffix(SEE_HELP) {
            Some(described) => (described, SEE_HELP),
            None => (text, ""),
        };
        let mut described = described.to_owned();
        for setting in settings(&self.command) {
            // Search the text as it was: the added sources name flags as well.
            if let Some(flag) = setting.get_long()
                && is_named(flag, text)
                && let Some(source) = self.describe_source(setting, text)
            {
                described += &format!("; --{flag} comes from {source}");
            }
        }
        described + end
    }

    /// Returns the variable or the file; `None` for a typed flag, a default, and a text that begins with
    /// the file.
    fn describe_source(&self, setting: &Arg, text: &str) -> Option<String> {
        let is_of_file = self.variable(setting).is_none() && self.key_in_file(setting).is_some();
        if self.is_typed(setting) || is_of_file && self.begins_with_file(text) {
            return None;
        }
        self.source(setting)
    }

    fn begins_with_file(&self, text: &str) -> bool {
        match &self.file {
            Some(file) => text.starts_with(&file.path().display().to_string()),
            None => false,
        }
    }

    fn is_typed(&self, setting: &Arg) -> bool {
        value_source(setting, &self.given) == Some(ValueSource::CommandLine)
    }

    /// Returns the source of the setting; `None` for a default of the program.
    pub(super) fn source(&self, setting: &Arg) -> Option<String> {
        if self.is_typed(setting) {
            return Some("the command line".to_owned());
        }
        if let Some(given) = self.variable(setting).or_else(|| self.key_in_file(setting)) {
            return Some(given);
        }
        let variable = default_variable(setting.get_long()?);
        is_set(&variable).then_some(variable)
    }

    pub(super) fn is_in_file(&self, key: &str) -> bool {
        match &self.file {
            Some(file) => file.has(key),
            None => false,
        }
    }

    /// Returns the variable that gives the setting.
    fn variable(&self, setting: &Arg) -> Option<String> {
        if value_source(setting, &self.given) != Some(ValueSource::EnvVariable) {
            return None;
        }
        Some(setting.get_env()?.to_string_lossy().into_owned())
    }

    /// Returns the setting's quoted key, with the path of the file that has it.
    fn key_in_file(&self, setting: &Arg) -> Option<String> {
        let key = setting.get_long()?;
        let file = self.file.as_ref()?;
        if !file.has(key) {
            return None;
        }
        Some(format!("`{key}` in {}", file.path().display()))
    }
}

/// Descends to the subcommand that the command line names.
pub(super) fn chosen_subcommand<'a>(
    command: &'a Command,
    given: &'a ArgMatches,
) -> (&'a Command, &'a ArgMatches) {
    if let Some((name, given)) = given.subcommand()
        && let Some(subcommand) = command.find_subcommand(name)
    {
        return chosen_subcommand(subcommand, given);
    }
    (command, given)
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
