//! Arrays of tables in the configuration file, such as `[[rule]]`: settings that no flag can hold.
//!
//! A program names them, and gets the tables as its own types. All other tables are rejected.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Parser;
use serde::de::DeserializeOwned;
use toml::Table;

use crate::process::exit::ExitError;

/// A command line that takes arrays of tables from its file.
pub trait FromTables: Parser {
    /// Their names. A setting may have the same name: it is no array of tables.
    const NAMES: &'static [&'static str] = &[];

    /// Takes the tables for the commands that use them; others leave them unread.
    ///
    /// # Errors
    /// [`ExitError::Config`] for the first unusable table.
    fn take(&mut self, _tables: &ArrayTables) -> Result<(), ExitError> {
        Ok(())
    }
}

/// The arrays of tables of one file.
#[derive(Debug, Default)]
pub struct ArrayTables {
    path: PathBuf,
    arrays: BTreeMap<String, Vec<Table>>,
}

impl ArrayTables {
    pub(super) fn new(path: &Path, arrays: BTreeMap<String, Vec<Table>>) -> Self {
        Self {
            path: path.to_owned(),
            arrays,
        }
    }

    /// Reads the tables of one name, in their order; none without a file.
    ///
    /// # Errors
    /// [`ExitError::Config`] with the file, the place of the table and the member that is wrong.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>, ExitError> {
        let tables = self.arrays.get(name).into_iter().flatten();
        let read = |(index, table): (usize, &Table)| {
            let read = table.clone().try_into();
            read.map_err(|error: toml::de::Error| self.reject(name, index, &error.to_string()))
        };
        tables.enumerate().map(read).collect()
    }

    /// Names the file and the table, counted from one, in front of `why`.
    fn reject(&self, name: &str, index: usize, why: &str) -> ExitError {
        // The parser writes the member into a second line.
        let why: Vec<&str> = why.split_whitespace().collect();
        ExitError::Config(format!(
            "{}: [[{name}]] {}: {}",
            self.path.display(),
            index + 1,
            why.join(" ")
        ))
    }
}
