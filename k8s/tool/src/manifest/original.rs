//! The members of an object that were replaced, in an annotation: the way back.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::manifest::object::{Object, name_of, text};

/// The annotation [`crate::manifest::annotations::ORIGINAL`] in an object.
const ANNOTATION: &str = "/metadata/annotations/postern~1original";

/// Deeper than the deepest member that is replaced, a member of a probe's action.
const MAX_DEPTH: usize = 8;

/// A replaced member; null for a missing one.
#[derive(Debug, Serialize, Deserialize)]
struct Replaced {
    now: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    was: Value,
}

/// Replaced members by their pointers.
type Record = BTreeMap<String, Replaced>;

/// Sets members by their pointers, and keeps the replaced values in the annotation; null removes a member.
/// Containers and volumes are not added here; they are known by their names.
///
/// # Errors
/// The pointer leads through a member that is no map; the object is then of no use.
pub(crate) fn change(
    object: &mut Value,
    changes: impl IntoIterator<Item = (String, Value)>,
) -> Result<(), String> {
    let mut record = record(object).unwrap_or_default();
    for (path, now) in changes {
        let was = object.pointer(&path).cloned().unwrap_or_default();
        put(object, &path, now.clone())?;
        record.insert(path, Replaced { now, was });
    }
    put(object, ANNOTATION, json!(record).to_string().into())
}

/// Puts back the members below a pointer, and returns the members that were edited since, which stay: of
/// a probe all parts are put back, or none.
pub(crate) fn put_back(object: &mut Value, above: &str) -> Vec<String> {
    let Some(record) = record(object) else {
        return Vec::new();
    };
    let is_below = |(path, _): &(String, Replaced)| path.starts_with(above);
    let (below, others): (Record, Record) = record.into_iter().partition(is_below);
    // `None` becomes null, which removes the annotation.
    let others = (!others.is_empty()).then(|| json!(others).to_string());
    // This cannot fail: a record was read from the annotation.
    let _ = put(object, ANNOTATION, others.into());
    // `/spec/containers/0/readinessProbe`: what lies below goes back whole or not at all.
    let member = |path: &str| path.split('/').take(5).collect::<Vec<_>>().join("/");
    let other_than = |value: fn(&Replaced) -> &Value| -> BTreeSet<String> {
        let present = |path: &str| object.pointer(path).unwrap_or(&Value::Null);
        below
            .iter()
            .filter(|(path, replaced)| present(path) != value(replaced))
            .map(|(path, _)| member(path))
            .collect()
    };
    let mut edited = other_than(|it| &it.now);
    let changed = other_than(|it| &it.was);
    for (path, Replaced { was, .. }) in below {
        if !edited.contains(&member(&path)) {
            // A failure is ignored: only a record that an author wrote leads through a member that is no map.
            let _ = put(object, &path, was);
        }
    }
    // A member that an author has put back needs no notice.
    edited.retain(|member| changed.contains(member));
    edited.into_iter().collect()
}

/// Removes the additions to an object, and puts back the replaced members. Returns the members that
/// were edited since; `None` for an object whose replaced members are not known.
pub(crate) fn take_away(value: &mut Value) -> Option<Vec<String>> {
    let path = Object(value).pod_path().unwrap_or_default();
    let object = value.pointer_mut(path)?;
    // Without a record nothing here is known to be ours.
    record(object)?;
    if let Some(sidecar) = Object(object).sidecar().cloned() {
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

/// Removes items of a list in the specification, and a list that is empty then.
fn retain(object: &mut Value, name: &str, stays: impl Fn(&Value) -> bool) {
    let Some(Value::Object(spec)) = object.get_mut("spec") else {
        return;
    };
    if let Some(Value::Array(items)) = spec.get_mut(name) {
        items.retain(stays);
        if items.is_empty() {
            spec.remove(name);
        }
    }
}

/// Returns the JSON pointer of a member.
pub(crate) fn below(path: &str, name: &str) -> String {
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Reads the annotation. Any author may write it: a record with deeper members than ours is ignored.
fn record(object: &Value) -> Option<Record> {
    let record: Record = serde_json::from_str(text(object, ANNOTATION)).ok()?;
    let is_ours = |path: &String| path.matches('/').count() <= MAX_DEPTH;
    record.keys().all(is_ours).then_some(record)
}

/// Sets a member, with the missing maps above it; null removes it, and the maps above it that have no
/// other member.
///
/// # Errors
/// The member above that is no map.
pub(crate) fn put(object: &mut Value, path: &str, member: Value) -> Result<(), String> {
    let Some((above, name)) = path.rsplit_once('/') else {
        return Ok(());
    };
    // In this order (RFC 6901 §4): `~01` stands for `~1`.
    let name = name.replace("~1", "/").replace("~0", "~");
    // The maps above are made for a member that is set, never for one that is removed.
    if !member.is_null() && object.pointer(above).is_none_or(Value::is_null) {
        put(object, above, json!({}))?;
    }
    let members = object.pointer_mut(above).and_then(Value::as_object_mut);
    let members =
        members.ok_or_else(|| format!("{above} is no map: write one, or leave it out"))?;
    if member.is_null() {
        members.remove(&name);
    } else {
        members.insert(name, member);
    }
    if members.is_empty() {
        put(object, above, Value::Null)
    } else {
        Ok(())
    }
}
