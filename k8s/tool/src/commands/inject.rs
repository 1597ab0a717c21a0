//! `postern-k8s inject`: manifests in, manifests with sidecars out; `lint`: what that would change.

use std::path::Path;

use postern_process::exit::{ExitError, one_line};
use postern_process::files::bounded_read;
use postern_process::{command_line, output};

use crate::cli::{InjectArgs, LintArgs, Only, SidecarsArgs};
use crate::container::settings::{AUTH_SERVER, Settings};
use crate::inject::{inject, lint, remove};
use crate::manifest::object::{Object, objects, text, variable};
use crate::yaml::{self, Document};

/// The size of an input: far more than a cluster's manifests.
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
    // Other settings make other sidecars: remove the present sidecars first, then put in new ones.
    if args.remove || args.sidecars != SidecarsArgs::default() {
        remove(&mut documents, |each| args.remove || each.is_protected());
    }
    if !args.remove {
        inject(&mut documents, &settings)?;
        if !objects(&documents).any(Object::wants_sidecar) {
            command_line::warn(&[NONE_LABELLED.to_owned()]);
        }
    }
    documents.retain(|each| is_printed(Object(&each.value), args.only));
    for document in &documents {
        command_line::warn(&document.warnings);
    }
    if !args.remove {
        command_line::warn(&defaults(&documents, &args.sidecars, &settings));
    }
    output::print(&yaml::stream(documents.iter().map(|each| &each.value)))
}

fn is_printed(object: Object<'_>, only: Option<Only>) -> bool {
    match only {
        None => true,
        Some(Only::Services) => object.kind() == "Service",
        Some(Only::Workloads) => object.kind() != "Service",
    }
}

/// Returns a line for each default of printed sidecars that few clusters can use.
fn defaults(printed: &[Document], args: &SidecarsArgs, settings: &Settings) -> Vec<String> {
    let sidecars: Vec<_> = objects(printed)
        .filter_map(|each| each.pod()?.sidecar())
        .collect();
    let mut lines = Vec::new();
    let image = &settings.image;
    if args.image.is_none() && sidecars.iter().any(|each| text(each, "/image") == image) {
        lines.push(format!(
            "no --image: {image} is in no registry: push it to yours, and give its name there"
        ));
    }
    if let Some(server) = settings.component.settings.get(AUTH_SERVER)
        && !args.set.iter().any(|pair| pair.starts_with(AUTH_SERVER))
        && sidecars
            .iter()
            .any(|each| variable(each, AUTH_SERVER).as_ref() == Some(server))
    {
        lines.push(format!(
            "no --set of a source of keys: sidecars fetch from {server}, a Service of their own namespace: give POSTERN_AUTH_SERVER, POSTERN_ISSUER_URL or POSTERN_JWKS"
        ));
    }
    lines
}

/// Runs `lint`.
///
/// # Errors
/// For input that cannot be read, and for an object that `inject` would change or reject.
pub(crate) fn run_lint(args: &LintArgs) -> Result<(), ExitError> {
    let settings = Settings::new(&SidecarsArgs::default())?;
    let findings = lint(&documents(&args.files)?, &settings);
    command_line::warn(&findings.warnings);
    let lines = findings.problems.iter().map(|each| one_line(each) + "\n");
    output::print(&lines.collect::<String>())?;
    match findings.problems.len() {
        0 => Ok(()),
        1 => Err(ExitError::Config("1 problem".to_owned())),
        count => Err(ExitError::Config(format!("{count} problems"))),
    }
}

fn documents(files: &[String]) -> Result<Vec<Document>, ExitError> {
    let mut all = Vec::new();
    for file in files {
        let text = match file.as_str() {
            STANDARD_INPUT => bounded_read::text_of(std::io::stdin().lock(), MAX_BYTES),
            path => bounded_read::read_text(Path::new(path), MAX_BYTES),
        }
        .map_err(|error| ExitError::Config(format!("-f {file}: {error}")))?;
        all.extend(yaml::documents(file, &text)?);
    }
    Ok(all)
}
