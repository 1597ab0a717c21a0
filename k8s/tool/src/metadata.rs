//! Labels and annotations of a workload, which its pods have too: pods are reviewed by themselves.

use serde_json::Value;

use crate::annotations::{CONFIG_MAP, PORT, SIDECAR};
use crate::object::{Object, member};
use crate::original;

/// Gives the pods of an object the label, and the annotations that they lack: new ones in place of
/// those that they had from it before. With a sidecar they stay as they are.
///
/// # Errors
/// The reason why it is not clear what counts.
pub(crate) fn inherit(object: &mut Value) -> Result<(), String> {
    if Object::new(object).is_protected() {
        return contradiction(Object::new(object)).map_or(Ok(()), Err);
    }
    disinherit(object);
    if let Some(reason) = contradiction(Object::new(object)) {
        return Err(reason);
    }
    give(object).ok_or_else(|| "has no containers".to_owned())
}

/// Takes from the pods of an object what they have from it.
fn disinherit(object: &mut Value) -> Option<()> {
    let path = Object::new(object).pod()?.path;
    // A Pod has its own alone.
    if !path.is_empty() {
        original::put_back(object.pointer_mut(&path)?, "/metadata/");
    }
    Some(())
}

fn give(object: &mut Value) -> Option<()> {
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let annotations: Vec<_> = Object::new(object).annotations().map(owned).collect();
    let path = Object::new(object).pod()?.path;
    let pod = object.pointer_mut(&path)?;
    let before = pod.clone();
    let metadata = member(pod, "metadata")?;
    let labels = member(metadata, "labels")?.as_object_mut()?;
    labels.entry(SIDECAR).or_insert("true".into());
    for (name, value) in annotations {
        let of_pods = member(metadata, "annotations")?.as_object_mut()?;
        of_pods.entry(name).or_insert(value.into());
    }
    if before == *pod {
        return Some(());
    }
    original::keep(&before, pod)
}

/// Names the service's port to the pods of an object, until the next review finds it again.
pub(crate) fn pin(object: &mut Value, port: Option<u16>) -> Option<()> {
    let path = Object::new(object).pod()?.path;
    let pod = object.pointer_mut(&path)?;
    let before = pod.clone();
    let annotations = member(member(pod, "metadata")?, "annotations")?;
    // There a port is one in place of the ConfigMap's.
    if annotations.get(CONFIG_MAP).is_some() {
        return Some(());
    }
    let annotations = annotations.as_object_mut()?;
    annotations.entry(PORT).or_insert(port?.to_string().into());
    original::keep(&before, pod)
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
