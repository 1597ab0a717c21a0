//! A path as the most lenient service reads it, for settings that restrict paths.
//!
//! Services differ in letter case and Unicode's normal forms, in slashes, in dots after names and
//! blanks around them, and in suffixes such as `.json`; Windows takes `/admin::$DATA` for `/admin`.
//! A restriction holds for every spelling.

use std::borrow::Cow;
use std::ops::Range;

use smallvec::SmallVec;

use crate::folding::{folded, is_expanded, is_trimmed, trimmed, visible};
use crate::path::canonical::{RequestPath, is_dot};
use crate::path::patterns::ContextPath;

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
    /// The path below the context path without its streams, if there are any, and without a name
    /// that may be empty.
    others: Vec<String>,
    /// True if some letters may have been a single one.
    is_expanded: bool,
}

/// The reason why a path could be any.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnyPath {
    /// Programs may read it with other names.
    #[error("programs read {0} differently")]
    Unclear(String),
    /// The path does not begin with the context path.
    #[error("it is outside the context path")]
    Outside,
    /// Each of these may be left out or not.
    #[error("two of its names, '{0}' and '{1}', are empty to some programs")]
    EmptyNames(String, String),
    /// Nothing is known of the rest.
    #[error("comparing it takes too many steps")]
    TooManySteps,
    /// The path is from a field, `Destination`.
    #[error("it moves or copies to what is no path")]
    Malformed,
}

impl LoosePath {
    /// Reads the path of a request.
    ///
    /// # Errors
    /// [`AnyPath`] for one that lies outside the context path or is not canonical.
    pub fn below(path: &RequestPath<'_>, context: &ContextPath) -> Result<Self, AnyPath> {
        let Some(canonical) = path.canonical() else {
            return Err(AnyPath::Unclear(path.unclear_part()));
        };
        let path = &*canonical;
        // One search shows that there is nothing to fold or cut in most paths.
        let is_plain = path.is_ascii() && memchr::memchr2(b'+', b':', path.as_bytes()).is_none();
        let (text, empty) = read_names(path, is_plain)?;
        let context = context.as_str();
        // In any letter case: a service that ignores it routes the path to this application.
        let (prefix, below) = split_at(&text, context.len()).ok_or(AnyPath::Outside)?;
        if !prefix.eq_ignore_ascii_case(context) || !below.starts_with('/') {
            return Err(AnyPath::Outside);
        }
        let mut others = match empty {
            Some(range) => without_name(&text, context.len(), range),
            None => Vec::new(),
        };
        // Of each spelling so far also the one without streams: Windows opens the same file.
        if !is_plain && below.contains(':') {
            let mut files = vec![without_streams(below)];
            files.extend(others.iter().map(|path| without_streams(path)));
            others.append(&mut files);
        }
        Ok(Self {
            context: context.len(),
            others,
            is_expanded: !is_plain && is_expanded(path),
            text,
        })
    }

    /// Returns true if some letters may have been a single one that is compatible with them.
    pub const fn is_expanded(&self) -> bool {
        self.is_expanded
    }

    /// Calls `visit` with each spelling: with a slash at the end, without it, without a suffix, and
    /// all these without streams and without an empty name.
    pub fn each_spelling(&self, mut visit: impl FnMut(&str)) {
        let text = self.text.get(self.context..).unwrap_or_default();
        let text = std::str::from_utf8(text).ok();
        let others = self.others.iter().map(String::as_str);
        for path in text.into_iter().chain(others) {
            each_ending(path, &mut visit);
        }
    }
}

