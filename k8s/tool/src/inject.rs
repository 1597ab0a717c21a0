//! Injection into manifests: labelled workloads get the sidecar, and the Services that select their
//! pods lead to it.

use serde_json::Value;

use crate::object::{Object, PodView, Rejected, objects, objects_mut, share_namespace};
use crate::pod::add_sidecar;
use crate::ports::Ports;
use crate::services;
use crate::settings::Settings;
use crate::yaml::{Document, Location};

/// The reason why nothing is printed.
#[derive(Debug, thiserror::Error)]
#[error("{location}: {rejected}")]
pub(crate) struct InjectError {
    location: Location,
    rejected: Rejected,
}

/// The pods of one workload.
struct Pods<'v> {
    object: Object<'v>,
    view: PodView<'v>,
    /// `None` without a sidecar.
    ports: Option<Ports>,
}

/// Puts the sidecar into every labelled workload, and returns warnings for the operator. A workload
/// that has one stays as it is.
///
/// # Errors
/// For the first object that would look protected and not be.
pub(crate) fn inject(
    documents: &mut [Document],
    settings: &Settings,
) -> Result<Vec<String>, InjectError> {
    let mut warnings = Vec::new();
    let mut ports = Vec::new();
    for Document { location, value } in &mut *documents {
        for object in objects_mut(value) {
            let found = of_workload(object, settings, &mut warnings);
            ports.push(found.map_err(|rejected| InjectError {
                location: location.clone(),
                rejected,
            })?);
        }
    }
    let injected: Vec<Value> = documents.iter().map(|each| each.value.clone()).collect();
    let objects = injected.iter().flat_map(objects).zip(ports);
    let pods: Vec<Pods<'_>> = objects
        .filter_map(|(object, ports)| {
            let view = object.pod()?;
            Some(Pods {
                object,
                view,
                ports,
            })
        })
        .collect();
    for Document { location, value } in documents {
        for object in objects_mut(value) {
            if Object::new(object).kind() == "Service" {
                let moved = of_service(object, &pods, &mut warnings);
                moved.map_err(|rejected| InjectError {
                    location: location.clone(),
                    rejected,
                })?;
            }
        }
    }
    Ok(warnings)
}

fn of_workload(
    value: &mut Value,
    settings: &Settings,
    warnings: &mut Vec<String>,
) -> Result<Option<Ports>, Rejected> {
    let object = Object::new(value);
    object.check()?;
    if object.pod().is_none() || !object.wants_sidecar() {
        return Ok(None);
    }
    let described = object.described();
    let injected = add_sidecar(value, settings)?;
    let of_pod = injected.warnings.into_iter();
    warnings.extend(of_pod.map(|warning| format!("{described}: {warning}")));
    Ok(Some(injected.ports))
}

fn of_service(
    value: &mut Value,
    pods: &[Pods<'_>],
    warnings: &mut Vec<String>,
) -> Result<(), Rejected> {
    let service = Object::new(value);
    let selected = pods.iter().filter(|pods| {
        share_namespace(pods.object, service) && services::selects(service, pods.object, &pods.view)
    });
    let selected: Vec<&Pods<'_>> = selected.collect();
    let with_sidecar = selected.iter().find_map(|pods| Some((*pods, pods.ports?)));
    let Some((first, ports)) = with_sidecar else {
        if service.wants_sidecar() {
            let described = service.described();
            warnings.push(format!(
                "{described}: selects no pods of this input: not changed"
            ));
        }
        return Ok(());
    };
    if services::is_exempt(service) {
        return Ok(());
    }
    if selected.iter().any(|pods| pods.ports != Some(ports)) {
        return Err(Rejected::new(
            service.described(),
            "selects pods with and without a sidecar, or with different ports",
        ));
    }
    services::move_to_sidecar(value, &first.view, ports)
}
