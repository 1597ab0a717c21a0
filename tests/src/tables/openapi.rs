//! Checks of responses against `docs/openapi.json`, which keeps the document correct.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::actors::programs::{Program, repository};
use crate::tables::json_schema::Schema;
use crate::wire::message::Message;

/// The document.
pub struct OpenApi {
    document: Value,
    schemas: Mutex<HashMap<String, &'static Schema>>,
}

/// Returns the repository's own document, read once.
///
/// # Panics
/// When it is missing or not JSON.
pub fn document() -> &'static OpenApi {
    static DOCUMENT: LazyLock<OpenApi> = LazyLock::new(|| {
        let path = repository().join("docs/openapi.json");
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let document = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        OpenApi {
            document,
            schemas: Mutex::default(),
        }
    });
    &DOCUMENT
}

impl OpenApi {
    /// Returns the document.
    pub const fn value(&self) -> &Value {
        &self.document
    }

    /// Checks a response of `program` to `method` on `path` (relative to the context path).
    ///
    /// # Panics
    /// When the document does not describe such a response.
    pub fn check(&self, program: Program, method: &str, path: &str, received: &Message) {
        let path = path.split('?').next().unwrap_or_default();
        let problem = match self.response(program, method, path, received.status()) {
            Some(response) => self.problem_with(&response, method, received),
            None => Some("this status is not described for this operation".to_owned()),
        };
        if let Some(problem) = problem {
            panic!(
                "{} {method} {path}: {problem}\n{}\n{}",
                program.name(),
                received.first_line(),
                received.text()
            );
        }
    }

    /// Returns the operation's response for `status`; failures of any other path are described
    /// once, in `components.responses.Failure`.
    fn response(&self, program: Program, method: &str, path: &str, status: u16) -> Option<Value> {
        let described = self.operation(program, method, path).and_then(|operation| {
            let response = operation["responses"].get(status.to_string())?;
            Some(self.resolved(response))
        });
        let failure = || {
            self.document
                .pointer("/components/responses/Failure")
                .cloned()
        };
        described.or_else(|| (status >= 400).then(failure).flatten())
    }

    fn operation(&self, program: Program, method: &str, path: &str) -> Option<&Value> {
        let paths = self.document["paths"].as_object()?;
        let (_, item) = paths
            .iter()
            .find(|(template, _)| matches_template(template, path))?;
        let operation = item.get(method.to_ascii_lowercase())?;
        let tags = operation["tags"].as_array()?;
        tags.iter()
            .any(|tag| tag == program.name())
            .then_some(operation)
    }

    fn resolved(&self, value: &Value) -> Value {
        let pointer = value
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| reference.strip_prefix('#'));
        match pointer {
            Some(pointer) => self.document.pointer(pointer).cloned().unwrap_or_default(),
            None => value.clone(),
        }
    }

    fn problem_with(&self, response: &Value, method: &str, received: &Message) -> Option<String> {
        let contents = response.get("content").and_then(Value::as_object)?;
        let Some(json) = contents.get("application/json") else {
            return contents
                .is_empty()
                .then(|| "no content is described".to_owned());
        };
        if received.header("content-type") != ["application/json"] {
            return Some(format!(
                "content type {:?}",
                received.header("content-type")
            ));
        }
        if method == "HEAD" {
            return None;
        }
        let Ok(body) = serde_json::from_slice::<Value>(&received.body) else {
            return Some("the body is no JSON".to_owned());
        };
        self.schema(&json["schema"])
            .problem(&body)
            .or_else(|| {
                // Responses of OAuth have no envelope.
                let in_envelope = body.get("status");
                in_envelope
                    .is_some_and(|status| *status != received.status())
                    .then(|| "the envelope has another status".to_owned())
            })
            .or_else(|| wrong_date(&body))
    }

    /// Compiles each schema once: the tables check thousands of responses.
    fn schema(&self, schema: &Value) -> &'static Schema {
        let mut schemas = self.schemas.lock().unwrap_or_else(PoisonError::into_inner);
        schemas.entry(schema.to_string()).or_insert_with(|| {
            let compiled = self.compile(schema).unwrap_or_else(|error| {
                panic!("docs/openapi.json holds a bad schema {schema}: {error}")
            });
            Box::leak(Box::new(compiled))
        })
    }

    /// Compiles a schema; its references are resolved in the document.
    ///
    /// # Errors
    /// When it is not a schema of JSON Schema 2020-12.
    pub fn compile(&self, schema: &Value) -> Result<Schema, String> {
        let mut root = schema.clone();
        root["components"] = json!({"schemas": self.document["components"]["schemas"]});
        Schema::new(&root)
    }
}

/// Matches a template; `{path}` at its end stands for the rest of the path, slashes included.
fn matches_template(template: &str, path: &str) -> bool {
    match template.split_once('{') {
        Some((prefix, _)) => path.starts_with(prefix) && path.len() > prefix.len(),
        None => template == path,
    }
}

/// Returns a text that looks like a date and breaks the form `yyyy-MM-dd HH:mm:ss` of an envelope
/// (contract §8).
fn wrong_date(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if resembles_a_date(text) && !is_contract_date(text) => {
            Some(format!("`{text}` is not written as yyyy-MM-dd HH:mm:ss"))
        }
        Value::Array(items) => items.iter().find_map(wrong_date),
        Value::Object(members) => members.values().find_map(wrong_date),
        _ => None,
    }
}

fn resembles_a_date(text: &str) -> bool {
    const DATE: &[u8] = b"0000-00-00";
    text.len() >= DATE.len() && has_form(&text.as_bytes()[..DATE.len()], DATE)
}

fn is_contract_date(text: &str) -> bool {
    has_form(text.as_bytes(), b"0000-00-00 00:00:00")
}

/// Returns true if `text` has digits where `form` has zeros, and the same bytes elsewhere.
fn has_form(text: &[u8], form: &[u8]) -> bool {
    let fits = |(byte, wanted): (&u8, &u8)| {
        if *wanted == b'0' {
            byte.is_ascii_digit()
        } else {
            byte == wanted
        }
    };
    text.len() == form.len() && text.iter().zip(form).all(fits)
}
