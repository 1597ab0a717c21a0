//! The changes of an object as JSON Patch (RFC 6902).

use serde_json::{Value, json};

/// Returns the operations that turn an object into another one. New items of a list stand in front
/// of the others.
pub(crate) fn difference(before: &Value, after: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    compare("", before, after, &mut operations);
    operations
}

fn compare(path: &str, before: &Value, after: &Value, operations: &mut Vec<Value>) {
    match (before, after) {
        _ if before == after => {}
        (Value::Object(before), Value::Object(after)) => {
            for name in before.keys().filter(|name| !after.contains_key(*name)) {
                operations.push(json!({"op": "remove", "path": below(path, name)}));
            }
            for (name, value) in after {
                let path = below(path, name);
                match before.get(name) {
                    Some(before) => compare(&path, before, value, operations),
                    None => operations.push(json!({"op": "add", "path": path, "value": value})),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() <= after.len() => {
            let (new, kept) = after.split_at(after.len() - before.len());
            for (number, (before, after)) in before.iter().zip(kept).enumerate() {
                compare(&format!("{path}/{number}"), before, after, operations);
            }
            let path = format!("{path}/0");
            let new = new.iter().rev();
            operations.extend(new.map(|item| json!({"op": "add", "path": path, "value": item})));
        }
        _ => operations.push(json!({"op": "replace", "path": path, "value": after})),
    }
}

/// Returns the JSON pointer of a member.
pub(crate) fn below(path: &str, name: &str) -> String {
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}
