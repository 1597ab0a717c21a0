//! clap's errors as one line that names the flag.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command};

use super::sources::SEE_HELP;
use super::{all_settings, setting_named};
use crate::exit::ExitError;
use crate::files::toml_error::in_plain_words;
use postern_http::host::host_port::{is_url, redacted};

/// Returns an unusable, missing or excluded setting as a configuration failure, regardless of its
/// source, and any other error as a command line failure.
pub(super) fn exit_error(command: &Command, given: &ArgMatches, error: &clap::Error) -> ExitError {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return ExitError::Usage("a command is missing; see --help".to_owned());
    }
    // Remove a secret first: lines are joined below, and a secret may have several lines.
    let mut line = what_is_wrong(&without_secret(command, error, error.to_string()));
    line += &missing_command(command, given, error);
    line += &uses(command, error);
    line += SEE_HELP;
    if is_configuration(command, error) {
        ExitError::Config(line)
    } else {
        ExitError::Usage(line)
    }
}

/// Returns the remedy for a setting of `serve` without a command in front.
fn missing_command(command: &Command, given: &ArgMatches, error: &clap::Error) -> String {
    let typed = named_flags(error, ContextKind::InvalidArg);
    let serve = command.find_subcommand("serve");
    let setting = serve.and_then(|serve| setting_named(serve, typed.first()?));
    match given.subcommand_name() {
        None if error.kind() == ErrorKind::UnknownArgument && setting.is_some() => {
            format!("; it is a setting of `{} serve`", command.get_name())
        }
        _ => String::new(),
    }
}

/// Returns the remedy for settings that exclude each other: what each is for.
fn uses(command: &Command, error: &clap::Error) -> String {
    let mut names = named_flags(error, ContextKind::InvalidArg);
    names.extend(named_flags(error, ContextKind::PriorArg));
    // A flag that stands there twice.
    names.dedup();
    let mut uses = Vec::new();
    for name in &names {
        if let Some(help) = setting_named(command, name).and_then(Arg::get_help) {
            uses.push(format!("--{name} ({help})"));
        }
    }
    if error.kind() != ErrorKind::ArgumentConflict || uses.len() < 2 {
        return String::new();
    }
    format!("; drop one: {}", uses.join(", "))
}

/// Returns true for an error about settings of the program alone.
fn is_configuration(command: &Command, error: &clap::Error) -> bool {
    let named = named_flags(error, ContextKind::InvalidArg);
    error.kind() != ErrorKind::UnknownArgument
        && !named.is_empty()
        && named
            .iter()
            .all(|flag| setting_named(command, flag).is_some())
}

/// Returns the long names that a context holds; an operand has the empty name.
fn named_flags(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    let texts = match error.get(kind) {
        Some(ContextValue::String(text)) => std::slice::from_ref(text),
        Some(ContextValue::Strings(texts)) => texts,
        _ => return Vec::new(),
    };
    let is_behind = |c: char| !c.is_ascii_alphanumeric() && c != '-';
    let mut names = Vec::new();
    for text in texts {
        // A text without a flag names an operand.
        if !text.contains("--") {
            names.push(String::new());
        }
        for rest in text.split("--").skip(1) {
            names.push(rest.split(is_behind).next().unwrap_or_default().to_owned());
        }
    }
    names
}

/// Returns clap's message without its usage and help paragraphs, on one line.
fn what_is_wrong(message: &str) -> String {
    let mut lines = message
        .strip_prefix("error: ")
        .unwrap_or(message)
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more "))
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let mut sentence = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        // A value with a hyphen is nearly always a mistake.
        if line.starts_with("tip: to pass ") {
            continue;
        }
        sentence += match (line.strip_prefix("tip: "), sentence.ends_with(':')) {
            (Some(_), _) => "; ",
            (None, true) => " ",
            (None, false) if line.starts_with('[') => " ",
            (None, false) => ", ",
        };
        sentence += line.strip_prefix("tip: ").unwrap_or(line);
    }
    in_plain_words(&sentence)
}

/// Removes the rejected value, which clap quotes, if it is a secret, or the part of a URL that may be one.
fn without_secret(command: &Command, error: &clap::Error, line: String) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) if !text.is_empty() => Some(text),
        _ => None,
    };
    // Without a value in the error nothing is to be removed.
    let (Some(flag), Some(value)) = (
        context(ContextKind::InvalidArg),
        context(ContextKind::InvalidValue),
    ) else {
        return line;
    };
    for setting in all_settings(command) {
        if setting.is_hide_env_values_set() && setting.to_string() == *flag {
            return line.replace(value, "…");
        }
    }
    if is_url(value) {
        line.replace(value, &redacted(value))
    } else {
        line
    }
}
