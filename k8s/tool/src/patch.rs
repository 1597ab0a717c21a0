//! Changes of an object, as JSON Patch (RFC 6902) has them: members are added, values replaced.

use serde::Serialize;
use serde_json::{Map, Value};

/// One change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Operation {
    op: &'static str,
    pub(crate) path: String,
    /// Null where a member is removed.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) value: Value,
}

impl Operation {
    /// Adds a member to an object, or an item to a list, in front of the item at that place.
    pub(crate) fn add(path: impl Into<String>, value: Value) -> Self {
        Self {
            op: "add",
            path: path.into(),
            value,
        }
    }

    /// Replaces a value that is there.
    pub(crate) fn replace(path: impl Into<String>, value: Value) -> Self {
        Self {
            op: "replace",
            path: path.into(),
            value,
        }
    }

    /// Removes a member that is there.
    pub(crate) fn remove(path: impl Into<String>) -> Self {
        Self {
            op: "remove",
            path: path.into(),
            value: Value::Null,
        }
    }

    /// Moves the change below a pointer.
    pub(crate) fn below(self, pointer: &str) -> Self {
        Self {
            path: format!("{pointer}{}", self.path),
            ..self
        }
    }

    /// Returns true for a replaced value.
    pub(crate) fn replaces(&self) -> bool {
        self.op == "replace"
    }
}

/// Adds `key` to the object at `path`, which may be missing: `parent` is its present value.
pub(crate) fn add_member(parent: Option<&Value>, path: &str, key: &str, value: Value) -> Operation {
    match parent {
        Some(Value::Object(_)) => Operation::add(format!("{path}/{}", escaped(key)), value),
        _ => Operation::add(
            path,
            Value::Object(Map::from_iter([(key.to_owned(), value)])),
        ),
    }
}

/// Puts items in front of the list at `path`, which may be missing: `list` is its present value.
pub(crate) fn prepend(list: Option<&Value>, path: &str, items: Vec<Value>) -> Vec<Operation> {
    match list {
        Some(Value::Array(_)) => items
            .into_iter()
            .rev()
            .map(|item| Operation::add(format!("{path}/0"), item))
            .collect(),
        _ => vec![Operation::add(path, Value::Array(items))],
    }
}

/// Escapes a name for a JSON pointer.
pub(crate) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Splits a JSON pointer into the pointer of the parent and the last name.
pub(crate) fn split(path: &str) -> Option<(&str, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

/// Applies the changes in their order. `None` where a change has no place in the object.
pub(crate) fn apply(object: &Value, operations: &[Operation]) -> Option<Value> {
    let mut changed = object.clone();
    for operation in operations {
        apply_one(&mut changed, operation)?;
    }
    Some(changed)
}

fn apply_one(object: &mut Value, operation: &Operation) -> Option<()> {
    let value = operation.value.clone();
    if operation.replaces() {
        *object.pointer_mut(&operation.path)? = value;
        return Some(());
    }
    let (parent, last) = split(&operation.path)?;
    match object.pointer_mut(parent)? {
        Value::Object(members) if operation.op == "remove" => {
            members.remove(&last)?;
        }
        Value::Object(members) => {
            members.insert(last, value);
        }
        Value::Array(items) => {
            let at: usize = last.parse().ok().filter(|at| *at <= items.len())?;
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_added_below_what_is_missing() {
        let object = json!({"a": {"b": null}, "list": [1]});
        let operations = [
            add_member(object.pointer("/a/b"), "/a/b", "x/y", json!(1)),
            add_member(object.pointer("/a"), "/a", "c", json!(2)),
            Operation::add("/a/d", json!(1)),
            Operation::remove("/a/d"),
        ];
        let mut all = operations.to_vec();
        all.extend(prepend(
            object.pointer("/list"),
            "/list",
            vec![json!(8), json!(9)],
        ));
        all.extend(prepend(None, "/other", vec![json!(7)]));
        all.push(Operation::replace("/a/c", json!(3)));
        let expected = json!({"a": {"b": {"x/y": 1}, "c": 3}, "list": [8, 9, 1], "other": [7]});
        assert_eq!(apply(&object, &all), Some(expected));
    }

    #[test]
    fn a_change_without_a_target_is_found() {
        for operation in [
            Operation::replace("/a", json!(1)),
            Operation::remove("/a"),
            Operation::add("/a/b", json!(1)),
            Operation::add("/list/9", json!(1)),
        ] {
            assert_eq!(apply(&json!({"list": []}), &[operation]), None);
        }
    }
}
