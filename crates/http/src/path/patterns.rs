//! The pass list of contract §4.4: Ant patterns, relative to the context path, for all methods or
//! for some.

mod context_path;
mod glob;
mod pass_list;
mod steps;

use std::str::FromStr;

use percent_encoding::{AsciiSet, utf8_percent_encode};

pub use self::context_path::ContextPath;
use self::glob::Glob;
#[cfg(test)]
pub(crate) use self::glob::is_of_one_letter;
pub use self::pass_list::TooManySteps;
pub use self::pass_list::{PassList, PassListError};
use self::steps::Steps;
use crate::folding::loose_name;
use crate::methods::{MethodError, Methods};
use crate::path::canonical::{RequestPath, as_written, unescaped};

/// An unusable path or pattern of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A path that does not begin at the root or the context path.
    #[error("must start with '/'")]
    NotAbsolute,
    /// Probably two patterns.
    #[error("holds a blank: commas separate patterns, and a blank of a path is written %20")]
    Blank,
    /// A pattern that can never match a canonical path.
    #[error(
        "must be in canonical form: no '//', dot segments, '\\', ';', '#', '<' and others that no path holds, control characters, or escapes of letters, digits and '%./\\;?#'"
    )]
    NotCanonical,
    /// Spring's `{name}` variables and regular expressions, which are not supported.
    #[error(
        "'{{', '}}', '[', ']' and '|' are not supported: write '*' for one segment, '**' for several, '?' for one character"
    )]
    Variable,
    /// Unusable methods in front of a pattern.
    #[error("the methods in front, as in 'GET,HEAD /products/**': {0}")]
    Method(#[from] MethodError),
    /// An unsupported character in a context path, or a slash at its end.
    #[error("may hold only letters, digits, '-', '.', '_', '~' and single slashes between them")]
    BadContext,
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

impl PathPattern {
    /// Parses a pattern with methods in front, as in `GET,HEAD /products/**`, or one for all.
    ///
    /// # Errors
    /// The first part that is unusable.
    pub fn with_methods(text: &str) -> Result<Self, PathError> {
        // A pattern without methods is for all of them.
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

    /// Returns true if it matches every path.
    pub fn is_everything(&self) -> bool {
        self.segments == [Segment::Any]
    }

    /// Returns a path that it matches, with a name and a letter for its wildcards.
    pub fn example(&self, name: &str, letter: &str) -> String {
        self.segments
            .iter()
            .map(|segment| match segment {
                Segment::Any => format!("/{name}/x"),
                Segment::Literal(literal) => format!("/{literal}"),
                Segment::Glob(glob) => {
                    format!("/{}", glob.text.replace('*', name).replace('?', letter))
                }
            })
            .collect()
    }

    /// Returns true if a loosened pattern matches a path at or below this one, which is folded and has
    /// no slash at its end.
    pub fn reaches(&self, path: &str) -> bool {
        let mut expected = self.segments.iter();
        for name in segments(path) {
            let fits = match expected.next() {
                // `**` matches every rest of the path.
                Some(Segment::Any) => return true,
                Some(Segment::Literal(literal)) => literal == name,
                Some(Segment::Glob(glob)) => glob.matches_loosely(name, false, &Steps::default()),
                None => false,
            };
            if !fits {
                return false;
            }
        }
        true
    }

    /// Returns the pattern for a [`LoosePath`](super::loose::LoosePath).
    #[must_use]
    pub fn loosened(mut self) -> Self {
        for segment in &mut self.segments {
            match segment {
                Segment::Any => {}
                Segment::Literal(name) => *name = loose_name(&unescaped(name)),
                Segment::Glob(glob) => glob.text = loose_name(&unescaped(&glob.text)),
            }
        }
        let ends_with_slash =
            matches!(&self.segments[..], [_, .., Segment::Literal(last)] if last.is_empty());
        // A loose path has no slash at its end, so the pattern must not require one.
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
        if text.contains(char::is_whitespace) {
            return Err(PathError::Blank);
        }
        if text.contains(['{', '}', '[', ']', '|']) {
            return Err(PathError::Variable);
        }
        let written = canonical_text_of_pattern(text)?;
        let any = segments(&written).any(|segment| segment == "**");
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
            segments: segments(&written).map(segment).collect(),
        })
    }
}

/// Checks a pattern by the rules of paths, except for wildcards, and returns it as paths are written.
/// Text beyond ASCII needs no escapes.
fn canonical_text_of_pattern(pattern: &str) -> Result<String, PathError> {
    let escaped = utf8_percent_encode(&pattern.replace('?', "_"), &AsciiSet::EMPTY).to_string();
    RequestPath::parse(escaped.as_bytes())
        .map_err(|_| PathError::NotCanonical)?
        .written()
        .ok_or(PathError::NotCanonical)?;
    as_written(pattern.as_bytes()).ok_or(PathError::NotCanonical)
}

/// Returns the segment after each slash; the last one is empty if the path ends with a slash.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').skip(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_could_never_match_are_rejected() {
        for pattern in [
            "", "a", "/a/../b", "/a//b", "/a\\b", "/a;b", "/a#b", "/{id}", "/a%2fb", "/a%", "/a\n",
        ] {
            assert!(pattern.parse::<PathPattern>().is_err(), "{pattern:?}");
        }
    }
}
