//! JSON objects without duplicate members, and with their numbers as they were written.
//!
//! RFC 7515 §4 and RFC 7519 §4 leave duplicates to the parser, and an attacker gains where two parsers
//! differ. `serde_json` alone keeps the last duplicate silently, and rounds numbers, so that the ids of two
//! users may become one. Its feature `arbitrary_precision` would change the reading of every record.

mod number;
mod scan;

use std::collections::BTreeMap;
use std::fmt;
use std::vec::IntoIter;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

pub use self::number::Number;
use self::scan::scan;
use postern_http::text_encoding::BYTE_ORDER_MARK;

/// A JSON value.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Null.
    #[default]
    Null,
    /// True or false.
    Bool(bool),
    /// A number as it was written.
    Number(Number),
    /// A text, with U+FFFD for half of a character.
    String(String),
    /// A list.
    Array(Vec<Value>),
    /// An object.
    Object(Map),
}

/// The members of an object.
pub type Map = BTreeMap<String, Value>;

/// Parses one JSON object.
///
/// # Errors
/// The errors of [`value`], and any other type of value.
pub fn object(bytes: &[u8]) -> serde_json::Result<Map> {
    match value(bytes)? {
        Value::Object(members) => Ok(members),
        _ => Err(Error::custom("not an object")),
    }
}

/// Parses one JSON value; duplicates at any depth, trailing bytes and invalid UTF-8 are errors.
pub fn value(bytes: &[u8]) -> serde_json::Result<Value> {
    let json = str::from_utf8(bytes).map_err(|error| {
        Error::custom(format!(
            "not UTF-8 from byte {} on",
            error.valid_up_to() + 1
        ))
    })?;
    if bytes.starts_with(BYTE_ORDER_MARK) {
        return Err(Error::custom("a byte order mark in front of it"));
    }
    // Numbers are read from the text itself: serde_json rounds them, and rejects half of a character.
    let (json, numbers) = scan(json);
    let mut parser = serde_json::Deserializer::from_str(&json);
    let value = Strict(&mut numbers.into_iter()).deserialize(&mut parser)?;
    parser.end()?;
    Ok(value)
}

/// The reader of one value, with the numbers that follow in the text, because the parser rounds them.
struct Strict<'n>(&'n mut IntoIter<Number>);

impl Strict<'_> {
    fn number<E: Error>(self) -> Result<Value, E> {
        // The parser visits the numbers in the order of the text.
        match self.0.next() {
            Some(number) => Ok(Value::Number(number)),
            None => Err(E::custom("no number")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without duplicate members")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Value, E> {
        self.number()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Value, E> {
        self.number()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Value, E> {
        self.number()
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Strict(self.0))? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value_seed(Strict(self.0))?;
            // Names that differ by half of a character are one name. The error may be about an
            // unsigned token and is logged, so it has the position, and no part of the text.
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("a member twice"));
            }
        }
        Ok(Value::Object(members))
    }
}

/// Returns a member. A null counts as absent, because serialisers write it for absent members.
pub fn member<'m>(members: &'m Map, name: &str) -> Option<&'m Value> {
    match members.get(name)? {
        Value::Null => None,
        found => Some(found),
    }
}

/// Returns true for a text without halves of characters. A name with such a half could be another user's.
pub fn is_whole(text: &str) -> bool {
    !text.contains(char::REPLACEMENT_CHARACTER)
}

impl Value {
    /// Returns true for null, an empty text, and a list of such values.
    pub fn says_nothing(&self) -> bool {
        match self {
            Self::Null => true,
            Self::String(text) => text.is_empty(),
            Self::Array(items) => items.iter().all(Self::says_nothing),
            _ => false,
        }
    }

    /// Returns a name: a text that is not empty, or an integer in digits, as some issuers number their users.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::String(text) if !text.is_empty() && is_whole(text) => Some(text),
            // A fraction has no single spelling.
            Self::Number(number) if number.is_integer() => Some(number.as_str()),
            _ => None,
        }
    }

    /// Names the kind of the value, for people.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "true or false",
            Self::Number(number) if number.is_integer() => "a number",
            Self::Number(_) => "a number with a fraction or an exponent",
            Self::String(text) if text.is_empty() => "an empty text",
            Self::String(text) if !is_whole(text) => "a text with half of a character (U+FFFD)",
            Self::String(_) => "text",
            Self::Array(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// Returns a text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a member of an object.
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.as_object()?.get(name)
    }

    /// Returns the members of an object.
    pub const fn as_object(&self) -> Option<&Map> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }
}

