//! The explanation of a decision about a request or a token: the records of an observer.
//!
//! Both programs print it, as JSON or as text. It never holds a signature.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::observer::{Fact, Observer, RuleFacts};
use super::unverified::DecodedToken;
use crate::keys::algorithms;
use crate::keys::{KeySet, VerificationKey};
use crate::rejection::Rejection;

/// The whole explanation. Fields that do not apply are absent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Explanation {
    /// The time of the decision, in seconds since the epoch.
    pub at: i64,
    /// The result.
    pub verdict: Verdict,
    /// Method and target.
    pub request: Option<String>,
    /// The path below the context path, decoded; absent for a path outside of it, and for one that
    /// is not canonical and so never on the pass list.
    pub relative_path: Option<String>,
    /// The matching pattern of the pass list.
    pub pass_pattern: Option<String>,
    /// Every check, in order.
    pub checks: Vec<Step>,
    /// The member or claim for which the token is rejected, and the setting that changes that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The rules for the request, which are compared after the token was verified.
    pub rules: Vec<RuleFacts>,
    /// The token header that the token came in; absent for one of any other place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_header: Option<String>,
    /// The cookie that the token came in, or that a rejection is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_cookie: Option<String>,
    /// The name of the issuer that the token's `iss` selects, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The token's readable parts.
    pub token: Option<TokenFacts>,
    /// The candidate keys of the signature.
    pub keys: Option<KeyFacts>,
    /// The request head that the service would get, line by line.
    pub head: Option<Vec<String>>,
}

/// The result of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Verdict {
    /// `verified`, `passed`, `answered` or `refused`, as in metrics and logs.
    pub outcome: String,
    /// The reason code of a rejection.
    pub reason: Option<String>,
    /// The status of our response.
    pub status: Option<u16>,
    /// The cause of the rejection.
    pub cause: Option<String>,
    /// The remedy.
    pub remedy: Option<String>,
}

/// One check.
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

/// The readable parts of the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenFacts {
    /// True if one of our keys signed it; an unverified token may be forged.
    pub verified: bool,
    /// The key that signed it.
    pub key: Option<String>,
    /// The first part.
    pub header: Value,
    /// The second part.
    pub claims: Value,
}

/// The keys at the time of the decision.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KeyFacts {
    /// Name and algorithm of each.
    pub keys: Vec<String>,
    /// Keys of the source that are not used, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// Seconds since the last fetch, for fetched keys.
    pub age_seconds: Option<u64>,
    /// The number of changes, where it is counted.
    pub generation: Option<u64>,
}

impl KeyFacts {
    /// Describes a key set.
    pub fn of(keys: &KeySet) -> Self {
        Self {
            keys: keys.keys().iter().map(name_of).collect(),
            skipped: keys.skipped().to_vec(),
            ..Self::default()
        }
    }
}

fn name_of(key: &VerificationKey) -> String {
    format!("{} ({})", key.id(), algorithms::name(key.algorithm()))
}

impl Verdict {
    /// Describes a request that is not rejected.
    pub fn good(outcome: &str) -> Self {
        Self {
            outcome: outcome.to_owned(),
            ..Self::default()
        }
    }

    /// Describes a rejection that is only reported.
    pub fn reported(rejection: Rejection) -> Self {
        Self {
            outcome: "reported".to_owned(),
            ..Self::rejected(rejection)
        }
    }

    /// Describes a rejection.
    pub fn rejected(rejection: Rejection) -> Self {
        let help = rejection.help();
        Self {
            outcome: "refused".to_owned(),
            reason: Some(rejection.reason().to_owned()),
            status: Some(rejection.status().as_u16()),
            cause: Some(help.cause.to_owned()),
            remedy: Some(help.action.to_owned()),
        }
    }
}

impl Explanation {
    /// Adds the readable parts of the token, if it has any.
    pub fn show_token(&mut self, token: &str) {
        let verified = self
            .checks
            .iter()
            .any(|step| step.check == "signature" && step.outcome == StepOutcome::Passed);
        let key = self.token.take().and_then(|facts| facts.key);
        self.token = DecodedToken::of(token).map(|DecodedToken { header, claims }| TokenFacts {
            verified,
            key,
            header,
            claims,
        });
    }
}

/// Records the steps of a decision.
impl Observer for Explanation {
    const WATCHES: bool = true;

    fn checked(&mut self, check: &'static str, outcome: Result<(), Rejection>) {
        self.checks.push(Step {
            check: check.to_owned(),
            outcome: outcome.map_or(StepOutcome::Failed, |()| StepOutcome::Passed),
            reason: outcome.err().map(|rejection| rejection.reason().to_owned()),
        });
    }

