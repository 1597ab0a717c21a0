//! `sidecar check`: the effective configuration, with warnings about it.

use postern_process::clock::unix_now;
use postern_process::exit::{self, ExitError};
use postern_process::output;

use self::online::Findings;
use crate::cli::{CheckArgs, ServeArgs};
use crate::config::Config;
use crate::issuers::IssuerSettings;
use crate::issuers::source::KeySource;

mod online;
mod paths;

/// Runs the command. Overridden keys of the file are reported, and accepted with `--strict`.
///
/// # Errors
/// For an unusable configuration.
pub(crate) fn run(
    args: &CheckArgs,
    unknown_variables: Vec<String>,
    overridden: &[String],
) -> Result<(), ExitError> {
    let settings = &args.settings;
    let config = Config::new(settings)?;
    config.reject_ended_reporting(unix_now())?;
    // Certificates and key files are part of the configuration.
    let (mut sources, mut source_warnings) = (Vec::new(), Vec::new());
    for issuer in config.issuers.iter().chain(&config.list_source) {
        let (source, warning) = issuer.open()?;
        sources.push((issuer, source));
        source_warnings.extend(warning);
    }
    let found = if args.online {
        online::run_checks(&config, &mut sources)?
    } else {
        Findings::default()
    };
    let warnings: Vec<String> = unknown_variables
        .into_iter()
        .chain(config.warnings_at_the_start())
        .chain(source_warnings)
        .chain(found.warnings.iter().cloned())
        .collect();
    let toml = as_toml(settings, overridden.iter().chain(&warnings))?;
    let paths = if args.paths {
        paths::comments(&config.rules.auth_policy)
    } else {
        String::new()
    };
    output::print(&format!("{toml}{paths}{found}"))?;
    // After the output, so that the operator sees all findings and not only the first error.
    found.verdict()?;
    exit::end_check(args.strict, &warnings, overridden.len())
}

/// An issuer and its open source.
type Source<'c> = (&'c IssuerSettings, KeySource);

/// Renders the configuration as a file, with warnings as comments.
fn as_toml<'w>(
    args: &ServeArgs,
    warnings: impl Iterator<Item = &'w String>,
) -> Result<String, ExitError> {
    let warnings: String = warnings
        .map(|warning| format!("# warning: {warning}\n"))
        .collect();
    Ok(warnings + &args.to_toml()?)
}