/// Returns the names of a path in one form, each after a slash, and the place of a name that may be empty.
fn read_names(path: &str, is_plain: bool) -> Result<(Text, Option<Range<usize>>), AnyPath> {
    let mut text = Text::new();
    let mut empty = None;
    for segment in path.split('/').skip(1) {
        text.push(b'/');
        let start = text.len();
        push_loose(segment, is_plain, &mut text);
        if !may_be_empty(text.get(start..).unwrap_or_default(), segment) {
            continue;
        }
        // `+..` is the way up to some.
        if segment.contains(is_dot) {
            return Err(AnyPath::Unclear(format!("'{segment}'")));
        }
        // The slash before it disappears with an empty name.
        let range = start - 1..text.len();
        // Each more would double the spellings, so a second one makes the path any.
        if let Some((former, _)) = empty.replace((segment, range)) {
            return Err(AnyPath::EmptyNames(former.to_owned(), segment.to_owned()));
        }
    }
    // One form with and without it; `each_spelling` tries both.
    if text.last() != Some(&b'/') {
        text.push(b'/');
    }
    Ok((text, empty.map(|(_, range)| range)))
}

fn split_at(text: &[u8], at: usize) -> Option<(&str, &str)> {
    std::str::from_utf8(text).ok()?.split_at_checked(at)
}

/// Returns the path below the context path without a name and the slash before it, and with a blank.
fn without_name(text: &[u8], context: usize, name: Range<usize>) -> Vec<String> {
    let before = text.get(context..name.start).unwrap_or_default();
    let behind = text.get(name.end..).unwrap_or_default();
    let mut others = Vec::new();
    for name in ["", "/ "] {
        others.extend(String::from_utf8(
            [before, name.as_bytes(), behind].concat(),
        ));
    }
    others
}

/// Returns true for a name that is empty to some programs: blanks or a stream alone, perhaps before
/// a suffix or between dots.
fn may_be_empty(name: &[u8], segment: &str) -> bool {
    let name = std::str::from_utf8(name).unwrap_or_default();
    let is_file_empty = trimmed(file_of(name)).is_empty() && !segment.is_empty();
    if is_file_empty || !name.starts_with('.') {
        return is_file_empty;
    }
    // After trimmed characters the dot begins the suffix of an empty name; a dot that the
    // segment itself begins with is part of a name, unless a blank follows.
    let mut beginning = name.chars().take_while(|c| ". ".contains(*c));
    !segment.starts_with('.') || beginning.any(|c| c == ' ')
}

fn each_ending(path: &str, mut visit: impl FnMut(&str)) {
    visit(path);
    let path = match path.strip_suffix('/') {
        None | Some("") => return,
        Some(path) => path,
    };
    visit(path);
    let start = match path.rfind('/') {
        Some(slash) => slash + 1,
        None => 0,
    };
    let name = path.get(start..).unwrap_or_default();
    // Of `a.tar.gz` services cut the suffix off at the first dot or at the last.
    let dots = match (name.find('.'), name.rfind('.')) {
        (first, last) if first == last => [first, None],
        (first, last) => [first, last],
    };
    for dot in dots.into_iter().flatten() {
        // A leading dot begins no suffix.
        if dot > 0 {
            let without_suffix = path.get(..start + dot).unwrap_or_default();
            visit(without_suffix.trim_end_matches(is_trimmed));
        }
    }
}

/// Removes the names of NTFS streams after the names of files.
fn without_streams(path: &str) -> String {
    let mut files = String::with_capacity(path.len());
    for segment in path.split('/').skip(1) {
        files.push('/');
        files.push_str(visible(segment, file_of(segment)));
    }
    files
}

/// Returns the part of a name before an NTFS stream.
fn file_of(name: &str) -> &str {
    name.split(':').next().unwrap_or_default()
}

