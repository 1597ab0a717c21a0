//! The TOML file of settings: one key per flag, and settings that no flag can say. This module parses
//! values and does not know the keys.

use std::ffi::OsString;
use std::path::{self, PathBuf};

use clap::{Arg, ArgAction};
use serde::de::DeserializeOwned;
use serde_path_to_error::Path;
use toml::{Table, Value};
use zeroize::Zeroizing;

use super::switch::{self, is_off_by_default};
use crate::exit::ExitError;
use crate::files::bounded_read;
use crate::files::toml_error::TomlError;

/// Max length of a settings file: ten times the size of one with a thousand paths and origins.
pub const MAX_CONFIG_BYTES: u64 = 1024 * 1024;

/// A file that was read and is TOML.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    text: Zeroizing<String>,
    /// Keys of flags.
    values: Table,
}

impl ConfigFile {
    pub(super) fn read(path: &path::Path) -> Result<Self, ExitError> {
        let name = path.display();
        let text = bounded_read::read_text(path, MAX_CONFIG_BYTES)
            .map_err(|why| ExitError::Config(format!("--config {name}: {why}")))?;
        let values = text.parse().map_err(|error| {
            ExitError::Config(format!("{name}: {}", TomlError::new(&error, &text)))
        })?;
        Ok(Self {
            path: path.to_owned(),
            text,
            values,
        })
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    pub(super) fn path(&self) -> &path::Path {
        &self.path
    }

    /// Reads the settings that the file alone can say; other keys are ignored.
    ///
    /// # Errors
    /// [`ExitError::Config`] with the file, the line and the member that is wrong.
    pub fn read_only<T: DeserializeOwned>(&self) -> Result<T, ExitError> {
        let rejected =
            |error: TomlError| ExitError::Config(format!("{}: {error}", self.path.display()));
        let document = toml::Deserializer::parse(&self.text)
            .map_err(|error| rejected(TomlError::new(&error, &self.text)))?;
        serde_path_to_error::deserialize(document).map_err(|error| {
            let position = self.position(error.path());
            rejected(TomlError::new(error.inner(), &self.text).within(&position))
        })
    }

    /// Returns the table and the member of a path: `[[issuer]] idp: jwks` for `issuer[1].jwks`. A table
    /// without a name is called by its number.
    fn position(&self, path: &Path) -> String {
        let text = path.to_string();
        let Some((key, rest)) = text.split_once('[') else {
            return text;
        };
        let (number, member) = rest.split_once(']').unwrap_or_default();
        let member = member.replacen('.', ": ", 1);
        let index: usize = number.parse().unwrap_or_default();
        match self.table_name(key, index).as_deref() {
            None | Some("") => format!("[[{key}]] {}{member}", index + 1),
            Some(name) => format!("[[{key}]] {name}{member}"),
        }
    }

    fn table_name(&self, key: &str, index: usize) -> Option<String> {
        // Parsed anew: `values` has lost its tables by now.
        let file: Table = self.text.parse().ok()?;
        Some(file.get(key)?.get(index)?.get("name")?.as_str()?.to_owned())
    }

    /// Removes the keys that the file alone can have. A setting of the same name stays unless its value is
    /// an array of tables.
    pub(super) fn remove(&mut self, names: &[&str], is_setting: impl Fn(&str) -> bool) {
        self.values.retain(|name, value| {
            !names.contains(&name) || (is_setting(name) && !has_tables(value))
        });
    }

    pub(super) fn reject(&self, key: &str, why: &str) -> ExitError {
        ExitError::Config(format!("{}: `{key}` {why}", self.path.display()))
    }

    /// Returns the flags of `key`: empty if the key is absent or a switch that is off.
    pub(super) fn arguments_for(&self, key: &str, flag: &Arg) -> Result<Vec<OsString>, ExitError> {
        match (self.values.get(key), flag.get_action()) {
            (None, _) => Ok(Vec::new()),
            // Even with the value false, the flag would exclude the flags that conflict with it.
            (Some(value), _) if is_off_by_default(flag) && is_off(value) => Ok(Vec::new()),
            (Some(Value::Array(items)), ArgAction::Append) => {
                items.iter().map(|item| self.argument(key, item)).collect()
            }
            (Some(value), _) => Ok(vec![self.argument(key, value)?]),
        }
    }

    /// Returns the flag with a value as text, which its own parser checks.
    fn argument(&self, key: &str, value: &Value) -> Result<OsString, ExitError> {
        let reject = |found: &str| {
            let why = format!("must be a text, a number, true or false, not {found}");
            Err(self.reject(key, &why))
        };
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => value.to_string(),
            Value::Table(_) => return reject("a table: of several, each has [[…]] above it"),
            other => return reject(other.type_str()),
        };
        // Join with `=`: a separate value that begins with a hyphen would be read as a flag.
        Ok(OsString::from(format!("--{key}={text}")))
    }
}

fn has_tables(value: &Value) -> bool {
    matches!(value, Value::Array(members) if members.iter().any(Value::is_table))
}

fn is_off(value: &Value) -> bool {
    match value {
        Value::Boolean(on) => !on,
        Value::String(word) => switch::parse(word) == Ok(false),
        Value::Integer(bit) => *bit == 0,
        _ => false,
    }
}
