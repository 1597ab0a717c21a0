//! Rules: requests with these methods and paths need a token with these scopes and claims.
//!
//! The claims are compared once, when a token is verified: [`AccessRules::verdicts`] can be remembered with
//! the token. A request is compared by method and path alone. Every rule that matches has to hold, so that no
//! rule hides another.

mod requirement;

use std::collections::BTreeSet;

use http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::rejection::Rejection;
use postern_http::methods::{Methods, certain_method};
use postern_http::path::canonical::RequestPath;
use postern_http::path::destination::Destination;
use postern_http::path::loose::{AnyPath, LoosePath};
use postern_http::path::patterns::{ContextPath, PassList, PathPattern, TooManySteps};
use postern_token::claims::name::ClaimName;
use postern_token::strict_json::{Map, Value};

pub use self::requirement::{RequiredClaim, Requirement};

/// Max number of rules: a larger table is better kept in a policy engine. The number also bounds the verdicts
/// of a remembered token.
pub const MAX_RULES: usize = 256;

/// A rule for requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The name in metrics and explanations.
    pub name: String,
    /// The methods of requests that the rule is for.
    pub methods: Methods,
    /// The paths of requests that the rule is for, relative to the context path.
    pub paths: Vec<PathPattern>,
    /// The conditions of a token.
    pub requirement: Requirement,
}

/// The fate of a request with a valid token that no rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unmatched {
    /// The token is enough.
    #[default]
    Token,
    /// The request is rejected.
    Deny,
}

/// The result of one rule for one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleVerdict {
    /// The token satisfies the rule.
    Holds,
    /// The token has none of the scopes.
    LacksScope,
    /// A claim of the token has none of the values.
    LacksClaim,
}

/// A rejection by a rule, or by the lack of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    /// The reason.
    pub rejection: Rejection,
    /// The place of the rule among [`AccessRules::rules`].
    pub rule: Option<usize>,
}

/// The request of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct RuleRequest<'r> {
    /// The method of the request line.
    pub method: &'r Method,
    /// All fields.
    pub headers: &'r HeaderMap,
    /// The raw path without the query.
    pub path: &'r [u8],
}

impl<'r> RuleRequest<'r> {
    /// Returns the path, and the destination if there is one; `None` for a malformed destination.
    fn paths(&self) -> impl Iterator<Item = Option<&'r [u8]>> {
        let destination = match Destination::from_request(self.method, self.headers) {
            Ok(None) => None,
            Ok(Some(destination)) => Some(Some(destination.path)),
            Err(_) => Some(None),
        };
        std::iter::once(Some(self.path)).chain(destination)
    }
}

/// The configured rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessRules {
    rules: Vec<Rule>,
    unmatched: Unmatched,
    /// The paths as written: only these let a request pass where the default is to deny.
    exact: PassList,
    /// The paths in every spelling: these, too, restrict a request.
    loose: PassList,
    /// The rule of each pattern of both lists.
    owners: Vec<usize>,
    /// The claims of all rules, each once, sorted.
    claims: Vec<ClaimName>,
    /// True if a rule is for some methods only.
    depends_on_method: bool,
}

type Positions = SmallVec<[usize; 16]>;

impl AccessRules {
    /// Prepares the rules, in order.
    pub fn new(rules: Vec<Rule>, unmatched: Unmatched) -> Self {
        let (mut owners, mut claims) = (Vec::new(), BTreeSet::new());
        for (position, rule) in rules.iter().enumerate() {
            owners.extend(std::iter::repeat_n(position, rule.paths.len()));
            claims.extend(rule.requirement.claims());
        }
        let paths = rules.iter().flat_map(|rule| &rule.paths).cloned();
        Self {
            exact: paths.clone().collect(),
            loose: paths.map(PathPattern::loosened).collect(),
            owners,
            claims: claims.into_iter().collect(),
            depends_on_method: rules.iter().any(|rule| !rule.methods.are_all()),
            unmatched,
            rules,
        }
    }

    /// Returns the rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the fate of requests without a rule.
    pub const fn unmatched(&self) -> Unmatched {
        self.unmatched
    }

    /// Returns the claims that [`Self::verdicts`] compares, in its order.
    pub fn claims(&self) -> &[ClaimName] {
        &self.claims
    }

    /// Compares the claims of a verified token, in the order of [`Self::claims`], with each rule.
    pub fn verdicts(&self, claims: &[Option<Value>]) -> Box<[RuleVerdict]> {
        let find = |name: &ClaimName| claims.get(self.claims.binary_search(name).ok()?)?.as_ref();
        self.rules
            .iter()
            .map(|rule| rule.requirement.verdict(find))
            .collect()
    }

    /// Compares a request whose token has these verdicts.
    ///
    /// # Errors
    /// The first rule that is for the request and does not hold.
    pub fn check(
        &self,
        request: RuleRequest<'_>,
        context: &ContextPath,
        verdicts: &[RuleVerdict],
    ) -> Result<(), Broken> {
        if self.rules.is_empty() {
            return Ok(());
        }
        // Before the loose comparison, which restricts requests and never lets one pass.
        if self.unmatched == Unmatched::Deny && !self.has_exact_rule(request, context) {
            return Err(Broken {
                rejection: Rejection::NoRule,
                rule: None,
            });
        }
        for rule in self.matching(request, context) {
            // Without verdicts the claims of the token are not known.
            let rejection = match verdicts.get(rule) {
                Some(RuleVerdict::Holds) => continue,
                Some(RuleVerdict::LacksScope) => Rejection::InsufficientScope,
                Some(RuleVerdict::LacksClaim) | None => Rejection::ClaimNotAllowed,
            };
            return Err(Broken {
                rejection,
                rule: Some(rule),
            });
        }
        Ok(())
    }

