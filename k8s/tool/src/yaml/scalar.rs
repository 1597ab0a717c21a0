//! Values of scalars without quotes, with the types of YAML 1.1 in the reading of `kubectl`.

use serde_json::{Number, Value};

/// Returns the value of a scalar without quotes. `None` for a number that JSON lacks.
pub(super) fn plain(text: &str) -> Option<Value> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" | "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => {
            true.into()
        }
        "false" | "False" | "FALSE" | "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            false.into()
        }
        _ => match text.trim_start_matches(['+', '-']) {
            // JSON has neither infinity nor NaN.
            ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN" => return None,
            _ => match number(text) {
                Some(number) => number.into(),
                None => text.into(),
            },
        },
    })
}

fn number(text: &str) -> Option<Number> {
    if !text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) {
        return None;
    }
    let number = text.replace('_', "");
    let digits = number.strip_prefix(['+', '-']).unwrap_or(&number);
    match whole(digits, number.starts_with('-')) {
        None => decimal(&number, digits),
        whole => whole,
    }
}

fn whole(digits: &str, negative: bool) -> Option<Number> {
    let (radix, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, digits.get(2..)?),
        Some("0o" | "0O") => (8, digits.get(2..)?),
        Some("0b" | "0B") => (2, digits.get(2..)?),
        // A leading 0 means octal, as in `defaultMode: 0644`; YAML 1.2 would read a decimal number.
        Some(octal) if octal.starts_with('0') => (8, digits),
        _ => (10, digits),
    };
    // Check the first digit, because the library accepts a second sign.
    if !digits.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return None;
    }
    let value = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        Some(0_i64.checked_sub_unsigned(value)?.into())
    } else {
        Some(value.into())
    }
}

fn decimal(text: &str, digits: &str) -> Option<Number> {
    if !digits.bytes().all(may_be_decimal) {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    // Go writes a whole float as an integer, and a field of whole numbers accepts it.
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return format!("{value:.0}").parse::<i64>().ok().map(Number::from);
    }
    Number::from_f64(value)
}

fn may_be_decimal(byte: u8) -> bool {
    byte.is_ascii_digit() || b".eE+-".contains(&byte)
}
