//! The members of an object that were replaced, in an annotation: the way back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::object::{Object, name_of, text};

/// The annotation [`crate::annotations::ORIGINAL`] in an object.
const ANNOTATION: &str = "/metadata/annotations/postern~1original";

/// A replaced member; null where there is or was none.
#[derive(Debug, Serialize, Deserialize)]
struct Replaced {
    now: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    was: Value,
}

/// Replaced members by their pointers.
type Record = BTreeMap<String, Replaced>;

/// Returns the pointer of a label or an annotation.
pub(crate) fn pointer(map: &str, name: &str) -> String {
    format!("/metadata/{map}/{}", name.replace('/', "~1"))
}

/// Sets members by their pointers, and keeps in the annotation what was there; null removes.
/// Containers and volumes are added otherwise, and known by their names.
pub(crate) fn change(
    object: &mut Value,
    changes: impl IntoIterator<Item = (String, Value)>,
) -> Option<()> {
    let mut record = record(object).unwrap_or_default();
    for (path, now) in changes {
        let was = object.pointer(&path).cloned().unwrap_or_default();
        put(object, &path, now.clone())?;
        record.insert(path, Replaced { now, was });
    }
    write(object, &record)
}

/// Puts back the members below a pointer, and returns those that were edited since, which stay: of
/// a probe all parts or none.
pub(crate) fn put_back(object: &mut Value, above: &str) -> Vec<String> {
    let Some(record) = record(object) else {
        return Vec::new();
    };
    let is_below = |(path, _): &(String, Replaced)| path.starts_with(above);
    let (below, others): (Record, Record) = record.into_iter().partition(is_below);
    if others.is_empty() {
        put(object, ANNOTATION, Value::Null);
    } else {
        write(object, &others);
    }
    let mut members: BTreeMap<String, Record> = BTreeMap::new();
    for (path, replaced) in below {
        let member: Vec<&str> = path.split('/').take(5).collect();
        let parts = members.entry(member.join("/")).or_default();
        parts.insert(path, replaced);
    }
    let mut edited = Vec::new();
    for (member, parts) in members {
        let present = |path: &str| object.pointer(path).unwrap_or(&Value::Null);
        if parts.iter().all(|(path, each)| *present(path) == each.now) {
            for (path, Replaced { was, .. }) in parts {
                put(object, &path, was);
            }
        } else if parts.iter().any(|(path, each)| *present(path) != each.was) {
            edited.push(member);
        }
    }
    edited
}

/// Takes away what was put into an object, and puts back what was replaced. Returns the members that
/// were edited since; `None` for an object whose replaced members are not known.
pub(crate) fn take_away(value: &mut Value) -> Option<Vec<String>> {
    let path = Object::new(value).pod_path().unwrap_or_default();
    let object = value.pointer_mut(path)?;
    record(object)?;
    if let Some(sidecar) = Object::new(object).sidecar().cloned() {
        retain(object, "initContainers", |container| *container != sidecar);
        retain(object, "volumes", |volume| {
            !name_of(volume).starts_with("postern-")
        });
    }
    let edited = put_back(object, "/").into_iter();
    let lines = edited.map(|member| format!("{path}{member}: edited since, left as it is"));
    Some(lines.collect())
}

/// Removes items of a list in the specification, and the list without another one.
fn retain(object: &mut Value, name: &str, stays: impl Fn(&Value) -> bool) {
    let Some(Value::Array(items)) = object.pointer_mut(&format!("/spec/{name}")) else {
        return;
    };
    items.retain(stays);
    if items.is_empty() {
        put(object, &format!("/spec/{name}"), Value::Null);
    }
}

fn record(object: &Value) -> Option<Record> {
    serde_json::from_str(text(object, ANNOTATION)).ok()
}

fn write(object: &mut Value, record: &Record) -> Option<()> {
    let text = serde_json::to_string(record).ok()?;
    put(object, ANNOTATION, text.into())
}

/// Sets a member, with the maps above it that are missing; null removes it, and the maps that have
/// no other.
fn put(object: &mut Value, path: &str, member: Value) -> Option<()> {
    let (above, name) = path.rsplit_once('/')?;
    let name = name.replace("~1", "/").replace("~0", "~");
    if !member.is_null() {
        if object.pointer(above).is_none_or(Value::is_null) {
            put(object, above, json!({}));
        }
        object
            .pointer_mut(above)?
            .as_object_mut()?
            .insert(name, member);
        return Some(());
    }
    let members = object.pointer_mut(above)?.as_object_mut()?;
    members.remove(&name);
    match members.is_empty() {
        true => put(object, above, Value::Null),
        false => Some(()),
    }
}
