//! A claim as the text of a header field: visible ASCII from which no value can break out.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use postern_token::strict_json::Value;

use super::ascii_json::ascii_json;

/// Characters to escape beside those beyond ASCII: the percent sign of an escape, and the comma,
/// which separates the members of a list.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%').add(b',');
const BLANK: &str = "%20";

/// Returns the text of `claim`; `None` for null, an empty text or an empty list.
pub(super) fn text_of(claim: &Value) -> Option<String> {
    let text = match claim {
        Value::Null => return None,
        // A list of plain values is joined; a nested one keeps the form of JSON.
        Value::Array(members) => match members.iter().map(plain).collect::<Option<Vec<_>>>() {
            Some(members) => members.join(","),
            None => json(claim)?,
        },
        Value::Object(_) => json(claim)?,
        _ => plain(claim)?,
    };
    (!text.is_empty()).then_some(text)
}

/// Returns the text of a value without members.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(escaped(text)),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}

/// Escapes blanks at the ends too, which a recipient would trim (RFC 9110 §5.5).
fn escaped(text: &str) -> String {
    let rest = text.trim_start_matches(' ');
    let inner = rest.trim_end_matches(' ');
    let before = BLANK.repeat(text.len() - rest.len());
    let after = BLANK.repeat(rest.len() - inner.len());
    // A text must not look like the JSON of an object or a list.
    let (bracket, inner) = match inner.as_bytes().first() {
        Some(b'{') => ("%7B", inner.get(1..).unwrap_or_default()),
        Some(b'[') => ("%5B", inner.get(1..).unwrap_or_default()),
        _ => ("", inner),
    };
    format!(
        "{before}{bracket}{}{after}",
        utf8_percent_encode(inner, ESCAPED)
    )
}

/// Returns JSON without a percent sign, so that percent-decoding does not change it.
fn json(value: &Value) -> Option<String> {
    let json = String::from_utf8(ascii_json(value).ok()?).ok()?;
    Some(json.replace('%', "\\u0025"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use percent_encoding::percent_decode_str;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(json: &serde_json::Value) -> Value {
        serde_json::from_value(json.clone()).unwrap()
    }

    #[test]
    fn visible_ascii_stays_and_the_rest_is_escaped() {
        for (claim, text) in [
            (json!("10001"), Some("10001")),
            (json!("ada@example.com"), Some("ada@example.com")),
            (json!("Ada \"L\" Lovelace;"), Some("Ada \"L\" Lovelace;")),
            (json!("\u{17d}ofie"), Some("%C5%BDofie")),
            (json!("100%"), Some("100%25")),
            (json!(r#"{"role":1}"#), Some(r#"%7B"role":1}"#)),
            (json!(" [a] {b}"), Some("%20%5Ba] {b}")),
            (json!(["[]", "{}"]), Some("%5B],%7B}")),
            (json!("a,b"), Some("a%2Cb")),
            (json!("a\r\nX-Admin: 1"), Some("a%0D%0AX-Admin: 1")),
            (json!("\0\t\u{7f}"), Some("%00%09%7F")),
            (json!("  a b "), Some("%20%20a b%20")),
            (json!("  "), Some("%20%20")),
            (json!(true), Some("true")),
            (json!(-7), Some("-7")),
            (json!(u64::MAX), Some("18446744073709551615")),
            (json!(1.5), Some("1.5")),
            (json!(["a", "b c", 1, false]), Some("a,b c,1,false")),
            (json!(["user,admin", "x"]), Some("user%2Cadmin,x")),
            (json!(["", " a"]), Some(",%20a")),
            (json!([["a"], "\u{e4}"]), Some(r#"[["a"],"\u00e4"]"#)),
            (json!(["a", null]), Some(r#"["a",null]"#)),
            (
                json!({"a": "\u{e4}\u{7f}"}),
                Some(r#"{"a":"\u00e4\u007f"}"#),
            ),
            (
                json!({"a": "%22,%22b%22:1"}),
                Some(r#"{"a":"\u002522,\u002522b\u002522:1"}"#),
            ),
            (json!({}), Some("{}")),
            (json!(""), None),
            (json!([]), None),
            (json!([""]), None),
            (json!(null), None),
        ] {
            assert_eq!(text_of(&read(&claim)).as_deref(), text, "{claim}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn members_of_any_list_can_be_separated_and_read_back(
            members in prop::collection::vec(
                prop_oneof!["[ ,%a-c]{0,6}", "[\\x00-\\x1f\\x7f-\\u{a0}\\u{d7ff}\\u{e000}\\u{10ffff}\"\\\\]{0,9}", ".{1,9}"],
                1..5,
            ),
        ) {
            let text = text_of(&read(&json!(members))).unwrap_or_default();
            prop_assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')));
            prop_assert_eq!(text.trim(), &text);
            let decoded = |part: &str| percent_decode_str(part).decode_utf8().unwrap().into_owned();
            let read: Vec<String> = text.split(',').map(decoded).collect();
            prop_assert_eq!(read, members);
        }
    }
}
