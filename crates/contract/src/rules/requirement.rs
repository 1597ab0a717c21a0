//! The conditions of a rule for a token: one of some scopes, and one value of each of some claims.

use std::fmt;

use super::RuleVerdict;
use postern_token::claims::name::ClaimName;
use postern_token::strict_json::Value;

/// The claims that hold scopes: the one of RFC 8693 §4.2, and the one that Entra and Okta send.
const SCOPES: [&str; 2] = ["scope", "scp"];

/// The conditions of a rule; every token satisfies an empty requirement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requirement {
    /// The scopes of which the token needs one; an empty list is not checked.
    pub scope: Vec<String>,
    /// The claims of which each needs one of its values.
    pub claims: Vec<RequiredClaim>,
}

/// A claim and the values of which it needs one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredClaim {
    /// The name as configured.
    pub text: String,
    /// The claim.
    pub name: ClaimName,
    /// The values: texts, integers or booleans; null for a missing claim.
    pub values: Vec<Value>,
    /// True if each word of a text is compared too.
    pub by_words: bool,
}

impl Requirement {
    /// Returns the claims to compare.
    pub(super) fn claims(&self) -> impl Iterator<Item = ClaimName> {
        let scopes: &[&str] = if self.scope.is_empty() { &[] } else { &SCOPES };
        scopes
            .iter()
            .map(|name| ClaimName::top_level(name))
            .chain(self.claims.iter().map(|claim| claim.name.clone()))
    }

    /// Compares the claims of a token, which `find` returns.
    pub(super) fn verdict<'v>(
        &self,
        find: impl Fn(&ClaimName) -> Option<&'v Value>,
    ) -> RuleVerdict {
        let has_scope = |name: &str| match find(&ClaimName::top_level(name)) {
            Some(claim) => self.scope.iter().any(|scope| has(claim, scope)),
            None => false,
        };
        // One scope of the list is enough, but every claim is required.
        if !self.scope.is_empty() && !SCOPES.into_iter().any(has_scope) {
            return RuleVerdict::LacksScope;
        }
        for required in &self.claims {
            if !required.is_satisfied_by(find(&required.name).unwrap_or_default()) {
                return RuleVerdict::LacksClaim;
            }
        }
        RuleVerdict::Holds
    }

    /// Describes the values of a token's claims, which `find` returns.
    pub(super) fn describe_found<'v>(
        &self,
        find: impl Fn(&ClaimName) -> Option<&'v Value>,
    ) -> String {
        let mut found = Vec::new();
        for name in self.claims() {
            if let Some(value) = find(&name) {
                found.push(format!("{name} = {value}"));
            }
        }
        if found.is_empty() {
            "none of these claims".to_owned()
        } else {
            found.join(", ")
        }
    }
}

/// Returns true if a claim with scopes, a text with blanks between them or a list, has this scope.
fn has(claim: &Value, scope: &str) -> bool {
    match claim {
        Value::String(scopes) => scopes.split(' ').any(|found| found == scope),
        Value::Array(scopes) => scopes.iter().any(|found| found.as_str() == Some(scope)),
        _ => false,
    }
}

impl RequiredClaim {
    /// Compares a claim, each member of a list, or the name of each member of an object. Types have
    /// to agree: `"1"` is not `1`.
    fn is_satisfied_by(&self, claim: &Value) -> bool {
        let has = |text: &str| self.values.iter().any(|value| value.as_str() == Some(text));
        match claim {
            Value::Array(members) => members.iter().any(|member| self.values.contains(member)),
            Value::Object(members) => members.iter().any(|(name, it)| has(name) && is_granted(it)),
            Value::String(text) if self.by_words && text.split(' ').any(has) => true,
            single => self.values.contains(single),
        }
    }
}

/// Returns true if a member of an object grants the right that its name has: `{"admin": false}` does not. A
/// text or a number grants nothing by itself.
fn is_granted(member: &Value) -> bool {
    match member {
        Value::Array(_) | Value::Object(_) => affirms(member),
        _ => *member == Value::Bool(true),
    }
}

/// Returns true if no part of a value denies, and the value is not empty. A text in a list names a right that
/// is held; any other text may be a state, such as "false" or "revoked", unless it is the domain of an
/// organisation by its id.
fn affirms(value: &Value) -> bool {
    let affirms_member = |(name, member): (&String, &Value)| match member {
        Value::String(text) => is_organisation(name) && is_domain(text),
        _ => affirms(member),
    };
    match value {
        Value::Object(members) => !members.is_empty() && members.iter().all(affirms_member),
        Value::Array(items) => !items.is_empty() && items.iter().all(is_held),
        _ => *value == Value::Bool(true),
    }
}

/// Returns true if an item of a list grants a right: a text that names the right, or a value that affirms.
fn is_held(item: &Value) -> bool {
    match item {
        Value::String(right) => !right.is_empty(),
        _ => affirms(item),
    }
}

/// Returns true for the id of an organisation, beside which Zitadel writes its domain.
fn is_organisation(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true for labels with a dot between them, the last one of letters: no number and no time.
fn is_domain(text: &str) -> bool {
    let Some((_, last)) = text.rsplit_once('.') else {
        return false;
    };
    let is_top_level = last.bytes().all(|b| b.is_ascii_alphabetic()) || last.starts_with("xn--");
    text.split('.').all(is_label) && last.len() > 1 && is_top_level
}

fn is_label(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('-') && text.bytes().all(may_be_in_label)
}

fn may_be_in_label(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'-'
}

/// Writes the conditions for people.
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut conditions = Vec::new();
        if !self.scope.is_empty() {
            conditions.push(format!("scope {}", self.scope.join(" or ")));
        }
        for RequiredClaim {
            text,
            values,
            by_words,
            ..
        } in &self.claims
        {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            let how = if *by_words { " as a word" } else { "" };
            conditions.push(format!("{text} = {}{how}", values.join(" or ")));
        }
        if conditions.is_empty() {
            f.write_str("a valid token")
        } else {
            f.write_str(&conditions.join(", and "))
        }
    }
}
