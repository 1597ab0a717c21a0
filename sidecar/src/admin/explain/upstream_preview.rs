//! The head that the service would get, line by line, without its secrets.

use http::Request;
use http::uri::{Authority, PathAndQuery};

/// Returns the head of a stream of HTTP/2 with a line for each field.
pub(super) fn text_of(head: &Request<()>) -> String {
    let uri = head.uri();
    let mut text = format!(
        ":method: {}\n:scheme: {}\n:authority: {}\n:path: {}\n",
        head.method(),
        uri.scheme_str().unwrap_or_default(),
        uri.authority().map_or("", Authority::as_str),
        uri.path_and_query().map_or("", PathAndQuery::as_str),
    );
    for (name, value) in head.headers() {
        text += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
    }
    text
}

/// Hides the token of a line, and the token in the cookie of this name.
pub(super) fn without_secrets(line: &str, token_cookie: Option<&str>) -> String {
    let (name, value) = line.split_once(": ").unwrap_or((line, ""));
    without_tokens(&match &*name.to_ascii_lowercase() {
        "authorization" => format!("{name}: {}", without_token(value)),
        "cookie" => format!("{name}: {}", without_cookie(value, token_cookie)),
        _ => line.to_owned(),
    })
}

/// Hides other text that looks like a JWT, in a query or a field of the service.
pub(super) fn without_tokens(line: &str) -> String {
    let mut redacted = String::new();
    for word in line.split_inclusive(|c| !may_be_in_token(c)) {
        let token = word.trim_end_matches(|c| !may_be_in_token(c));
        // Every JSON object in base64url starts like this.
        if token.starts_with("eyJ") && token.matches('.').count() >= 2 {
            redacted += &word.replacen(token, HIDDEN, 1);
        } else {
            redacted += word;
        }
    }
    redacted
}

fn may_be_in_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

const HIDDEN: &str = "[as it was sent]";

/// Hides a whole token: its readable part is reported elsewhere, its signature never.
fn without_token(value: &str) -> String {
    match value.split_once(' ') {
        Some((scheme, _)) => format!("{scheme} {HIDDEN}"),
        None => HIDDEN.to_owned(),
    }
}

fn without_cookie(value: &str, hidden: Option<&str>) -> String {
    let mut pairs = Vec::new();
    for pair in value.split(';').map(str::trim) {
        pairs.push(match pair.split_once('=') {
            Some((name, _)) if Some(name.trim_end()) == hidden => format!("{name}={HIDDEN}"),
            _ => pair.to_owned(),
        });
    }
    pairs.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_printed() {
        assert_eq!(
            without_token("Bearer a.b.secret"),
            "Bearer [as it was sent]"
        );
        assert_eq!(without_token("secret"), "[as it was sent]");
        let cookies = "a=1; t=a.b.secret;t=secret";
        assert_eq!(
            without_cookie(cookies, Some("t")),
            "a=1; t=[as it was sent]; t=[as it was sent]"
        );
        assert_eq!(without_cookie("t=1; u", None), "t=1; u");
        assert_eq!(
            without_cookie("t =secret", Some("t")),
            "t =[as it was sent]"
        );
        for (line, expected) in [
            (
                "GET /a?t=eyJh.eyJz.c-_2&x=1 HTTP/1.1",
                "GET /a?t=[as it was sent]&x=1 HTTP/1.1",
            ),
            (
                "Cookie: u=\"eyJh.eyJz.c\"",
                "Cookie: u=\"[as it was sent]\"",
            ),
            ("X: eyJh.eyJz.c", "X: [as it was sent]"),
            ("X: eyJh a.b.c \u{e4} eyJ", "X: eyJh a.b.c \u{e4} eyJ"),
        ] {
            assert_eq!(without_tokens(line), expected);
        }
    }
}
