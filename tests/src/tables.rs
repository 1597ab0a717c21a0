//! The data tables under `tests/data/`: each row is one statement about the programs, with its
//! reason. Unknown keys are errors.

pub mod dashboard;
pub mod documented;
pub mod json_schema;
pub mod openapi;
pub mod reference;
pub mod template;

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Reads one table.
///
/// # Panics
/// When the file is missing or has another shape.
pub fn load<T: DeserializeOwned>(file: &str) -> T {
    toml::from_str(&read(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Reads recorded outcomes.
///
/// # Panics
/// When the file is missing or has another shape.
pub fn load_json<T: DeserializeOwned>(file: &str) -> T {
    serde_json::from_str(&read(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Records outcomes.
///
/// # Panics
/// When the file cannot be written.
pub fn record_json<T: Serialize>(file: &str, outcomes: &T) {
    let text =
        serde_json::to_string_pretty(outcomes).unwrap_or_else(|error| panic!("{file}: {error}"));
    std::fs::write(path(file), text + "\n").unwrap_or_else(|error| panic!("{file}: {error}"));
}

fn read(file: &str) -> String {
    std::fs::read_to_string(path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data")
        .join(file)
}

/// Classification of a path (ADR 0003).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathClass {
    /// Pass-listed: forwarded without a token.
    Pass,
    /// Forwarded byte for byte with a token, otherwise rejected.
    Token,
    /// Rejected with 400, with or without a token.
    Rejected,
}

/// `pass_list.toml` and `canonical_paths.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathTable {
    /// Rows that share a pass list.
    pub group: Vec<PathGroup>,
}

/// Rows that share a pass list, and so one sidecar.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathGroup {
    /// Topic of the group.
    pub name: String,
    /// The context path, `/orders` where left out.
    #[serde(default = "orders")]
    pub context: String,
    /// The pass list.
    pub patterns: Vec<String>,
    /// The paths to try.
    pub row: Vec<PathRow>,
}

/// One path.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathRow {
    /// The request target as on the wire; may hold placeholders (see `template`).
    pub path: String,
    /// The expected classification.
    pub expect: PathClass,
    /// Reason, or the document with the rule.
    pub why: String,
    /// Bytes that the service receives, if they differ: the proxy library rewrites a few raw bytes
    /// that RFC 3986 does not allow in a target.
    pub forwarded_as: Option<String>,
    /// `true` where an HTTP library may reject the request before any filter, such as a raw control
    /// byte; the reason is then `request_malformed`. `expect` is the result of `crates/http`.
    #[serde(default)]
    pub rejected_by_parser: bool,
    /// `true` where only the library of the auth server does so.
    #[serde(default)]
    pub rejected_by_auth_server: bool,
}

/// `odd_requests.toml`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OddRequests {
    /// Rows of one request each.
    pub row: Vec<OddRequest>,
}

/// A request of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OddRequest {
    /// `GET` where left out.
    #[serde(default = "get")]
    pub method: String,
    /// `/orders/42` where left out; may hold placeholders.
    #[serde(default = "an_order")]
    pub target: String,
    /// Header lines with placeholders.
    #[serde(default)]
    pub lines: Vec<String>,
    /// Bytes behind the head.
    #[serde(default)]
    pub body: String,
    /// `verified`, `passed`, `responded`, or status and reason code.
    pub expect: String,
    /// A part of what `explain` finds; empty where that is not tested.
    #[serde(default)]
    pub found: String,
    /// Reason, or the document with the rule.
    pub why: String,
}

/// `bad_patterns.toml`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatternTable {
    /// Patterns that have to fail the start.
    pub bad: Vec<PatternRow>,
}

/// A pass-list pattern that has to fail the start.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatternRow {
    /// The pattern.
    pub pattern: String,
    /// Reason.
    pub why: String,
}

/// `bad_logins.toml`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginTable {
    /// Requests to the login path that must not give a token.
    pub login: Vec<LoginRow>,
}

/// One request to the login path.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginRow {
    /// The statement that the row tests.
    pub name: String,
    /// `POST` where left out.
    #[serde(default = "post")]
    pub method: String,
    /// Header lines; `Content-Type: application/json` where left out.
    #[serde(default = "json")]
    pub headers: Vec<String>,
    /// The body with placeholders; absent means no body at all.
    pub body: Option<String>,
    /// `200`, or status and reason code: `400 login_incomplete`.
    pub expect: String,
    /// Reason, or the document with the rule.
    pub why: String,
}

/// `token_requests.toml`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRequestTable {
    /// One request each.
    pub request: Vec<TokenRequestRow>,
}

/// A request to the token endpoint.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRequestRow {
    /// The statement that the row tests.
    pub name: String,
    /// `POST` where left out.
    #[serde(default = "post")]
    pub method: String,
    /// `/auth/oauth/token` where left out; may hold placeholders.
    #[serde(default = "token_path")]
    pub target: String,
    /// Header lines with placeholders; the media type of a form is added where there is a body and
    /// none is given.
    #[serde(default)]
    pub headers: Vec<String>,
    /// The body with placeholders; absent means no body at all.
    pub body: Option<String>,
    /// `200`, or status, `error` (`envelope` in one) and reason code.
    pub expect: String,
    /// Reason, or the document with the rule.
    pub why: String,
}

fn token_path() -> String {
    "/auth/oauth/token".to_owned()
}

fn orders() -> String {
    "/orders".to_owned()
}

fn get() -> String {
    "GET".to_owned()
}

fn an_order() -> String {
    "/orders/42".to_owned()
}

fn post() -> String {
    "POST".to_owned()
}

fn json() -> Vec<String> {
    vec!["Content-Type: application/json".to_owned()]
}

/// Collector of failed rows, so that one run lists them all.
#[derive(Debug, Default)]
pub struct Verdicts {
    checked: usize,
    failures: Vec<String>,
}

impl Verdicts {
    /// Counts a row; `difference` describes its failure.
    pub fn row(&mut self, name: &str, difference: Option<String>) {
        self.checked += 1;
        self.failures
            .extend(difference.map(|text| format!("{name}: {text}")));
    }

    /// Returns the number of rows so far.
    pub const fn checked(&self) -> usize {
        self.checked
    }

    /// Ends the table.
    ///
    /// # Panics
    /// With a list of the failed rows, if any.
    pub fn conclude(self) {
        let (failed, checked) = (self.failures.len(), self.checked);
        assert!(
            self.failures.is_empty(),
            "{failed} of {checked} rows failed:\n{}",
            self.failures.join("\n")
        );
    }
}
