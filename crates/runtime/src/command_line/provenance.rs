//! The sources of the settings that a failure names, because a setting of a file or a variable is
//! not on the command line.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use clap::{Arg, Parser};

use super::config_file::ConfigFile;
use super::former_names::names;
use super::{all_settings, command, default_variable, file_of, is_set, is_typed, lenient_matches};
use crate::process::exit::ExitError;

/// The end of a command line error, which stays its end.
pub(super) const SEE_HELP: &str = "; see --help";

/// Adds the variable or the file to the settings that the failure names. A defect of the program
/// itself stays as it is.
#[must_use]
pub fn with_provenance<C: Parser>(failure: ExitError) -> ExitError {
    if matches!(failure, ExitError::Software(_)) {
        return failure;
    }
    with_sources::<C, _>(|settings, sources| {
        failure.reworded(|text| sources.describe(settings, text))
    })
}

/// Returns a line for each key of the file that a variable overrides.
#[must_use]
pub fn overridden_keys<C: Parser>() -> Vec<String> {
    with_sources::<C, _>(|settings, sources| sources.overridden(settings).into_iter().collect())
}

/// Calls `describe` with the program's settings and their sources.
pub(super) fn with_sources<C: Parser, T>(describe: impl FnOnce(&[&Arg], &Sources<'_>) -> T) -> T {
    let arguments: Vec<_> = std::env::args_os().collect();
    let matches = lenient_matches::<C>(&arguments).ok();
    let file = matches.as_ref().and_then(file_of);
    let file = file.and_then(|path| ConfigFile::read(path).ok());
    let sources = Sources {
        arguments: &arguments,
        is_set: &is_set,
        file: file.as_ref(),
    };
    describe(&all_settings(&command::<C>()), &sources)
}

/// The sources of settings but for the program's own defaults, which are not a mistake.
pub(super) struct Sources<'a> {
    pub(super) arguments: &'a [OsString],
    pub(super) is_set: &'a dyn Fn(&OsStr) -> bool,
    pub(super) file: Option<&'a ConfigFile>,
}

impl Sources<'_> {
    pub(super) fn overridden(&self, settings: &[&Arg]) -> BTreeSet<String> {
        let line = |setting: &&Arg| {
            let variable = setting.get_env().filter(|name| (self.is_set)(name))?;
            let file = self.file.filter(|_| !is_typed(setting, self.arguments))?;
            let key = names(setting).find(|key| file.has(key))?;
            let (variable, file) = (variable.to_string_lossy(), file.path().display());
            Some(format!("{variable} overrides `{key}` in {file}"))
        };
        settings.iter().filter_map(line).collect()
    }

    pub(super) fn describe(&self, settings: &[&Arg], text: &str) -> String {
        let (described, end) = match text.strip_suffix(SEE_HELP) {
            Some(described) => (described, SEE_HELP),
            None => (text, ""),
        };
        let mut described = described.to_owned();
        let mut seen = Vec::new();
        for setting in settings {
            let Some(flag) = setting.get_long().filter(|flag| is_named(flag, text)) else {
                continue;
            };
            // Several commands may have it.
            if seen.contains(&flag) {
                continue;
            }
            seen.push(flag);
            if let Some(source) = self.source_of(setting, text) {
                described += &format!("; --{flag} comes from {source}");
            }
        }
        described + end
    }

    /// Returns `None` for a typed flag, a default, and a text that begins with the file.
    fn source_of(&self, setting: &Arg, text: &str) -> Option<String> {
        if is_typed(setting, self.arguments) {
            return None;
        }
        if let Some(variable) = setting.get_env().filter(|name| (self.is_set)(name)) {
            return Some(variable.to_string_lossy().into_owned());
        }
        let in_file = self.file.and_then(|file| {
            let key = names(setting).find(|key| file.has(key))?;
            Some((key, file.path().display().to_string()))
        });
        match in_file {
            Some((_, path)) if text.starts_with(&path) => None,
            Some((key, path)) => Some(format!("`{key}` in {path}")),
            None => {
                let variable = default_variable(setting.get_long()?);
                (self.is_set)(OsStr::new(&variable)).then_some(variable)
            }
        }
    }
}

/// Returns true if the text has the flag as a word of its own.
fn is_named(flag: &str, text: &str) -> bool {
    let flag = format!("--{flag}");
    let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '-';
    text.match_indices(&flag).any(|(start, _)| {
        let rest = text.get(start + flag.len()..).unwrap_or_default();
        !rest.starts_with(goes_on)
    })
}
