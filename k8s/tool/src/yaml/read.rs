//! The documents of a file, from the events of a parser.

use std::collections::{BTreeMap, BTreeSet};

use postern_process::exit::ExitError;
use postern_token::strict_json;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag};
use serde_json::{Map, Value};

use super::scalar::plain;
use super::{Document, error};

/// The depth of a value: far deeper than any manifest.
const MAX_DEPTH: usize = 100;
/// The bytes that references copy: far more than in a manifest. References to references multiply.
const MAX_COPIED_BYTES: usize = 1024 * 1024;
/// Ends of lines in YAML 1.1 alone: for `kubectl` a comment ends there, and the rest counts.
const OTHER_LINE_BREAKS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// Reads the objects of a file: its documents, and of a list of objects the items.
///
/// # Errors
/// For text that is neither YAML nor JSON, and for text that two readers may read differently.
pub(crate) fn documents(file: &str, stream: &str) -> Result<Vec<Document>, ExitError> {
    let mut reader = Reader {
        events: Parser::new_from_str(stream),
        line: 1,
        anchors: BTreeMap::new(),
        copied: 0,
    };
    let read =
        if let Ok(object) = strict_json::object(stream.as_bytes()).and_then(serde_json::to_value) {
            // JSON has escapes that YAML lacks.
            Ok(objects(1, object))
        } else if let Some((before, _)) = stream.split_once(OTHER_LINE_BREAKS) {
            reader.line = before.matches('\n').count() + 1;
            Err("has a line break of another kind: write it as an escape".to_owned())
        } else {
            reader.documents()
        };
    Ok(read
        .map_err(|problem| error(&format!("{file}:{}", reader.line), &problem))?
        .into_iter()
        .map(|(line, value)| Document {
            location: format!("{file}:{line}"),
            value,
            warnings: Vec::new(),
        })
        .collect())
}

/// Returns the items of a list, or the object itself. As for `kubectl` an item without a kind has the
/// list's kind.
fn objects(line: usize, value: Value) -> Vec<(usize, Value)> {
    let kind = value["kind"].as_str().unwrap_or_default();
    let (Some(kind), Some(items)) = (kind.strip_suffix("List"), value["items"].as_array()) else {
        return vec![(line, value)];
    };
    let mut all = Vec::new();
    for item in items {
        let mut item = item.clone();
        if item.is_object() && item.get("kind").is_none() && !kind.is_empty() {
            item["kind"] = kind.into();
            item["apiVersion"] = value["apiVersion"].clone();
        }
        // An item may be a list itself.
        all.extend(objects(line, item));
    }
    all
}

struct Reader<I> {
    events: I,
    /// The line of the present event.
    line: usize,
    /// The values of anchors, by the parser's number of the anchor.
    anchors: BTreeMap<usize, Value>,
    copied: usize,
}

impl<'t, I: Iterator<Item = Result<(Event<'t>, Span), ScanError>>> Reader<I> {
    /// Returns each object with its first line.
    fn documents(&mut self) -> Result<Vec<(usize, Value)>, String> {
        let mut found = Vec::new();
        loop {
            match self.next()? {
                Event::StreamEnd => return Ok(found),
                Event::DocumentStart(_) => {
                    // Anchors end with their document, and so does the bound on what they copy.
                    self.anchors.clear();
                    self.copied = 0;
                    let first = self.next()?;
                    let line = self.line;
                    let value = self.value(first, MAX_DEPTH)?;
                    if !value.is_null() {
                        found.extend(objects(line, value));
                    }
                }
                _ => {}
            }
        }
    }

    fn next(&mut self) -> Result<Event<'t>, String> {
        match self.events.next() {
            None => Ok(Event::StreamEnd),
            Some(Ok((event, span))) => {
                self.line = span.start.line();
                Ok(event)
            }
            Some(Err(error)) => {
                self.line = error.marker().line();
                Err(error.info().to_owned())
            }
        }
    }

    /// Reads the value that begins with an event.
    fn value(&mut self, event: Event<'t>, depth: usize) -> Result<Value, String> {
        let depth = depth.checked_sub(1).ok_or("is nested too deeply")?;
        let (value, anchor) = match event {
            Event::Alias(anchor) => return self.copy(anchor),
            Event::Scalar(text, style, anchor, tag) => {
                (scalar(&text, style, tag.as_deref())?, anchor)
            }
            Event::SequenceStart(anchor, _) => (self.list(depth)?, anchor),
            Event::MappingStart(anchor, _) => (self.map(depth)?, anchor),
            _ => (Value::Null, 0),
        };
        // Keep an anchor's value once it is whole: a reference from within the value finds nothing.
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn copy(&mut self, anchor: usize) -> Result<Value, String> {
        let value = self.anchors.get(&anchor).ok_or("refers to itself")?;
        // Count the bytes and not the references: a reference to references multiplies what it copies.
        self.copied += value.to_string().len();
        if self.copied > MAX_COPIED_BYTES {
            return Err("has references without an end".to_owned());
        }
        Ok(value.clone())
    }

    fn list(&mut self, depth: usize) -> Result<Value, String> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(items.into()),
                first => items.push(self.value(first, depth)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, String> {
        let mut members = Map::new();
        // The member names without those of merges, which a later member may replace.
        let mut own = BTreeSet::new();
        loop {
            let key = match self.next()? {
                Event::MappingEnd => return Ok(members.into()),
                key => key,
            };
            let merges =
                matches!(&key, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<");
            let key = self.value(key, depth)?;
            let first = self.next()?;
            let value = self.value(first, depth)?;
            // A member of the map itself counts more than a merged one, so merges are not in `own`.
            if merges {
                merge(&mut members, value)?;
                continue;
            }
            let name = name(key)?;
            if !own.insert(name.clone()) {
                return Err(format!("has the member {name} twice: remove one"));
            }
            members.insert(name, value);
        }
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    match tag {
        None if style == ScalarStyle::Plain => {
            plain(text).ok_or_else(|| format!("{text} is no number of JSON"))
        }
        Some(tag) if !tag.is_yaml_core_schema() || tag.suffix != "str" => Err(format!(
            "has the type {}: write the value itself",
            tag.suffix
        )),
        _ => Ok(text.into()),
    }
}

/// Returns the name of a member: `yes` is `true`, 0644 is 420.
fn name(key: Value) -> Result<String, String> {
    match key {
        Value::String(name) => Ok(name),
        Value::Bool(_) | Value::Number(_) => Ok(key.to_string()),
        _ => Err("has a key that is not a text".to_owned()),
    }
}

/// Adds the members of a map, or of each map of a list; the first map of the list wins.
fn merge(members: &mut Map<String, Value>, value: Value) -> Result<(), String> {
    match value {
        Value::Object(merged) => members.extend(merged),
        Value::Array(each) if each.iter().all(Value::is_object) => {
            // In reverse order: the first map is merged last, and so overwrites the others.
            for merged in each.into_iter().rev() {
                merge(members, merged)?;
            }
        }
        _ => {
            return Err(
                "merges what is no map: write its members, or a reference to a map".to_owned(),
            );
        }
    }
    Ok(())
}
