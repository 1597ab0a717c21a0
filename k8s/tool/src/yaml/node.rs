//! A YAML node with its place in the text, and its value as Kubernetes reads it.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};

/// A place in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Mark {
    /// In bytes.
    pub(super) at: usize,
    /// From 1.
    pub(super) line: usize,
    /// From 0, in characters.
    pub(super) column: usize,
}

/// A value, and where it is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) start: Mark,
    /// In bytes. Exact for scalars alone.
    pub(super) end: usize,
    pub(super) kind: Kind,
}

/// The three kinds of values, and a reference to one.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// `plain` without quotes, whose text decides about the type.
    Scalar { text: String, plain: bool },
    /// In braces where `flow`.
    Map {
        entries: Vec<(Node, Node)>,
        flow: bool,
    },
    /// In brackets where `flow`.
    List { items: Vec<Node>, flow: bool },
    /// The number of an anchor.
    Alias(usize),
}

/// The anchored nodes of a document by number.
pub(super) type Anchors = BTreeMap<usize, Node>;

/// Copied nodes, far more than a manifest has: references to references multiply without end.
const MAX_COPIES: usize = 200_000;
/// Deeper than any manifest, with its references.
const MAX_DEPTH: usize = 200;

/// The rest of the bounds while references are resolved.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    depth: usize,
    is_copy: bool,
}

impl Node {
    /// Returns the tree without references: each is replaced by a copy, and merged where it stands
    /// at `<<`. `None` for a tree that would grow out of bounds.
    pub(super) fn resolved(&self, anchors: &Anchors) -> Option<Self> {
        let bounds = Bounds {
            depth: MAX_DEPTH,
            is_copy: false,
        };
        self.resolved_within(anchors, &mut MAX_COPIES.clone(), bounds)
    }

    fn resolved_within(&self, anchors: &Anchors, left: &mut usize, bounds: Bounds) -> Option<Self> {
        *left = left.checked_sub(usize::from(bounds.is_copy))?;
        let below = Bounds {
            depth: bounds.depth.checked_sub(1)?,
            ..bounds
        };
        let kind = match &self.kind {
            Kind::Scalar { .. } => self.kind.clone(),
            Kind::Alias(number) => {
                // An anchor stands before its references, so this ends.
                let copy = Bounds {
                    is_copy: true,
                    ..below
                };
                return anchors.get(number)?.resolved_within(anchors, left, copy);
            }
            Kind::List { items, flow } => {
                let items = items.iter();
                let items = items.map(|item| item.resolved_within(anchors, left, below));
                Kind::List {
                    items: items.collect::<Option<_>>()?,
                    flow: *flow,
                }
            }
            Kind::Map { entries, flow } => {
                let mut resolved = Vec::with_capacity(entries.len());
                for (key, value) in entries {
                    let value = value.resolved_within(anchors, left, below)?;
                    resolved.push((key.clone(), value));
                }
                Kind::Map {
                    entries: merged(resolved),
                    flow: *flow,
                }
            }
        };
        Some(Self {
            kind,
            ..self.clone_position()
        })
    }

    fn clone_position(&self) -> Self {
        Self {
            start: self.start,
            end: self.end,
            kind: Kind::Alias(0),
        }
    }

    /// Returns the value. References have to be resolved.
    pub(super) fn value(&self) -> Value {
        match &self.kind {
            Kind::Scalar { text, plain: false } => Value::String(text.clone()),
            Kind::Scalar { text, plain: true } => plain_value(text),
            Kind::List { items, .. } => items.iter().map(Self::value).collect(),
            Kind::Map { entries, .. } => Value::Object(
                entries
                    .iter()
                    .map(|(key, value)| (key.text().to_owned(), value.value()))
                    .collect::<Map<_, _>>(),
            ),
            Kind::Alias(_) => Value::Null,
        }
    }

    /// Returns the text of a scalar; empty for other kinds.
    pub(super) fn text(&self) -> &str {
        match &self.kind {
            Kind::Scalar { text, .. } => text,
            _ => "",
        }
    }

    /// Returns the node of a name of a JSON pointer.
    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        match &self.kind {
            Kind::Map { .. } => self.entry(name).map(|(_, value)| value),
            Kind::List { items, .. } => items.get(name.parse::<usize>().ok()?),
            _ => None,
        }
    }

    /// Returns key and value of a member.
    pub(super) fn entry(&self, name: &str) -> Option<&(Self, Self)> {
        match &self.kind {
            Kind::Map { entries, .. } => entries.iter().find(|(key, _)| key.text() == name),
            _ => None,
        }
    }

    /// Returns the node at a JSON pointer.
    pub(super) fn at(&self, pointer: &str) -> Option<&Self> {
        let names = pointer.split('/').skip(1);
        let names = names.map(|name| name.replace("~1", "/").replace("~0", "~"));
        names
            .into_iter()
            .try_fold(self, |node, name| node.child(&name))
    }

    /// Returns true for a plain scalar that is null.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { text, plain: true } if is_null(text))
    }
}

/// Replaces `<<` by the members of its value that the map itself lacks.
fn merged(entries: Vec<(Node, Node)>) -> Vec<(Node, Node)> {
    let (merges, mut own): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|(key, _)| key.text() == "<<");
    for (_, value) in merges {
        let sources = match value.kind {
            Kind::List { items, .. } => items,
            _ => vec![value],
        };
        for source in sources {
            let Kind::Map { entries, .. } = source.kind else {
                continue;
            };
            for (key, value) in entries {
                if !own.iter().any(|(present, _)| present.text() == key.text()) {
                    own.push((key, value));
                }
            }
        }
    }
    own
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Returns the value of a scalar without quotes, with the types of YAML 1.1, as `kubectl` reads it.
fn plain_value(text: &str) -> Value {
    if is_null(text) {
        return Value::Null;
    }
    match text {
        "true" | "True" | "TRUE" | "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => {
            return Value::Bool(true);
        }
        "false" | "False" | "FALSE" | "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = digits.strip_prefix(prefix) {
            return i64::from_str_radix(digits, radix).ok().map(Number::from);
        }
    }
    let octal = digits.strip_prefix('0').filter(|rest| !rest.is_empty());
    if let Some(octal) = octal
        && octal.bytes().all(|digit| (b'0'..=b'7').contains(&digit))
    {
        return i64::from_str_radix(octal, 8).ok().map(Number::from);
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    let whole = text.parse::<i64>().ok().map(Number::from);
    whole.or_else(|| {
        let is_decimal = digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'-' | b'+'));
        is_decimal.then(|| text.parse().ok().and_then(Number::from_f64))?
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_scalars_have_the_types_of_kubernetes() {
        for (text, value) in [
            ("", json!(null)),
            ("~", json!(null)),
            ("yes", json!(true)),
            ("y", json!(true)),
            ("N", json!(false)),
            ("off", json!(false)),
            ("0440", json!(288)),
            ("0o440", json!(288)),
            ("0x1F", json!(31)),
            ("8080", json!(8080)),
            ("-1", json!(-1)),
            ("1.5", json!(1.5)),
            ("0.1.0", json!("0.1.0")),
            ("089", json!(89)),
            ("10m", json!("10m")),
            ("2026-11-22", json!("2026-11-22")),
            (".", json!(".")),
            ("no.", json!("no.")),
        ] {
            assert_eq!(plain_value(text), value, "{text}");
        }
    }
}
