//! Members of tables that are written as texts: each parses itself where the file is read, and keeps
//! the text for the settings that are printed.

use std::fmt::Display;
use std::ops::Deref;
use std::str::FromStr;

use postern_http::host::host_port::{host_and_port, redacted};
use postern_http::pasted::error_of;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::name;
use crate::logs::sanitize::LogText;

/// A text, and its meaning.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(inline, bound = "", transparent)
)]
pub struct Text<T> {
    written: String,
    #[cfg_attr(feature = "schema", schemars(skip))]
    value: T,
}

impl<T> Text<T> {
    /// Returns the text as it was written.
    pub fn as_str(&self) -> &str {
        &self.written
    }
}

impl<T> Deref for Text<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: FromStr> FromStr for Text<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        Ok(Self {
            value: text.parse()?,
            written: text.to_owned(),
        })
    }
}

impl<T> Serialize for Text<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written.serialize(serializer)
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(&String::deserialize(deserializer)?)
    }
}

fn parsed<T: FromStr<Err: Display>, E: Error>(text: &str) -> Result<Text<T>, E> {
    text.parse()
        .map_err(|error| E::custom(format_args!("'{}': {error}", LogText(&redacted(text)))))
}

/// Several texts, at least one. A single text may stand without a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(inline, bound = "")
)]
#[serde(bound(serialize = ""))]
pub struct List<T>(
    /// The texts in the order of the file.
    #[cfg_attr(feature = "schema", schemars(with = "OneOrSeveral"))]
    pub Vec<Text<T>>,
);

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "expected a text or a list of texts")]
enum OneOrSeveral {
    One(String),
    Several(#[cfg_attr(feature = "schema", schemars(length(min = 1)))] Vec<String>),
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = match OneOrSeveral::deserialize(deserializer)? {
            OneOrSeveral::One(text) => vec![text],
            OneOrSeveral::Several(texts) => texts,
        };
        if texts.is_empty() {
            return Err(D::Error::custom("is empty: list at least one"));
        }
        // Blanks around a member are removed, as in a flag's list.
        let members = texts.iter().map(|text| parsed(text.trim()));
        Ok(Self(members.collect::<Result<_, _>>()?))
    }
}

impl<T: Clone> List<T> {
    /// Returns the meaning of each member.
    pub fn values(&self) -> Vec<T> {
        self.0.iter().map(|member| member.value.clone()).collect()
    }

    /// Returns the members as they were written.
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(|member| member.written.clone()).collect()
    }
}

/// The rule of a name that other programs compare byte for byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Name;

impl FromStr for Name {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        name(text)?;
        match error_of(text) {
            Some(error) => Err(error),
            None => Ok(Self),
        }
    }
}

/// The rule of a host without a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Host;

impl FromStr for Host {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match host_and_port(text) {
            Some((_, None)) => Ok(Self),
            _ => Err("expected the name or the address of a host"),
        }
    }
}
