//! The pass list of contract §4.4: Ant patterns, relative to the context path, for all methods or
//! for some.

mod overlap;

use std::{collections::BTreeMap, fmt, str::FromStr};

use http::Method;
use smallvec::SmallVec;

use super::loose_path::loose_name;
use super::methods::{MethodError, Methods};
use super::request_path::{CanonicalPath, RequestPath, decode_once};

/// An unusable path or pattern of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A path that does not begin at the root or the context path.
    #[error("must start with '/'")]
    NotAbsolute,
    /// A pattern that can never match a canonical path.
    #[error(
        "must be in canonical form: no '//', dot segments, '\\', ';', '#', control characters or escapes of ASCII other than %20"
    )]
    NotCanonical,
    /// Spring's `{name}` variables, which are not supported.
    #[error("'{{' and '}}' are not supported: write '*' for one segment, '**' for several")]
    Variable,
    /// Unusable methods in front of a pattern.
    #[error("the methods in front, as in 'GET,HEAD /products/**': {0}")]
    Method(#[from] MethodError),
    /// An unsupported character in a context path, or a slash at its end.
    #[error("may hold only letters, digits, '-', '.', '_', '~' and single slashes between them")]
    BadContext,
}

/// The path prefix of one application: `/auth`, `/orders`, or empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContextPath(String);

impl ContextPath {
    /// Returns the prefix, empty or starting with a slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the part of `path` after the prefix; `None` for a path outside of it.
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
        // Escapes would make the prefix differ from the request line.
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
    methods: Methods,
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    /// A `**`.
    Any,
    /// Text without a wildcard; empty after a trailing slash.
    Literal(String),
    /// Text with the wildcards `*` and `?`.
    Glob(Glob),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Glob {
    text: String,
    /// True if it matches the empty segment after a trailing slash.
    takes_empty: bool,
}

impl PathPattern {
    /// Parses a pattern with methods in front, as in `GET,HEAD /products/**`, or one for all.
    ///
    /// # Errors
    /// The first part that is unusable.
    pub fn with_methods(text: &str) -> Result<Self, PathError> {
        if text.starts_with('/') {
            return text.parse();
        }
        let (methods, path) = text.split_once(' ').ok_or(PathError::NotAbsolute)?;
        let path = path.trim_start_matches(' ');
        Ok(Self {
            text: text.to_owned(),
            methods: Methods::parse(methods.split(','))?,
            ..path.parse::<Self>()?
        })
    }

    /// Returns the pattern as configured.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the methods that it is for.
    pub const fn methods(&self) -> &Methods {
        &self.methods
    }

    /// Returns the pattern for a [`LoosePath`](super::loose_path::LoosePath).
    #[must_use]
    pub fn loosened(mut self) -> Self {
        for segment in &mut self.segments {
            match segment {
                Segment::Any => {}
                Segment::Literal(name) => *name = loose_name(name),
                Segment::Glob(glob) => glob.text = loose_name(&glob.text),
            }
        }
        let ends_with_slash =
            matches!(&self.segments[..], [_, .., Segment::Literal(last)] if last.is_empty());
        if ends_with_slash {
            self.segments.pop();
        }
        self
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
                // Spring matches an empty segment with a final `*`, but not after a `**`.
                takes_empty: glob == "*" && !any,
            }),
            literal => Segment::Literal(literal.to_owned()),
        };
        Ok(Self {
            text: text.to_owned(),
            methods: Methods::default(),
            segments: segments(&decoded).map(segment).collect(),
        })
    }
}

/// Checks a pattern by the rules of paths, except for wildcards, and decodes it. Spaces and text
/// beyond ASCII need no escapes.
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

/// Returns the segment after each slash; the last one is empty if the path ends with a slash.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').skip(1)
}

impl Glob {
    /// Matches in one loop: the last `*` takes one more character after each mismatch, so the cost
    /// is at most the product of both lengths.
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

/// The paths that need no token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PassList {
    patterns: Vec<PathPattern>,
    /// A tree of the patterns: common beginnings share nodes, so each path is walked once for all
    /// patterns. The first node is the root.
    nodes: Vec<Node>,
}

type NodeId = usize;

/// The segments that may follow a common beginning of patterns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Node {
    literals: BTreeMap<String, NodeId>,
    /// Tried one after another.
    globs: Vec<(Glob, NodeId)>,
    /// The node after a `**`, which may also match no segment.
    any: Option<NodeId>,
    /// True if the node follows a `**`, which takes any segments.
    takes_all: bool,
    /// The patterns that end here, in their order.
    patterns: SmallVec<[usize; 1]>,
}

