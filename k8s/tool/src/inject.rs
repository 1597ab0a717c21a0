//! Injection into manifests: labelled workloads get the sidecar, and the Services that select their
//! pods lead to it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::metadata::follow;
use crate::monitors::unserved;
use crate::object::{Object, PodView, Rejected, share_namespace, text};
use crate::original::take_away;
use crate::pod::add_sidecar;
use crate::ports::Ports;
use crate::services;
use crate::settings::Settings;
use crate::yaml::{Document, DocumentError};

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

/// The pods of one workload.
struct Pods<'v> {
    object: Object<'v>,
    view: PodView<'v>,
    /// `None` without a sidecar.
    protected: Option<Protected>,
}

/// A workload with a sidecar.
#[derive(Clone, Copy)]
struct Protected {
    ports: Ports,
    /// Its pods in the cluster get theirs at their rollout.
    is_live: bool,
}

/// Puts the sidecar into every labelled workload, and returns warnings. A workload that has one stays
/// as it is.
///
/// # Errors
/// For the first object that would look protected and not be.
pub(crate) fn inject(
    documents: &mut [Document],
    settings: &Settings,
) -> Result<Notes, DocumentError> {
    let mut notes = Notes::default();
    let services: Vec<Value> = services_of(documents).collect();
    let services: Vec<Object<'_>> = services.iter().map(Object::new).collect();
    let mut protected = Vec::new();
    for document in &mut *documents {
        let warnings = &mut notes.warnings;
        let found = of_workload(&mut document.value, settings, &services, warnings);
        protected.push(found.map_err(|rejected| error(document, &rejected))?);
    }
    let values: Vec<Value> = documents.iter().map(|each| each.value.clone()).collect();
    let objects: Vec<Object<'_>> = values.iter().map(Object::new).collect();
    let pods = objects
        .iter()
        .zip(protected)
        .filter_map(|(object, protected)| {
            let view = object.pod()?;
            Some(Pods {
                object: *object,
                view,
                protected,
            })
        });
    let pods: Vec<Pods<'_>> = pods.collect();
    notes.missing = missing(&pods, &objects);
    for document in &mut *documents {
        if Object::new(&document.value).kind() == "Service" {
            let moved = of_service(&mut document.value, &pods, &mut notes.warnings);
            let is_early = moved.map_err(|rejected| error(document, &rejected))?;
            if is_early {
                let service = Object::new(&document.value).described();
                notes.early.push(format!("{service}: {EARLY}"));
            }
        }
    }
    let after: Vec<Value> = documents.iter().map(|each| each.value.clone()).collect();
    let objects: Vec<Object<'_>> = after.iter().map(Object::new).collect();
    for Pods {
        object,
        view,
        protected,
    } in &pods
    {
        let ports = protected.map(|protected| protected.ports);
        let lines = ports.map(|ports| unserved(&objects, *object, view, ports));
        let lines = lines.into_iter().flatten();
        let lines = lines.map(|line| format!("{}: {line}", object.described()));
        notes.warnings.extend(lines);
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
        let object = Object::new(value);
        if !is_chosen(object) {
            continue;
        }
        let described = object.described();
        let is_labelled = object.is_protected() || object.wants_sidecar();
        let stays = take_away(value).unwrap_or_else(|| {
            let unknown = "not changed: it does not say what was replaced in it";
            Vec::from_iter(is_labelled.then(|| unknown.to_owned()))
        });
        warnings.extend(stays.iter().map(|why| format!("{described}: {why}")));
    }
    warnings
}

fn error(document: &Document, rejected: &Rejected) -> DocumentError {
    DocumentError {
        location: document.location.clone(),
        problem: rejected.to_string(),
    }
}

fn services_of(documents: &[Document]) -> impl Iterator<Item = Value> {
    let objects = documents.iter().map(|each| Object::new(&each.value));
    let services = objects.filter(|object| object.kind() == "Service");
    services.map(|object| object.value().clone())
}

fn of_workload(
    value: &mut Value,
    settings: &Settings,
    services: &[Object<'_>],
    warnings: &mut Vec<String>,
) -> Result<Option<Protected>, Rejected> {
    let object = Object::new(value);
    object.check()?;
    if object.pod().is_none() || !object.wants_sidecar() {
        return Ok(None);
    }
    let described = object.described();
    let mut warn = |all: Vec<String>| {
        let all = all.into_iter();
        warnings.extend(all.map(|warning| format!("{described}: {warning}")));
    };
    let is_live = !text(value, "/metadata/resourceVersion").is_empty() && !object.is_protected();
    warn(follow(value));
    if !Object::new(value).wants_sidecar() {
        return Ok(None);
    }
    let injected = add_sidecar(value, settings, services)?;
    warn(injected.warnings);
    Ok(Some(Protected {
        ports: injected.ports,
        is_live,
    }))
}

/// Returns a line for each object that sidecars read and the input lacks.
fn missing(pods: &[Pods<'_>], objects: &[Object<'_>]) -> BTreeSet<String> {
    let needed = pods.iter().flat_map(|pods| {
        let needed = pods.view.needed();
        needed.map(|(kind, name)| (pods.object, kind, name))
    });
    let lacks = |(pod, kind, name): &(Object<'_>, &str, &str)| {
        !objects.iter().any(|other| other.is_at(*pod, kind, name))
    };
    let line = |(pod, kind, name): (Object<'_>, &str, &str)| {
        let namespace = match pod.namespace() {
            "" => String::new(),
            namespace => format!("{namespace}/"),
        };
        format!(
            "{kind} {namespace}{name}: not in this input, and no pod starts without it: create it first"
        )
    };
    needed.filter(lacks).map(line).collect()
}

/// Moves a Service to the sidecars of its pods, and returns true if it leads to running pods without
/// one.
fn of_service(
    value: &mut Value,
    pods: &[Pods<'_>],
    warnings: &mut Vec<String>,
) -> Result<bool, Rejected> {
    let service = Object::new(value);
    let described = service.described();
    let mut warn = |warning: &str| warnings.push(format!("{described}: {warning}"));
    let selected = pods.iter().filter(|pods| {
        share_namespace(pods.object, service) && services::selects(service, pods.object, &pods.view)
    });
    let selected: Vec<&Pods<'_>> = selected.collect();
    let first = selected
        .iter()
        .find_map(|pods| Some((*pods, pods.protected?)));
    let is_exempt = services::is_exempt(service);
    let Some((first, Protected { ports, .. })) = first.filter(|_| !is_exempt) else {
        if is_exempt || !selected.is_empty() {
            let stays = take_away(value).unwrap_or_default();
            stays.iter().for_each(|why| warn(why));
        } else if service.wants_sidecar() {
            warn("selects no pods of this input: not changed");
        }
        return Ok(false);
    };
    let differs = |pods: &&Pods<'_>| pods.protected.is_none_or(|other| other.ports != ports);
    if selected.iter().any(differs) {
        return Err(Rejected::new(
            described,
            "selects pods with and without a sidecar, or with different ports",
        ));
    }
    let is_moved = services::move_to_sidecar(value, &first.view, ports)?;
    let is_live = |pods: &&Pods<'_>| pods.protected.is_some_and(|pods| pods.is_live);
    Ok(is_moved && selected.iter().any(is_live))
}
