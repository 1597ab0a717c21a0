//! Labels and annotations of a workload, which its pods have too: pods are reviewed by themselves.

use serde_json::Value;

use crate::annotations::{CONFIG_MAP, PINNED_PORT, PORT, SIDECAR};
use crate::object::Object;
use crate::original::{self, pointer};

/// Gives the pods of an object the label, and the annotations that they lack: new ones in place of
/// those that they had from it before. With a sidecar they stay as they are.
///
/// # Errors
/// The reason why it is not clear what counts.
pub(crate) fn inherit(object: &mut Value) -> Result<(), String> {
    let is_protected = Object::new(object).is_protected();
    if !is_protected {
        disinherit(object);
    }
    if let Some(reason) = contradiction(Object::new(object)) {
        return Err(reason);
    }
    match is_protected {
        true => Ok(()),
        false => give(object),
    }
}

/// Takes from the pods of an object what they have from it.
fn disinherit(object: &mut Value) {
    // A Pod has its own alone.
    let path = Object::new(object).pod_path().unwrap_or_default();
    if let Some(pod) = object.pointer_mut(path).filter(|_| !path.is_empty()) {
        original::put_back(pod, "/metadata/");
    }
}

fn give(object: &mut Value) -> Result<(), String> {
    let own = Object::new(object);
    let Some(pod) = own.pod() else {
        return Ok(());
    };
    let label = pod.label(SIDECAR).is_none();
    let label = label.then(|| (pointer("labels", SIDECAR), "true".into()));
    let lacking = own.annotations();
    let lacking = lacking.filter(|(name, _)| pod.annotation(name).is_none());
    let lacking = lacking.map(|(name, value)| (pointer("annotations", name), value.into()));
    let changes = label.into_iter().chain(lacking).collect();
    change_pods(object, changes)
}

/// Names the service's port to the pods of an object, until the next review finds it again.
///
/// # Errors
/// The member that is no map.
pub(crate) fn pin(object: &mut Value, port: u16) -> Result<(), String> {
    let pod = Object::new(object).pod();
    let has = |name| pod.is_some_and(|pod| pod.annotation(name).is_some());
    let name = match () {
        () if has(PORT) => return Ok(()),
        // There the other one is in place of the ConfigMap's.
        () if has(CONFIG_MAP) => PINNED_PORT,
        () => PORT,
    };
    let change = (pointer("annotations", name), port.to_string().into());
    change_pods(object, vec![change])
}

fn change_pods(object: &mut Value, changes: Vec<(String, Value)>) -> Result<(), String> {
    let path = Object::new(object).pod_path().unwrap_or_default();
    match object.pointer_mut(path) {
        Some(pod) if !changes.is_empty() => {
            original::change(pod, changes).map_err(|why| format!("{path}{why}"))
        }
        _ => Ok(()),
    }
}

/// Takes the sidecar from an object that has lost its label, and returns what was edited since.
pub(crate) fn follow(object: &mut Value) -> Vec<String> {
    let mut own = object.clone();
    disinherit(&mut own);
    if Object::new(&own).wants_sidecar() {
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
