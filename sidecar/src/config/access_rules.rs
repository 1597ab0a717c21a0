//! `[[rule]]` of the file: which methods and paths need which scope and claims.

use std::collections::BTreeMap;
use std::fmt::Display;

use postern_contract::interceptor::USER_DETAILS_PATH;
use postern_contract::rules::{
    AccessRules, MAX_RULES, RequiredClaim, Requirement, Rule, Unmatched,
};
use postern_http::folding::folded;
use postern_http::methods::Methods;
use postern_http::path::canonical::unescaped;
use postern_http::path::patterns::{PassList, PathPattern};
use postern_process::exit::ExitError;
use postern_token::policy::RequiredIssuer;
use postern_token::strict_json::{Value, is_whole};

use super::dotted_claims::dot_warning;
use crate::cli::policy_args::RulesArgs;
use crate::cli::rule_args::{ClaimValue, RuleTable};
use crate::decision::issuers::Issuers;
use crate::decision::policy::AuthPolicy;

/// Max length of a rule's name, which is the label of a metric.
const MAX_NAME_BYTES: usize = 64;
/// The claim that names the issuer (RFC 7519 §4.1.1).
const ISSUER: &str = "iss";

/// Returns the rules. A rule may name some of the `issuers`; `open` holds the paths of --public-path, which no
/// rule may cover.
///
/// # Errors
/// [`ExitError::Config`] with one line that names the rule and the member.
pub(super) fn access_rules(
    args: &RulesArgs,
    issuers: &Issuers,
    open: &PassList,
) -> Result<AccessRules, ExitError> {
    if args.default_rule == Unmatched::Deny && args.rule.is_empty() {
        return Err(ExitError::Config(
            "`default-rule` deny: without a [[rule]] every request is rejected".to_owned(),
        ));
    }
    if args.rule.len() > MAX_RULES {
        return Err(ExitError::Config(format!(
            "[[rule]]: there are more than {MAX_RULES}"
        )));
    }
    // In the form in which rules match: a pattern may open a path in another spelling.
    let open = open.loosened();
    let mut rules: Vec<Rule> = Vec::new();
    for (index, table) in args.rule.iter().enumerate() {
        let position = Position(index + 1);
        let rule = rule(position, table, issuers)?;
        if rules.iter().any(|other| other.name == rule.name) {
            return Err(position.reject("name", "is another rule's already"));
        }
        for path in &rule.paths {
            if is_passed(&open, &rule, path) {
                let path = path.as_str();
                let why = format!("'{path}': --public-path opens it, so no token is read there");
                return Err(position.reject("paths", why));
            }
        }
        rules.push(rule);
    }
    Ok(AccessRules::new(rules, args.default_rule))
}

/// The place of a rule in the file, counted from one.
#[derive(Debug, Clone, Copy)]
struct Position(usize);

impl Position {
    fn reject(self, member: &str, why: impl Display) -> ExitError {
        ExitError::Config(format!("[[rule]] {}: `{member}` {why}", self.0))
    }

    /// Returns the members of a list; no members if the list is left out.
    fn members<'t, T>(self, member: &str, list: Option<&'t Vec<T>>) -> Result<&'t [T], ExitError> {
        match list.map(Vec::as_slice) {
            Some([]) => Err(self.reject(member, "is empty: list at least one")),
            list => Ok(list.unwrap_or_default()),
        }
    }
}

fn rule(position: Position, table: &RuleTable, issuers: &Issuers) -> Result<Rule, ExitError> {
    let names = position.members("paths", Some(&table.paths))?;
    let (name, methods) = (name(position, table)?, methods(position, table)?);
    let mut paths = Vec::new();
    for path in names {
        match path.parse::<PathPattern>() {
            Ok(pattern) => paths.push(pattern),
            Err(error) => return Err(position.reject("paths", format!("'{path}': {error}"))),
        }
    }
    let scope = scope(position, table)?;
    let mut required = Vec::from_iter(issuer(position, table, issuers)?);
    required.extend(claims(position, table)?);
    Ok(Rule {
        name,
        methods,
        paths,
        requirement: Requirement {
            scope,
            claims: required,
        },
    })
}

