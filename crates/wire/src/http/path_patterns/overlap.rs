//! Patterns that have a path in common.

use std::collections::BTreeSet;

use super::{PathPattern, Segment};

impl PathPattern {
    /// Returns true if some path matches both patterns, whatever their methods.
    pub fn overlaps(&self, other: &Self) -> bool {
        let meet = Meet {
            is_any: |segment: &Segment| *segment == Segment::Any,
            agree: |one: &Segment, other: &Segment| names_overlap(one.text(), other.text()),
        };
        meet.at(&self.segments, &other.segments, &mut BTreeSet::new())
    }
}

impl Segment {
    fn text(&self) -> &str {
        match self {
            Self::Any => "**",
            Self::Literal(text) => text,
            Self::Glob(glob) => &glob.text,
        }
    }
}

fn names_overlap(one: &str, other: &str) -> bool {
    let meet = Meet {
        is_any: |c: &char| *c == '*',
        agree: |one: &char, other: &char| one == other || *one == '?' || *other == '?',
    };
    let [one, other]: [Vec<char>; 2] = [one, other].map(|text| text.chars().collect());
    meet.at(&one, &other, &mut BTreeSet::new())
}

/// The comparison of two sequences, in which some parts stand for any number of parts.
struct Meet<T> {
    is_any: fn(&T) -> bool,
    agree: fn(&T, &T) -> bool,
}

impl<T> Meet<T> {
    /// Returns true if both sequences can be the same. `tried` holds the lengths of the ends that
    /// cannot, so that each pair is compared once.
    fn at(&self, one: &[T], other: &[T], tried: &mut BTreeSet<(usize, usize)>) -> bool {
        if !tried.insert((one.len(), other.len())) {
            return false;
        }
        match (one.split_first(), other.split_first()) {
            (None, None) => true,
            (Some((first, rest)), _) if (self.is_any)(first) => {
                self.at(rest, other, tried)
                    || other
                        .split_first()
                        .is_some_and(|(_, rest)| self.at(one, rest, tried))
            }
            (_, Some((first, rest))) if (self.is_any)(first) => {
                self.at(one, rest, tried)
                    || one
                        .split_first()
                        .is_some_and(|(_, rest)| self.at(rest, other, tried))
            }
            (Some((first, rest)), Some((second, others))) => {
                (self.agree)(first, second) && self.at(rest, others, tried)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn patterns_with_a_path_in_common_overlap() {
        for (one, other, overlap) in [
            ("/a", "/a", true),
            ("/a", "/b", false),
            ("/a", "/A", false),
            ("/a/**", "/a", true),
            ("/a/**", "/**/b", true),
            ("/a/*", "/*/b", true),
            ("/a/*", "/a/*/c", false),
            ("/**/*.js", "/admin/**", true),
            ("/**/*.js", "/admin/*.css", false),
            ("/*.j?", "/a*.js", true),
            ("/a*c", "/*bc", true),
            ("/a*c", "/b*", false),
            ("/**", "/", true),
            ("/a/**/b", "/a/c", false),
            ("/**/a/**/b/**/c/**", "/**/c/**/b/**/a/**/d", true),
        ] {
            let (first, second): (PathPattern, PathPattern) =
                (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(first.overlaps(&second), overlap, "{one} {other}");
            assert_eq!(second.overlaps(&first), overlap, "{other} {one}");
        }
    }
}
