//! Labels and annotations of a workload, which its pods have too: pods are reviewed by themselves.

use serde_json::{Value, json};

use crate::annotations::SIDECAR;
use crate::object::{Object, PodView};
use crate::patch::{Operation, add_member, escaped};

/// Returns the reason why it is not clear what counts, the workload or its pods.
pub(crate) fn contradiction(object: Object<'_>, pod: &PodView<'_>) -> Option<String> {
    if let Some(other) = pod.label(SIDECAR).filter(|label| *label != "true") {
        return Some(format!("its pods have the label {SIDECAR}: {other:?}"));
    }
    pod.annotations().find_map(|(name, value)| {
        let other = object.annotation(name).filter(|other| *other != value)?;
        Some(format!(
            "the annotation {name} is {other:?}, and on its pods {value:?}"
        ))
    })
}

/// Returns labels and annotations that the pod lacks.
pub(crate) fn inherited(object: Object<'_>, pod: &PodView<'_>) -> Vec<Operation> {
    let path = format!("{}/metadata", pod.path);
    let mut operations = Vec::new();
    let mut metadata = pod.value().get("metadata").cloned();
    let mut set = |map: &str, key: &str, value: Value| {
        let parent = metadata.as_ref().and_then(|metadata| metadata.get(map));
        let operation = match metadata.as_ref().filter(|metadata| metadata.is_object()) {
            Some(_) => add_member(parent, &format!("{path}/{map}"), key, value),
            None => Operation::add(path.clone(), json!({map: {key: value}})),
        };
        let relative = Operation::add(
            operation.path.replacen(&path, "", 1),
            operation.value.clone(),
        );
        metadata = Some(match relative.path.as_str() {
            "" => relative.value,
            _ => crate::patch::apply(&metadata.take().unwrap_or_default(), &[relative])
                .unwrap_or_default(),
        });
        operations.push(operation);
    };
    if pod.label(SIDECAR).is_none() {
        set("labels", SIDECAR, "true".into());
    }
    for (name, value) in object.annotations() {
        if pod.annotation(name).is_none() {
            set("annotations", name, value.into());
        }
    }
    operations
}

/// Returns the changes of annotations that the pods have from their workload, as it was before.
pub(crate) fn renewed(object: Object<'_>, pod: &PodView<'_>, before: Object<'_>) -> Vec<Operation> {
    let renewed = pod.annotations().filter_map(|(name, value)| {
        let was_inherited = before.annotation(name) == Some(value);
        let path = format!("{}/metadata/annotations/{}", pod.path, escaped(name));
        match object.annotation(name) {
            Some(same) if same == value => None,
            _ if !was_inherited => None,
            Some(other) => Some(Operation::replace(path, other.into())),
            None => Some(Operation::remove(path)),
        }
    });
    renewed.collect()
}

/// Returns the pod as an object of its own, with these changes of its metadata.
pub(crate) fn with_metadata(pod: &PodView<'_>, operations: &[Operation]) -> Option<Value> {
    let relative: Vec<Operation> = operations
        .iter()
        .map(|operation| {
            let path = operation.path.replacen(&pod.path, "", 1);
            Operation::add(path, operation.value.clone())
        })
        .collect();
    let mut value = crate::patch::apply(pod.value(), &relative)?;
    value
        .as_object_mut()?
        .insert("kind".to_owned(), "Pod".into());
    Some(value)
}