/// The distinct nodes that a path may have reached, seldom more than two.
type Places = SmallVec<[NodeId; 8]>;

/// An unusable pattern of the pass list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pattern {pattern:?}: {source}")]
pub struct PassListError {
    /// The pattern as configured.
    pub pattern: String,
    /// The error.
    pub source: PathError,
}

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
        let parsed = patterns.into_iter().map(|text| {
            parse(text).map_err(|source| PassListError {
                pattern: text.to_owned(),
                source,
            })
        });
        parsed.collect()
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
    pub fn depends_on_method(&self) -> bool {
        self.patterns
            .iter()
            .any(|pattern| !pattern.methods.are_all())
    }

    /// Returns the patterns, in order.
    pub fn patterns(&self) -> &[PathPattern] {
        &self.patterns
    }

    /// Returns true if a canonical path, relative to the context path, is on the list for some
    /// method.
    pub fn matches(&self, path: &str) -> bool {
        self.find(path).is_some()
    }

    /// Returns the first pattern that matches a canonical path, relative to the context path,
    /// whatever its methods.
    pub fn find(&self, path: &str) -> Option<&PathPattern> {
        self.first(path, |_| true)
    }

    /// Returns the first pattern for `method` that matches; `None` stands for a method that is not
    /// certain.
    pub fn find_for(&self, method: Option<&Method>, path: &str) -> Option<&PathPattern> {
        self.first(path, |pattern| pattern.methods.allow(method))
    }

    fn first(&self, path: &str, is_meant: impl Fn(&PathPattern) -> bool) -> Option<&PathPattern> {
        let mut first = None;
        self.each_match(path, |position| {
            let is_meant = self.patterns.get(position).is_some_and(&is_meant);
            if is_meant && first.is_none_or(|first| position < first) {
                first = Some(position);
            }
        });
        self.patterns.get(first?)
    }

    /// Calls `found` with the position of each pattern that matches, in no order.
    pub(crate) fn each_match(&self, path: &str, mut found: impl FnMut(usize)) {
        let mut places = Places::new();
        self.enter(0, &mut places);
        for segment in segments(path) {
            if places.is_empty() {
                return;
            }
            places = self.after(segment, &places);
        }
        for place in places {
            let ends = self.nodes.get(place).map(|node| &node.patterns);
            ends.into_iter().flatten().copied().for_each(&mut found);
        }
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

    /// Adds a node, and the node after its `**`, which may match no segment at all.
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

impl FromIterator<PathPattern> for PassList {
    fn from_iter<P: IntoIterator<Item = PathPattern>>(patterns: P) -> Self {
        let mut list = Self::default();
        patterns.into_iter().for_each(|pattern| list.add(pattern));
        list
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

    /// Matches in the simplest way, for comparison. `any` is true if there is a `**` in the
    /// pattern.
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

    /// Returns all sequences of up to `length` of these words.
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

    #[test]
    fn methods_in_front_of_a_pattern_limit_it() {
        let patterns = [
            "GET,HEAD /products/**",
            "/open/**",
            "POST /products/*/reviews",
        ];
        let list = PassList::with_methods(patterns).unwrap();
        assert!(list.depends_on_method());
        for (method, path, expected) in [
            (Some(&Method::GET), "/products/1", Some(patterns[0])),
            (Some(&Method::HEAD), "/products/1", Some(patterns[0])),
            (Some(&Method::POST), "/products/1", None),
            (
                Some(&Method::POST),
                "/products/1/reviews",
                Some(patterns[2]),
            ),
            (Some(&Method::DELETE), "/open/1", Some(patterns[1])),
            (None, "/products/1", None),
            (None, "/open/1", Some(patterns[1])),
        ] {
            let found = list.find_for(method, path).map(PathPattern::as_str);
            assert_eq!(found, expected, "{method:?} {path}");
        }
        assert!(list.matches("/products/1/reviews"));
        for bad in [
            "GET",
            "get /a",
            "GET, HEAD /a",
            "GET/a",
            "GET a",
            " /a",
            "TRACE /a",
        ] {
            assert!(PassList::with_methods([bad]).is_err(), "{bad}");
        }
        assert!(PassList::parse(["GET /a"]).is_err());
    }

    #[test]
    fn the_same_path_may_stand_there_for_several_methods() {
        let patterns = ["GET /a", "POST /a", "/a"];
        let list = PassList::with_methods(patterns).unwrap();
        for (method, expected) in [("GET", 0), ("POST", 1), ("PUT", 2)] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let found = list.find_for(Some(&method), "/a").map(PathPattern::as_str);
            assert_eq!(found, Some(patterns[expected]));
        }
    }
}
