//! `postern-k8s lint`: what looks protected and is not.

use runtime::process::exit::{ExitError, one_line};
use runtime::process::output;

use super::inject::documents;
use crate::cli::{LintArgs, SidecarsArgs};
use crate::lint::{Level, lint};
use crate::settings::Settings;

/// Runs the command.
///
/// # Errors
/// For a finding that is an error.
pub(crate) fn run(args: &LintArgs) -> Result<(), ExitError> {
    let documents = documents(&args.files)?;
    let found = lint(&documents, &Settings::new(&SidecarsArgs::default())?);
    let lines = found.iter().map(|each| one_line(&each.to_string()) + "\n");
    output::print(&lines.collect::<String>())?;
    let errors = found.iter().filter(|each| each.level == Level::Error);
    match errors.count() {
        0 => Ok(()),
        count => Err(ExitError::Config(format!("errors: {count}"))),
    }
}
