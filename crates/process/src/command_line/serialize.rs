//! Serializers for settings whose serde form differs from the command line.

use std::fmt::Display;

use clap::ValueEnum;
use serde::Serializer;
use toml::Value;

use postern_http::host::host_port::{is_url, redacted};

/// Hides the parts that may be secret in the URLs among settings that are printed.
pub fn redact_urls(setting: &mut Value) {
    match setting {
        Value::String(text) if is_url(text) => *text = redacted(text),
        Value::Array(settings) => settings.iter_mut().for_each(redact_urls),
        Value::Table(settings) => settings.iter_mut().for_each(|(_, it)| redact_urls(it)),
        _ => {}
    }
}

/// Serializes the displayed text.
///
/// # Errors
/// The errors of the serializer.
pub fn displayed<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Serializes the displayed text of the value; for no value nothing.
///
/// # Errors
/// The errors of the serializer.
pub fn displayed_if_any<T: Display, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

/// Serializes the displayed text of each value.
///
/// # Errors
/// The errors of the serializer.
pub fn each_displayed<T: Display, S: Serializer>(
    values: &[T],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}

/// Serializes the word by which the flag takes the value.
///
/// # Errors
/// The errors of the serializer.
pub fn word<T: ValueEnum, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    match value.to_possible_value() {
        Some(value) => serializer.serialize_str(value.get_name()),
        None => serializer.serialize_str(""),
    }
}
