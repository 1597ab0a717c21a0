//! One set of settings from these sources: flag > `POSTERN_*` variable > TOML file > default of an
//! image or a unit (`POSTERN_DEFAULT_*`) > default.
//!
//! A program declares its flags with clap and nothing else. A flag with `env` is a setting: its
//! long name is its key in the file. A setting with `hide_env_values` is a secret and is rejected
//! in the file. `--config FILE` itself is added here. clap ranks and validates: settings of the file
//! become further flags, unless the command line or the environment has them. A setting that no flag
//! can say stands in the file alone ([`WithFile`]).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::OsStringValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Command, Parser, value_parser};
use postern_http::pasted::{error_around, is_separator};

use self::clap_errors::exit_error;
pub use self::config_file::{ConfigFile, MAX_CONFIG_BYTES};
pub use self::exposed::exposed_secrets;
pub use self::from_file::alike;
pub use self::given::given;
pub use self::pasted::joined_members;
pub use self::sources::{overridden_keys, sourced, with_sources};
use self::switch::with_switches;
use crate::exit::{ExitError, one_line};

mod clap_errors;
pub mod completions;
mod config_file;
mod exposed;
mod from_file;
mod given;
mod pasted;
pub mod seconds;
pub mod serialize;
mod sources;
mod switch;
pub mod texts;

const CONFIG: &str = "config";
const VARIABLE_PREFIX: &str = "POSTERN_";
const DEFAULT_PREFIX: &str = "POSTERN_DEFAULT_";
/// The end of the help of `serve`.
const EVERYWHERE: &str = "Each setting is also a variable (--log-level is POSTERN_LOG_LEVEL) and a key of the file of --config.";

/// A command line whose file says more than its flags.
pub trait WithFile: Parser {
    /// The keys that no flag has, or that may hold tables in place of the flag's value.
    const KEYS: &'static [&'static str] = &[];

    /// The settings of `serve` that most people need, which `serve -h` lists: words.
    const SUMMARY: &'static str = "";

    /// Takes [`Self::KEYS`] from the file, for the commands that use them; other commands leave them unread.
    ///
    /// # Errors
    /// [`ExitError::Config`] for the first unusable key.
    fn take(&mut self, _file: &ConfigFile) -> Result<(), ExitError> {
        Ok(())
    }
}

/// Parses the program's settings. `--help` and `--version` print and end the process.
///
/// # Errors
/// [`ExitError::Usage`] for a wrong flag or variable, [`ExitError::Config`] for an unusable file.
pub fn parse<C: WithFile>() -> Result<C, ExitError> {
    match parse_from(std::env::args_os().collect()) {
        Ok(settings) => Ok(settings),
        Err(ParseOutcome::Help(help)) => help.exit(),
        Err(ParseOutcome::Failure(failure)) => Err(failure),
    }
}

/// Returns a warning for each `POSTERN_*` variable that is not a setting, for the log of a server.
#[must_use]
pub fn unknown_variables<C: WithFile>() -> Vec<String> {
    unknown(&command::<C>(), std::env::vars_os().map(|(name, _)| name)).collect()
}

/// Returns the warning about an unusable variable that is not ours, with the effect. The warning never
/// holds the value, which may have a password.
#[must_use]
pub fn unusable_variable(effect: &str, name: &str, why: &str) -> String {
    format!("{effect}: {name}: {why}")
}

/// Prints the warnings of a command that does not serve.
pub fn warn(warnings: &[String]) {
    for warning in warnings {
        let _ = writeln!(std::io::stderr(), "warning: {}", one_line(warning));
    }
}

/// Parses the settings again, with the present text of their file; command line and environment
/// are unchanged. Prints nothing and does not end the process.
///
/// # Errors
/// Those of [`parse`].
pub fn reread<C: WithFile>() -> Result<C, ExitError> {
    parse_words(std::env::args_os())
}

/// Parses a command line with the settings of its file; tests write a command line of their own.
///
/// # Errors
/// Those of [`parse`].
pub fn parse_words<C: WithFile>(
    words: impl IntoIterator<Item = impl Into<OsString>>,
) -> Result<C, ExitError> {
    parse_from(words.into_iter().map(Into::into).collect()).map_err(|stop| match stop {
        ParseOutcome::Failure(failure) => failure,
        ParseOutcome::Help(_) => ExitError::Software("help was requested".to_owned()),
    })
}

/// Returns the file of settings, if there is one.
#[must_use]
pub fn config_file<C: WithFile>() -> Option<PathBuf> {
    let arguments: Vec<_> = std::env::args_os().collect();
    file_of(&lenient_matches::<C>(&arguments).ok()?).cloned()
}

