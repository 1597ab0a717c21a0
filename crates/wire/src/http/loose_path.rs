//! A path as the most lenient service reads it, for settings that restrict paths.
//!
//! Services differ in letter case and Unicode's normal forms, in slashes, in dots after names and
//! blanks around them, and in suffixes such as `.json`. A restriction holds for every spelling.

use smallvec::SmallVec;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::canonical_combining_class;

use super::path_patterns::ContextPath;
use super::request_path::RequestPath;

/// Most paths fit, so that a request allocates nothing.
type Text = SmallVec<[u8; 256]>;

/// A path below the context path, in one letter case, without dots after its names and blanks
/// around them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoosePath {
    /// With a slash at the end.
    text: Text,
    /// The length of the context path.
    context: usize,
}

impl LoosePath {
    /// Reads the path of a request; `None` for one that lies outside the context path or is not
    /// canonical, which could be any path.
    pub fn of(path: &RequestPath<'_>, context: &ContextPath) -> Option<Self> {
        let mut text = Text::new();
        for segment in path.canonical()?.as_str().split('/').skip(1) {
            let name = trimmed(segment);
            // To some programs a name of blanks alone, perhaps before a suffix, is empty.
            let is_blank = name.is_empty() && !segment.is_empty();
            if is_blank || (name.starts_with('.') && !segment.starts_with('.')) {
                return None;
            }
            text.push(b'/');
            push_folded(name, &mut text);
        }
        if text.last() != Some(&b'/') {
            text.push(b'/');
        }
        let prefix = text.get(..context.as_str().len())?;
        let is_below = prefix.eq_ignore_ascii_case(context.as_str().as_bytes())
            && text.get(prefix.len()) == Some(&b'/');
        let context = prefix.len();
        is_below.then_some(Self { text, context })
    }

    /// Calls `visit` with each spelling: with a slash at the end, without it, without a suffix.
    pub fn each_spelling(&self, mut visit: impl FnMut(&str)) {
        let text = self.text.get(self.context..).unwrap_or_default();
        let Ok(path) = std::str::from_utf8(text) else {
            return;
        };
        visit(path);
        let Some(path) = path.strip_suffix('/').filter(|path| !path.is_empty()) else {
            return;
        };
        visit(path);
        let name = path.rfind('/').map_or(0, |slash| slash + 1);
        let (directory, name) = path.split_at(name);
        let (first, last) = (name.find('.'), name.rfind('.'));
        let ends = [first, last.filter(|last| Some(*last) != first)];
        // A leading dot begins no suffix.
        for end in ends.into_iter().flatten().filter(|end| *end > 0) {
            let path = path.get(..directory.len() + end);
            visit(path.unwrap_or_default().trim_end_matches(is_trimmed));
        }
    }
}

