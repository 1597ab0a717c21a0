//! The wildcards `*` and `?` within one segment.

use smallvec::{SmallVec, smallvec};

use super::steps::Steps;
use crate::folding::{is_mark, is_trimmed};

/// Offsets in a name, in order.
type Offsets = SmallVec<[usize; 32]>;
/// Bytes of a name that a search for a letter reads in one step.
const SEARCHED_AT_ONCE: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob {
    pub(super) text: String,
    /// True if it matches the empty segment after a trailing slash.
    pub(super) takes_empty: bool,
}

impl Glob {
    /// Matches in one loop: the last `*` takes one more character after each mismatch, so the cost
    /// is at most the product of both lengths. False without `steps` left, as below.
    pub(super) fn matches(&self, segment: &str, steps: &Steps) -> bool {
        if segment.is_empty() {
            return self.takes_empty;
        }
        let (mut glob, mut rest) = (self.text.as_str(), segment);
        let mut last_star = None;
        while steps.take(1) {
            match (split_character(glob), split_character(rest)) {
                (None, None) => return true,
                // Only the last star is tried again: more for an earlier one leaves it only less.
                (Some(("*", after_glob)), _) => {
                    last_star = Some((after_glob, rest));
                    glob = after_glob;
                }
                (Some((one, after_glob)), Some((character, after_rest)))
                    if one == "?" || one == character =>
                {
                    (glob, rest) = (after_glob, after_rest);
                }
                _ => {
                    // A mismatch: the last star takes one more character, and its rest starts anew.
                    let Some((after_star, taken)) = &mut last_star else {
                        return false;
                    };
                    let Some((_, after_taken)) = split_character(taken) else {
                        return false;
                    };
                    *taken = after_taken;
                    (glob, rest) = (after_star, taken);
                }
            }
        }
        false
    }
}

/// Splits off a character, or the escape of one: no wildcard takes a part of it.
fn split_character(text: &str) -> Option<(&str, &str)> {
    match text.chars().next()? {
        '%' => text.split_at_checked("%40".len()),
        character => text.split_at_checked(character.len_utf8()),
    }
}

impl Glob {
    /// Matches a name of a [`LoosePath`](crate::path::loose::LoosePath) if the glob matches any
    /// spelling of it: dots and blanks that were trimmed may have stood for letters and wildcards,
    /// and marks are skipped, because the normal forms put them into letters or after them.
    /// In an expanded path a `?` stands for any number of letters.
    pub(super) fn matches_loosely(&self, name: &str, is_expanded: bool, steps: &Steps) -> bool {
        if name.is_empty() {
            return self.takes_empty;
        }
        if self.text == "*" {
            return true;
        }
        let (begins, ends) = self.trimmed_ends();
        // A blank is the form of names of nothing but blanks and dots.
        if name == " " && ends == 0 {
            return true;
        }
        let start = skip_marks(name, 0);
        // All offsets that the glob so far may reach, so that no way is tried twice.
        let mut offsets: Offsets = smallvec![start];
        // After a star every offset from the first on is reached.
        let mut after_star = false;
        for (at, c) in self.text.char_indices().filter(|(_, c)| !is_mark(*c)) {
            let Some(&first) = offsets.first() else {
                return false;
            };
            // A letter after a star is searched in all that is left of the name.
            let searched = if after_star {
                (name.len() - first) / SEARCHED_AT_ONCE
            } else {
                0
            };
            if !steps.take(offsets.len() + searched) {
                return false;
            }
            // The rest of the glob may stand for what was trimmed from the end of the name.
            if at >= ends && (after_star || offsets.last() == Some(&name.len())) {
                return true;
            }
            let c = if c == '?' && is_expanded { '*' } else { c };
            let mut next: Offsets = match c {
                '*' => smallvec![first],
                // It may stand for a trimmed character or a mark, which the star takes as well.
                '?' if after_star => continue,
                '?' => offsets.iter().flat_map(|&at| after_any(name, at)).collect(),
                letter if after_star => after_each(name, first, letter).collect(),
                letter => after_same(name, &offsets, letter),
            };
            // A blank at the beginning of the glob may have been trimmed from the name.
            if at < begins && c.is_whitespace() {
                next.push(start);
            }
            // `first` and `last` above depend on the order.
            next.sort_unstable();
            next.dedup();
            (offsets, after_star) = (next, c == '*');
        }
        after_star || offsets.last() == Some(&name.len())
    }

    /// Returns the end of the beginning, and the beginning of the end, that may stand for what was
    /// trimmed alone.
    fn trimmed_ends(&self) -> (usize, usize) {
        let after = self.text.trim_start_matches(may_be_blank);
        let before = self.text.trim_end_matches(may_be_trimmed);
        (self.text.len() - after.len(), before.len())
    }
}

fn may_be_blank(c: char) -> bool {
    matches!(c, '*' | '?') || is_mark(c) || c.is_whitespace()
}

fn may_be_trimmed(c: char) -> bool {
    may_be_blank(c) || is_trimmed(c)
}

fn skip_marks(name: &str, at: usize) -> usize {
    let rest = name.get(at..).unwrap_or_default();
    name.len() - rest.trim_start_matches(is_mark).len()
}

/// Returns the letter at an offset of a name, and the offset after it.
fn after_letter(name: &str, at: usize) -> Option<(char, usize)> {
    let letter = name.get(at..)?.chars().next()?;
    Some((letter, skip_marks(name, at + letter.len_utf8())))
}

/// Returns the offsets after this letter at one of some offsets.
fn after_same(name: &str, offsets: &[usize], letter: char) -> Offsets {
    let mut next = Offsets::new();
    for &at in offsets {
        match after_letter(name, at) {
            Some((c, after)) if c == letter => next.push(after),
            _ => {}
        }
    }
    next
}

/// Returns the offsets after each such letter from an offset on.
fn after_each(name: &str, from: usize, letter: char) -> impl Iterator<Item = usize> {
    name.get(from..)
        .unwrap_or_default()
        .match_indices(letter)
        .map(move |(at, letter)| skip_marks(name, from + at + letter.len()))
}

/// Returns the offsets after one character of a path: none if it was trimmed or is a mark, one, or
/// the letters that it becomes in another case.
fn after_any(name: &str, at: usize) -> SmallVec<[usize; 4]> {
    let mut offsets = SmallVec::from_slice(&[at]);
    let mut end = at;
    for letters in 1..4 {
        match after_letter(name, end) {
            Some((_, after)) => end = after,
            None => break,
        }
        if letters == 1 || name.get(at..end).is_some_and(is_of_one_letter) {
            offsets.push(end);
        }
    }
    offsets
}

/// Returns true for two or three letters that one may become in another case or decomposed: ß, ﬀ,
/// ﬁ, ﬂ, ﬃ, ﬄ, ﬆ, and many beyond ASCII.
pub(crate) fn is_of_one_letter(letters: &str) -> bool {
    !letters.is_ascii() || matches!(letters, "ss" | "ff" | "fi" | "fl" | "ffi" | "ffl" | "st")
}
