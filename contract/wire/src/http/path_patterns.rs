//! The pass list of contract §4.4: Ant patterns, relative to the context path.

use std::{collections::BTreeMap, fmt, str::FromStr};

use smallvec::SmallVec;

use super::request_path::{CanonicalPath, RequestPath, decode_once};

/// A path or pattern of the configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Everything is relative to the root or to the context path.
    #[error("must start with '/'")]
    NotAbsolute,
    /// It could never match a canonical path.
    #[error(
        "must be in canonical form: no '//', dot segments, '\\', ';', '#', control characters or escapes of ASCII other than %20"
    )]
    NotCanonical,
    /// Spring's `{name}` variables have no meaning here.
    #[error("'{{' and '}}' are not supported: write '*' for one segment, '**' for several")]
    Variable,
    /// A context path ends where the service's own paths begin.
    #[error("may hold only letters, digits, '-', '.', '_', '~' and single slashes between them")]
    BadContext,
}

/// The path prefix that belongs to one application: `/auth`, `/orders`, or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContextPath(String);

impl ContextPath {
    /// The prefix, empty or starting with a slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part of `path` after the prefix; `None` where the path lies outside.
    pub fn strip<'p>(&self, path: &'p CanonicalPath<'_>) -> Option<&'p str> {
        match path.as_str().strip_prefix(self.0.as_str())? {
            "" => Some("/"),
            rest if rest.starts_with('/') => Some(rest),
            _ => None,
        }
    }
}

impl fmt::Display for ContextPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ContextPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        if !text.starts_with('/') {
            return Err(PathError::NotAbsolute);
        }
        // Escapes would make the prefix differ from what stands in the request line.
        let plain = |b: u8| b == b'/' || b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        if text.ends_with('/') || !text.bytes().all(plain) {
            return Err(PathError::BadContext);
        }
        let path = RequestPath::parse(text.as_bytes()).map_err(|_| PathError::NotCanonical)?;
        path.canonical().ok_or(PathError::NotCanonical)?;
        Ok(Self(text.to_owned()))
    }
}

/// An Ant pattern with Spring's meaning: `?` one character, `*` any within a segment, `**` as a
/// whole segment any number of segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    /// `**`
    Any,
    /// No wildcard; empty behind a trailing slash.
    Literal(String),
    /// With the wildcards `*` and `?`.
    Glob(Glob),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Glob {
    text: String,
    /// Whether it stands for the empty segment behind a trailing slash.
    takes_empty: bool,
}

impl PathPattern {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for PathPattern {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        if !text.starts_with('/') {
            return Err(PathError::NotAbsolute);
        }
        if text.contains(['{', '}']) {
            return Err(PathError::Variable);
        }
        let decoded = canonical_text_of_pattern(text)?;
        let any = segments(&decoded).any(|segment| segment == "**");
        let segment = |segment: &str| match segment {
            "**" => Segment::Any,
            glob if glob.contains(['*', '?']) => Segment::Glob(Glob {
                text: glob.to_owned(),
                // In Spring a final `*` stands for it, but not behind a `**`.
                takes_empty: glob == "*" && !any,
            }),
            literal => Segment::Literal(literal.to_owned()),
        };
        Ok(Self {
            text: text.to_owned(),
            segments: segments(&decoded).map(segment).collect(),
        })
    }
}

/// Patterns obey the rules of the paths they are to match, wildcards aside. Text beyond ASCII and
/// spaces may be written as they are.
fn canonical_text_of_pattern(pattern: &str) -> Result<String, PathError> {
    let escaped: String = pattern
        .chars()
        .map(|c| match c {
            '?' => "_".to_owned(),
            ' ' => "%20".to_owned(),
            c if c.is_ascii() => c.to_string(),
            c => {
                let mut utf8 = [0; 4];
                let bytes = c.encode_utf8(&mut utf8).bytes();
                bytes.map(|b| format!("%{b:02x}")).collect()
            }
        })
        .collect();
    let path = RequestPath::parse(escaped.as_bytes()).map_err(|_| PathError::NotCanonical)?;
    path.canonical().ok_or(PathError::NotCanonical)?;
    let decoded = decode_once(pattern.as_bytes()).map_err(|_| PathError::NotCanonical)?;
    String::from_utf8(decoded.into_owned()).map_err(|_| PathError::NotCanonical)
}

/// The segments behind each slash; the last one is empty where the path ends with a slash.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').skip(1)
}

