//! Values as YAML text in blocks, as `kubectl` prints them.

use serde_json::Value;

use super::node::{Kind, Node};

/// Words that are no texts where they stand without quotes.
const WORDS: [&str; 10] = [
    "true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan",
];

/// Renders a member: its lines, the first without the indentation of the others.
pub(super) fn member(key: &str, value: &Value, indent: usize) -> String {
    let mut text = scalar_text(key);
    after_colon(&mut text, value, indent);
    text
}

/// Renders an item of a list that stands at `indent`: its lines, the first without indentation.
pub(super) fn item(value: &Value, indent: usize) -> String {
    let mut text = "- ".to_owned();
    inline(&mut text, value, indent + 2);
    text
}

/// Renders a whole document without references.
pub(super) fn document(root: &Node) -> String {
    let mut text = String::new();
    node(&mut text, root, 0);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn after_colon(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            text.push_str(":\n");
            text.push_str(&" ".repeat(indent + 2));
            inline(text, value, indent + 2);
        }
        Value::Array(items) if !items.is_empty() => {
            for each in items {
                text.push_str(if text.ends_with('\n') { "" } else { ":\n" });
                text.push_str(&" ".repeat(indent));
                text.push_str(&item(each, indent));
            }
        }
        scalar => {
            text.push_str(": ");
            text.push_str(&scalar_value(scalar));
            text.push('\n');
        }
    }
}

/// Renders a value at the present place of a line.
fn inline(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            // The name first: so people find the container, and the variable.
            let name = members.iter().filter(|(key, _)| *key == "name");
            let others = members.iter().filter(|(key, _)| *key != "name");
            for (number, (key, value)) in name.chain(others).enumerate() {
                if number > 0 {
                    text.push_str(&" ".repeat(indent));
                }
                text.push_str(&member(key, value, indent));
            }
        }
        other => {
            text.push_str(&scalar_value(other));
            text.push('\n');
        }
    }
}

/// Renders a scalar, or an empty collection.
fn scalar_value(value: &Value) -> String {
    match value {
        Value::String(text) => scalar_text(text),
        other => other.to_string(),
    }
}

fn scalar_text(text: &str) -> String {
    let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte))
        && !WORDS.contains(&&*text.to_ascii_lowercase());
    if is_plain {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

/// Renders a node at the present place of a line: plain scalars as they were written.
fn node(text: &mut String, this: &Node, indent: usize) {
    match &this.kind {
        Kind::Map { entries, .. } if !entries.is_empty() => {
            for (number, (key, value)) in entries.iter().enumerate() {
                if number > 0 {
                    text.push_str(&" ".repeat(indent));
                }
                text.push_str(&written(key));
                text.push(':');
                below(text, value, indent);
            }
        }
        Kind::List { items, .. } if !items.is_empty() => {
            for (number, each) in items.iter().enumerate() {
                if number > 0 {
                    text.push_str(&" ".repeat(indent));
                }
                text.push_str("- ");
                node(text, each, indent + 2);
            }
        }
        _ => {
            text.push_str(&written(this));
            text.push('\n');
        }
    }
}

/// Renders the value of a member behind its colon.
fn below(text: &mut String, value: &Node, indent: usize) {
    let is_block = match &value.kind {
        Kind::Map { entries, .. } => !entries.is_empty(),
        Kind::List { items, .. } => !items.is_empty(),
        _ => false,
    };
    if is_block {
        text.push('\n');
        let is_map = matches!(value.kind, Kind::Map { .. });
        let indent = if is_map { indent + 2 } else { indent };
        text.push_str(&" ".repeat(indent));
        node(text, value, indent);
    } else {
        text.push(' ');
        text.push_str(&written(value));
        text.push('\n');
    }
}

/// Returns a scalar or an empty collection as text of one line.
fn written(node: &Node) -> String {
    match &node.kind {
        Kind::Map { .. } => "{}".to_owned(),
        Kind::List { .. } => "[]".to_owned(),
        Kind::Alias(_) => "null".to_owned(),
        Kind::Scalar { plain: true, .. } if node.is_null() => "null".to_owned(),
        Kind::Scalar { text, plain: true } if !text.contains('\n') => text.clone(),
        Kind::Scalar { text, .. } => Value::from(text.as_str()).to_string(),
    }
}
