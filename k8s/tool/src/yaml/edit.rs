//! Changes of a document's text: lines are inserted, scalars replaced, everything else stays.
//!
//! Only the beginnings of nodes are used, because the end of a block is a matter of taste. What
//! comes out is read again and compared with the changed value; text that cannot be edited in place
//! (anchors, unusual layouts) is rendered anew first.

use std::collections::BTreeSet;

use serde_json::Value;

use super::YamlError;
use super::emit;
use super::node::{Kind, Mark, Node};
use super::parse::{Document, document};
use crate::patch::{self, Operation};

/// Returns the text of the document with all changes.
///
/// # Errors
/// For changes that have no place in the document.
pub(crate) fn edited(original: &Document, operations: &[Operation]) -> Result<String, YamlError> {
    if operations.is_empty() {
        return Ok(original.text.clone());
    }
    let error = |problem: &str| YamlError {
        line: original.line(""),
        problem: problem.to_owned(),
    };
    let tree = original.tree().ok_or_else(|| error("is empty"))?;
    let expected = patch::apply(&original.value(), operations)
        .ok_or_else(|| error("has no place for the sidecar"))?;
    if !tree.is_indirect
        && let Some(text) = in_place(&original.text, operations, &expected)
    {
        return Ok(text);
    }
    let anew = rendered(original, &tree.root);
    in_place(&anew, operations, &expected).ok_or_else(|| error("cannot be edited"))
}

/// Renders the document without anchors and comments, behind its marker.
fn rendered(original: &Document, root: &Node) -> String {
    let marker = if original.text.starts_with("---") {
        "---\n"
    } else {
        ""
    };
    format!("{marker}{}", emit::document(root))
}

fn in_place(text: &str, operations: &[Operation], expected: &Value) -> Option<String> {
    let mut text = text.to_owned();
    let mut left: Vec<&Operation> = operations.iter().collect();
    while !left.is_empty() {
        let (now, later) = first_of_each_item(&left);
        text = edits(&text, &now)?;
        left = later;
    }
    let value = document(&text, 1).ok()?.value();
    (value == *expected).then_some(text)
}

/// Splits off the first change of each item of a list of objects: these need one reading of the
/// text, because none moves the place of another.
fn first_of_each_item<'o>(left: &[&'o Operation]) -> (Vec<&'o Operation>, Vec<&'o Operation>) {
    let mut seen = BTreeSet::new();
    left.iter()
        .copied()
        .partition(|operation| seen.insert(item(&operation.path)))
}

/// Returns the number of the item that a path leads to; empty for an object by itself.
fn item(path: &str) -> &str {
    let below = path.strip_prefix("/items/").unwrap_or_default();
    below.split_once('/').map_or("", |(number, _)| number)
}

/// Makes changes that do not depend on one another.
fn edits(text: &str, operations: &[&Operation]) -> Option<String> {
    let parsed = document(text, 1).ok()?;
    let root = &parsed.tree()?.root;
    let edits = operations
        .iter()
        .map(|operation| edit(text, root, operation));
    let mut edits: Vec<Edit> = edits.collect::<Option<_>>()?;
    edits.sort_by_key(|edit| std::cmp::Reverse(edit.from));
    let mut text = text.to_owned();
    for edit in edits {
        text = edit.applied(&text)?;
    }
    Some(text)
}

fn edit(text: &str, root: &Node, operation: &Operation) -> Option<Edit> {
    match root.at(&operation.path) {
        Some(present) if operation.replaces() => Some(Edit::replacing(
            present.start.at,
            present.end,
            inline(&operation.value),
        )),
        Some(present) if present.is_null() => value_of_null(text, root, operation),
        _ => addition(text, root, operation),
    }
}

/// One change of the text.
#[derive(Debug)]
struct Edit {
    from: usize,
    to: usize,
    text: String,
}

impl Edit {
    fn inserting(at: usize, text: String) -> Self {
        Self::replacing(at, at, text)
    }

    fn replacing(from: usize, to: usize, text: String) -> Self {
        Self { from, to, text }
    }

    fn applied(&self, text: &str) -> Option<String> {
        let (before, after) = (text.get(..self.from)?, text.get(self.to..)?);
        Some(format!("{before}{}{after}", self.text))
    }
}

/// Returns a value as text of one line, which YAML has in common with JSON.
fn inline(value: &Value) -> String {
    value.to_string()
}

/// Gives a value to a member that has none, behind its colon.
fn value_of_null(text: &str, root: &Node, operation: &Operation) -> Option<Edit> {
    let (parent, name) = patch::split(&operation.path)?;
    let (key, value) = root.at(parent)?.entry(&name)?;
    let colon = key.end + text.get(key.end..)?.find(':')? + 1;
    let value_text = format!(" {}", inline(&operation.value));
    match value.text() {
        "" => Some(Edit::inserting(colon, value_text)),
        // The parser writes `~` where the text has nothing.
        "~" if !text.get(colon..)?.trim_start_matches(' ').starts_with('~') => {
            Some(Edit::inserting(colon, value_text))
        }
        _ => Some(Edit::replacing(colon, value.end, value_text)),
    }
}