/// Writes a name of a path in one form. A plain name differs from it in letter case alone.
fn push_loose(name: &str, is_plain: bool, to: &mut Text) {
    // In ASCII without `+` only the letter case differs, which is changed below.
    let folded = if is_plain || (name.is_ascii() && !name.contains('+')) {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(folded(name))
    };
    let start = to.len();
    to.extend_from_slice(visible(name, &folded).as_bytes());
    if let Some(added) = to.get_mut(start..) {
        added.make_ascii_lowercase();
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::collections::BTreeSet;

    use super::*;

    fn spellings(path: &str) -> Option<Vec<String>> {
        let context = "/Orders".parse().unwrap();
        let path = RequestPath::parse(path.as_bytes()).unwrap();
        let mut spellings = Vec::new();
        let path = LoosePath::below(&path, &context).ok()?;
        path.each_spelling(|path| spellings.push(path.to_owned()));
        Some(spellings)
    }

    #[test]
    fn a_path_has_every_spelling_that_a_service_may_take_for_it() {
        let of_stream = "/a.txt :x:$data/|/a.txt :x:$data|/a|/a.txt/|/a.txt|/a";
        let of_stream: Vec<_> = of_stream.split('|').collect();
        let of_folder = ["/f:$i30/x/", "/f:$i30/x", "/f/x/", "/f/x"];
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
            ("/orders/+a+b", &["/a b/", "/a b"]),
            ("/orders/%EF%BD%81%E2%80%8B.", &["/a/", "/a"]),
            ("/orders/a.txt%20:x:$DATA", &of_stream),
            ("/orders/f%EF%BC%9A$I30/x", &of_folder),
        ] {
            assert_eq!(spellings(path).unwrap(), expected, "{path}");
        }
    }

    #[test]
    fn a_name_that_may_be_empty_is_left_out_or_not() {
        for (path, expected) in [
            ("/orders/q/+", "/q/ /|/q/ |/q/|/q"),
            ("/orders/%20/a", "/ /a/|/ /a|/a/|/a"),
            ("/orders/%E2%80%8B/a", "/ /a/|/ /a|/a/|/a"),
            ("/orders/%E2%80%A6", "/ /|/ |/"),
            ("/orders/:x/a", "/:x/a/|/:x/a|/ /a/|/ /a|/a/|/a"),
            ("/orders/h/::1", "/h/::1/|/h/::1|/h/ /|/h/ |/h/|/h"),
            (
                "/orders/b:c/:x",
                "/b:c/:x/|/b:c/:x|/b:c/ /|/b:c/ |/b:c/|/b:c|/b/ /|/b/ |/b/|/b",
            ),
        ] {
            let found: BTreeSet<_> = spellings(path).unwrap().into_iter().collect();
            let expected: BTreeSet<_> = expected.split('|').map(str::to_owned).collect();
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn a_path_that_could_be_any_has_its_reason() {
        for (path, why) in [
            ("/orders//a", "programs read an empty name differently"),
            ("/orders/a;b/c", "programs read ; in 'a;b' differently"),
            ("/orders/%61", "programs read %61 in '%61' differently"),
            ("/orders/a%2fb", "programs read %2f in 'a%2fb' differently"),
            ("/orders/é", "programs read é in 'é' differently"),
            ("/orders/x/%E9", "programs read '%E9' differently"),
            ("/orders/a/...", "programs read '...' differently"),
            ("/orders/(S(x))/a", "programs read '(S(x))' differently"),
            (
                "/orders/A%EF%BC%8FB",
                "programs read ／ (U+FF0F) in 'A%EF%BC%8FB' differently",
            ),
            (
                "/orders/%EF%BC%852e",
                "programs read '%EF%BC%852e' differently",
            ),
            (
                "/orders/+/:x",
                "two of its names, '+' and ':x', are empty to some programs",
            ),
            ("/orders/%20.json", "programs read ' .json' differently"),
            ("/orders/..+.x", "programs read '..+.x' differently"),
            ("/orders/a/+../b", "programs read '+..' differently"),
            ("/orders/a/..:x/b", "programs read '..:x' differently"),
            (
                "/orders/+%EF%BC%8E%EF%BC%8E",
                "programs read '+．．' differently",
            ),
            ("/other/a", "it is outside the context path"),
            ("/order", "it is outside the context path"),
            ("/ordersx", "it is outside the context path"),
            ("/+/orders/a", "it is outside the context path"),
            ("/", "it is outside the context path"),
        ] {
            let context = "/Orders".parse().unwrap();
            let path = RequestPath::parse(path.as_bytes()).unwrap();
            let found = LoosePath::below(&path, &context).unwrap_err();
            assert_eq!(found.to_string(), why);
        }
    }
}
