//! The sources of the settings that a failure names, because a setting of a file or a variable is
//! not on the command line.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Parser};

use super::config_file::ConfigFile;
use super::former_names::names;
use super::{all_settings, command, file_of, is_set, is_typed, lenient_matches};
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

/// Three of the four sources of settings; a default is not a mistake.
pub(super) struct Sources<'a> {
    pub(super) arguments: &'a [OsString],
    pub(super) is_set: &'a dyn Fn(&OsStr) -> bool,
    pub(super) file: Option<&'a ConfigFile>,
}

impl Sources<'_> {
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
        let file = self.file?;
        let path = file.path().display().to_string();
        let key = names(setting).find(|key| file.has(key) && !text.starts_with(&path))?;
        Some(format!("`{key}` in {path}"))
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
