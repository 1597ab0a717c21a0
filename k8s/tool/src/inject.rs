//! Injection into manifests: labelled workloads get the sidecar, and the Services that select their
//! pods lead to it.

use std::collections::BTreeSet;

use postern_process::exit::ExitError;
use serde_json::Value;

use crate::container::settings::Settings;
use crate::manifest::metadata::take_away_if_unlabelled;
use crate::manifest::object::{Object, objects, share_namespace, text};
use crate::manifest::original::take_away;
use crate::network::{ports, services};
use crate::pod::add_sidecar;
use crate::yaml::{Document, error};

/// The warning about a Service whose pods have their sidecars later.
const EARLY: &str = "is moved at once, before the pods that it leads to have their sidecars: apply --only workloads, wait for the rollout, then apply --only services";

/// The warning about a Service whose workloads have no label, or are in another input.
const ALONE: &str = "has the label postern/sidecar, and no workload here that it selects has it: label the workload, or give its file too";

/// Puts the sidecar into every labelled workload, and moves the Services of its pods. A workload that
/// has one stays as it is.
///
/// # Errors
/// For the first object that would look protected and not be.
pub(crate) fn inject(documents: &mut [Document], settings: &Settings) -> Result<(), ExitError> {
    // Before the sidecars are put in: these pods run without one until their rollout.
    let mut unprotected = BTreeSet::new();
    for object in objects(documents) {
        let is_running = !text(object.0, "/metadata/resourceVersion").is_empty();
        if is_running && !object.is_protected() {
            unprotected.insert(object.described());
        }
    }
    // Workloads first: Services are moved only to pods that have a sidecar by now.
    change(documents, |value, input| {
        let warnings = change_workload(value, input, settings)?;
        Ok([warnings, missing(Object(value), input)].concat())
    })?;
    change(documents, |value, input| {
        change_service(value, input, &unprotected)
    })
}

/// The lines of `lint`.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// A line for each object that `inject` would change or reject: it looks protected and is not.
    pub(crate) problems: Vec<String>,
    /// Lines about other objects.
    pub(crate) warnings: Vec<String>,
}

/// Returns what `inject` would do with the objects.
pub(crate) fn lint(input: &[Document], settings: &Settings) -> Findings {
    let mut findings = Findings::default();
    for document in input {
        let object = Object(&document.value);
        let line = |why: &str| format!("{}: {}: {why}", document.location, object.described());
        let mut value = document.value.clone();
        let changed = change_workload(&mut value, input, settings)
            .and_then(|_| change_service(&mut value, input, &BTreeSet::new()));
        let problem = match &changed {
            Ok(warnings) if value == document.value => {
                findings
                    .warnings
                    .extend(warnings.iter().map(|why| line(why)));
                continue;
            }
            Ok(_) if object.kind() == "Service" => "leads past the sidecar",
            Ok(_) => "has no sidecar: the service is reached without a token",
            Err(why) => why.as_str(),
        };
        findings.problems.push(line(problem));
    }
    findings
}

/// Returns a line for each object that the sidecar reads and the input lacks.
fn missing(owner: Object<'_>, input: &[Document]) -> Vec<String> {
    let mut lines = Vec::new();
    for (kind, name) in owner.pod().into_iter().flat_map(Object::needed) {
        let mut all = objects(input).filter(|each| share_namespace(*each, owner));
        if !all.any(|each| each.kind() == kind && each.name() == name) {
            lines.push(format!(
                "the {kind} {name} is not in this input, and no pod starts without it: create it first"
            ));
        }
    }
    lines
}

/// Takes away what was put into the chosen objects.
pub(crate) fn remove(documents: &mut [Document], is_chosen: impl Fn(Object<'_>) -> bool) {
    for document in documents {
        let object = Object(&document.value);
        if !is_chosen(object) {
            continue;
        }
        let is_labelled = object.is_protected() || object.wants_sidecar();
        let warnings = match take_away(&mut document.value) {
            Some(edited) => edited,
            None if is_labelled => {
                vec!["not changed: it does not say what was replaced in it".to_owned()]
            }
            None => Vec::new(),
        };
        warn(document, warnings);
    }
}

fn warn(document: &mut Document, lines: Vec<String>) {
    let object = Object(&document.value).described();
    for line in lines {
        document.warnings.push(format!("{object}: {line}"));
    }
}

/// Replaces each object by what it becomes among all of them.
fn change(
    documents: &mut [Document],
    changed: impl Fn(&mut Value, &[Document]) -> Result<Vec<String>, String>,
) -> Result<(), ExitError> {
    // Replace none before all are changed: each change depends on the whole input as it was.
    let mut all = Vec::new();
    for document in &*documents {
        let mut value = document.value.clone();
        match changed(&mut value, documents) {
            Ok(warnings) => all.push((value, warnings)),
            Err(why) => {
                let why = format!("{}: {why}", Object(&document.value).described());
                return Err(error(&document.location, &why));
            }
        }
    }
    for (document, (value, warnings)) in documents.iter_mut().zip(all) {
        document.value = value;
        warn(document, warnings);
    }
    Ok(())
}

/// Puts the sidecar into a labelled workload, and returns warnings.
///
/// # Errors
/// The reason why it would look protected and not be; the object is then of no use.
pub(crate) fn change_workload(
    value: &mut Value,
    input: &[Document],
    settings: &Settings,
) -> Result<Vec<String>, String> {
    let object = Object(value);
    object.check()?;
    if object.pod().is_none() || !object.wants_sidecar() {
        return Ok(Vec::new());
    }
    let mut warnings = take_away_if_unlabelled(value);
    if Object(value).wants_sidecar() {
        warnings.extend(add_sidecar(value, settings, input)?);
    }
    Ok(warnings)
}

/// Moves a Service to the sidecars of its pods. `unprotected` are running workloads that have none yet.
fn change_service(
    value: &mut Value,
    input: &[Document],
    unprotected: &BTreeSet<String>,
) -> Result<Vec<String>, String> {
    let service = Object(value);
    if service.kind() != "Service" {
        return Ok(Vec::new());
    }
    let selected: Vec<Object<'_>> = objects(input)
        .filter(|each| services::selects(service, *each))
        .collect();
    let mut alone = Vec::new();
    if service.wants_sidecar() && !selected.iter().copied().any(Object::wants_sidecar) {
        alone.push(ALONE.to_owned());
    }
    let is_exempt = services::is_exempt(service);
    if selected.is_empty() && !is_exempt {
        return Ok(alone);
    }
    let mut protected = selected.iter().copied().filter_map(ports::protected_port);
    let (pod, port) = match protected.next() {
        Some(protected) if !is_exempt => protected,
        // It leads to no sidecar, or may lead past one: a former move is undone.
        _ => return Ok([take_away(value).unwrap_or_default(), alone].concat()),
    };
    let mut others = selected.iter().copied().map(ports::protected_port);
    if others.any(|other| other.map(|(_, its_port)| its_port) != Some(port)) {
        return Err("selects pods with and without a sidecar, or with different ports".to_owned());
    }
    let is_moved = services::move_to_sidecar(value, |target| {
        // A service on a socket has no port that could lead to it.
        port.is_some() && ports::target_port(pod, target) == port
    })?;
    for workload in selected {
        if is_moved && unprotected.contains(&workload.described()) {
            return Ok(vec![EARLY.to_owned()]);
        }
    }
    Ok(Vec::new())
}
