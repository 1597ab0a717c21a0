//! Schemas of JSON, as the documents hold them.

use boon::{Compiler, Draft, SchemaIndex, Schemas};
use serde_json::Value;

/// The place of a schema in its own collection.
const PLACE: &str = "urn:schema";

/// A compiled schema of JSON Schema 2020-12.
pub struct Schema {
    all: Schemas,
    this: SchemaIndex,
}

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// For what is no schema.
    pub fn new(schema: &Value) -> Result<Self, String> {
        let (mut all, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.set_default_draft(Draft::V2020_12);
        let added = compiler.add_resource(PLACE, schema.clone());
        let compiled = added.and_then(|()| compiler.compile(PLACE, &mut all));
        let this = compiled.map_err(|error| format!("{error:#}"))?;
        Ok(Self { all, this })
    }

    /// Returns what the schema has against a value.
    pub fn problem(&self, value: &Value) -> Option<String> {
        let checked = self.all.validate(value, self.this);
        checked.err().map(|error| error.to_string())
    }
}
