//! clap's refusal as one line that names the flag, and the file if the flag stood there.

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::from_file::FromFile;
use super::origin::SEE_HELP;
use super::{Stop, all_settings};
use crate::exit::Failure;

pub(super) fn refusal(command: &Command, from_file: &FromFile, error: clap::Error) -> Stop {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Stop::Help(error),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Stop::Failure(Failure::Usage(
            "a command is missing; see --help".to_owned(),
        )),
        _ => {
            let line = without_secret(command, &error, what_is_wrong(&error.to_string()));
            Stop::Failure(if from_file.is_named_in(&line) {
                Failure::Config(format!("{}: {line}", from_file.path.display()))
            } else {
                Failure::Usage(format!("{line}{SEE_HELP}"))
            })
        }
    }
}

/// clap's message without its usage and help paragraphs, on one line.
fn what_is_wrong(message: &str) -> String {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let said = message
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more "));
    let mut lines = said.map(str::trim).filter(|line| !line.is_empty());
    let mut sentence = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        // A value with a hyphen is hardly ever what was meant.
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
    in_plain_words(sentence)
}

/// What the standard library says of a number, for who has typed one.
fn in_plain_words(mut sentence: String) -> String {
    for (theirs, ours) in [
        ("invalid digit found in string", "expected a whole number"),
        (
            "cannot parse integer from empty string",
            "expected a whole number",
        ),
        (
            "number too large to fit in target type",
            "the number is too large",
        ),
        (
            "number too small to fit in target type",
            "the number is too small",
        ),
    ] {
        if let Some(start) = sentence.strip_suffix(theirs) {
            sentence = format!("{start}{ours}");
        }
    }
    sentence
}

/// clap quotes the value it refuses; a secret's must not reach a log.
fn without_secret(command: &Command, error: &clap::Error, line: String) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) if !text.is_empty() => Some(text),
        _ => None,
    };
    let (Some(flag), Some(value)) = (
        context(ContextKind::InvalidArg),
        context(ContextKind::InvalidValue),
    ) else {
        return line;
    };
    let secret = all_settings(command)
        .into_iter()
        .any(|setting| setting.is_hide_env_values_set() && setting.to_string() == *flag);
    if secret {
        line.replace(value, "…")
    } else {
        line
    }
}