/// Returns the name of a rule, by default `rule-` with its position.
fn name(position: Position, table: &RuleTable) -> Result<String, ExitError> {
    let Some(name) = &table.name else {
        return Ok(format!("rule-{}", position.0));
    };
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(may_be_in_rule_name) {
        return Err(position.reject(
            "name",
            format!("has up to {MAX_NAME_BYTES} letters, digits, '-', '.' and '_'"),
        ));
    }
    Ok(name.clone())
}

fn may_be_in_rule_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._".contains(&byte)
}

fn methods(position: Position, table: &RuleTable) -> Result<Methods, ExitError> {
    match position.members("methods", table.methods.as_ref())? {
        [] => Ok(Methods::default()),
        names => Methods::parse(names.iter().map(String::as_str))
            .map_err(|error| position.reject("methods", error)),
    }
}

fn scope(position: Position, table: &RuleTable) -> Result<Vec<String>, ExitError> {
    let scopes = position.members("scope", table.scope.as_ref())?;
    for scope in scopes {
        if scope.is_empty() || !scope.bytes().all(may_be_in_scope) {
            return Err(position.reject("scope", format!("'{scope}': is not one scope")));
        }
    }
    Ok(scopes.to_vec())
}

/// Returns true for the characters of a scope (RFC 6749 §3.3), which the challenge quotes.
fn may_be_in_scope(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~') && !b"\"\\".contains(&byte)
}

/// Returns the verified `iss` of the named issuers as a claim of which the token needs one value.
fn issuer(
    position: Position,
    table: &RuleTable,
    issuers: &Issuers,
) -> Result<Option<RequiredClaim>, ExitError> {
    let names = position.members("issuer", table.issuer.as_ref())?;
    if names.is_empty() {
        return Ok(None);
    }
    let mut values = Vec::new();
    for name in names {
        let former = values.len();
        for policy in issuers.iter().map(|issuer| &issuer.policy) {
            if policy.name.as_ref() != Some(name) {
                continue;
            }
            match &policy.issuer {
                // Each table has `issuer` or `no-issuer`.
                RequiredIssuer::Any => {}
                RequiredIssuer::Absent => values.push(Value::Null),
                RequiredIssuer::Is(issuer) => values.push(Value::from(issuer.as_str())),
            }
        }
        if values.len() == former {
            return Err(position.reject("issuer", format!("'{name}': no [[issuer]] has this name")));
        }
    }
    Ok(Some(RequiredClaim {
        text: ISSUER.to_owned(),
        name: ISSUER
            .parse()
            .map_err(|error| position.reject("issuer", error))?,
        values,
        by_words: false,
    }))
}

fn claims(position: Position, table: &RuleTable) -> Result<Vec<RequiredClaim>, ExitError> {
    let no_claims = BTreeMap::new();
    let claims = match &table.claims {
        Some(claims) if claims.is_empty() => {
            return Err(position.reject("claims", "is empty: list at least one"));
        }
        Some(claims) => claims,
        None => &no_claims,
    };
    let words = position.members("words", table.words.as_ref())?;
    for name in words {
        if !claims.contains_key(name) {
            return Err(position.reject("words", format!("'{name}': `claims` has no such claim")));
        }
    }
    let mut required = Vec::new();
    for (name, values) in claims {
        let member = format!("claims.{name}");
        position.members(&member, Some(values))?;
        if !values.iter().all(is_usable) {
            let why =
                "has an empty value, or one with U+FFFD, which stands for any half of a character";
            return Err(position.reject(&member, why));
        }
        required.push(RequiredClaim {
            text: name.clone(),
            name: name
                .parse()
                .map_err(|error| position.reject(&member, error))?,
            values: values.iter().map(value).collect(),
            by_words: words.contains(name),
        });
    }
    Ok(required)
}