    fn skipped(&mut self, check: &'static str, why: &'static str) {
        self.checks.push(Step {
            check: check.to_owned(),
            outcome: StepOutcome::Skipped,
            reason: Some(why.to_owned()),
        });
    }

    fn learned(&mut self, fact: Fact<'_>) {
        match fact {
            Fact::RelativePath(path) => self.relative_path = Some(path.to_owned()),
            Fact::PassPattern(pattern) => self.pass_pattern = Some(pattern.as_str().to_owned()),
            Fact::OptionalPattern(pattern) => {
                self.pass_pattern = Some(pattern.as_str().to_owned());
                self.skipped("authorization", "a token may be missing here, and it is");
            }
            Fact::Detail(detail) => self.detail = Some(detail.to_owned()),
            Fact::Rule(facts) => self.rules.push(facts.clone()),
            Fact::Preflight => self.skipped("authorization", "a preflight of an allowed origin"),
            Fact::TokenHeader(name) => self.token_header = Some(name.to_owned()),
            Fact::TokenCookie(name) => self.token_cookie = Some(name.to_owned()),
            Fact::Issuer(name) => self.issuer = Some(name.to_owned()),
            Fact::SigningKey(key) => {
                self.token = Some(TokenFacts {
                    verified: true,
                    key: Some(name_of(key)),
                    header: Value::Null,
                    claims: Value::Null,
                });
            }
        }
    }
}

/// Formats it for a terminal. All text of the request is escaped.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(request) = &self.request {
            writeln!(f, "request   {}", Plain(&cut(request)))?;
        }
        self.write_verdict(f)?;
        self.write_path(f)?;
        for (index, step) in self.checks.iter().enumerate() {
            let label = if index == 0 { "checks" } else { "" };
            let (sign, why) = match step.outcome {
                StepOutcome::Passed => ("✓", ""),
                StepOutcome::Failed => ("✗", ""),
                StepOutcome::Skipped => ("–", "not checked: "),
            };
            let reason = step.reason.as_deref().unwrap_or_default();
            let line = format!("{label:<9} {sign} {:<14} {why}{reason}", step.check);
            writeln!(f, "{}", line.trim_end())?;
        }
        for (index, rule) in self.rules.iter().enumerate() {
            let label = if index == 0 { "rules" } else { "" };
            let sign = if rule.holds { '✓' } else { '✗' };
            let (needs, found) = (Plain(&rule.needs), Plain(&rule.found));
            writeln!(
                f,
                "{label:<9} {sign} {}: needs {needs}; found {found}",
                rule.name
            )?;
        }
        if let Some(name) = &self.token_header {
            writeln!(f, "from      {name}")?;
        }
        if let Some(name) = &self.token_cookie {
            writeln!(f, "from      the cookie {name}")?;
        }
        if let Some(issuer) = &self.issuer {
            writeln!(f, "issuer    {issuer}")?;
        }
        if let Some(token) = &self.token {
            token.write(f, self.at)?;
        }
        if let Some(keys) = &self.keys {
            keys.write(f)?;
        }
        for (index, line) in self.head.iter().flatten().enumerate() {
            let label = if index == 0 { "service" } else { "" };
            writeln!(f, "{label:<9} {}", Plain(line))?;
        }
        Ok(())
    }
}

/// The printed part of a target; more does not help a reader.
const READABLE_BYTES: usize = 1000;

/// Cuts a text that is too long.
fn cut(text: &str) -> Cow<'_, str> {
    if text.len() <= READABLE_BYTES {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(READABLE_BYTES);
    let begin = text.get(..end).unwrap_or_default();
    Cow::Owned(format!("{begin}… ({} bytes)", text.len()))
}

impl Explanation {
    fn write_verdict(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = &self.verdict;
        write!(f, "verdict   {}", verdict.outcome)?;
        if let (Some(reason), Some(status)) = (&verdict.reason, verdict.status) {
            write!(f, ": {status} {reason}")?;
        }
        writeln!(f, ", at {}", moment(self.at))?;
        if let Some(detail) = &self.detail {
            writeln!(f, "found     {}", Plain(detail))?;
        }
        if let (Some(cause), Some(remedy)) = (&verdict.cause, &verdict.remedy) {
            writeln!(f, "cause     {cause}\nto do     {remedy}")?;
        }
        Ok(())
    }

