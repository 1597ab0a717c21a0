//! Injection into manifests: labelled workloads get the sidecar, and the Services that select their
//! pods lead to it.

use std::collections::BTreeSet;

use runtime::process::exit::ExitError;
use serde_json::Value;

use crate::metadata::follow;
use crate::monitors::unserved;
use crate::object::{Object, text};
use crate::original::take_away;
use crate::pod::add_sidecar;
use crate::ports::{self, Ports};
use crate::services;
use crate::settings::Settings;
use crate::yaml::{Document, error};

/// Of a Service whose pods have their sidecars later.
const EARLY: &str = "is moved at once, before the pods that it leads to have their sidecars: apply --only workloads, wait for the rollout, then apply --only services";

/// Warnings for the operator.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) warnings: Vec<String>,
    /// Objects that sidecars read and the input lacks.
    pub(crate) missing: BTreeSet<String>,
    /// Services that lead to running pods without sidecars.
    pub(crate) early: Vec<String>,
}

/// An object whose pods Services may select.
struct Workload<'v> {
    object: Object<'v>,
    pod: Object<'v>,
    /// `None` without a sidecar.
    ports: Option<Ports>,
    /// Its pods in the cluster get their sidecars at their rollout.
    is_live: bool,
}

/// Puts the sidecar into every labelled workload, and returns warnings. A workload that has one stays
/// as it is.
///
/// # Errors
/// For the first object that would look protected and not be.
pub(crate) fn inject(documents: &mut [Document], settings: &Settings) -> Result<Notes, ExitError> {
    let mut notes = Notes::default();
    let before = values(documents);
    for document in &mut *documents {
        let all = before.iter().map(Object::new);
        let warnings = of_workload(&mut document.value, settings, all);
        let warnings = warnings.map_err(|why| rejected(document, &why))?;
        notes.warnings.extend(warnings);
    }
    let after = values(documents);
    let workloads = before.iter().zip(&after).filter_map(workload);
    let workloads: Vec<Workload<'_>> = workloads.collect();
    for document in &mut *documents {
        let moved = of_service(&mut document.value, &workloads, &mut notes);
        moved.map_err(|why| rejected(document, &why))?;
    }
    let after = values(documents);
    let objects: Vec<Object<'_>> = after.iter().map(Object::new).collect();
    for Workload {
        object, pod, ports, ..
    } in workloads
    {
        notes.missing.extend(missing(object, pod, &objects));
        let lines = ports.map(|ports| unserved(&objects, object, ports));
        notes
            .warnings
            .extend(described(object, lines.unwrap_or_default()));
    }
    Ok(notes)
}

/// Takes away what was put into the chosen objects, and returns what stays.
pub(crate) fn remove(
    documents: &mut [Document],
    is_chosen: impl Fn(Object<'_>) -> bool,
) -> Vec<String> {
    let mut warnings = Vec::new();
    for Document { value, .. } in documents {
        let before = value.clone();
        let object = Object::new(&before);
        if !is_chosen(object) {
            continue;
        }
        let is_labelled = object.is_protected() || object.wants_sidecar();
        let stays = take_away(value).unwrap_or_else(|| {
            let unknown = "not changed: it does not say what was replaced in it";
            Vec::from_iter(is_labelled.then(|| unknown.to_owned()))
        });
        warnings.extend(described(object, stays));
    }
    warnings
}

fn rejected(document: &Document, why: &str) -> ExitError {
    let object = Object::new(&document.value).described();
    error(&document.location, format!("{object}: {why}"))
}

fn values(documents: &[Document]) -> Vec<Value> {
    documents.iter().map(|each| each.value.clone()).collect()
}

/// Puts the object's name in front of each line.
fn described(object: Object<'_>, lines: Vec<String>) -> impl Iterator<Item = String> {
    let described = object.described();
    lines
        .into_iter()
        .map(move |line| format!("{described}: {line}"))
}

/// Returns a workload by the object before and after its injection.
fn workload<'v>((before, after): (&Value, &'v Value)) -> Option<Workload<'v>> {
    let object = Object::new(after);
    let pod = object.pod()?;
    let is_protected = object.wants_sidecar() && pod.sidecar().is_some();
    let is_running = !text(before, "/metadata/resourceVersion").is_empty();
    Some(Workload {
        object,
        pod,
        ports: Ports::of(pod).ok().filter(|_| is_protected),
        is_live: is_running && !Object::new(before).is_protected(),
    })
}

/// Puts the sidecar into a labelled workload, and returns warnings.
fn of_workload<'v>(
    value: &mut Value,
    settings: &Settings,
    input: impl Iterator<Item = Object<'v>>,
) -> Result<Vec<String>, String> {
    let before = value.clone();
    let object = Object::new(&before);
    object.check()?;
    if object.pod().is_none() || !object.wants_sidecar() {
        return Ok(Vec::new());
    }
    let mut warnings = follow(value);
    if Object::new(value).wants_sidecar() {
        warnings.extend(add_sidecar(value, settings, input)?);
    }
    Ok(described(object, warnings).collect())
}

/// Returns a line for each object that a sidecar reads and the input lacks.
fn missing(owner: Object<'_>, pod: Object<'_>, input: &[Object<'_>]) -> Vec<String> {
    let namespace = match owner.namespace() {
        "" => String::new(),
        namespace => format!("{namespace}/"),
    };
    let lacks =
        |(kind, name): &(&str, &str)| !input.iter().any(|other| other.is_at(owner, kind, name));
    let line = |(kind, name)| {
        format!(
            "{kind} {namespace}{name}: not in this input, and no pod starts without it: create it first"
        )
    };
    pod.needed().filter(lacks).map(line).collect()
}

/// Moves a Service to the sidecars of its pods.
fn of_service(
    value: &mut Value,
    workloads: &[Workload<'_>],
    notes: &mut Notes,
) -> Result<(), String> {
    let before = value.clone();
    let service = Object::new(&before);
    if service.kind() != "Service" {
        return Ok(());
    }
    let selected = workloads.iter();
    let selected = selected.filter(|each| services::selects(service, each.object));
    let selected: Vec<&Workload<'_>> = selected.collect();
    let is_exempt = services::is_exempt(service);
    let first = selected
        .iter()
        .find_map(|each| Some((each.pod, each.ports?)));
    let Some((pod, own)) = first.filter(|_| !is_exempt) else {
        let lines = if is_exempt || !selected.is_empty() {
            take_away(value).unwrap_or_default()
        } else {
            let unknown = "selects no pods of this input: not changed".to_owned();
            Vec::from_iter(service.wants_sidecar().then_some(unknown))
        };
        notes.warnings.extend(described(service, lines));
        return Ok(());
    };
    if selected.iter().any(|each| each.ports != Some(own)) {
        let why = "selects pods with and without a sidecar, or with different ports";
        return Err(why.to_owned());
    }
    let is_moved = services::move_to_sidecar(value, own, |target| {
        own.service.is_some() && ports::resolved(pod, target) == own.service
    })?;
    if is_moved && selected.iter().any(|each| each.is_live) {
        notes
            .early
            .push(format!("{}: {EARLY}", service.described()));
    }
    Ok(())
}
