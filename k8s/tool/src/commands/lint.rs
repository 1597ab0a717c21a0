//! `postern-k8s lint`: what looks protected and is not.

use runtime::process::exit::ExitError;
use runtime::process::output;

use super::inject::documents;
use crate::cli::{LintArgs, SidecarsArgs};
use crate::lint::{Finding, Level, lint};
use crate::settings::Settings;

/// Runs the command.
///
/// # Errors
/// For a finding: an error, or with `--strict` a warning.
pub(crate) fn run(args: &LintArgs) -> Result<(), ExitError> {
    let documents = documents(&args.files)?;
    let found = lint(&documents, &Settings::new(&SidecarsArgs::default())?);
    let lines = found.iter().map(|finding| format!("{finding}\n"));
    output::print(&lines.collect::<String>())?;
    let counts = |finding: &&Finding<'_>| match finding.level {
        Level::Error => true,
        Level::Warning => args.strict,
        Level::Note => false,
    };
    match found.iter().filter(counts).count() {
        0 => Ok(()),
        1 => Err(ExitError::Config("1 finding".to_owned())),
        more => Err(ExitError::Config(format!("{more} findings"))),
    }
}
