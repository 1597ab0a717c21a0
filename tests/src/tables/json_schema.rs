//! Schemas of JSON, as the documents hold them.

use boon::{CompileError, Compiler, Draft, SchemaIndex, Schemas};
use serde_json::Value;

/// The id of a schema in its own collection.
const ID: &str = "urn:schema";

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
        let unusable = |error: CompileError| format!("{error:#}");
        compiler
            .add_resource(ID, schema.clone())
            .map_err(unusable)?;
        let this = compiler.compile(ID, &mut all).map_err(unusable)?;
        Ok(Self { all, this })
    }

    /// Returns what the schema has against a value.
    pub fn problem(&self, value: &Value) -> Option<String> {
        let checked = self.all.validate(value, self.this);
        checked.err().map(|error| error.to_string())
    }
}
