//! The explanation of a decision about a request or a token: the records of an observer.
//!
//! Both programs print explanations, as JSON or as text. An explanation never holds a signature.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};

use serde::{Deserialize, Serialize};

use crate::rejection::Rejection;
use postern_token::keys::KeySet;
use postern_token::observer::Observer;
use postern_token::times::{distance, moment};
use postern_token::unverified::DecodedToken;

/// The labels of the text, in order, with the places of checks and token among them.
const LABELS: [&str; 15] = [
    "request", "verdict", "found", "cause", "to do", "path", CHECKS, "rules", "from", "issuer",
    "user", TOKEN, "keys", "not used", "service",
];
const CHECKS: &str = "checks";
const TOKEN: &str = "token";

/// The whole explanation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Explanation {
    /// The time of the decision, in seconds since the epoch.
    pub at: i64,
    /// The outcome in the words of metrics and logs, such as `verified` or `rejected`.
    pub outcome: String,
    /// The reason code of a rejection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The status of our response to the rejected request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Every check, in order.
    pub checks: Vec<Step>,
    /// The token's readable parts, which may be forged unless the signature was checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<DecodedToken>,
    /// All other facts, by their labels.
    #[serde(flatten)]
    pub facts: BTreeMap<String, Vec<String>>,
}

/// A check of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// `signature`, `times`, …
    pub check: String,
    /// The result of the check.
    pub outcome: StepOutcome,
    /// The reason code of a failed check, or the reason of a skipped one.
    pub reason: Option<String>,
}

/// The result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepOutcome {
    /// The check passed.
    Passed,
    /// The check failed and decided the request.
    Failed,
    /// The check does not apply.
    Skipped,
}

impl Explanation {
    /// Ends the explanation with an outcome, and the rejection that is its reason.
    pub fn conclude(&mut self, outcome: &str, rejection: Option<Rejection>) {
        outcome.clone_into(&mut self.outcome);
        if let Some(rejection) = rejection {
            self.reason = Some(rejection.reason().to_owned());
            // The last failed check decided: `authorization` may fail before it is found that
            // nothing is served under the path.
            let mut checks = self.checks.iter_mut().rev();
            if let Some(failed) = checks.find(|step| step.outcome == StepOutcome::Failed) {
                failed.reason = Some(rejection.reason().to_owned());
            }
            self.status = Some(rejection.status().as_u16());
            self.learned("cause", rejection.help().cause);
            self.learned("to do", rejection.help().action);
        }
    }

    /// Adds the readable parts of the token, if it has any.
    pub fn show_token(&mut self, token: &str) {
        self.token = DecodedToken::decode(token);
    }

    /// Adds the candidate keys of the signature, fetched this many seconds ago.
    pub fn show_keys(&mut self, keys: Option<&KeySet>, age_seconds: Option<u64>) {
        let names = match keys.map(KeySet::names) {
            Some(names) if !names.is_empty() => names,
            _ => "none".to_owned(),
        };
        self.learned(
            "keys",
            match age_seconds {
                Some(age) => format!("{names}, fetched {age} s ago"),
                None => names,
            },
        );
        for key in keys.into_iter().flat_map(KeySet::skipped) {
            self.learned("not used", key);
        }
    }

    fn record(&mut self, check: &str, outcome: StepOutcome, reason: Option<&str>) {
        self.checks.push(Step {
            check: check.to_owned(),
            outcome,
            reason: reason.map(str::to_owned),
        });
    }
}

/// Records the steps of a decision.
impl Observer for Explanation {
    const WATCHES: bool = true;

    fn checked(&mut self, check: &'static str, passed: bool) {
        let outcome = if passed {
            StepOutcome::Passed
        } else {
            StepOutcome::Failed
        };
        self.record(check, outcome, None);
    }

    fn skipped(&mut self, check: &'static str, why: &'static str) {
        self.record(check, StepOutcome::Skipped, Some(why));
    }