impl Default for &Value {
    fn default() -> Self {
        &Value::Null
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

/// Writes JSON.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        value(json.get().as_bytes()).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use proptest::prelude::*;
    use serde_json::Value as Json;

    use super::*;

    /// Returns JSON as it is written again, with numbers of every form, and texts and names that look
    /// like them.
    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,9})?([eE][+-]?[0-9]{1,2})?",
            r#""([0-9eE+.\-]|\\"|\\\\|\\n){0,6}""#,
            "null|true|false",
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            let items = prop::collection::vec(inner, 0..5);
            (items, any::<bool>()).prop_map(|(items, is_list)| {
                if is_list {
                    return format!("[{}]", items.join(","));
                }
                let members = items.iter().enumerate();
                let members: Vec<_> = members
                    .map(|(number, value)| format!(r#""{number}\"-1":{value}"#))
                    .collect();
                format!("{{{}}}", members.join(","))
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn each_number_belongs_to_its_own_member(json in json()) {
            let read = value(json.as_bytes()).unwrap();
            prop_assert_eq!(read.to_string(), &*json);
            let expected: Json = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(serde_json::to_value(&read).unwrap(), expected);
        }
    }

    #[test]
    fn numbers_stay_as_they_were_written_and_are_compared_by_value() {
        let written = r#"{"-7":[-0,-0.0,1e+06,1000000.0,0.10,-7,{"1":"2","a":[9007199254740993.0]}],"\\\"3":4E-7,"b":123456789012345678901}"#;
        assert_eq!(value(written.as_bytes()).unwrap().to_string(), written);
        let number = |text: &str| value(text.as_bytes()).unwrap();
        for (one, other, are_equal) in [
            ("1000000", "1e+06", true),
            ("1000000", "1000000.0", true),
            ("1000000", "0.1E7", true),
            ("7", "7.0", true),
            ("7", "70e-1", true),
            ("-7", "-7.00", true),
            ("0", "-0.0", true),
            ("0", "0e99", true),
            ("7", "-7", false),
            ("7", "7.5", false),
            ("7", "70", false),
            ("1", "0.99999999999999999999999", false),
            ("9007199254740993", "9007199254740992", false),
            ("9007199254740993", "9007199254740993.0", true),
            ("123456789012345678901", "123456789012345678902", false),
            ("123456789012345678901", "1.23456789012345678901e20", true),
            ("0", "1e-9223372036854775809", false),
            ("1", "1e-9223372036854775808", false),
        ] {
            assert_eq!(number(one) == number(other), are_equal, "{one} {other}");
        }
        assert_ne!(number("7"), number(r#""7""#));
    }

    #[test]
    fn half_of_a_character_becomes_u_fffd() {
        for (json, text) in [
            (r#""Bob \ud83d""#, "Bob \u{fffd}"),
            (r#""\ude00 x""#, "\u{fffd} x"),
            (r#""\uD83D\uDE00""#, "\u{1f600}"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
            (r#""\ud83d\u0041""#, "\u{fffd}A"),
            (r#""\ud83d\n\ude00""#, "\u{fffd}\n\u{fffd}"),
            (r#""\\ud83d""#, "\\ud83d"),
            (r#""\\\ud83d\"""#, "\\\u{fffd}\""),
            (r#""\n","a\ud83d""#, ""),
        ] {
            let found = value(json.as_bytes()).ok();
            let expected = Some(Value::from(text)).filter(|_| !text.is_empty());
            assert_eq!(found, expected, "{json}");
        }
        let twice = value(br#"{"a\ud83d":1,"a\udbff":2}"#).unwrap_err();
        assert!(
            twice.to_string().contains("a member twice at line"),
            "{twice}"
        );
    }

    #[test]
    fn an_error_names_what_cannot_be_read_and_where() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        for (json, why) in [
            (&b"{\"a\":\"b\tc\"}"[..], "control character"),
            (b"{\"a\":\"b\nc\"}", "line 2 column 0"),
            (b"{\"a\":NaN}", "expected value at line 1 column 6"),
            (b"{\"x\":1,\"x\":2}", "a member twice at line 1 column 13"),
            (b"{\"a\":1e400}", "number out of range at line 1"),
            (deep.as_bytes(), "recursion limit"),
            (b"{\"a\":\"Zo\xeb\"}", "not UTF-8 from byte 9 on"),
            (b"\xff\xfe{\0", "not UTF-8 from byte 1 on"),
            (b"\xef\xbb\xbf{}", "a byte order mark"),
            (b"[]", "not an object"),
            (b"", "EOF while parsing"),
        ] {
            let error = object(json).unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    #[test]
    fn accepts_what_serde_json_accepts() {
        let text = r#"{"a":[1,-2,3.5,null,true,{"b":"\u00e9"}],"c":{"a":1}}"#;
        let found = serde_json::to_value(object(text.as_bytes()).unwrap());
        assert_eq!(found.unwrap(), serde_json::from_str::<Json>(text).unwrap());
    }

    #[test]
    fn rejects_duplicates_trailing_bytes_and_what_is_no_object() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":{"b":1,"b":2}}"#,
            r#"[{"a":1,"a":2}]"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"a":1}{"#,
            r#"{"a":1} x"#,
            r#"{"a":1e999}"#,
            "[]",
            "1",
            "null",
            "",
            "{",
        ] {
            assert!(object(text.as_bytes()).is_err(), "{text}");
        }
        assert!(object(b"{\"a\":\"\xff\"}").is_err());
    }

    #[test]
    fn depth_is_bounded() {
        let deep = "[".repeat(100_000);
        assert!(object(format!("{{\"a\":{deep}").as_bytes()).is_err());
    }
}
