//! A path as the most lenient service reads it, for settings that restrict paths.
//!
//! Services differ in letter case, in slashes, dots and blanks at the end of names, and in suffixes
//! such as `.json`. A restriction holds for every such spelling.

use smallvec::SmallVec;

use super::path_patterns::ContextPath;
use super::request_path::RequestPath;

/// Most paths fit, so that a request allocates nothing.
type Text = SmallVec<[u8; 256]>;

/// A path below the context path, in one letter case, without dots and blanks around its names.
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
            if name.is_empty() && !segment.is_empty() {
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
            visit(path.get(..directory.len() + end).unwrap_or_default());
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
    name.trim_start()
        .trim_end_matches(|c: char| c == '.' || c.is_whitespace())
}

/// Writes text in one letter case.
fn push_folded(text: &str, to: &mut Text) {
    if text.is_ascii() {
        let start = to.len();
        to.extend_from_slice(text.as_bytes());
        if let Some(added) = to.get_mut(start..) {
            added.make_ascii_lowercase();
        }
        return;
    }
    // Over the capitals, because some letters share only these.
    for folded in text
        .chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
    {
        let mut utf8 = [0; 4];
        to.extend_from_slice(folded.encode_utf8(&mut utf8).as_bytes());
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
        for (path, expected) in [
            ("/Orders", &["/"][..]),
            ("/orders/", &["/"]),
            ("/ORDERS/Admin", &["/admin/", "/admin"]),
            ("/orders/admin/", &["/admin/", "/admin"]),
            ("/orders/admin./x%20", &["/admin/x/", "/admin/x"]),
            ("/orders/%20admin", &["/admin/", "/admin"]),
            ("/orders/%C4%9Ea", &["/\u{11f}a/", "/\u{11f}a"]),
            ("/orders/%E2%84%AAey", &["/key/", "/key"]),
            ("/orders/a.json", &["/a.json/", "/a.json", "/a"]),
            (
                "/orders/a.tar.gz/",
                &["/a.tar.gz/", "/a.tar.gz", "/a", "/a.tar"],
            ),
            ("/orders/.well-known", &["/.well-known/", "/.well-known"]),
        ] {
            assert_eq!(spellings(path).unwrap(), expected, "{path}");
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
            "/other/a",
            "/order",
            "/ordersx",
            "/",
        ] {
            assert_eq!(spellings(path), None, "{path}");
        }
    }
}
