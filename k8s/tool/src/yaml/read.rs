//! The documents of a stream, from the events of a parser.

use std::collections::{BTreeMap, BTreeSet};

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Map, Value};
use wire::strict_json;

use super::scalar::plain;
use super::{Document, Location, YamlError};

/// Far deeper than any manifest.
const MAX_DEPTH: usize = 100;
/// Copied values, far more than a manifest has: references to references multiply without end.
const MAX_COPIES: usize = 200_000;
/// Ends of lines in YAML 1.1 alone: for `kubectl` a comment ends there, and the rest counts.
const OTHER_LINE_BREAKS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// Reads the documents of a file that hold anything.
///
/// # Errors
/// For text that is neither YAML nor JSON, and for what two readers may read differently.
pub(crate) fn documents(file: &str, stream: &str) -> Result<Vec<Document>, YamlError> {
    let location = |line| Location {
        file: file.to_owned(),
        line,
    };
    let error = |line, problem: String| YamlError {
        location: location(line),
        problem,
    };
    // JSON has escapes that YAML lacks.
    if let Ok(object) = strict_json::object(stream.as_bytes()) {
        return Ok(vec![Document {
            location: location(1),
            value: object.into(),
        }]);
    }
    if let Some((before, _)) = stream.split_once(OTHER_LINE_BREAKS) {
        let line = before.matches('\n').count() + 1;
        let problem = "has a line break of another kind: write it as an escape";
        return Err(error(line, problem.to_owned()));
    }
    let mut reader = Reader::default();
    for event in Parser::new_from_str(stream) {
        let (event, span) =
            event.map_err(|failed| error(failed.marker().line(), failed.info().to_owned()))?;
        let line = span.start.line();
        reader
            .event(event, line)
            .map_err(|problem| error(line, problem))?;
    }
    let documents = reader.documents.into_iter();
    let located = |(line, value)| Document {
        location: location(line),
        value,
    };
    Ok(documents.map(located).collect())
}

#[derive(Debug, Default)]
struct Reader {
    /// Complete ones, each with its first line.
    documents: Vec<(usize, Value)>,
    /// The first line of the present one.
    line: usize,
    /// Collections that are not yet complete, the innermost last.
    open: Vec<Open>,
    /// By the parser's number of the anchor.
    anchors: BTreeMap<usize, Value>,
    copies: usize,
}

#[derive(Debug)]
struct Open {
    anchor: usize,
    value: Collection,
}

#[derive(Debug)]
enum Collection {
    Map {
        members: Map<String, Value>,
        /// Names that do not come from a merge.
        own: BTreeSet<String>,
        key: Option<Key>,
    },
    List(Vec<Value>),
}

#[derive(Debug)]
enum Key {
    Name(String),
    /// `<<`
    Merge,
}

impl Reader {
    fn event(&mut self, event: Event<'_>, line: usize) -> Result<(), String> {
        if self.open.is_empty() {
            self.line = line;
        }
        match event {
            Event::DocumentEnd => {
                self.anchors.clear();
                self.copies = 0;
                Ok(())
            }
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).ok_or("refers to itself")?.clone();
                self.copies += size(&value);
                if self.copies > MAX_COPIES {
                    return Err("has references without an end".to_owned());
                }
                self.complete(value, 0)
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_plain = style == ScalarStyle::Plain && tag.is_none();
                if is_plain && text == "<<" && self.begins(Key::Merge) {
                    return Ok(());
                }
                let value = match tag {
                    None if is_plain => {
                        plain(&text).ok_or_else(|| format!("{text} is no number of JSON"))?
                    }
                    Some(tag) if !is_text(&tag) => {
                        return Err(format!(
                            "has the type {}: write the value itself",
                            tag.suffix
                        ));
                    }
                    _ => text.into(),
                };
                self.complete(value, anchor)
            }
            Event::SequenceStart(anchor, _) => self.open(anchor, Collection::List(Vec::new())),
            Event::MappingStart(anchor, _) => self.open(
                anchor,
                Collection::Map {
                    members: Map::new(),
                    own: BTreeSet::new(),
                    key: None,
                },
            ),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open { anchor, value }) => {
                    let value = match value {
                        Collection::Map { members, .. } => members.into(),
                        Collection::List(items) => items.into(),
                    };
                    self.complete(value, anchor)
                }
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn open(&mut self, anchor: usize, value: Collection) -> Result<(), String> {
        if self.open.len() == MAX_DEPTH {
            return Err("is nested too deeply".to_owned());
        }
        self.open.push(Open { anchor, value });
        Ok(())
    }

    /// Sets the key of the innermost map, and returns true if it was waiting for one.
    fn begins(&mut self, name: Key) -> bool {
        match self.open.last_mut().map(|open| &mut open.value) {
            Some(Collection::Map { key, .. }) if key.is_none() => {
                *key = Some(name);
                true
            }
            _ => false,
        }
    }

    /// Puts a complete value into its collection.
    fn complete(&mut self, value: Value, anchor: usize) -> Result<(), String> {
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
        match self.open.last_mut().map(|open| &mut open.value) {
            None if value.is_null() => {}
            None => self.documents.push((self.line, value)),
            Some(Collection::List(items)) => items.push(value),
            Some(Collection::Map { members, own, key }) => match key.take() {
                None => *key = Some(Key::Name(name(value)?)),
                Some(Key::Merge) => merge(members, value)?,
                Some(Key::Name(name)) => {
                    if !own.insert(name.clone()) {
                        return Err(format!("has the member {name} twice: remove one"));
                    }
                    members.insert(name, value);
                }
            },
        }
        Ok(())
    }
}

fn is_text(tag: &Tag) -> bool {
    tag.is_yaml_core_schema() && tag.suffix == "str"
}

/// Returns the name of a member: `yes` is `true`, 0644 is 420.
fn name(key: Value) -> Result<String, String> {
    match key {
        Value::String(name) => Ok(name),
        Value::Bool(_) | Value::Number(_) => Ok(key.to_string()),
        _ => Err("has a key that is not a text".to_owned()),
    }
}

/// Adds the members of a map, or of each of a list; the first of the list wins.
fn merge(members: &mut Map<String, Value>, value: Value) -> Result<(), String> {
    match value {
        Value::Object(merged) => members.extend(merged),
        Value::Array(each) if each.iter().all(Value::is_object) => {
            for merged in each.into_iter().rev() {
                merge(members, merged)?;
            }
        }
        _ => return Err("merges what is no map".to_owned()),
    }
    Ok(())
}

fn size(value: &Value) -> usize {
    1 + match value {
        Value::Object(members) => members.values().map(size).sum(),
        Value::Array(items) => items.iter().map(size).sum(),
        _ => 0,
    }
}