    /// Writes nothing for a request without a path, or one rejected before its path.
    fn write_path(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sound = |step: &Step| step.check == "path" && step.outcome == StepOutcome::Passed;
        if !self.checks.iter().any(sound) {
            return Ok(());
        }
        match (&self.relative_path, &self.pass_pattern) {
            (Some(path), Some(pattern)) => {
                writeln!(f, "path      {} is open: {pattern}", Plain(path))
            }
            (Some(path), None) => {
                writeln!(f, "path      {} matches no public path", Plain(path))
            }
            (None, _) => writeln!(
                f,
                "path      never open: outside the context path, or spelt as programs read differently"
            ),
        }
    }
}

impl TokenFacts {
    fn write(&self, f: &mut fmt::Formatter<'_>, now: i64) -> fmt::Result {
        match &self.key {
            Some(key) if self.verified => writeln!(f, "token     signed by {key}")?,
            _ => writeln!(
                f,
                "token     NOT VERIFIED: any client can have written this"
            )?,
        }
        writeln!(f, "          {}", Plain(&self.header.to_string()))?;
        for (name, value) in self.claims.as_object().into_iter().flatten() {
            write!(
                f,
                "          {} = {}",
                Plain(name),
                Plain(&value.to_string())
            )?;
            match value.as_i64() {
                Some(time) if matches!(name.as_str(), "exp" | "nbf" | "iat") => {
                    writeln!(f, "  {}, {}", moment(time), distance(time, now))?;
                }
                _ => f.write_char('\n')?,
            }
        }
        Ok(())
    }
}

impl KeyFacts {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = match self.keys.as_slice() {
            [] => "none".to_owned(),
            keys => keys.join(", "),
        };
        write!(f, "keys      {keys}")?;
        if let Some(age) = self.age_seconds {
            write!(f, ", fetched {age} s ago")?;
        }
        f.write_char('\n')?;
        let mut skipped = self.skipped.iter();
        skipped.try_for_each(|key| writeln!(f, "not used  {}", Plain(key)))
    }
}

/// Parses a time of the command line: seconds since the epoch, or RFC 3339.
///
/// # Errors
/// The expected form.
pub fn parse_moment(text: &str) -> Result<i64, &'static str> {
    text.parse().or_else(|_| {
        OffsetDateTime::parse(text, &Rfc3339)
            .map(OffsetDateTime::unix_timestamp)
            .map_err(|_| "expected seconds since the epoch, or a time as 2026-01-31T12:00:00Z")
    })
}

/// Formats a time as RFC 3339 in UTC, or as the number itself outside of the calendar.
pub fn moment(seconds: i64) -> String {
    OffsetDateTime::from_unix_timestamp(seconds)
        .ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| seconds.to_string())
}

fn distance(time: i64, now: i64) -> String {
    let seconds = time.saturating_sub(now);
    let duration = duration(seconds.unsigned_abs());
    if seconds >= 0 {
        format!("in {duration}")
    } else {
        format!("{duration} ago")
    }
}

/// Formats a duration in its two largest units: `3 min 20 s`.
fn duration(seconds: u64) -> String {
    match (
        seconds / 86_400,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    ) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

/// Untrusted text, printed without the control characters that a terminal would obey.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '"' | '\'' | '\\' => f.write_char(character),
            character => write!(f, "{}", character.escape_debug()),
        })
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
            verdict: Verdict::rejected(Rejection::TokenExpired),
            request: Some("GET /orders/1".into()),
            ..Explanation::default()
        };
        explanation.checked("signature", Ok(()));
        explanation.checked("times", Err(Rejection::TokenExpired));
        explanation.show_token("eyJhbGciOiJFUzI1NiJ9.eyJleHAiOjQwfQ.c2lnbmF0dXJl");
        let text = explanation.to_string();
        for line in [
            "verdict   refused: 401 token_expired, at 1970-01-01T00:01:40Z",
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
    fn a_time_is_a_number_or_a_date() {
        assert_eq!(parse_moment("100"), Ok(100));
        assert_eq!(parse_moment("1970-01-01T01:01:40+01:00"), Ok(100));
        assert!(parse_moment("yesterday").is_err());
    }

    #[test]
    fn text_of_an_attacker_cannot_control_a_terminal() {
        let explanation = Explanation {
            request: Some("GET /\u{1b}[2J\u{202e}".into()),
            ..Explanation::default()
        };
        let text = explanation.to_string();
        assert!(text.contains("/\\u{1b}[2J\\u{202e}"), "{text}");
    }
}
