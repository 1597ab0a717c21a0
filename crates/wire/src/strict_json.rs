//! JSON objects without duplicate members.
//!
//! RFC 7515 §4 and RFC 7519 §4 leave duplicates to the parser, and an attacker gains where two
//! parsers differ. `serde_json` alone keeps the last one silently.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

/// The mark that some programs put in front of UTF-8.
pub const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Parses one JSON object.
///
/// # Errors
/// Those of [`value`], and any other type of value.
pub fn object(bytes: &[u8]) -> serde_json::Result<Map<String, Value>> {
    match value(bytes)? {
        Value::Object(members) => Ok(members),
        _ => Err(serde_json::Error::custom("not an object")),
    }
}

/// Parses one JSON value; duplicates at any depth, trailing bytes and invalid UTF-8 are errors.
pub(crate) fn value(bytes: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice::<Strict>(bytes).map(|Strict(value)| value)
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        StrictVisitor.deserialize(deserializer).map(Self)
    }
}

struct StrictVisitor;

impl<'de> DeserializeSeed<'de> for StrictVisitor {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictVisitor {
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

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(StrictVisitor)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value_seed(StrictVisitor)?;
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("duplicate member"));
            }
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_serde_json_accepts() {
        let text = r#"{"a":[1,-2,3.5,null,true,{"b":"\u00e9"}],"c":{"a":1}}"#;
        let found = object(text.as_bytes()).ok().map(Value::Object);
        assert_eq!(found, serde_json::from_str(text).ok());
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
