//! The members of an object that were replaced, in an annotation: the way back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::annotations::ORIGINAL;
use crate::object::{Object, member, name_of, text};
use crate::patch::difference;

/// The annotation in an object.
const ANNOTATION: &str = "/metadata/annotations/postern~1original";
/// Pointers of members that are replaced. Containers and volumes are added, and known by their names.
const REPLACED: [&str; 3] = ["/metadata/", "/spec/containers/", "/spec/ports/"];

/// Kubernetes stores no more in the annotations of an object.
const MAX_BYTES: usize = 256 * 1024;

/// A replaced member.
#[derive(Debug, Serialize, Deserialize)]
struct Replaced {
    now: Value,
    /// `None` where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was: Option<Value>,
}

/// Replaced members by their pointers.
type Record = BTreeMap<String, Replaced>;

/// Writes the members in which an object differs from the earlier one into its annotation.
pub(crate) fn keep(before: &Value, after: &mut Value) -> Option<()> {
    // Others join labels and annotations: each is a member of its own.
    let mut both = [before.clone(), after.clone()];
    for object in &mut both {
        for map in ["labels", "annotations"] {
            member(member(object, "metadata")?, map)?;
        }
    }
    let [before, now] = &both;
    let mut record = record(after).unwrap_or_default();
    for operation in difference(before, now) {
        let path = text(&operation, "/path");
        if REPLACED.iter().any(|above| path.starts_with(above)) {
            let was = before.pointer(path).filter(|was| !was.is_null());
            let replaced = Replaced {
                now: operation.get("value").cloned().unwrap_or_default(),
                was: was.cloned(),
            };
            record.insert(path.to_owned(), replaced);
        }
    }
    write(after, &record)
}

/// Puts back the members below a pointer, and returns those that were edited since, which stay.
pub(crate) fn put_back(value: &mut Value, above: &str) -> Vec<String> {
    let Some(record) = record(value) else {
        return Vec::new();
    };
    let is_below = |(path, _): &(String, Replaced)| path.starts_with(above);
    let (below, others): (Record, Record) = record.into_iter().partition(is_below);
    if others.is_empty() {
        remove(value, ANNOTATION);
    } else {
        write(value, &others);
    }
    let mut edited = Vec::new();
    // Before the last other member of a map is removed.
    let (gone, replaced): (Record, Record) =
        below.into_iter().partition(|(_, each)| each.now.is_null());
    for (path, Replaced { now, was }) in gone.into_iter().chain(replaced) {
        match value.pointer_mut(&path) {
            None if now.is_null() => drop(was.and_then(|was| insert(value, &path, was))),
            present if present.as_deref() == was.as_ref() => {}
            Some(present) if *present == now => match was {
                Some(was) => *present = was,
                None => remove(value, &path),
            },
            _ => edited.push(path),
        }
    }
    edited
}

/// Takes away what was put into an object, and puts back what was replaced. Returns the members that
/// were edited since; `None` for an object whose replaced members are not known.
pub(crate) fn take_away(value: &mut Value) -> Option<Vec<String>> {
    let pod = Object::new(value).pod();
    let path = pod.as_ref().map(|pod| pod.path.clone()).unwrap_or_default();
    let sidecar = pod.and_then(|pod| pod.sidecar().cloned());
    let object = value.pointer_mut(&path)?;
    record(object)?;
    if let Some(sidecar) = sidecar {
        retain(object, "initContainers", |container| *container != sidecar);
        retain(object, "volumes", |volume| {
            !name_of(volume).starts_with("postern-")
        });
    }
    let edited = put_back(object, "/").into_iter();
    Some(
        edited
            .map(|member| format!("{path}{member}: edited since, left as it is"))
            .collect(),
    )
}

/// Removes items of a list in the specification, and the list without another one.
fn retain(object: &mut Value, name: &str, stays: impl Fn(&Value) -> bool) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let Some(Value::Array(items)) = spec.get_mut(name) else {
        return;
    };
    items.retain(stays);
    if items.is_empty() {
        spec.remove(name);
    }
}

fn record(value: &Value) -> Option<Record> {
    let text = text(value, ANNOTATION);
    (text.len() <= MAX_BYTES).then(|| serde_json::from_str(text).ok())?
}

fn write(value: &mut Value, record: &Record) -> Option<()> {
    let annotations = member(member(value, "metadata")?, "annotations")?;
    annotations[ORIGINAL] = serde_json::to_string(record).ok()?.into();
    Some(())
}

fn insert(value: &mut Value, path: &str, member: Value) -> Option<Value> {
    let (parent, name) = path.rsplit_once('/')?;
    let members = value.pointer_mut(parent)?.as_object_mut()?;
    members.insert(name.replace("~1", "/").replace("~0", "~"), member)
}

/// Removes a member, and the map that had no other.
fn remove(value: &mut Value, path: &str) {
    let Some((parent, name)) = path.rsplit_once('/') else {
        return;
    };
    let name = name.replace("~1", "/").replace("~0", "~");
    let Some(members) = value.pointer_mut(parent).and_then(Value::as_object_mut) else {
        return;
    };
    members.remove(&name);
    if members.is_empty() {
        remove(value, parent);
    }
}
