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
    if !is_protected {
        give(object);
    }
    Ok(())
}

/// Takes from the pods of an object what they have from it.
fn disinherit(object: &mut Value) {
    // A Pod has its own alone.
    let path = Object::new(object).pod_path().unwrap_or_default();
    if let Some(pod) = object.pointer_mut(path).filter(|_| !path.is_empty()) {
        original::put_back(pod, "/metadata/");
    }
}

fn give(object: &mut Value) -> Option<()> {
    let own = Object::new(object);
    let (path, pod) = (own.pod_path()?, own.pod()?);
    let label = pod.label(SIDECAR).is_none();
    let label = label.then(|| (pointer("labels", SIDECAR), "true".into()));
    let lacking = own.annotations();
    let lacking = lacking.filter(|(name, _)| pod.annotation(name).is_none());
    let lacking = lacking.map(|(name, value)| (pointer("annotations", name), value.into()));
    let changes: Vec<(String, Value)> = label.into_iter().chain(lacking).collect();
    if changes.is_empty() {
        return Some(());
    }
    original::change(object.pointer_mut(path)?, changes)
}

/// Names the service's port to the pods of an object, until the next review finds it again.
pub(crate) fn pin(object: &mut Value, port: Option<u16>) -> Option<()> {
    let own = Object::new(object);
    let (path, pod) = (own.pod_path()?, own.pod()?);
    if pod.annotation(PORT).is_some() {
        return Some(());
    }
    // There the other one is in place of the ConfigMap's.
    let name = match pod.annotation(CONFIG_MAP) {
        Some(_) => PINNED_PORT,
        None => PORT,
    };
    let change = (pointer("annotations", name), port?.to_string().into());
    original::change(object.pointer_mut(path)?, [change])
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
