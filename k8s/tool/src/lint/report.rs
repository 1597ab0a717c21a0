//! Findings as text for people, as JSON for programs, as SARIF for code hosts.

use serde::Serialize;
use serde_json::{Value, json};

use super::{Finding, Level, Rule};

const SARIF_SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// The format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A line for each finding.
    Text,
    /// One array of objects.
    Json,
    /// SARIF 2.1.0, which code hosts show beside the lines.
    Sarif,
}

/// Renders the findings.
pub(crate) fn render(findings: &[Finding], format: Format) -> String {
    match format {
        Format::Text => findings.iter().map(line).collect(),
        Format::Json => pretty(&findings.iter().map(entry).collect::<Vec<_>>()),
        Format::Sarif => pretty(&sarif(findings)),
    }
}

fn line(finding: &Finding) -> String {
    let Finding {
        file,
        line,
        object,
        message,
        rule,
        ..
    } = finding;
    let level = level(finding.level);
    let rule = rule.name();
    format!("{file}:{line}: {level}: {object}: {message} [{rule}]\n")
}

fn entry(finding: &Finding) -> Value {
    json!({
        "level": finding.level,
        "rule": finding.rule.name(),
        "object": finding.object,
        "path": finding.pointer,
        "file": finding.file,
        "line": finding.line,
        "message": finding.message,
    })
}

fn sarif(findings: &[Finding]) -> Value {
    let rules = Rule::ALL
        .map(|rule| json!({"id": rule.name(), "shortDescription": {"text": rule.meaning()}}));
    let results: Vec<Value> = findings.iter().map(result).collect();
    json!({
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "postern-k8s lint",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "results": results,
        }],
    })
}

fn result(finding: &Finding) -> Value {
    json!({
        "ruleId": finding.rule.name(),
        "level": level(finding.level),
        "message": {"text": format!("{}: {}", finding.object, finding.message)},
        "locations": [{"physicalLocation": {
            "artifactLocation": {"uri": finding.file},
            "region": {"startLine": finding.line},
        }}],
    })
}

const fn level(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Note => "note",
    }
}

fn pretty(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}
