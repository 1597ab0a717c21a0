//! `postern-k8s inject`: manifests in, manifests with sidecars out; `lint`: what that would change.

use std::path::Path;

use postern_process::exit::{ExitError, one_line};
use postern_process::files::bounded_read;
use postern_process::{command_line, output};

use crate::cli::{InjectArgs, LintArgs, Only, SidecarsArgs};
use crate::container::settings::Settings;
use crate::inject::{inject, lint, remove};
use crate::manifest::object::Object;
use crate::yaml::{self, Document};

/// Far more than a cluster's manifests.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
const NONE_LABELLED: &str = "nothing is changed: no object has the label postern/sidecar: \"true\"";
const STANDARD_INPUT: &str = "-";

/// Runs the command.
///
/// # Errors
/// For input that cannot be read, and for an object that cannot have a sidecar.
pub(crate) fn run(args: &InjectArgs) -> Result<(), ExitError> {
    let settings = Settings::new(&args.sidecars)?;
    let mut documents = documents(&args.files)?;
    // Other settings make other sidecars: the present ones go first, and are put in anew.
    if args.remove || args.sidecars != SidecarsArgs::default() {
        remove(&mut documents, |each| args.remove || each.is_protected());
    }
    if !args.remove {
        inject(&mut documents, &settings)?;
        if !documents
            .iter()
            .any(|each| Object(&each.value).wants_sidecar())
        {
            command_line::warn(&[NONE_LABELLED.to_owned()]);
        }
    }
    let is_printed = |document: &&Document| {
        let is_service = Object(&document.value).kind() == "Service";
        args.only
            .is_none_or(|only| (only == Only::Services) == is_service)
    };
    let printed = documents.iter().filter(is_printed);
    let warnings = printed.clone().flat_map(|each| each.warnings.clone());
    command_line::warn(&warnings.collect::<Vec<_>>());
    output::print(&yaml::stream(printed.map(|each| &each.value)))
}

/// Runs `lint`.
///
/// # Errors
/// For input that cannot be read, and for an object that `inject` would change or reject.
pub(crate) fn run_lint(args: &LintArgs) -> Result<(), ExitError> {
    let settings = Settings::new(&SidecarsArgs::default())?;
    let (found, warnings) = lint(&documents(&args.files)?, &settings);
    command_line::warn(&warnings);
    let lines = found.iter().map(|each| one_line(each) + "\n");
    output::print(&lines.collect::<String>())?;
    match found.len() {
        0 => Ok(()),
        1 => Err(ExitError::Config("1 problem".to_owned())),
        count => Err(ExitError::Config(format!("{count} problems"))),
    }
}

fn documents(files: &[String]) -> Result<Vec<Document>, ExitError> {
    let mut all = Vec::new();
    for file in files {
        all.extend(yaml::documents(file, &text(file)?)?);
    }
    Ok(all)
}

fn text(file: &str) -> Result<String, ExitError> {
    let read = match file {
        STANDARD_INPUT => bounded_read::text_of(std::io::stdin().lock(), MAX_BYTES),
        path => bounded_read::read_text(Path::new(path), MAX_BYTES),
    };
    let text = read.map_err(|error| ExitError::Config(format!("-f {file}: {error}")))?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned())
}
