//! Labels and annotations of a workload, which its pods have too: pods are reviewed by themselves.

use serde_json::Value;

use crate::annotations::SIDECAR;
use crate::object::{Object, PodView, member};

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

/// Gives the pods of an object the label, and the annotations that they lack.
pub(crate) fn inherit(object: &mut Value) -> Option<()> {
    let annotations: Vec<_> = owned(Object::new(object).annotations());
    let path = Object::new(object).pod()?.path;
    let metadata = member(object.pointer_mut(&path)?, "metadata")?;
    member(metadata, "labels")?
        .as_object_mut()?
        .entry(SIDECAR)
        .or_insert("true".into());
    for (name, value) in annotations {
        let of_pods = member(metadata, "annotations")?.as_object_mut()?;
        of_pods.entry(name).or_insert(value.into());
    }
    Some(())
}

/// Changes the annotations that the pods have from their workload, as it was before.
pub(crate) fn renew(object: &mut Value, before: Object<'_>) -> Option<()> {
    let now = Object::new(object);
    let pod = now.pod()?;
    let is_inherited = |(name, value): &(&str, &str)| before.annotation(name) == Some(*value);
    let inherited = owned(pod.annotations().filter(is_inherited));
    let new: Vec<Option<Value>> = inherited
        .iter()
        .map(|(name, _)| now.annotation(name).map(Value::from))
        .collect();
    let path = format!("{}/metadata/annotations", pod.path);
    let of_pods = object.pointer_mut(&path)?.as_object_mut()?;
    for ((name, _), new) in inherited.into_iter().zip(new) {
        match new {
            Some(value) => of_pods.insert(name, value),
            None => of_pods.remove(&name),
        };
    }
    Some(())
}

fn owned<'v>(pairs: impl Iterator<Item = (&'v str, &'v str)>) -> Vec<(String, String)> {
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
