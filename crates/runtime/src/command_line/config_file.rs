//! The TOML file of settings: one key per flag, and arrays of tables. It parses values and does not
//! know the keys.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction};
use toml::{Table, Value};

use super::array_tables::ArrayTables;
use super::switch::{self, is_off_by_default, is_switch};
use crate::files::bounded_read;
use crate::files::toml_error::TomlError;
use crate::process::exit::ExitError;

/// Ten times the size of a thousand paths and origins.
const MAX_BYTES: u64 = 1024 * 1024;

/// A file that was read and is TOML.
#[derive(Debug)]
pub(super) struct ConfigFile {
    path: PathBuf,
    values: Table,
}

/// The TOML types a flag takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Boolean,
    Integer,
    Text,
    /// A type of ours that parses itself, such as a number of seconds or an address.
    TextOrInteger,
}

impl ConfigFile {
    pub(super) fn read(path: &Path) -> Result<Self, ExitError> {
        let reject = |why: &str| ExitError::Config(format!("{}: {why}", path.display()));
        let text =
            bounded_read::read_text(path, MAX_BYTES).map_err(|why| reject(&why.to_string()))?;
        let values = text
            .parse()
            .map_err(|error| reject(&TomlError::new(&error, &text).to_string()))?;
        Ok(Self {
            path: path.to_owned(),
            values,
        })
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn into_path(self) -> PathBuf {
        self.path
    }

    /// Removes the arrays of tables with these names. What is no such array stays if it
    /// `is_setting`.
    pub(super) fn take_tables(
        &mut self,
        names: &[&str],
        is_setting: impl Fn(&str) -> bool,
    ) -> Result<ArrayTables, ExitError> {
        let mut arrays = BTreeMap::new();
        for &name in names {
            match (self.values.get(name).map(tables_of), is_setting(name)) {
                (Some(Some(tables)), setting) if !(setting && tables.is_empty()) => {
                    self.values.remove(name);
                    arrays.insert(name.to_owned(), tables);
                }
                (Some(None), false) => {
                    let why = format!("must be an array of tables: [[{name}]]");
                    return Err(self.reject(name, &why));
                }
                _ => {}
            }
        }
        Ok(ArrayTables::new(&self.path, arrays))
    }

    pub(super) fn reject(&self, key: &str, why: &str) -> ExitError {
        ExitError::Config(format!("{}: `{key}` {why}", self.path.display()))
    }

    /// Returns the flags of `key`: empty if it is absent or a switch that is off.
    pub(super) fn arguments_for(&self, key: &str, flag: &Arg) -> Result<Vec<OsString>, ExitError> {
        match (self.values.get(key), flag.get_action()) {
            (None, _) => Ok(Vec::new()),
            // Even with the value false, a flag would exclude others.
            (Some(value), _) if is_off_by_default(flag) && is_off(value) => Ok(Vec::new()),
            (Some(Value::Array(items)), ArgAction::Append) => items
                .iter()
                .map(|item| self.argument(key, flag, item))
                .collect(),
            (Some(value), _) => Ok(vec![self.argument(key, flag, value)?]),
        }
    }

    fn argument(&self, key: &str, flag: &Arg, value: &Value) -> Result<OsString, ExitError> {
        let kind = Kind::of(flag);
        let text = match (value, kind) {
            (Value::String(text), Kind::Text | Kind::TextOrInteger) => text.clone(),
            (Value::Integer(number), Kind::Integer | Kind::TextOrInteger) => number.to_string(),
            (Value::Boolean(on), Kind::Boolean) => on.to_string(),
            (Value::String(word), Kind::Boolean) => word.clone(),
            (Value::Integer(bit), Kind::Boolean) => bit.to_string(),
            _ => {
                return Err(self.reject(
                    key,
                    &format!("must be {}, not {}", kind.name(), value.type_str()),
                ));
            }
        };
        Ok(OsString::from(format!("--{key}={text}")))
    }
}

/// Returns the members of an array that has only tables.
fn tables_of(value: &Value) -> Option<Vec<Table>> {
    let members = value.as_array()?.iter();
    members.map(|member| member.as_table().cloned()).collect()
}

fn is_off(value: &Value) -> bool {
    match value {
        Value::Boolean(on) => !on,
        Value::String(word) => switch::parse(word) == Ok(false),
        Value::Integer(bit) => *bit == 0,
        _ => false,
    }
}

impl Kind {
    fn of(flag: &Arg) -> Self {
        let parsed = flag.get_value_parser().type_id();
        let is = |types: &[TypeId]| types.iter().any(|other| parsed == *other);
        if is_switch(flag) {
            Self::Boolean
        } else if is(&[
            TypeId::of::<u16>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<usize>(),
        ]) {
            Self::Integer
        } else if is(&[TypeId::of::<String>(), TypeId::of::<PathBuf>()]) {
            Self::Text
        } else {
            Self::TextOrInteger
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Boolean => "on or off, true or false",
            Self::Integer => "an integer",
            Self::Text => "a string",
            Self::TextOrInteger => "a string or an integer",
        }
    }
}
