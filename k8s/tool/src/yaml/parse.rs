//! The documents of a stream, each as text and as a tree.

use std::collections::BTreeSet;
use std::mem::take;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::Value;

use super::YamlError;
use super::node::{Anchors, Kind, Mark, Node};

/// Far deeper than any manifest.
const MAX_DEPTH: usize = 100;

/// Ends of lines for parsers of YAML 1.1 alone: a comment ends there, and the rest counts.
const OTHER_LINE_BREAKS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// One document of a stream: its text from its marker on, and its value.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    pub(crate) text: String,
    /// The line of the stream that it begins at, from 1.
    first_line: usize,
    tree: Option<Tree>,
}

/// The tree of a document.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    /// Without references.
    pub(super) root: Node,
    /// True where the text has anchors, references, merges or types: an edit could be one of
    /// another place too.
    pub(super) is_indirect: bool,
}

impl Document {
    /// Returns the value; null for an empty document.
    pub(crate) fn value(&self) -> Value {
        self.tree
            .as_ref()
            .map_or(Value::Null, |tree| tree.root.value())
    }

    /// Returns the line of the stream that holds the value at a JSON pointer, or of the nearest one
    /// above it.
    pub(crate) fn line(&self, pointer: &str) -> usize {
        let mut pointer = pointer;
        let Some(tree) = &self.tree else {
            return self.first_line;
        };
        loop {
            if let Some(node) = tree.root.at(pointer) {
                return self.first_line + node.start.line.saturating_sub(1);
            }
            match pointer.rsplit_once('/') {
                Some((above, _)) => pointer = above,
                None => return self.first_line,
            }
        }
    }

    pub(super) fn tree(&self) -> Option<&Tree> {
        self.tree.as_ref()
    }
}

/// Reads the documents of a stream. Their texts, one after the other, are the stream.
///
/// # Errors
/// For text that is not YAML.
pub(crate) fn documents(stream: &str) -> Result<Vec<Document>, YamlError> {
    let mut first_line = 1;
    texts(stream)
        .into_iter()
        .map(|text| {
            if let Some(at) = text.find(OTHER_LINE_BREAKS) {
                let before = text.get(..at).unwrap_or_default();
                return Err(YamlError {
                    line: first_line + before.matches('\n').count(),
                    problem: "has a line break of another kind: kubectl may read what stands behind it, write it as an escape".to_owned(),
                });
            }
            let document = document(text, first_line)?;
            first_line += text.matches('\n').count();
            Ok(document)
        })
        .collect()
}

pub(super) fn document(text: &str, first_line: usize) -> Result<Document, YamlError> {
    Ok(Document {
        text: text.to_owned(),
        first_line,
        tree: tree(text).map_err(|error| {
            let error = directive(text).unwrap_or(error);
            YamlError {
                line: first_line + error.line.saturating_sub(1),
                ..error
            }
        })?,
    })
}

/// Returns the error of a document with a directive: the marker behind it is in the next one.
fn directive(text: &str) -> Option<YamlError> {
    let line = text.lines().position(|line| line.starts_with('%'))?;
    Some(YamlError {
        line: line + 1,
        problem: "has a directive of YAML, which kubectl rejects as well: remove the line"
            .to_owned(),
    })
}

/// Splits before each marker. At the beginning of a line three dashes are never content.
fn texts(stream: &str) -> Vec<&str> {
    let mut texts = Vec::new();
    let mut start = 0;
    let mut at = 0;
    for line in stream.split_inclusive('\n') {
        let marker = line.strip_prefix("---");
        let is_marker =
            marker.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        if is_marker && at > start {
            texts.extend(stream.get(start..at));
            start = at;
        }
        at += line.len();
    }
    texts.extend(stream.get(start..).filter(|rest| !rest.is_empty()));
    texts
}

/// A collection that is not yet complete.
enum Open {
    Map(Mark, usize, bool, Vec<(Node, Node)>, Option<Node>),
    List(Mark, usize, bool, Vec<Node>),
}

/// Builds the tree from events.
struct Builder<'t> {
    text: &'t str,
    /// The offset of each character, for a text that has others than ASCII.
    offsets: Option<Vec<usize>>,
    open: Vec<Open>,
    root: Option<Node>,
    anchors: Anchors,
    is_indirect: bool,
}

