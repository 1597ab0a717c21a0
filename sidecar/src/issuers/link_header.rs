//! The `Link` field (RFC 8288 §3): the targets of a relation.
//!
//! Only the form is read here; [`super::jwks`] decides which target may be followed.

use http::{HeaderMap, header};

/// Returns the targets of the links that name `relation`, in order. A field is read up to its first
/// error; a link with another context (`anchor`) is skipped.
pub(crate) fn targets(headers: &HeaderMap, relation: &str) -> Vec<String> {
    let fields = headers.get_all(header::LINK).iter();
    fields
        .filter_map(|field| field.to_str().ok())
        .flat_map(links)
        .filter(|link| link.names(relation))
        .map(|link| link.target)
        .collect()
}

struct Link {
    target: String,
    /// Names in lower case.
    parameters: Vec<(String, String)>,
}

impl Link {
    fn names(&self, relation: &str) -> bool {
        let parameter = |wanted: &str| {
            let mut named = self.parameters.iter().filter(|(name, _)| name == wanted);
            named.next().map(|(_, value)| value.as_str())
        };
        // The first `rel` counts (RFC 8288 §3.3); it is a list of names without regard to case.
        let relations = parameter("rel").unwrap_or_default();
        parameter("anchor").is_none()
            && relations
                .split_ascii_whitespace()
                .any(|name| name.eq_ignore_ascii_case(relation))
    }
}

fn links(field: &str) -> Vec<Link> {
    let mut scanner = Scanner(field);
    std::iter::from_fn(|| scanner.link()).collect()
}

/// The unread rest of a field (RFC 8288 appendix B.2, B.3).
struct Scanner<'a>(&'a str);

impl<'a> Scanner<'a> {
    fn link(&mut self) -> Option<Link> {
        self.0 = self.0.trim_start_matches([' ', '\t', ',']);
        let (target, rest) = self.0.strip_prefix('<')?.split_once('>')?;
        self.0 = rest;
        let mut parameters = Vec::new();
        while self.skip(';') {
            parameters.extend(self.parameter());
        }
        let target = target.to_owned();
        Some(Link { target, parameters })
    }

    fn parameter(&mut self) -> Option<(String, String)> {
        let name = self.token();
        let value = if self.skip('=') {
            self.value()
        } else {
            String::new()
        };
        // `;;` is allowed.
        (!name.is_empty()).then(|| (name.to_ascii_lowercase(), value))
    }

    fn value(&mut self) -> String {
        self.blanks();
        match self.0.strip_prefix('"') {
            Some(rest) => {
                self.0 = rest;
                self.quoted()
            }
            None => self.token().to_owned(),
        }
    }

    /// Reads the rest of a quoted string (RFC 9110 §5.6.4); one without an end is the whole rest.
    fn quoted(&mut self) -> String {
        let mut text = String::new();
        let mut characters = self.0.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    self.0 = self.0.get(at + 1..).unwrap_or_default();
                    return text;
                }
                '\\' => text.extend(characters.next().map(|(_, escaped)| escaped)),
                plain => text.push(plain),
            }
        }
        self.0 = "";
        text
    }

    fn token(&mut self) -> &'a str {
        self.blanks();
        let end = self.0.find([' ', '\t', '=', ';', ',', '"', '<']);
        let (token, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest;
        token
    }

    fn skip(&mut self, sign: char) -> bool {
        self.blanks();
        let rest = self.0.strip_prefix(sign);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn blanks(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t']);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn jwks(fields: &[&str]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(header::LINK, field.parse().unwrap());
        }
        targets(&headers, "jwks")
    }

    #[test]
    fn rfc_8288_links_are_read_in_every_spelling() {
        for field in [
            r#"</keys>; rel="jwks""#,
            "</keys>;rel=jwks",
            r#" , </keys> ; REL = "JWKS" ,"#,
            r#"</keys>; rel="next jwks""#,
            r#"</keys>;; title="a;b,<c>\"rel=x"; rel=jwks"#,
            r#"</other>; rel=next, </keys>; rel=jwks"#,
            r#"</other>; title="x, </y>; rel=jwks"; rel=next, </keys>; rel=jwks"#,
            "</keys>; rel=jwks; rel=next",
            "</keys>; crossorigin; rel=jwks",
        ] {
            assert_eq!(jwks(&[field]), ["/keys"], "{field}");
        }
        assert_eq!(jwks(&["</a>; rel=jwks, </b>; rel=jwks"]), ["/a", "/b"]);
        assert_eq!(jwks(&["</a>; rel=x", "</b>; rel=jwks"]), ["/b"]);
    }

    #[test]
    fn other_links_are_skipped() {
        for field in [
            "",
            "/keys; rel=jwks",
            "</keys; rel=jwks",
            "</keys>",
            "</keys>; rel",
            "</keys>; rel=next; rel=jwks",
            "</keys>; rel=jwks2",
            r#"</keys>; rel="jwks"#.trim_end_matches("jwks"),
            r#"</keys>; title="; rel=jwks"#,
            r#"</keys>; rel=jwks; anchor="/elsewhere""#,
            "</keys> rel=jwks",
        ] {
            assert_eq!(jwks(&[field]), Vec::<String>::new(), "{field}");
        }
    }
}
