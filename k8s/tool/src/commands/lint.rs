//! `postern-k8s lint`: what `inject` would change or reject.

use runtime::process::exit::{ExitError, one_line};
use runtime::process::output;

use super::inject::documents;
use crate::cli::{LintArgs, SidecarsArgs};
use crate::inject::lint;
use crate::settings::Settings;

/// Runs the command.
///
/// # Errors
/// For any such object.
pub(crate) fn run(args: &LintArgs) -> Result<(), ExitError> {
    let documents = documents(&args.files)?;
    let found = lint(&documents, &Settings::new(&SidecarsArgs::default())?);
    let lines = found.iter().map(|each| one_line(each) + "\n");
    output::print(&lines.collect::<String>())?;
    match found.len() {
        0 => Ok(()),
        count => Err(ExitError::Config(format!("errors: {count}"))),
    }
}