fn tree(text: &str) -> Result<Option<Tree>, YamlError> {
    let mut builder = Builder {
        text,
        offsets: (!text.is_ascii()).then(|| {
            text.char_indices()
                .map(|(at, _)| at)
                .chain([text.len()])
                .collect()
        }),
        open: Vec::new(),
        root: None,
        anchors: Anchors::new(),
        is_indirect: false,
    };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| YamlError {
            line: error.marker().line(),
            problem: error.info().to_owned(),
        })?;
        let line = span.start.line();
        builder.event(event, span).map_err(|problem| YamlError {
            line,
            problem: problem.to_owned(),
        })?;
    }
    builder.finished()
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), &'static str> {
        let start = self.mark(span);
        match event {
            Event::Alias(number) => {
                self.is_indirect = true;
                if !self.anchors.contains_key(&number) {
                    return Err("refers to itself");
                }
                self.complete(start, self.end(span), Kind::Alias(number), 0)
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.is_indirect |= anchor > 0 || tag.is_some();
                let is_text = tag.as_ref().is_some_and(|tag| tag.suffix == "str");
                if tag.is_some() && !is_text {
                    return Err("has a type other than !!str");
                }
                let plain = style == ScalarStyle::Plain && !is_text;
                self.is_indirect |= text == "<<" && plain;
                let kind = Kind::Scalar {
                    text: text.into_owned(),
                    plain,
                };
                self.complete(start, self.end(span), kind, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.is_indirect |= anchor > 0 || tag.is_some();
                let flow = self.begins_with(start, b'[');
                self.open(Open::List(start, anchor, flow, Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.is_indirect |= anchor > 0 || tag.is_some();
                let flow = self.begins_with(start, b'{');
                self.open(Open::Map(start, anchor, flow, Vec::new(), None))
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(self.end(span)),
            _ => Ok(()),
        }
    }

    fn open(&mut self, open: Open) -> Result<(), &'static str> {
        if self.open.len() == MAX_DEPTH {
            return Err("is nested too deeply");
        }
        self.open.push(open);
        Ok(())
    }

    fn close(&mut self, end: usize) -> Result<(), &'static str> {
        match self.open.pop() {
            Some(Open::Map(start, anchor, flow, entries, None)) => {
                // The API server rejects them; two documents without a marker between look the same.
                let mut seen = BTreeSet::new();
                let keys = entries.iter().map(|(key, _)| key.text());
                if !keys.filter(|key| *key != "<<").all(|key| seen.insert(key)) {
                    return Err("has a member twice");
                }
                self.complete(start, end, Kind::Map { entries, flow }, anchor)
            }
            Some(Open::List(start, anchor, flow, items)) => {
                self.complete(start, end, Kind::List { items, flow }, anchor)
            }
            _ => Err("has a key without a value"),
        }
    }

    /// Puts a complete node into its collection.
    fn complete(
        &mut self,
        start: Mark,
        end: usize,
        kind: Kind,
        anchor: usize,
    ) -> Result<(), &'static str> {
        let node = Node { start, end, kind };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            None if self.root.is_some() => return Err("has two values"),
            None => self.root = Some(node),
            Some(Open::List(_, _, _, items)) => items.push(node),
            Some(Open::Map(_, _, _, entries, key)) => match take(key) {
                Some(key) => entries.push((key, node)),
                None if matches!(node.kind, Kind::Scalar { .. }) => *key = Some(node),
                None => return Err("has a key that is not a text"),
            },
        }
        Ok(())
    }

    fn finished(self) -> Result<Option<Tree>, YamlError> {
        let Some(root) = self.root else {
            return Ok(None);
        };
        let line = root.start.line;
        let root = root.resolved(&self.anchors).ok_or_else(|| YamlError {
            line,
            problem: "has references without an end".to_owned(),
        })?;
        Ok(Some(Tree {
            root,
            is_indirect: self.is_indirect,
        }))
    }

    fn mark(&self, span: Span) -> Mark {
        Mark {
            at: self.offset(span.start.index()),
            line: span.start.line(),
            column: span.start.col(),
        }
    }

    fn end(&self, span: Span) -> usize {
        self.offset(span.end.index())
    }

    fn offset(&self, characters: usize) -> usize {
        let known = self.offsets.as_ref();
        known
            .map_or(Some(characters), |offsets| offsets.get(characters).copied())
            .unwrap_or(self.text.len())
            .min(self.text.len())
    }

    fn begins_with(&self, mark: Mark, byte: u8) -> bool {
        self.text.as_bytes().get(mark.at) == Some(&byte)
    }
}