/// Parses a name that other programs compare byte for byte.
///
/// # Errors
/// For an empty value, which is a mistake in a manifest, and for characters that a file of variables
/// leaves around a value: quotes, blanks, a carriage return.
pub fn name(text: &str) -> Result<String, &'static str> {
    match (text, error_around(text)) {
        ("", _) => Err("is empty"),
        _ if text.contains(char::is_control) => Err("holds a control character"),
        (_, Some(why)) => Err(why),
        _ => Ok(text.to_owned()),
    }
}

/// Parses a member of a list, which may have blanks around it, as in `a, b`.
///
/// # Errors
/// The parse errors of the type, and an error for an empty member.
pub fn member<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    let text = text.trim();
    match text.parse() {
        _ if text.is_empty() => Err(EMPTY_MEMBER.to_owned()),
        Err(error) if text.contains(is_separator) => {
            Err(format!("{error}; commas separate the members of a list"))
        }
        parsed => parsed.map_err(|error: T::Err| error.to_string()),
    }
}

const EMPTY_MEMBER: &str = "is empty; a list has no comma at an end, nor two in a row";

/// Parses a [`name`] that is a [`member`] of a list.
///
/// # Errors
/// Those of [`name`].
pub fn member_name(text: &str) -> Result<String, &'static str> {
    match text.trim() {
        "" => Err(EMPTY_MEMBER),
        text => name(text),
    }
}

/// Returns the arguments before a `--`, after which everything is an operand.
fn before_operands(arguments: &[OsString]) -> &[OsString] {
    arguments
        .split(|argument| argument == "--")
        .next()
        .unwrap_or_default()
}

/// An end of parsing without settings.
#[derive(Debug)]
enum ParseOutcome {
    /// Help or version was requested.
    Help(clap::Error),
    Failure(ExitError),
}

impl From<ExitError> for ParseOutcome {
    fn from(failure: ExitError) -> Self {
        Self::Failure(failure)
    }
}

fn parse_from<C: WithFile>(mut arguments: Vec<OsString>) -> Result<C, ParseOutcome> {
    // A first pass finds the command and the file; the last pass checks the values.
    let given = lenient_matches::<C>(&arguments)?;
    let mut command = command::<C>();
    // Build the command, so that the global flags stand in every subcommand.
    command.build();
    let mut file = None;
    if let Some(path) = file_of(&given) {
        let read = file.insert(ConfigFile::read(path)?);
        // `settings.take` reads these keys from the text; as flags they would be unknown.
        read.remove(C::KEYS, |name| setting_named(&command, name).is_some());
    }
    let keys = file.as_ref().map(|file| (file, C::KEYS));
    let added = from_file::arguments(&command, &given, keys, &|name| std::env::var_os(name))?;
    // After a `--` the added flags would be operands.
    let end = before_operands(&arguments).len();
    arguments.splice(end..end, added);
    // Check the values of all sources before clap does, whose errors do not name this cause.
    pasted::reject(&command, &lenient_matches::<C>(&arguments)?)?;

    let outcome = |error: clap::Error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ParseOutcome::Help(error),
        _ => exit_error(&command, &given, &error).into(),
    };
    let mut matches = command
        .clone()
        .try_get_matches_from(&arguments)
        .map_err(outcome)?;
    let mut settings = C::from_arg_matches_mut(&mut matches).map_err(outcome)?;
    if let Some(file) = &file {
        settings
            .take(file)
            .map_err(|failure| failure.reworded(|text| below_a_table(&command, text)))?;
    }
    Ok(settings)
}

/// Adds the remedy for a setting that TOML takes for a member of the table above it.
fn below_a_table(command: &Command, text: &str) -> String {
    if let Some((_, rest)) = text.split_once("unknown key `")
        && let Some((key, _)) = rest.split_once('`')
        && setting_named(command, key).is_some()
    {
        return format!("{text}; as a setting of the program it belongs above the first [[…]]");
    }
    text.to_owned()
}

/// Returns the program's command with `--config` and the names of its variables.
#[must_use]
pub fn command<C: WithFile>() -> Command {
    let config = Arg::new(CONFIG)
        .long(CONFIG)
        .env("POSTERN_CONFIG")
        .hide_env(true)
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .global(true)
        .display_order(0)
        .help("TOML file with settings; its keys are the long names of the flags");
    let command = with_variables(C::command()).arg(config);
    with_summary(with_short_check(with_switches(command)), C::SUMMARY)
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}

/// Names the variable of each flag with `env` after the flag: `--a-b` is `POSTERN_A_B`.
fn with_variables(command: Command) -> Command {
    command
        .mut_args(|arg| match variable_of(&arg) {
            Some(variable) => arg.env(variable).hide_env(true),
            None => arg,
        })
        .mut_subcommands(with_variables)
}