impl Glob {
    /// In one loop: the last `*` takes one more character each time the rest does not fit, so the
    /// cost is at most the product of both lengths.
    fn matches(&self, segment: &str) -> bool {
        if segment.is_empty() {
            return self.takes_empty;
        }
        let (mut glob, mut rest) = (self.text.chars(), segment.chars());
        let mut last_star = None;
        loop {
            let (mut after_glob, mut after_rest) = (glob.clone(), rest.clone());
            match (after_glob.next(), after_rest.next()) {
                (None, None) => return true,
                (Some('*'), _) => {
                    last_star = Some((after_glob.clone(), rest.clone()));
                    glob = after_glob;
                }
                (Some(one), Some(character)) if one == '?' || one == character => {
                    (glob, rest) = (after_glob, after_rest);
                }
                _ => {
                    let Some((after_star, taken)) = &mut last_star else {
                        return false;
                    };
                    if taken.next().is_none() {
                        return false;
                    }
                    (glob, rest) = (after_star.clone(), taken.clone());
                }
            }
        }
    }
}

/// The paths that no token is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PassList {
    patterns: Vec<PathPattern>,
    /// Patterns that begin alike share their beginning: a path is walked through once, however many
    /// of them there are. The first node is the root.
    nodes: Vec<Node>,
}

type NodeId = usize;

/// What may follow a beginning that some patterns have in common.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Node {
    literals: BTreeMap<String, NodeId>,
    /// Tried one after another.
    globs: Vec<(Glob, NodeId)>,
    /// Behind a `**`, which may also stand for nothing.
    any: Option<NodeId>,
    /// Whether it is itself behind a `**`, which takes whatever segments come.
    takes_all: bool,
    /// The first pattern that ends here.
    pattern: Option<usize>,
}

/// The nodes that a path may have come to, each once. Seldom more than one or two.
type Places = SmallVec<[NodeId; 8]>;

/// A pattern of the pass list that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pattern {pattern:?}: {source}")]
pub struct PassListError {
    /// As it was written.
    pub pattern: String,
    /// What is wrong with it.
    pub source: PathError,
}

