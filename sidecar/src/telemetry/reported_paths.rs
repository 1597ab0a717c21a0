//! Paths of requests that report-only mode let through without a token, as templates: bounded in
//! number and size.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use postern_contract::rejection::Rejection;
use postern_http::methods::standard_method;
use postern_http::path::canonical::RequestPath;

/// Max number of templates: no operator reads more. Paths that the service does not have give no template,
/// because clients could invent any number.
const MAX_TEMPLATES: usize = 1000;
const MAX_TEMPLATE_BYTES: usize = 256;
/// Longest segment that is a name; longer segments are ids.
const MAX_NAME_BYTES: usize = 24;
/// Shortest run of hexadecimal digits that is an id; shorter runs may be words.
const MIN_HEX_DIGITS: usize = 8;

/// The requests since the start, by template and method.
#[derive(Debug, Default)]
pub(crate) struct ReportedPaths(Mutex<Reported>);

/// The counts of one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reported {
    pub(crate) templates: BTreeMap<Template, u64>,
    /// Requests that no pattern matches, that the service rejected, or that came after the last
    /// template.
    pub(crate) others: u64,
}

/// Requests that look alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Template {
    /// The path with the context path; ids are `*`.
    pub(crate) path: String,
    /// A standard method: clients may invent any number, of any length.
    pub(crate) method: &'static str,
}

impl Template {
    /// Returns the template of a request that a pass list could let through.
    fn from_request(method: &str, target: &[u8], status: Option<u16>) -> Option<Self> {
        if status? >= 400 {
            return None;
        }
        let raw = target.split(|byte| *byte == b'?').next()?;
        let path = template_of(RequestPath::parse(raw).ok()?.written()?);
        if path.len() > MAX_TEMPLATE_BYTES {
            return None;
        }
        Some(Self {
            path,
            method: standard_method(method)?,
        })
    }
}

impl ReportedPaths {
    /// Counts a request without a token by the path of its target, never by its query, if the service
    /// responded below 400. A pass list helps no other request.
    pub(crate) fn remember(
        &self,
        rejection: Rejection,
        (method, target): (&str, &[u8]),
        status: Option<u16>,
    ) {
        if rejection != Rejection::TokenMissing {
            return;
        }
        let Some(template) = Template::from_request(method, target, status) else {
            self.0.lock().others += 1;
            return;
        };
        let mut reported = self.0.lock();
        // Clients choose paths: known templates still count when there is room for no new one.
        let is_full = reported.templates.len() >= MAX_TEMPLATES;
        match reported.templates.get_mut(&template) {
            Some(count) => *count += 1,
            None if is_full => reported.others += 1,
            None => {
                reported.templates.insert(template, 1);
            }
        }
    }

    /// Returns the counts.
    pub(crate) fn counts(&self) -> Reported {
        self.0.lock().clone()
    }
}

/// Replaces ids by `*`. Characters that a pattern reads as wildcards are ids too.
fn template_of(path: &str) -> String {
    path.split('/')
        .map(|name| if is_id(name) { "*" } else { name })
        .collect::<Vec<_>>()
        .join("/")
}

fn is_id(name: &str) -> bool {
    let has_digit = name.bytes().any(|byte| byte.is_ascii_digit());
    let all_digits = has_digit && name.bytes().all(|byte| byte.is_ascii_digit());
    let is_hex_id = has_digit && name.len() >= MIN_HEX_DIGITS && name.bytes().all(may_be_in_hex_id);
    let is_odd = name
        .chars()
        .any(|c| !(c.is_ascii_alphanumeric() || "-._~".contains(c)));
    all_digits || is_hex_id || is_odd || name.len() > MAX_NAME_BYTES
}

fn may_be_in_hex_id(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_become_wildcards() {
        for (path, template) in [
            ("/orders/42/items", "/orders/*/items"),
            ("/users/3f2504e0-4f89-11d3-9a0c-0305e82c3301", "/users/*"),
            ("/v2/feed.json", "/v2/feed.json"),
            ("/commits/deadbeef1", "/commits/*"),
            ("/cafe/decade", "/cafe/decade"),
            ("/u/ada@example.com", "/u/*"),
            ("/a*b/x,y/\u{e4}", "/*/*/*"),
            ("/static/", "/static/"),
            ("/", "/"),
            ("/abcdefghijklmnopqrstuvwxyz", "/*"),
        ] {
            assert_eq!(template_of(path), template, "{path}");
        }
    }

    #[test]
    fn a_thousand_templates_are_counted_and_no_query_is_kept() {
        let reported = ReportedPaths::default();
        let see = |target: &str| {
            let request = ("GET", target.as_bytes());
            reported.remember(Rejection::TokenMissing, request, Some(200));
        };
        for word in 0..1200 {
            let word: u32 = word;
            let digits = word.to_string();
            let letters = digits.bytes().map(|digit| char::from(digit + 49));
            see(&format!("/{}?secret=hush", letters.collect::<String>()));
        }
        see("/b?secret=hush");
        see("/a//b");
        let counts = reported.counts();
        assert_eq!((counts.templates.len(), counts.others), (1000, 201));
        assert!(!format!("{counts:?}").contains("hush"));
        let twice = counts
            .templates
            .iter()
            .find(|(template, _)| template.path == "/b");
        assert_eq!(twice.map(|(_, count)| *count), Some(2));
    }

    #[test]
    fn invented_paths_are_no_suggestions() {
        let reported = ReportedPaths::default();
        let see = |target: &str, status| {
            reported.remember(Rejection::TokenMissing, ("GET", target.as_bytes()), status);
        };
        for word in 0..MAX_TEMPLATES {
            see(&format!("/x{word}"), Some(404));
        }
        see("/left", None);
        see("/login", Some(302));
        let counts = reported.counts();
        assert_eq!((counts.templates.len(), counts.others), (1, 1001));
    }
}