/// Returns a name of a pattern in the form of [`LoosePath`].
pub(super) fn loose_name(name: &str) -> String {
    let mut text = Text::new();
    match trimmed(name) {
        "" => push_folded(name, &mut text),
        trimmed => push_folded(trimmed, &mut text),
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Removes what Windows ignores at the end of a name, and blanks at its beginning.
fn trimmed(name: &str) -> &str {
    name.trim_start().trim_end_matches(is_trimmed)
}

/// Returns true for what Windows ignores at the end of a name.
pub(super) fn is_trimmed(c: char) -> bool {
    c == '.' || c.is_whitespace()
}

/// Writes text in one letter case.
fn push_folded(text: &str, to: &mut Text) {
    if !text.is_ascii() {
        to.extend_from_slice(folded(text).as_bytes());
        return;
    }
    let start = to.len();
    to.extend_from_slice(text.as_bytes());
    if let Some(added) = to.get_mut(start..) {
        added.make_ascii_lowercase();
    }
}

/// Each time brings a letter closer to its form; no letter takes more.
const FOLDS: usize = 3;

/// Returns text in one letter case, decomposed: one form of all texts that programs take for the
/// same. Of İ it is `i`, its small letter in Java and Python's regular expressions.
pub fn folded(text: &str) -> String {
    let fold = |text: String, _| fold_once(&text);
    (0..FOLDS).fold(text.to_owned(), fold)
}

/// Over the capitals, because some letters share only these.
fn fold_once(text: &str) -> String {
    let mut letter = ' ';
    let folded = text.nfd().flat_map(char::to_uppercase);
    let folded = folded.flat_map(char::to_lowercase);
    // The capital of the mark is the letter, so that other marks change their places.
    let folded = folded.map(|c| if c == IOTA { IOTA_BELOW } else { c }).nfd();
    let is_kept = |c: &char| {
        if !is_mark(*c) {
            letter = *c;
        }
        !(letter == 'i' && *c == DOT_ABOVE)
    };
    folded.filter(is_kept).collect()
}

const DOT_ABOVE: char = '\u{307}';
const IOTA: char = '\u{3b9}';
const IOTA_BELOW: char = '\u{345}';

/// Returns true for a mark that belongs to the letter before it.
pub(super) fn is_mark(c: char) -> bool {
    !c.is_ascii() && canonical_combining_class(c) != 0
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn spellings(path: &str) -> Option<Vec<String>> {
        let context = "/Orders".parse().unwrap();
        let path = RequestPath::parse(path.as_bytes()).unwrap();
        let mut spellings = Vec::new();
        LoosePath::of(&path, &context)?.each_spelling(|path| spellings.push(path.to_owned()));
        Some(spellings)
    }

    #[test]
    fn a_path_has_every_spelling_that_a_service_may_take_for_it() {
        for (path, expected) in [
            ("/Orders", &["/"][..]),
            ("/orders/", &["/"]),
            ("/ORDERS/Admin", &["/admin/", "/admin"]),
            ("/orders/admin/", &["/admin/", "/admin"]),
            ("/orders/admin./x%20", &["/admin/x/", "/admin/x"]),
            ("/orders/%20admin", &["/admin/", "/admin"]),
            ("/orders/%C4%9Ea", &["/g\u{306}a/", "/g\u{306}a"]),
            ("/orders/adm%C4%B0n", &["/admin/", "/admin"]),
            ("/orders/admi%CC%87n", &["/admin/", "/admin"]),
            ("/orders/%E1%BA%9E", &["/ss/", "/ss"]),
            (
                "/orders/d%C3%A9j%C3%A0",
                &["/de\u{301}ja\u{300}/", "/de\u{301}ja\u{300}"],
            ),
            (
                "/orders/DE%CC%81ja%CC%80",
                &["/de\u{301}ja\u{300}/", "/de\u{301}ja\u{300}"],
            ),
            ("/orders/%E2%84%AAey", &["/key/", "/key"]),
            ("/orders/a.json", &["/a.json/", "/a.json", "/a"]),
            (
                "/orders/a.tar.gz/",
                &["/a.tar.gz/", "/a.tar.gz", "/a", "/a.tar"],
            ),
            ("/orders/a..json", &["/a..json/", "/a..json", "/a", "/a"]),
            ("/orders/.well-known", &["/.well-known/", "/.well-known"]),
        ] {
            assert_eq!(spellings(path).unwrap(), expected, "{path}");
        }
    }

    #[test]
    fn every_letter_has_one_form_which_a_wildcard_can_stand_for() {
        use super::super::path_patterns::is_of_one_letter;
        // Beyond are ideographs alone.
        for c in (' '..='\u{2ffff}').filter(|c| !c.is_control()) {
            let form = folded(&String::from(c));
            let alike = [
                c.to_lowercase().collect(),
                c.to_uppercase().collect(),
                c.nfc().collect(),
                c.nfd().collect(),
                form.clone(),
            ];
            for alike in alike as [String; 5] {
                assert_eq!(folded(&alike), form, "{c:?} {alike:?}");
            }
            let is_blank = form.chars().all(char::is_whitespace);
            assert_eq!(c.is_whitespace(), is_blank, "{c:?}");
            let without_marks: Vec<char> = form.chars().filter(|c| !is_mark(*c)).collect();
            let fits = match without_marks.len() {
                0 => true,
                1 => true,
                2 | 3 => is_of_one_letter(&form),
                _ => false,
            };
            assert!(fits, "{c:?} {form:?}");
        }
    }

    #[test]
    fn a_path_that_could_be_any_has_no_spelling() {
        for path in [
            "/orders//a",
            "/orders/a;b",
            "/orders/%61",
            "/orders/a%2fb",
            "/orders/%20/a",
            "/orders/%20.json",
            "/other/a",
            "/order",
            "/ordersx",
            "/",
        ] {
            assert_eq!(spellings(path), None, "{path}");
        }
    }
}
