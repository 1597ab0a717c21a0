//! The pass list of contract §4.4: Ant patterns, relative to the context path.

use std::{fmt, str::FromStr};

use crate::request_path::{CanonicalPath, RequestPath, decode_once};

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
    Glob(Vec<char>),
}

impl PathPattern {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn matches(&self, path: &[&str]) -> bool {
        match_with_backtracking(
            &self.segments,
            path,
            |pattern| *pattern == Segment::Any,
            |pattern, segment| self.segment_matches(pattern, segment),
        )
    }

    fn segment_matches(&self, pattern: &Segment, segment: &str) -> bool {
        match pattern {
            Segment::Any => true,
            Segment::Literal(literal) => literal == segment,
            // The empty segment behind a trailing slash. In Spring a final `*` stands for it, but
            // not behind a `**`.
            Segment::Glob(glob) if segment.is_empty() => {
                *glob == ['*'] && !self.segments.contains(&Segment::Any)
            }
            Segment::Glob(glob) => glob_matches(glob, segment),
        }
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
        Ok(Self {
            text: text.to_owned(),
            segments: segments(&decoded).map(Segment::from).collect(),
        })
    }
}

impl From<&str> for Segment {
    fn from(segment: &str) -> Self {
        match segment {
            "**" => Self::Any,
            glob if glob.contains(['*', '?']) => Self::Glob(glob.chars().collect()),
            literal => Self::Literal(literal.to_owned()),
        }
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

fn glob_matches(glob: &[char], segment: &str) -> bool {
    let segment: Vec<char> = segment.chars().collect();
    match_with_backtracking(
        glob,
        &segment,
        |&pattern| pattern == '*',
        |&pattern, &c| pattern == '?' || pattern == c,
    )
}

/// Wildcard matching in one loop: the last wildcard takes one more item each time the rest does
/// not fit, so the cost is at most pattern length times item count.
fn match_with_backtracking<P, T>(
    pattern: &[P],
    items: &[T],
    is_wildcard: impl Fn(&P) -> bool,
    fits: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut p, mut i) = (0, 0);
    let mut last_wildcard: Option<(usize, usize)> = None;
    while let Some(item) = items.get(i) {
        match pattern.get(p) {
            Some(wildcard) if is_wildcard(wildcard) => {
                last_wildcard = Some((p, i));
                p += 1;
            }
            Some(one) if fits(one, item) => {
                p += 1;
                i += 1;
            }
            _ => {
                let Some((wildcard, taken)) = last_wildcard else {
                    return false;
                };
                last_wildcard = Some((wildcard, taken + 1));
                p = wildcard + 1;
                i = taken + 1;
            }
        }
    }
    pattern.iter().skip(p).all(is_wildcard)
}

/// The paths that no token is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PassList(Vec<PathPattern>);

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
        patterns
            .into_iter()
            .map(|text| {
                text.parse().map_err(|source| PassListError {
                    pattern: text.to_owned(),
                    source,
                })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether a canonical path, relative to the context path, is on the list.
    pub fn matches(&self, path: &str) -> bool {
        self.find(path).is_some()
    }

    /// The first pattern that a canonical path, relative to the context path, matches.
    pub fn find(&self, path: &str) -> Option<&PathPattern> {
        if self.0.is_empty() {
            return None;
        }
        let path: Vec<&str> = segments(path).collect();
        self.0.iter().find(|pattern| pattern.matches(&path))
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
}
