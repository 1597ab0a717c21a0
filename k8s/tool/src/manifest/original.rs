//! The members of an object that were replaced, in an annotation: the way back.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::manifest::object::{Object, name_of, text};

/// The annotation [`crate::manifest::names::ORIGINAL`] in an object.
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
    let (below, others): (Record, Record) = record
        .into_iter()
        .partition(|(path, _)| path.starts_with(above));
    // Null removes the annotation.
    let others = if others.is_empty() {
        Value::Null
    } else {
        json!(others).to_string().into()
    };
    // This cannot fail: a record was read from the annotation.
    let _ = put(object, ANNOTATION, others);
    // Members that differ from their replacement, and those that differ from what was replaced.
    let (mut edited, mut changed) = (BTreeSet::new(), BTreeSet::new());
    for (path, Replaced { now, was }) in &below {
        let present = object.pointer(path).unwrap_or(&Value::Null);
        if present != now {
            edited.insert(whole_member(path));
        }
        if present != was {
            changed.insert(whole_member(path));
        }
    }
    for (path, Replaced { was, .. }) in below {
        if !edited.contains(&whole_member(&path)) {
            // A failure is ignored: only a record that an author wrote leads through a member that is no map.
            let _ = put(object, &path, was);
        }
    }
    // A member that an author has put back needs no notice.
    edited.intersection(&changed).cloned().collect()
}

/// Returns the member that goes back whole or not at all, such as `/spec/containers/0/readinessProbe`.
fn whole_member(path: &str) -> String {
    match path.match_indices('/').nth(4) {
        Some((end, _)) => path[..end].to_owned(),
        None => path.to_owned(),
    }
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
    let mut lines = put_back(object, "/");
    for member in &mut lines {
        *member = format!("{path}{member}: edited since, left as it is");
    }
    Some(lines)
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
    for path in record.keys() {
        if path.matches('/').count() > MAX_DEPTH {
            return None;
        }
    }
    Some(record)
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
    let Some(Value::Object(members)) = object.pointer_mut(above) else {
        return Err(format!("{above} is no map: write one, or leave it out"));
    };
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
