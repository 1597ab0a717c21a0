//! `postern-k8s lint`: what looks protected and is not.

use runtime::process::exit::ExitError;
use runtime::process::output;

use super::inject::inputs;
use crate::cli::LintArgs;
use crate::lint::{Finding, Level, lint, render};

/// Runs the command.
///
/// # Errors
/// For a finding: an error, or with `--strict` a warning.
pub(crate) fn run(args: &LintArgs) -> Result<(), ExitError> {
    let found = lint(&inputs(&args.files)?);
    let found = found.map_err(|(file, error)| ExitError::Config(format!("-f {file}: {error}")))?;
    output::print(&render(&found, args.output))?;
    let counts = |finding: &&Finding| match finding.level {
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
