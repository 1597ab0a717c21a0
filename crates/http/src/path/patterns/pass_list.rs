//! The paths that need no token: patterns as a tree, so that each path is walked once.

use std::collections::HashMap;

use http::Method;
use smallvec::SmallVec;

use super::glob::Glob;
use super::steps::Steps;
use super::{PathError, PathPattern, Segment, segments};

/// The paths that need no token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PassList {
    patterns: Vec<PathPattern>,
    /// A tree of the patterns: common beginnings share nodes, so each path is walked once for all
    /// patterns. The first node is the root.
    nodes: Vec<Node>,
    /// True if a pattern is for some methods only.
    depends_on_method: bool,
}

type NodeId = usize;

/// The segments that may follow a common beginning of patterns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Node {
    literals: HashMap<String, NodeId>,
    /// Tried one after another.
    globs: Vec<(Glob, NodeId)>,
    /// The node after a `**`, which may also match no segment.
    any: Option<NodeId>,
    /// True if the node follows a `**`, which takes any segments.
    takes_all: bool,
    /// The patterns that end here, in their order.
    patterns: SmallVec<[usize; 1]>,
}

/// The distinct nodes that a path may have reached, sorted, seldom more than two.
type NodeIds = SmallVec<[NodeId; 8]>;

/// An unusable pattern of the pass list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pattern {pattern:?}: {source}")]
pub struct PassListError {
    /// The pattern as configured.
    pub pattern: String,
    /// The error.
    pub source: PathError,
}

/// A path that is not compared to its end: it could match any pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManySteps;

