//! The field of a service's head that cannot be read, and the rule that it breaks, for the log.

use postern_http::framing::is_tchar;

/// Longer names are cut off.
const MAX_NAME: usize = 64;
const STATUS_LINE: &str = "the response does not begin with a status line of HTTP/1.x";

/// Names what is wrong with a head that `httparse` rejected; no value is quoted.
pub(super) fn cause(received: &[u8], error: httparse::Error) -> String {
    use httparse::Error::{HeaderName, HeaderValue, NewLine, TooManyHeaders};
    match error {
        TooManyHeaders => format!("the head has more than {} fields", super::MAX_FIELDS),
        HeaderName | HeaderValue | NewLine => {
            broken_line(received).unwrap_or_else(|| STATUS_LINE.to_owned())
        }
        _ => STATUS_LINE.to_owned(),
    }
}

fn broken_line(received: &[u8]) -> Option<String> {
    // The fields begin after the status line, which empty lines may precede.
    let lines = received
        .trim_ascii_start()
        .split(|&byte| byte == b'\n')
        .skip(1);
    let mut last_name: &[u8] = b"";
    for line in lines {
        // Some services end lines with a bare line feed.
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut parts = line.splitn(2, |&byte| byte == b':');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next());
        let is_folded = line.first().is_some_and(u8::is_ascii_whitespace);
        let rule = match value {
            _ if is_folded => "a folded line",
            _ if name.iter().any(u8::is_ascii_whitespace) => "a blank in the name",
            _ if !name.iter().copied().all(is_tchar) => "a character that no name has",
            None => "a line without a colon",
            Some(value)
                if value
                    .iter()
                    .any(|byte| byte.is_ascii_control() && *byte != b'\t') =>
            {
                "a control character in the value"
            }
            Some(_) => {
                last_name = name;
                continue;
            }
        };
        // A folded line continues the field above it, so that one is named.
        let name = if is_folded { last_name } else { name };
        let name = name.get(..MAX_NAME).unwrap_or(name);
        return Some(format!("{}: {rule}", name.escape_ascii()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_names_field_and_rule() {
        let long = "n".repeat(1000);
        for (fields, expected) in [
            ("X-Long: a\r\n b\r\n", "X-Long: a folded line"),
            (" X: a\r\n", ": a folded line"),
            ("X A: b\r\n", "X A: a blank in the name"),
            ("X-A : b\r\n", "X-A : a blank in the name"),
            ("X(A: b\r\n", "X(A: a character that no name has"),
            ("A: 1\r\nline\r\n", "line: a line without a colon"),
            ("A: secret\0\r\n", "A: a control character in the value"),
            (
                &*format!("{long}(: b\r\n"),
                &format!("{}: a character that no name has", "n".repeat(MAX_NAME)),
            ),
        ] {
            let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
            let mut parsed = [httparse::EMPTY_HEADER; 8];
            let error = httparse::Response::new(&mut parsed).parse(head.as_bytes());
            let found = error.map_err(|error| cause(head.as_bytes(), error));
            assert_eq!(found, Err(expected.to_owned()), "{fields:?}");
        }
    }
}
