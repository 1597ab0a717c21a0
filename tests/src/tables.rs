//! The data tables under `tests/data/`: one row is one statement about the programs, with the
//! reason why it must hold. Their shapes stand here; unknown keys are errors.

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Reads one table.
///
/// # Panics
/// When the file is missing or has another shape.
pub fn load<T: DeserializeOwned>(file: &str) -> T {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data")
        .join(file);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What becomes of a path (ADR 0003).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathClass {
    /// Pass-listed: forwarded without a token.
    Pass,
    /// Needs a token, with which it is forwarded byte for byte.
    Token,
    /// 400, with or without a token.
    Refused,
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
    /// What the group is about.
    pub name: String,
    /// The context path, `/orders` where left out.
    #[serde(default = "orders")]
    pub context: String,
    /// The pass list.
    pub patterns: Vec<String>,
    /// The paths tried.
    pub row: Vec<PathRow>,
}

/// One path.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathRow {
    /// The request target as it stands on the wire; may hold placeholders (see `template`).
    pub path: String,
    /// What must become of it.
    pub expect: PathClass,
    /// Why, or where it is written.
    pub why: String,
    /// What the service must see where that is not the same bytes: the proxy library rewrites a
    /// few raw bytes that RFC 3986 does not allow in a target.
    pub forwarded_as: Option<String>,
    /// `true` where an HTTP library may itself refuse the request as no HTTP, before any filter (a
    /// raw control byte, for one): then the reason is `request_malformed`. `expect` says what the contract crate says.
    #[serde(default)]
    pub refused_by_parser: bool,
}

/// `odd_requests.toml`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OddRequests {
    /// One request each.
    pub row: Vec<OddRequest>,
}

/// A request as it may arrive.
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
    /// What follows the head.
    #[serde(default)]
    pub body: String,
    /// `verified`, `passed`, `answered`, or status and reason code.
    pub expect: String,
    /// Why, or where it is written.
    pub why: String,
}

/// `bad_patterns.toml`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatternTable {
    /// Patterns that stop the start.
    pub bad: Vec<PatternRow>,
}

/// A pass-list pattern that must stop the start.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatternRow {
    /// The pattern.
    pub pattern: String,
    /// Why.
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
    /// The statement.
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
    /// Why, or where it is written.
    pub why: String,
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

/// Collects the rows that failed, so that one run shows them all.
#[derive(Debug, Default)]
pub struct Verdicts {
    checked: usize,
    failures: Vec<String>,
}

impl Verdicts {
    /// Counts a row; `difference` says what was wrong with it.
    pub fn row(&mut self, name: &str, difference: Option<String>) {
        self.checked += 1;
        self.failures
            .extend(difference.map(|text| format!("{name}: {text}")));
    }

    /// How many rows were seen.
    pub const fn checked(&self) -> usize {
        self.checked
    }

    /// Ends the table.
    ///
    /// # Panics
    /// With every failed row, if there is one.
    pub fn conclude(self) {
        let (failed, checked) = (self.failures.len(), self.checked);
        assert!(
            self.failures.is_empty(),
            "{failed} of {checked} rows failed:\n{}",
            self.failures.join("\n")
        );
    }
}
