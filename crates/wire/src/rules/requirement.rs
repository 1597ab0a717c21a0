//! The conditions of a rule for a token: one of some scopes, and one value of each of some claims.

use std::fmt;

use super::RuleVerdict;
use crate::strict_json::Value;
use crate::token::claim_name::ClaimName;

/// The claims that hold scopes: RFC 8693 §4.2, and what Entra and Okta send.
const SCOPES: [&str; 2] = ["scope", "scp"];

/// The conditions; none are satisfied by every token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requirement {
    /// The scopes of which the token needs one; none are not checked.
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
    /// Texts, integers or booleans; null for a claim that is not there.
    pub values: Vec<Value>,
}

impl Requirement {
    /// Returns the claims to compare.
    pub(super) fn claims(&self) -> impl Iterator<Item = ClaimName> {
        let scopes = SCOPES.iter().filter(|_| !self.scope.is_empty());
        let scopes = scopes.map(|name| ClaimName::top_level(name));
        scopes.chain(self.claims.iter().map(|claim| claim.name.clone()))
    }

    /// Compares the claims of a token, which `find` returns.
    pub(super) fn verdict<'v>(
        &self,
        find: impl Fn(&ClaimName) -> Option<&'v Value>,
    ) -> RuleVerdict {
        let has_scope = |name: &&str| {
            let found = find(&ClaimName::top_level(name));
            found.is_some_and(|found| self.scope.iter().any(|scope| holds(found, scope)))
        };
        if !self.scope.is_empty() && !SCOPES.iter().any(has_scope) {
            return RuleVerdict::LacksScope;
        }
        let is_satisfied = |required: &RequiredClaim| {
            required.is_satisfied_by(find(&required.name).unwrap_or_default())
        };
        match self.claims.iter().all(is_satisfied) {
            true => RuleVerdict::Holds,
            false => RuleVerdict::LacksClaim,
        }
    }

    /// Describes what the claims of a token hold, which `find` returns.
    pub(super) fn found<'v>(&self, find: impl Fn(&ClaimName) -> Option<&'v Value>) -> String {
        let found = |name: ClaimName| Some(format!("{name} = {}", find(&name)?));
        match self
            .claims()
            .filter_map(found)
            .collect::<Vec<_>>()
            .join(", ")
        {
            nothing if nothing.is_empty() => "none of these claims".to_owned(),
            found => found,
        }
    }
}

/// Returns true if a claim with scopes, a text with blanks between them or a list, has this one.
fn holds(claim: &Value, scope: &str) -> bool {
    match claim {
        Value::String(scopes) => scopes.split(' ').any(|found| found == scope),
        Value::Array(scopes) => scopes.iter().any(|found| found.as_str() == Some(scope)),
        _ => false,
    }
}

impl RequiredClaim {
    /// Compares a claim, or each member of a list. Types have to agree: `"1"` is not `1`.
    fn is_satisfied_by(&self, claim: &Value) -> bool {
        match claim {
            Value::Array(members) => members.iter().any(|member| self.values.contains(member)),
            single => self.values.contains(single),
        }
    }
}

/// Writes the conditions for people.
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut conditions = Vec::new();
        if !self.scope.is_empty() {
            conditions.push(format!("scope {}", self.scope.join(" or ")));
        }
        for RequiredClaim { text, values, .. } in &self.claims {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            conditions.push(format!("{text} = {}", values.join(" or ")));
        }
        match conditions.join(", and ") {
            nothing if nothing.is_empty() => f.write_str("a valid token"),
            conditions => f.write_str(&conditions),
        }
    }
}