fn is_usable(value: &ClaimValue) -> bool {
    match value {
        ClaimValue::Text(text) => !text.is_empty() && is_whole(text),
        _ => true,
    }
}

fn value(value: &ClaimValue) -> Value {
    match value {
        ClaimValue::Text(text) => Value::from(text.as_str()),
        ClaimValue::Integer(number) => Value::Number((*number).into()),
        ClaimValue::Boolean(on) => Value::Bool(*on),
    }
}

/// Returns true for a path that a list of patterns, loosened as rules are, opens to all methods of
/// the rule.
fn is_passed(open: &PassList, rule: &Rule, path: &PathPattern) -> bool {
    examples(path)
        .iter()
        .all(|path| is_open(open, &rule.methods, &folded(&unescaped(path))))
}

/// Returns true if a pass list opens `path` to all of these methods.
fn is_open(list: &PassList, methods: &Methods, path: &str) -> bool {
    if methods.are_all() {
        return list.find_for(None, path).is_some();
    }
    methods
        .each()
        .all(|method| list.find_for(Some(method), path).is_some())
}

/// Returns a pattern without its methods.
pub(crate) fn path_of(pattern: &str) -> &str {
    match pattern.find('/') {
        Some(start) => &pattern[start..],
        None => pattern,
    }
}

/// Returns two paths of a pattern; no other pattern without wildcards matches both.
pub(crate) fn examples(path: &PathPattern) -> [String; 2] {
    ["postern-probe", "another"].map(|name| path.example(name, "q"))
}

/// Returns warnings about rules that do not do what they seem to.
pub(super) fn warnings(args: &RulesArgs, policy: &AuthPolicy) -> Vec<String> {
    // In the form in which rules match, as above.
    let optional = policy.interceptor.optional().loosened();
    let mut names = policy.issuers.iter().map(|issuer| &issuer.policy.name);
    let first = names.next();
    let are_several = names.any(|name| Some(name) != first);
    let mut warnings = Vec::new();
    for rule in policy.access_rules.rules() {
        let mut warn = |why: &str| warnings.push(format!("[[rule]] {}: {why}", rule.name));
        if rule
            .paths
            .iter()
            .all(|path| path.as_str() == USER_DETAILS_PATH)
        {
            warn("no request reaches it: the sidecar serves this path itself");
        }
        if rule.requirement == Requirement::default() && args.default_rule == Unmatched::Token {
            warn("has neither scope nor claims, so a token is enough, as without the rule");
        }
        let names_issuer = rule
            .requirement
            .claims
            .iter()
            .any(|claim| claim.text == ISSUER);
        if are_several && !names_issuer && rule.requirement != Requirement::default() {
            warn(
                "has no `issuer`, so a token of any issuer with this scope and these claims satisfies it",
            );
        }
        for path in &rule.paths {
            let text = path.as_str();
            if let Some(why) = misread(text, &args.app_name) {
                warn(&format!("'{text}': {why}"));
            }
            if is_passed(&optional, rule, path) {
                warn(&format!(
                    "'{text}': --optional-auth-path lists it, so without a token it is open"
                ));
            }
        }
        for claim in &rule.requirement.claims {
            if let Some(why) = dot_warning(&claim.text) {
                warn(&format!("'{}': {why}", claim.text));
            }
        }
    }
    warnings
}

/// Returns the warning about a pattern that matches other paths than it seems to, so that its rule protects
/// nothing.
fn misread(pattern: &str, app_name: &str) -> Option<String> {
    let rest = pattern
        .strip_prefix('/')
        .and_then(|path| path.strip_prefix(app_name));
    if !app_name.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
        return Some(format!(
            "patterns are relative to the context path: this lists /{app_name}{pattern}"
        ));
    }
    let (_, query) = pattern.split_once('?')?;
    if !query.contains('=') {
        return None;
    }
    Some("the query of a request is never compared: ? is any one character of the path".to_owned())
}