impl PassList {
    /// Parses the patterns, in order.
    ///
    /// # Errors
    /// The first unusable pattern.
    pub fn parse<'p>(patterns: impl IntoIterator<Item = &'p str>) -> Result<Self, PassListError> {
        Self::parse_each(patterns, str::parse)
    }

    /// Parses patterns that may have methods in front, in order.
    ///
    /// # Errors
    /// The first unusable pattern.
    pub fn with_methods<'p>(
        patterns: impl IntoIterator<Item = &'p str>,
    ) -> Result<Self, PassListError> {
        Self::parse_each(patterns, PathPattern::with_methods)
    }

    fn parse_each<'p>(
        patterns: impl IntoIterator<Item = &'p str>,
        parse: impl Fn(&'p str) -> Result<PathPattern, PathError>,
    ) -> Result<Self, PassListError> {
        let mut list = Self::default();
        for text in patterns {
            match parse(text) {
                Ok(pattern) => list.add(pattern),
                Err(source) => {
                    return Err(PassListError {
                        pattern: text.to_owned(),
                        source,
                    });
                }
            }
        }
        Ok(list)
    }

    /// Returns the list as lenient services read paths.
    #[must_use]
    pub fn loosened(&self) -> Self {
        self.patterns
            .iter()
            .cloned()
            .map(PathPattern::loosened)
            .collect()
    }

    fn add(&mut self, pattern: PathPattern) {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        let mut end = 0;
        for segment in &pattern.segments {
            end = self.child(end, segment);
        }
        self.depends_on_method |= !pattern.methods.are_all();
        let position = self.patterns.len();
        if let Some(node) = self.nodes.get_mut(end) {
            node.patterns.push(position);
        }
        self.patterns.push(pattern);
    }

    /// Returns the node that `segment` leads to from `parent`, and adds it if it is missing.
    fn child(&mut self, parent: NodeId, segment: &Segment) -> NodeId {
        let new = self.nodes.len();
        let Some(node) = self.nodes.get_mut(parent) else {
            return new;
        };
        let child = match segment {
            Segment::Any => *node.any.get_or_insert(new),
            Segment::Literal(literal) => *node.literals.entry(literal.clone()).or_insert(new),
            Segment::Glob(glob) => match node.globs.iter().find(|(known, _)| known == glob) {
                Some((_, child)) => *child,
                None => {
                    node.globs.push((glob.clone(), new));
                    new
                }
            },
        };
        if child == new {
            self.nodes.push(Node {
                takes_all: *segment == Segment::Any,
                ..Node::default()
            });
        }
        child
    }

    /// Returns true if patterns are for some methods only.
    pub const fn depends_on_method(&self) -> bool {
        self.depends_on_method
    }

    /// Returns the patterns, in order.
    pub fn patterns(&self) -> &[PathPattern] {
        &self.patterns
    }

    /// Returns true if a canonical path, relative to the context path, is on the list for some
    /// method.
    pub fn matches(&self, path: &str) -> bool {
        self.first(path, |_| true).is_some()
    }

    /// Returns the first pattern for `method` that matches; `None` stands for a method that is not
    /// certain.
    pub fn find_for(&self, method: Option<&Method>, path: &str) -> Option<&PathPattern> {
        self.first(path, |pattern| pattern.methods.allow(method))
    }

    fn first(&self, path: &str, is_meant: impl Fn(&PathPattern) -> bool) -> Option<&PathPattern> {
        let mut first = None;
        // A path that takes too many steps is on no list.
        self.each_match(path, |position| {
            if self.patterns.get(position).is_some_and(&is_meant) {
                // Matches come in the order of the tree; the order of the list counts.
                first = Some(first.unwrap_or(position).min(position));
            }
        })
        .ok()?;
        self.patterns.get(first?)
    }

    /// Calls `found` with the position of each pattern that matches, in no order.
    ///
    /// # Errors
    /// [`TooManySteps`], without any call.
    pub fn each_match(&self, path: &str, found: impl FnMut(usize)) -> Result<(), TooManySteps> {
        self.walk(path, Glob::matches, found)
    }

    /// Calls `found` with the position of each pattern that matches a spelling of a
    /// [`LoosePath`](crate::path::loose::LoosePath), in no order. The patterns are
    /// [loosened](PathPattern::loosened).
    ///
    /// # Errors
    /// [`TooManySteps`], without any call.
    pub fn each_loose_match(
        &self,
        path: &str,
        is_expanded: bool,
        found: impl FnMut(usize),
    ) -> Result<(), TooManySteps> {
        let matches =
            |glob: &Glob, name: &str, steps: &Steps| glob.matches_loosely(name, is_expanded, steps);
        self.walk(path, matches, found)
    }

    fn walk(
        &self,
        path: &str,
        matches: impl Fn(&Glob, &str, &Steps) -> bool,
        mut found: impl FnMut(usize),
    ) -> Result<(), TooManySteps> {
        let steps = Steps::default();
        let mut ids = NodeIds::new();
        self.enter(0, &mut ids);
        for segment in segments(path) {
            if ids.is_empty() {
                return Ok(());
            }
            ids = self.after(segment, &ids, &matches, &steps);
            // False too once a glob has used up the steps: its mismatch was no comparison then.
            if !steps.take(ids.len()) {
                return Err(TooManySteps);
            }
        }
        for id in ids {
            let ends = self.nodes.get(id).map(|node| &node.patterns);
            ends.into_iter().flatten().copied().for_each(&mut found);
        }
        Ok(())
    }

    fn after(
        &self,
        segment: &str,
        ids: &NodeIds,
        matches: impl Fn(&Glob, &str, &Steps) -> bool,
        steps: &Steps,
    ) -> NodeIds {
        let mut next = NodeIds::new();
        for &id in ids {
            let Some(node) = self.nodes.get(id) else {
                continue;
            };
            // A `**` takes this segment too, and stays reached.
            if node.takes_all {
                self.enter(id, &mut next);
            }
            if let Some(&child) = node.literals.get(segment) {
                self.enter(child, &mut next);
            }
            for (glob, child) in &node.globs {
                if matches(glob, segment, steps) {
                    self.enter(*child, &mut next);
                }
            }
        }
        next
    }

    /// Adds a node, and the node after its `**`, which may match no segment at all.
    fn enter(&self, id: NodeId, ids: &mut NodeIds) {
        let Some(node) = self.nodes.get(id) else {
            return;
        };
        // Each node once: two ways to it would double the work with every `**`.
        if let Err(position) = ids.binary_search(&id) {
            ids.insert(position, id);
        }
        if let Some(any) = node.any {
            self.enter(any, ids);
        }
    }
}

impl FromIterator<PathPattern> for PassList {
    fn from_iter<P: IntoIterator<Item = PathPattern>>(patterns: P) -> Self {
        let mut list = Self::default();
        for pattern in patterns {
            list.add(pattern);
        }
        list
    }
}

#[cfg(test)]
mod tests;
