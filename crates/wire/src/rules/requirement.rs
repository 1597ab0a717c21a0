//! The conditions of a rule for a token: one of some scopes, and one value of each of some claims.

use std::fmt;

use serde_json::Value;

use super::RuleVerdict;
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
    /// Texts, integers or booleans.
    pub values: Vec<Value>,
}

impl Requirement {
    /// Returns the claims to compare, in the order of [`Self::verdict`].
    pub(super) fn claim_names(&self) -> impl Iterator<Item = ClaimName> {
        let scopes = SCOPES.iter().filter(|_| !self.scope.is_empty());
        let scopes = scopes.map(|name| ClaimName::top_level(name));
        scopes.chain(self.claims.iter().map(|claim| claim.name.clone()))
    }

    /// Compares the claims of a token.
    pub(super) fn verdict(&self, claims: &[Option<&Value>]) -> RuleVerdict {
        let (scopes, claims) = self.split(claims);
        let has_scope = |scope: &String| scopes.iter().flatten().any(|found| holds(found, scope));
        if !self.scope.is_empty() && !self.scope.iter().any(has_scope) {
            return RuleVerdict::LacksScope;
        }
        for (position, required) in self.claims.iter().enumerate() {
            let found = claims.get(position).copied().flatten();
            if !found.is_some_and(|found| required.is_satisfied_by(found)) {
                return RuleVerdict::LacksClaim;
            }
        }
        RuleVerdict::Holds
    }

    /// Describes what the claims hold.
    pub(super) fn found(&self, claims: &[Option<&Value>]) -> String {
        let (scopes, claims) = self.split(claims);
        let scopes = SCOPES.iter().map(|name| (*name).to_owned()).zip(scopes);
        let names = self.claims.iter().map(|claim| claim.text.clone());
        let each = scopes.chain(names.zip(claims));
        let present = each.filter_map(|(name, value)| Some(format!("{name} = {}", (*value)?)));
        match present.collect::<Vec<_>>().join(", ") {
            nothing if nothing.is_empty() => "none of these claims".to_owned(),
            found => found,
        }
    }

    fn split<'c, 'v>(
        &self,
        claims: &'c [Option<&'v Value>],
    ) -> (&'c [Option<&'v Value>], &'c [Option<&'v Value>]) {
        let scopes = if self.scope.is_empty() {
            0
        } else {
            SCOPES.len()
        };
        claims.split_at_checked(scopes).unwrap_or_default()
    }
}

/// Returns true if a claim with scopes, a text with blanks between them or a list, has this one.
fn holds(claim: &Value, scope: &str) -> bool {
    match claim {
        Value::String(scopes) => scopes.split(' ').any(|found| found == scope),
        Value::Array(scopes) => scopes.iter().any(|found| found == scope),
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