    /// Returns the scopes that a request with these verdicts lacks, one alternative of each rule that is for
    /// the request; without verdicts all scopes are missing.
    pub fn missing_scopes(
        &self,
        request: RuleRequest<'_>,
        context: &ContextPath,
        verdicts: &[RuleVerdict],
    ) -> Vec<&str> {
        let mut missing: Vec<&str> = Vec::new();
        for position in self.matching(request, context) {
            if !matches!(verdicts.get(position), None | Some(RuleVerdict::LacksScope)) {
                continue;
            }
            let Some(rule) = self.rules.get(position) else {
                continue;
            };
            // Another rule may need the same scope.
            let is_named = |scope: &String| missing.contains(&scope.as_str());
            if !rule.requirement.scope.iter().any(is_named) {
                missing.extend(rule.requirement.scope.first().map(String::as_str));
            }
        }
        missing
    }

    /// Returns true if a rule is written for this very method and path, and one for the destination. A path
    /// that a rule restricts only in another spelling does not pass: for the service it may be another path.
    fn has_exact_rule(&self, request: RuleRequest<'_>, context: &ContextPath) -> bool {
        for path in request.paths() {
            match path {
                Some(path) if self.names_path(request, path, context) => {}
                _ => return false,
            }
        }
        true
    }

    fn names_path(&self, request: RuleRequest<'_>, raw: &[u8], context: &ContextPath) -> bool {
        let Ok(path) = RequestPath::parse(raw) else {
            return false;
        };
        let method = certain_method(request.method, request.headers);
        let is_for = |rule: &Rule| match method {
            Some(_) => rule.methods.may_be(method),
            None => rule.methods.are_all(),
        };
        let Some(relative) = context.strip(&path) else {
            if !context.surrounds(&path) {
                return false;
            }
            // A rule for everything is written for the path, whatever path programs read in it.
            let names_all = |rule: &Rule| rule.paths.iter().any(PathPattern::is_everything);
            return self
                .rules
                .iter()
                .any(|rule| is_for(rule) && names_all(rule));
        };
        let mut found = false;
        let compared = self.exact.each_match(relative, |pattern| {
            if let Some(owner) = self.owners.get(pattern)
                && let Some(rule) = self.rules.get(*owner)
            {
                found |= is_for(rule);
            }
        });
        found && compared.is_ok()
    }

    /// Returns the places of the rules for the path and the destination of a request, in order; of all rules
    /// for a path that could be any.
    pub fn matching(&self, request: RuleRequest<'_>, context: &ContextPath) -> Positions {
        let mut positions = Positions::new();
        for path in request.paths() {
            if self.add_matching(path, context, &mut positions).is_err() {
                // The path could be any, so every rule is for it; the method still selects below.
                positions.extend(0..self.rules.len());
            }
        }
        let method = if self.depends_on_method {
            certain_method(request.method, request.headers)
        } else {
            Some(request.method)
        };
        positions.retain(|position| match self.rules.get(*position) {
            Some(rule) => rule.methods.may_be(method),
            None => false,
        });
        positions.sort_unstable();
        positions.dedup();
        positions
    }

    /// Returns the reason why every rule is for the path or the destination of a request.
    pub fn any_path(&self, request: RuleRequest<'_>, context: &ContextPath) -> Option<AnyPath> {
        for path in request.paths() {
            if let Err(why) = self.add_matching(path, context, &mut Positions::new()) {
                return Some(why);
            }
        }
        None
    }

    /// Adds the places of the rules for a path, as it is written and in every spelling.
    fn add_matching(
        &self,
        raw: Option<&[u8]>,
        context: &ContextPath,
        positions: &mut Positions,
    ) -> Result<(), AnyPath> {
        let path = RequestPath::parse(raw.unwrap_or_default()).map_err(|_| AnyPath::Malformed)?;
        let loose = LoosePath::below(&path, context)?;
        let mut found = |pattern| positions.extend(self.owners.get(pattern).copied());
        let mut compared = Ok(());
        if let Some(path) = context.strip(&path) {
            compared = self.exact.each_match(path, &mut found);
        }
        // A service may read the path more loosely than it is written: each spelling counts.
        loose.each_spelling(|path| {
            if compared.is_ok() {
                compared = self
                    .loose
                    .each_loose_match(path, loose.is_expanded(), &mut found);
            }
        });
        compared.map_err(|TooManySteps| AnyPath::TooManySteps)
    }

    /// Describes a rule and the claims that a payload has for it, for an explanation.
    pub fn describe(&self, rule: usize, payload: &Map) -> Option<String> {
        let rule = self.rules.get(rule)?;
        let find = |name: &ClaimName| name.find(payload);
        let sign = match rule.requirement.verdict(find) {
            RuleVerdict::Holds => '✓',
            _ => '✗',
        };
        let Rule {
            name, requirement, ..
        } = rule;
        let found = requirement.describe_found(find);
        Some(format!("{sign} {name}: needs {requirement}; found {found}"))
    }
}

#[cfg(test)]
mod tests;
