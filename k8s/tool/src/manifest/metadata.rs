//! Labels and annotations of a workload, which its pods have too: pods are reviewed by themselves.

use serde_json::Value;

use crate::manifest::names::{PORT, SIDECAR};
use crate::manifest::object::Object;
use crate::manifest::original::{self, below};

/// Gives the pods of an object the label, and the annotations that they lack: new ones in place of
/// those that they had from it before, and the service's port as a review found it. With a sidecar
/// they stay as they are.
///
/// # Errors
/// The reason why it is not clear what counts.
pub(crate) fn inherit(object: &mut Value, port: Option<u16>) -> Result<(), String> {
    let is_protected = Object(object).is_protected();
    if !is_protected {
        disinherit(object);
    }
    match contradiction(Object(object)) {
        Some(reason) => Err(reason),
        None if is_protected => Ok(()),
        None => give_to_pods(object, port),
    }
}

/// Takes from the pods of an object what they have from it.
fn disinherit(object: &mut Value) {
    // A Pod has its own alone.
    if let Some(path) = Object(object).pod_path()
        && !path.is_empty()
        && let Some(pod) = object.pointer_mut(path)
    {
        original::put_back(pod, "/metadata/");
    }
}

fn give_to_pods(object: &mut Value, port: Option<u16>) -> Result<(), String> {
    let own = Object(object);
    let (Some(path), Some(pod)) = (own.pod_path(), own.pod()) else {
        return Ok(());
    };
    let mut changes = Vec::new();
    if pod.label(SIDECAR).is_none() {
        changes.push((below("/metadata/labels", SIDECAR), "true".into()));
    }
    let mut add = |name: &str, value: Value| {
        if pod.annotation(name).is_none() {
            changes.push((below("/metadata/annotations", name), value));
        }
    };
    for (name, value) in own.annotations() {
        add(name, value.into());
    }
    match port {
        Some(port) if own.annotation(PORT).is_none() => add(PORT, port.to_string().into()),
        _ => {}
    }
    match object.pointer_mut(path) {
        Some(pod) if !changes.is_empty() => {
            original::change(pod, changes).map_err(|why| format!("{path}{why}"))
        }
        _ => Ok(()),
    }
}

/// Takes the sidecar from an object that has lost its label, and returns the members that were edited since the
/// sidecar was added.
pub(crate) fn take_away_if_unlabelled(object: &mut Value) -> Vec<String> {
    // A label that the pods inherited from this object does not count: on a copy without it only their own
    // is left.
    let mut own = object.clone();
    disinherit(&mut own);
    if Object(&own).wants_sidecar() {
        return Vec::new();
    }
    original::take_away(object).unwrap_or_default()
}

/// Returns the reason why it is not clear what counts, the workload or its pods.
fn contradiction(object: Object<'_>) -> Option<String> {
    let pod = object.pod()?;
    let own = object.label(SIDECAR).unwrap_or("true");
    if let Some(other) = pod.label(SIDECAR).filter(|label| *label != own) {
        return Some(format!(
            "the label {SIDECAR} is {own:?}, and on its pods {other:?}"
        ));
    }
    pod.annotations().find_map(|(name, value)| {
        let other = object.annotation(name).filter(|other| *other != value)?;
        Some(format!(
            "the annotation {name} is {other:?}, and on its pods {value:?}"
        ))
    })
}
