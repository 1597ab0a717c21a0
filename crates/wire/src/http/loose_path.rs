//! A path as the most lenient service reads it, for settings that restrict paths.
//!
//! Services differ in letter case and Unicode's normal forms, in slashes, in dots after names and
//! blanks around them, and in suffixes such as `.json`; Windows takes `/admin::$DATA` for `/admin`.
//! A restriction holds for every spelling.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::path_patterns::ContextPath;
use super::request_path::RequestPath;
use crate::folding::{folded, is_expanded};

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
    /// The path below the context path without its streams, if there are any.
    without_streams: Option<String>,
    /// True if some letters may have been a single one.
    is_expanded: bool,
}

impl LoosePath {
    /// Reads the path of a request; `None` for one that lies outside the context path or is not
    /// canonical, which could be any path.
    pub fn of(path: &RequestPath<'_>, context: &ContextPath) -> Option<Self> {
        let mut text = Text::new();
        let path = &*path.canonical()?;
        // One search shows that there is nothing to fold or cut in most paths.
        let is_plain = path.is_ascii() && memchr::memchr2(b'+', b':', path.as_bytes()).is_none();
        for segment in path.split('/').skip(1) {
            text.push(b'/');
            let start = text.len();
            push_loose(segment, is_plain, &mut text);
            if may_be_empty(text.get(start..)?, segment) {
                return None;
            }
        }
        if text.last() != Some(&b'/') {
            text.push(b'/');
        }
        let (prefix, below) = text.split_at_checked(context.as_str().len())?;
        let is_below = prefix.eq_ignore_ascii_case(context.as_str().as_bytes())
            && below.first() == Some(&b'/');
        if !is_below {
            return None;
        }
        let without_streams = match !is_plain && below.contains(&b':') {
            true => Some(without_streams(std::str::from_utf8(below).ok()?)?),
            false => None,
        };
        Some(Self {
            context: prefix.len(),
            without_streams,
            is_expanded: !is_plain && is_expanded(path),
            text,
        })
    }

    /// Returns true if some letters may have been a single one that is compatible with them.
    pub const fn is_expanded(&self) -> bool {
        self.is_expanded
    }

    /// Calls `visit` with each spelling: with a slash at the end, without it, without a suffix, and
    /// all these without streams.
    pub fn each_spelling(&self, mut visit: impl FnMut(&str)) {
        let text = self.text.get(self.context..).unwrap_or_default();
        if let Ok(path) = std::str::from_utf8(text) {
            each_ending(path, &mut visit);
        }
        if let Some(path) = &self.without_streams {
            each_ending(path, &mut visit);
        }
    }
}

/// Returns true for a name that is empty to some programs: blanks alone, perhaps before a suffix or
/// between dots.
fn may_be_empty(name: &[u8], segment: &str) -> bool {
    if !name.starts_with(b".") {
        return name.is_empty() && !segment.is_empty();
    }
    let mut beginning = name.iter().take_while(|byte| b". ".contains(byte));
    !segment.starts_with('.') || beginning.any(|byte| *byte == b' ')
}

fn each_ending(path: &str, mut visit: impl FnMut(&str)) {
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

/// Removes the names of NTFS streams behind the names of files; `None` if one has nothing before
/// it, which could be any path.
fn without_streams(path: &str) -> Option<String> {
    let mut files = String::with_capacity(path.len());
    for segment in path.split('/').skip(1) {
        let file = trimmed(segment.split(':').next().unwrap_or_default());
        if file.is_empty() && !segment.is_empty() {
            return None;
        }
        files.push('/');
        files.push_str(file);
    }
    Some(files)
}

/// Returns a name of a pattern in the form of [`LoosePath`].
pub(super) fn loose_name(name: &str) -> String {
    let folded = folded(name);
    match trimmed(&folded) {
        "" => folded,
        trimmed => trimmed.to_owned(),
    }
}

/// Removes what Windows ignores at the end of a name, and blanks at its beginning.
fn trimmed(name: &str) -> &str {
    name.trim_start().trim_end_matches(is_trimmed)
}

/// Returns true for what Windows ignores at the end of a name.
pub(super) fn is_trimmed(c: char) -> bool {
    c == '.' || c.is_whitespace()
}

/// Writes a name of a path in one form. A plain name differs from it in letter case alone.
fn push_loose(name: &str, is_plain: bool, to: &mut Text) {
    let name = match is_plain || (name.is_ascii() && !name.contains('+')) {
        true => Cow::Borrowed(name),
        false => Cow::Owned(folded(name)),
    };
    let start = to.len();
    to.extend_from_slice(trimmed(&name).as_bytes());
    if let Some(added) = to.get_mut(start..) {
        added.make_ascii_lowercase();
    }
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
    fn a_path_that_could_be_any_has_no_spelling() {
        let paths = "/orders//a /orders/a;b /orders/%61 /orders/a%2fb /orders/%20/a /orders/%20.json \
             /orders/.+.json /orders/%E2%80%8B/a /orders/%EF%BB%BF.json /orders/:x/a /orders/.:x \
             /other/a /order /ordersx /";
        for path in paths.split(' ') {
            assert_eq!(spellings(path), None, "{path}");
        }
    }
}