/// Returns the name of the flag's variable, unless the flag has none or names one itself.
fn variable_of(arg: &Arg) -> Option<String> {
    // Without a name of its own clap derives one from the id.
    if arg.get_env()? != in_capitals(arg.get_id().as_str()).as_str() {
        return None;
    }
    Some(variable(arg.get_long()?))
}

fn variable(flag: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", in_capitals(flag))
}

/// Returns the variable by which an image or a unit brings a setting; it ranks below the operator's file.
fn default_variable(flag: &str) -> String {
    format!("{DEFAULT_PREFIX}{}", in_capitals(flag))
}

fn in_capitals(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

/// Lists only the flags of `check` itself in its help, although `check` takes all flags of `serve`.
fn with_short_check(command: Command) -> Command {
    if command.find_subcommand("check").is_none() {
        return command;
    }
    command.mut_subcommand("check", |check| {
        let check = check.mut_args(|argument| {
            let is_setting = argument.get_env().is_some() && argument.get_id() != CONFIG;
            argument.hide(is_setting)
        });
        check.after_help("All settings of `serve` are options of `check`, with the same meaning.")
    })
}

/// Leaves to `serve -h` the settings of these names.
fn with_summary(command: Command, names: &str) -> Command {
    if names.is_empty() {
        return command;
    }
    command.mut_subcommand("serve", |serve| {
        let serve = serve.mut_args(|setting| {
            let is_rare = match setting.get_long() {
                Some(own) => names.split_whitespace().all(|name| name != own),
                None => false,
            };
            setting.hide_short_help(is_rare)
        });
        let examples = serve.get_after_help().map(ToString::to_string);
        let help = format!("{}\n\n{EVERYWHERE}", examples.unwrap_or_default());
        serve
            .after_help(format!("{help} All settings: --help"))
            .after_long_help(help)
    })
}

/// Parses command line and environment alone. Settings of the file may be missing and values are
/// taken as they are: the real parse rejects.
fn lenient_matches<C: WithFile>(arguments: &[OsString]) -> Result<ArgMatches, ParseOutcome> {
    let lenient = command::<C>().ignore_errors(true).args_override_self(true);
    with_any_values(lenient.clone())
        .try_get_matches_from(arguments)
        // Help was requested: return the help with the values that each setting takes.
        .or_else(|_| lenient.try_get_matches_from(arguments))
        .map_err(ParseOutcome::Help)
}

fn with_any_values(command: Command) -> Command {
    command
        .mut_args(|arg| match arg.get_env() {
            Some(_) if arg.get_id() != CONFIG => arg.value_parser(OsStringValueParser::new()),
            _ => arg,
        })
        .mut_subcommands(with_any_values)
}

fn file_of(given: &ArgMatches) -> Option<&PathBuf> {
    given.get_one(CONFIG)
}

/// Returns the flags of one command that are settings.
pub fn settings(command: &Command) -> impl Iterator<Item = &Arg> {
    command
        .get_arguments()
        .filter(|arg| arg.get_env().is_some() && arg.get_id() != CONFIG)
}

fn all_settings(command: &Command) -> Vec<&Arg> {
    settings(command)
        .chain(command.get_subcommands().flat_map(all_settings))
        .collect()
}

/// Returns the setting of this long name.
fn setting_named<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    all_settings(command)
        .into_iter()
        .find(|setting| setting.get_long() == Some(name))
}

/// Warns of `POSTERN_*` variables that no setting is read from: a misspelt one would have no effect. Not
/// fatal, because Kubernetes and shared environment files set variables for other programs too.
fn unknown(command: &Command, set: impl Iterator<Item = OsString>) -> impl Iterator<Item = String> {
    let mut known = BTreeSet::new();
    for setting in all_settings(command) {
        known.extend(setting.get_env().map(OsString::from));
        let flag = setting.get_long();
        known.extend(flag.map(|flag| OsString::from(default_variable(flag))));
    }
    let ours: BTreeSet<String> = set
        .filter(|name| name != "POSTERN_CONFIG" && !known.contains(name))
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.starts_with(VARIABLE_PREFIX))
        .collect();
    ours.into_iter().map(move |name| {
        let hint = hint(&name, &known);
        format!("{name} is no setting of this program: ignored{hint}")
    })
}

/// Returns the variable that was probably meant, as the end of a warning.
fn hint(name: &str, known: &BTreeSet<OsString>) -> String {
    if let Some(setting) = name.strip_suffix("_FILE")
        && known.contains(OsStr::new(setting))
    {
        return format!("; {setting} takes the value itself");
    }
    match alike(name, known.iter().filter_map(|known| known.to_str())) {
        Some(meant) => format!("; did you mean {meant}?"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests;