fn addition(text: &str, root: &Node, operation: &Operation) -> Option<Edit> {
    let (parent, name) = patch::split(&operation.path)?;
    let parent = root.at(parent)?;
    match &parent.kind {
        Kind::Map {
            entries,
            flow: true,
        } => {
            let comma = if entries.is_empty() { "" } else { ", " };
            let member = format!(
                "{}: {}{comma}",
                inline(&name.into()),
                inline(&operation.value)
            );
            Some(Edit::inserting(parent.start.at + 1, member))
        }
        Kind::List { items, flow: true } => {
            let comma = if items.is_empty() { "" } else { ", " };
            let item = format!("{}{comma}", inline(&operation.value));
            Some(Edit::inserting(parent.start.at + 1, item))
        }
        Kind::Map { entries, .. } => {
            let ((first, _), second) = (entries.first()?, entries.get(1));
            let indent = first.start.column;
            let member = emit::member(&name, &operation.value, indent);
            match second {
                Some((second, _)) => {
                    let at = before_comments(text, second.start)?;
                    let spaces = " ".repeat(indent);
                    Some(Edit::inserting(at, format!("{spaces}{member}")))
                }
                None => Some(in_front(first.start, &member, indent)),
            }
        }
        Kind::List { items, .. } => {
            let first = items.first()?.start;
            let line_start = first.at - first_column_bytes(text, first)?;
            let dash = line_start + text.get(line_start..first.at)?.rfind('-')?;
            let indent = text.get(line_start..dash)?.chars().count();
            let start = Mark { at: dash, ..first };
            Some(in_front(
                start,
                &emit::item(&operation.value, indent),
                indent,
            ))
        }
        _ => None,
    }
}

/// Inserts lines in front of a node that may stand behind a dash.
fn in_front(start: Mark, lines: &str, indent: usize) -> Edit {
    Edit::inserting(start.at, format!("{lines}{}", " ".repeat(indent)))
}

/// Returns the beginning of the line of a member, or of the comments right above it.
fn before_comments(text: &str, member: Mark) -> Option<usize> {
    let mut at = member.at - first_column_bytes(text, member)?;
    if !text.get(at..member.at)?.bytes().all(|byte| byte == b' ') {
        return None;
    }
    loop {
        let above = text.get(..at)?.strip_suffix('\n')?;
        let start = above.rfind('\n').map_or(0, |end| end + 1);
        let line = above.get(start..)?;
        // Deeper ones may be content of the value above.
        let is_comment = line.trim_start().starts_with('#')
            && line.len() - line.trim_start().len() == member.column;
        if !is_comment {
            return Some(at);
        }
        at = start;
    }
}

/// Returns the bytes between the beginning of its line and a mark.
fn first_column_bytes(text: &str, mark: Mark) -> Option<usize> {
    let before = text.get(..mark.at)?;
    Some(before.len() - before.rfind('\n').map_or(0, |end| end + 1))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;
    use crate::yaml::documents;

    fn changed(text: &str, operations: &[Operation]) -> String {
        edited(&documents(text).unwrap()[0], operations).unwrap()
    }

    #[test]
    fn members_are_inserted_between_others() {
        let text = "a: 1 # one\n\n# of b\nb:\n  - x: 0440   # octal\n    y: yes\nc: {d: 1}\n";
        let operations = [
            Operation::add("/new", json!({"name": "m", "list": [1, "2"]})),
            Operation::add("/b/0", json!({"z": "it's: so"})),
            Operation::add("/b/1/w", json!(null)),
            Operation::add("/c/e", json!(["f"])),
            Operation::replace("/b/1/y", json!(8080)),
        ];
        let expected = "a: 1 # one\n\nnew:\n  name: m\n  list:\n  - 1\n  - \"2\"\n# of b\nb:\n  - z: \"it's: so\"\n  - x: 0440   # octal\n    w: null\n    y: 8080\nc: {\"e\": [\"f\"], d: 1}\n";
        assert_eq!(changed(text, &operations), expected);
    }

    #[test]
    fn a_member_without_a_value_gets_one() {
        for (text, expected) in [
            ("a:\nb: 1\n", "a: {\"x\":1}\nb: 1\n"),
            ("a: ~\nb: 1\n", "a: {\"x\":1}\nb: 1\n"),
            ("a: null # why\nb: 1\n", "a: {\"x\":1} # why\nb: 1\n"),
            ("{a: }\n", "{a: {\"x\":1} }\n"),
        ] {
            let operation = Operation::add("/a", json!({"x": 1}));
            assert_eq!(changed(text, &[operation]), expected, "{text}");
        }
    }

    #[test]
    fn a_document_with_references_is_rendered_without_them() {
        let text =
            "--- # one\nlabels: &l {app: x, mode: 0440}\nselector: *l\nmore:\n  <<: *l\n  app: y\n";
        let operation = Operation::add("/labels/new", json!("v"));
        let expected = "---\nlabels:\n  app: x\n  new: v\n  mode: 0440\nselector:\n  app: x\n  mode: 0440\nmore:\n  app: y\n  mode: 0440\n";
        assert_eq!(changed(text, &[operation]), expected);
    }

    #[test]
    fn texts_of_several_lines_and_other_letters_stay() {
        let text = "ä: |\n  # no comment\n  ü: 1\n\nö: >-\n  x\n  y\nz: \"\\u00e4\"\n";
        let operation = Operation::add("/m", json!(1));
        let expected = "ä: |\n  # no comment\n  ü: 1\n\nm: 1\nö: >-\n  x\n  y\nz: \"\\u00e4\"\n";
        assert_eq!(changed(text, &[operation]), expected);
    }
}