impl PassList {
    /// Parses the patterns, in order.
    ///
    /// # Errors
    /// The first pattern that cannot be used.
    pub fn parse<'p>(patterns: impl IntoIterator<Item = &'p str>) -> Result<Self, PassListError> {
        let mut list = Self::default();
        for text in patterns {
            let pattern = text.parse().map_err(|source| PassListError {
                pattern: text.to_owned(),
                source,
            })?;
            list.add(pattern);
        }
        Ok(list)
    }

    fn add(&mut self, pattern: PathPattern) {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        let end = pattern
            .segments
            .iter()
            .fold(0, |node, segment| self.child(node, segment));
        let position = self.patterns.len();
        if let Some(node) = self.nodes.get_mut(end) {
            node.pattern.get_or_insert(position);
        }
        self.patterns.push(pattern);
    }

    /// Where `segment` leads to from `parent`; a new node where it has not led anywhere so far.
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

    /// Whether a canonical path, relative to the context path, is on the list.
    pub fn matches(&self, path: &str) -> bool {
        self.find(path).is_some()
    }

    /// The first pattern that a canonical path, relative to the context path, matches.
    pub fn find(&self, path: &str) -> Option<&PathPattern> {
        let mut places = Places::new();
        self.enter(0, &mut places);
        for segment in segments(path) {
            if places.is_empty() {
                return None;
            }
            places = self.after(segment, &places);
        }
        let ends = places
            .iter()
            .filter_map(|place| self.nodes.get(*place)?.pattern);
        self.patterns.get(ends.min()?)
    }

    fn after(&self, segment: &str, places: &Places) -> Places {
        let mut next = Places::new();
        for &place in places {
            let Some(node) = self.nodes.get(place) else {
                continue;
            };
            if node.takes_all {
                self.enter(place, &mut next);
            }
            if let Some(&child) = node.literals.get(segment) {
                self.enter(child, &mut next);
            }
            for (glob, child) in &node.globs {
                if glob.matches(segment) {
                    self.enter(*child, &mut next);
                }
            }
        }
        next
    }

    /// A `**` may stand for no segment at all: who is before it is behind it too.
    fn enter(&self, place: NodeId, places: &mut Places) {
        let Some(node) = self.nodes.get(place) else {
            return;
        };
        if !places.contains(&place) {
            places.push(place);
        }
        if let Some(any) = node.any {
            self.enter(any, places);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn contract_4_4_ant_patterns_have_springs_meaning() {
        let rows = [
            ("/a", "/a", true),
            ("/a", "/a/", false),
            ("/a/", "/a", false),
            ("/a", "/A", false),
            ("/a/**", "/a", true),
            ("/a/**", "/a/", true),
            ("/a/**", "/a/b/c/", true),
            ("/a/**", "/ab", false),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a/", true),
            ("/a/*", "/a", false),
            ("/a/*", "/a/b/", false),
            ("/a/*", "/a/b/c", false),
            ("/a/?", "/a/b", true),
            ("/a/?", "/a/é", true),
            ("/a/?", "/a/", false),
            ("/a/*.css", "/a/x.css", true),
            ("/a/*.css", "/a/.css", true),
            ("/a/*.css", "/a/b/x.css", false),
            ("/a/**/z", "/a/z", true),
            ("/a/**/z", "/a/b/c/z", true),
            ("/a/**/z", "/a/b/c/z/", false),
            ("/a/**/z/**", "/a/b/z/y/z/x", true),
            ("/**/a/*.js", "/x/a/y/a/b.js", true),
            ("/**/*", "/a/", false),
            ("/**", "/", true),
            ("/*", "/", true),
            ("/", "/", true),
            ("/a**", "/abc", true),
            ("/a**", "/a/b", false),
            ("/a%20b", "/a b", true),
            ("/a b", "/a b", true),
        ];
        for (pattern, path, expected) in rows {
            let pass_list = PassList::parse([pattern]).unwrap();
            assert_eq!(pass_list.matches(path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn patterns_that_could_never_match_are_refused() {
        for pattern in [
            "", "a", "/a/../b", "/a//b", "/a\\b", "/a;b", "/a#b", "/{id}", "/a%2fb", "/a%", "/a\n",
        ] {
            assert!(pattern.parse::<PathPattern>().is_err(), "{pattern:?}");
        }
    }

    #[test]
    fn a_context_path_ends_at_a_segment() {
        let context: ContextPath = "/orders".parse().unwrap();
        for (path, expected) in [
            ("/orders", Some("/")),
            ("/orders/", Some("/")),
            ("/orders/a", Some("/a")),
            ("/ordersx/a", None),
            ("/a", None),
        ] {
            let request = RequestPath::parse(path.as_bytes()).unwrap();
            assert_eq!(
                context.strip(request.canonical().unwrap()),
                expected,
                "{path}"
            );
        }
        for text in ["orders", "/", "/a/", "/a b", "/..", "/a*", "/a%20b", "//a"] {
            assert!(text.parse::<ContextPath>().is_err(), "{text}");
        }
    }

    #[test]
    fn hostile_paths_cost_no_more_than_their_length_times_the_patterns() {
        let pass_list = PassList::parse(["/**/a*a*a*b/**/c"]).unwrap();
        let path = format!("/{}", "aaaaaaaaaaaaaaaa/".repeat(2_000));
        assert!(!pass_list.matches(&path));
    }

    /// The meaning of a pattern in its plainest form, to compare with. `any`: there is a `**` in it.
    fn means(any: bool, pattern: &[&str], path: &[&str]) -> bool {
        let Some((first, rest)) = pattern.split_first() else {
            return path.is_empty();
        };
        if *first == "**" && means(any, rest, path) {
            return true;
        }
        let Some((segment, tail)) = path.split_first() else {
            return false;
        };
        match *first {
            "**" => means(any, pattern, tail),
            "*" => (!any || !segment.is_empty()) && means(any, rest, tail),
            "a*" => segment.starts_with('a') && means(any, rest, tail),
            "?" => segment.len() == 1 && means(any, rest, tail),
            literal => *segment == literal && means(any, rest, tail),
        }
    }

    /// All sequences of up to `length` of these.
    fn sequences<'w>(words: &[&'w str], length: usize) -> Vec<Vec<&'w str>> {
        let mut all = vec![Vec::new()];
        let mut from = 0;
        for _ in 0..length {
            let longer: Vec<_> = all[from..]
                .iter()
                .flat_map(|known| {
                    words
                        .iter()
                        .map(move |word| [&known[..], &[*word]].concat())
                })
                .collect();
            from = all.len();
            all.extend(longer);
        }
        all.remove(0);
        all
    }

    #[test]
    fn one_pattern_or_many_the_meaning_is_the_same() {
        let patterns = sequences(&["a", "b", "*", "?", "a*", "**"], 3);
        let paths = sequences(&["a", "b", "ab", "c"], 4);
        let text = |segments: &[&str]| format!("/{}", segments.join("/"));
        let texts: Vec<_> = patterns.iter().map(|pattern| text(pattern)).collect();
        let all = PassList::parse(texts.iter().map(String::as_str)).unwrap();
        let each: Vec<_> = texts
            .iter()
            .map(|text| PassList::parse([text.as_str()]).unwrap())
            .collect();
        let with_slash = paths.iter().map(|path| [&path[..], &[""]].concat());
        for path in with_slash.chain(paths.iter().cloned()) {
            let written = text(&path);
            let mut first = None;
            for ((pattern, text), alone) in patterns.iter().zip(&texts).zip(&each) {
                let meant = means(pattern.contains(&"**"), pattern, &path);
                assert_eq!(alone.matches(&written), meant, "{text} {written}");
                first = first.or(meant.then_some(text.as_str()));
            }
            let found = all.find(&written).map(PathPattern::as_str);
            assert_eq!(found, first, "{written}");
        }
    }
}
