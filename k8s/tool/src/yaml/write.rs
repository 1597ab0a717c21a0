//! Documents as text: blocks with the members in order, each text in double quotes.

use serde_json::{Number, Value};

use super::scalar::plain;

/// Writes documents, each after a marker.
pub(crate) fn stream<'v>(values: impl IntoIterator<Item = &'v Value>) -> String {
    values
        .into_iter()
        .map(|value| format!("---\n{}", block(value, 0)))
        .collect()
}

/// Writes whole lines.
fn block(value: &Value, indent: usize) -> String {
    let spaces = " ".repeat(indent);
    match value {
        Value::Object(members) if !members.is_empty() => members
            .iter()
            .map(|(name, value)| format!("{spaces}{}:{}", key(name), below(value, indent)))
            .collect(),
        Value::Array(items) if !items.is_empty() => items
            .iter()
            .map(|item| format!("{spaces}- {}", block(item, indent + 2).trim_start()))
            .collect(),
        scalar => format!("{spaces}{}\n", inline(scalar)),
    }
}

/// Writes the value of a member after its colon.
fn below(value: &Value, indent: usize) -> String {
    match value {
        Value::Object(members) if !members.is_empty() => {
            format!("\n{}", block(value, indent + 2))
        }
        Value::Array(items) if !items.is_empty() => format!("\n{}", block(value, indent)),
        scalar => format!(" {}\n", inline(scalar)),
    }
}

/// Writes a name without quotes where no reader takes it for anything else.
fn key(name: &str) -> String {
    let is_word = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte));
    match plain(name) {
        // `yes` and `on` are words as well, but without quotes readers take them for booleans.
        Some(Value::String(_)) if is_word => name.to_owned(),
        _ => quoted(name),
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Number(number) => written(number),
        empty => empty.to_string(),
    }
}

/// Writes a number without an exponent, which readers of YAML 1.1 know in some forms alone.
fn written(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 => format!("{float:.1}"),
        Some(float) if number.is_f64() => float.to_string(),
        _ => number.to_string(),
    }
}

/// Writes a text as JSON does, with escapes for characters that readers of YAML 1.1 reject or fold.
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for c in Value::from(text).to_string().chars() {
        if c.is_control() || "\u{2028}\u{2029}\u{feff}\u{fffe}\u{ffff}".contains(c) {
            quoted += &format!("\\u{:04x}", u32::from(c));
        } else {
            quoted.push(c);
        }
    }
    quoted
}
