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

/// Of a Service whose pods have their sidecars later.
const EARLY: &str = "is moved at once, before the pods that it leads to have their sidecars: apply --only workloads, wait for the rollout, then apply --only services";

/// Of a Service whose workloads have no label, or are in another input.
const ALONE: &str = "has the label postern/sidecar, and no workload here that it selects has it: label the workload, or give its file too";

/// Puts the sidecar into every labelled workload, and moves the Services of its pods. A workload that
/// has one stays as it is.
///
/// # Errors
/// For the first object that would look protected and not be.
pub(crate) fn inject(documents: &mut [Document], settings: &Settings) -> Result<(), ExitError> {
    // Before the sidecars are put in: these pods run without one until their rollout.
    let is_running = |object: &Object<'_>| !text(object.0, "/metadata/resourceVersion").is_empty();
    let without: BTreeSet<String> = objects(documents)
        .filter(|each| is_running(each) && !each.is_protected())
        .map(Object::described)
        .collect();
    // Workloads first: Services are moved only to pods that have a sidecar by now.
    change(documents, |value, input| {
        let warnings = change_workload(value, input, settings)?;
        Ok([warnings, missing(Object(value), input)].concat())
    })?;
    change(documents, |value, input| {
        change_service(value, input, &without)
    })
}

/// Returns a line for each object that `inject` would change or reject: it looks protected and is
/// not. Others have warnings.
pub(crate) fn lint(input: &[Document], settings: &Settings) -> (Vec<String>, Vec<String>) {
    let (mut found, mut warnings) = (Vec::new(), Vec::new());
    for document in input {
        let object = Object(&document.value);
        let mut value = document.value.clone();
        let changed = change_workload(&mut value, input, settings)
            .and_then(|_| change_service(&mut value, input, &BTreeSet::new()));
        let line = |why: &str| format!("{}: {}: {why}", document.location, object.described());
        match changed {
            Err(why) => found.push(line(&why)),
            Ok(lines) if value == document.value => {
                warnings.extend(lines.iter().map(|why| line(why)));
            }
            Ok(_) if object.kind() == "Service" => found.push(line("leads past the sidecar")),
            Ok(_) => found.push(line(
                "has no sidecar: the service is reached without a token",
            )),
        }
    }
    (found, warnings)
}

/// Returns a line for each object that the sidecar reads and the input lacks.
fn missing(owner: Object<'_>, input: &[Document]) -> Vec<String> {
    let lacking = owner
        .pod()
        .into_iter()
        .flat_map(Object::needed)
        .filter(|(kind, name)| {
            let mut all = objects(input).filter(|each| share_namespace(*each, owner));
            !all.any(|each| each.kind() == *kind && each.name() == *name)
        });
    let why = "is not in this input, and no pod starts without it: create it first";
    lacking
        .map(|(kind, name)| format!("the {kind} {name} {why}"))
        .collect()
}

/// Takes away what was put into the chosen objects.
pub(crate) fn remove(documents: &mut [Document], is_chosen: impl Fn(Object<'_>) -> bool) {
    for document in documents {
        let object = Object(&document.value);
        if is_chosen(object) {
            let is_labelled = object.is_protected() || object.wants_sidecar();
            let unknown = "not changed: it does not say what was replaced in it";
            let unknown = is_labelled.then(|| unknown.to_owned());
            let stays = take_away(&mut document.value);
            warn(document, stays.unwrap_or_else(|| Vec::from_iter(unknown)));
        }
    }
}

fn warn(document: &mut Document, lines: Vec<String>) {
    let object = Object(&document.value).described();
    let lines = lines.iter().map(|line| format!("{object}: {line}"));
    document.warnings.extend(lines);
}

/// Replaces each object by what it becomes among all of them.
fn change(
    documents: &mut [Document],
    changed: impl Fn(&mut Value, &[Document]) -> Result<Vec<String>, String>,
) -> Result<(), ExitError> {
    let of_document = |document: &Document| {
        let mut value = document.value.clone();
        let line = |why| format!("{}: {why}", Object(&document.value).described());
        match changed(&mut value, documents) {
            Ok(warnings) => Ok((value, warnings)),
            Err(why) => Err(error(&document.location, &line(why))),
        }
    };
    // All before any is replaced: each is changed beside the input as it was.
    let all: Result<Vec<_>, ExitError> = documents.iter().map(of_document).collect();
    for (document, (value, warnings)) in documents.iter_mut().zip(all?) {
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

/// Moves a Service to the sidecars of its pods. `without` are running workloads that have none yet.
fn change_service(
    value: &mut Value,
    input: &[Document],
    without: &BTreeSet<String>,
) -> Result<Vec<String>, String> {
    let service = Object(value);
    let selected: Vec<Object<'_>> = objects(input)
        .filter(|each| services::selects(service, *each))
        .collect();
    if service.kind() != "Service" {
        return Ok(Vec::new());
    }
    let is_alone = service.wants_sidecar() && !selected.iter().any(|each| each.wants_sidecar());
    let alone = Vec::from_iter(is_alone.then(|| ALONE.to_owned()));
    let is_exempt = services::is_exempt(service);
    if selected.is_empty() && !is_exempt {
        return Ok(alone);
    }
    let Some((pod, port)) = selected
        .iter()
        .find_map(|each| ports::protected_port(*each))
        .filter(|_| !is_exempt)
    else {
        return Ok([take_away(value).unwrap_or_default(), alone].concat());
    };
    let mut others = selected.iter().map(|each| ports::protected_port(*each));
    if others.any(|other| other.is_none_or(|(_, other)| other != port)) {
        return Err("selects pods with and without a sidecar, or with different ports".to_owned());
    }
    let is_moved = services::move_to_sidecar(value, |target| {
        // A service on a socket has no port that could lead to it.
        port.is_some() && ports::resolved(pod, target) == port
    })?;
    let mut selected = selected.iter().map(|each| each.described());
    let is_early = is_moved && selected.any(|described| without.contains(&described));
    let warning = is_early.then(|| EARLY.to_owned());
    Ok(Vec::from_iter(warning))
}