    fn learned(&mut self, label: &'static str, fact: impl Display) {
        self.facts
            .entry(label.to_owned())
            .or_default()
            .push(fact.to_string());
    }
}

/// Formats the explanation for a terminal. All text of the request is escaped.
impl Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for label in LABELS {
            let lines = match label {
                "verdict" => vec![self.verdict()],
                CHECKS => self.checks.iter().map(ToString::to_string).collect(),
                TOKEN => self.token_lines(),
                label => self.facts.get(label).cloned().unwrap_or_default(),
            };
            for (index, line) in lines.iter().enumerate() {
                // The label stands in front of its first line alone.
                let label = if index == 0 { label } else { "" };
                writeln!(f, "{}", format!("{label:<9} {}", Plain(line)).trim_end())?;
            }
        }
        Ok(())
    }
}

impl Explanation {
    fn verdict(&self) -> String {
        let (outcome, at) = (&self.outcome, moment(self.at));
        match (&self.reason, self.status) {
            (Some(reason), Some(status)) => format!("{outcome}: {status} {reason}, at {at}"),
            _ => format!("{outcome}, at {at}"),
        }
    }

    fn token_lines(&self) -> Vec<String> {
        let Some(token) = &self.token else {
            return Vec::new();
        };
        let signer = self.facts.get("signed by").into_iter().flatten().next();
        let mut lines = vec![match signer {
            Some(key) => format!("signed by {key}"),
            None => "NOT VERIFIED: any client can have written this".to_owned(),
        }];
        lines.push(token.header.to_string());
        for (name, value) in token.claims.as_object().into_iter().flatten() {
            let is_time = matches!(name.as_str(), "exp" | "nbf" | "iat");
            lines.push(match value.to_string().parse() {
                Ok(time) if is_time => {
                    let distance = distance(time, self.at);
                    format!("{name} = {value}  {}, {distance}", moment(time))
                }
                _ => format!("{name} = {value}"),
            });
        }
        lines
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, why) = match self.outcome {
            StepOutcome::Passed => ("✓", ""),
            StepOutcome::Failed => ("✗", ""),
            StepOutcome::Skipped => ("–", "not checked: "),
        };
        let reason = self.reason.as_deref().unwrap_or_default();
        write!(f, "{sign} {:<14} {why}{reason}", self.check)
    }
}

/// Untrusted text, printed without the control characters that a terminal would obey.
struct Plain<'a>(&'a str);

impl Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '"' | '\'' | '\\' => f.write_char(character)?,
                _ => write!(f, "{}", character.escape_debug())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn the_text_says_what_decided_and_what_to_do() {
        let mut explanation = Explanation {
            at: 100,
            ..Explanation::default()
        };
        explanation.learned("request", "GET /orders/1");
        explanation.checked("signature", true);
        explanation.checked("times", false);
        explanation.conclude("rejected", Some(Rejection::TokenExpired));
        explanation.show_token("eyJhbGciOiJFUzI1NiJ9.eyJleHAiOjQwfQ.c2lnbmF0dXJl");
        let text = explanation.to_string();
        for line in [
            "verdict   rejected: 401 token_expired, at 1970-01-01T00:01:40Z",
            "checks    ✓ signature",
            "          ✗ times          token_expired",
            "          exp = 40  1970-01-01T00:00:40Z, 1 min 0 s ago",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("c2lnbmF0dXJl"));
        let json = serde_json::to_string(&explanation).unwrap();
        assert!(!json.contains("c2lnbmF0dXJl"));
        assert_eq!(
            serde_json::from_str::<Explanation>(&json).unwrap(),
            explanation
        );
    }

    #[test]
    fn text_of_an_attacker_cannot_control_a_terminal() {
        let mut explanation = Explanation::default();
        explanation.learned("request", "GET /\u{1b}[2J\u{202e}");
        let text = explanation.to_string();
        assert!(text.contains("/\\u{1b}[2J\\u{202e}"), "{text}");
    }
}
