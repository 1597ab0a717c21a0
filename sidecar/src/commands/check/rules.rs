//! The paths of each rule, and disguises of them, with a good token that lacks its claims.

use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use runtime::process::exit::ExitError;
use serde_json::Value;
use wire::keys::{KeySet, VerificationKey};
use wire::rejection::Rejection;

use super::Outcome;
use super::attacks::{Attacks, KeyRows, authorize_method, unusable};
use super::paths::PublicPaths;
use crate::auth::authorize::AuthPolicy;
use crate::cli::policy_args::RulesArgs;
use crate::cli::rule_args::RuleTable;
use crate::config::example;
use crate::keys::current::CurrentKeys;

/// Requests the paths of each rule. A rule that the token of the table satisfies is left out.
///
/// # Errors
/// [`ExitError::Software`] for an unusable table.
pub(super) fn attack(
    settings: &RulesArgs,
    rules: &AuthPolicy,
    attacks: &Attacks,
) -> Result<Outcome, ExitError> {
    let mut outcome = Outcome::default();
    let Some(key) = attacks.key.first().filter(|_| !settings.rule.is_empty()) else {
        return Ok(outcome);
    };
    let payload = payload(&key.good)?;
    let keys = keys(key)?;
    let rules = accepting(rules, &payload);
    let lines = [format!("Authorization: Bearer {}", key.good)];
    let open = PublicPaths::new(settings, &attacks.path)?;
    let state = keys.load();
    let state = state.as_deref().ok_or(Rejection::AuthKeysUnavailable);
    for table in settings.rule.iter().filter(|table| lacks(table, &payload)) {
        let method = table.methods.as_ref().and_then(|methods| methods.first());
        let method = method.map_or("GET", String::as_str);
        // Some services put methods into capitals.
        let methods = [method.to_owned(), method.to_ascii_lowercase()];
        let patterns = table.paths.iter().map(String::as_str);
        let targets: Vec<_> = patterns
            .flat_map(|pattern| targets(&open, pattern))
            .collect();
        for (method, target) in methods
            .iter()
            .flat_map(|method| targets.iter().map(move |target| (method, target)))
        {
            match authorize_method(&rules, method, target, &lines, state, attacks.issued) {
                Err(_) => outcome.count(true),
                Ok(_) => outcome.surprises.push(format!(
                    "{method} {}: passes without what its rule needs",
                    target.escape_default()
                )),
            }
        }
    }
    Ok(outcome)
}

/// A path of the pattern and its disguises, except those that are open on purpose.
fn targets(open: &PublicPaths<'_>, pattern: &str) -> Vec<String> {
    let path = example(pattern).replace(' ', "%20");
    if open.holds(&path) {
        return Vec::new();
    }
    let mut targets = vec![open.full(&path)];
    targets.extend(open.spellings(&path));
    targets.extend(open.near_misses(&path));
    targets
}

/// Lets the token of the table pass every check but the rules.
fn accepting(rules: &AuthPolicy, payload: &Value) -> AuthPolicy {
    let mut rules = rules.only(rules.policy.clone());
    let issuer = payload.get("iss").and_then(Value::as_str);
    rules.policy.issuer = issuer.map(ToOwned::to_owned);
    rules.policy.audiences.clear();
    rules.policy.mapping = None;
    rules
}

pub(super) fn keys(key: &KeyRows) -> Result<CurrentKeys, ExitError> {
    let signing_type = key.signing_type.parse().map_err(|error| unusable(&error))?;
    let trusted =
        VerificationKey::parse(signing_type, &key.key).map_err(|error| unusable(&error))?;
    let keys = CurrentKeys::default();
    keys.install(KeySet::nameless(trusted), Instant::now());
    Ok(keys)
}

pub(super) fn payload(token: &str) -> Result<Value, ExitError> {
    let part = token.split('.').nth(1).unwrap_or_default();
    let json = URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|error| unusable(&error))?;
    serde_json::from_slice(&json).map_err(|error| unusable(&error))
}

/// Returns true if the rule requires something that the payload does not even name.
fn lacks(table: &RuleTable, payload: &Value) -> bool {
    let has = |name: &str| match name.strip_prefix('/') {
        Some(_) => payload.pointer(name).is_some(),
        None => payload.get(name).is_some(),
    };
    let lacks_scope = table.scope.is_some() && !has("scope") && !has("scp");
    let mut claims = table.claims.iter().flatten().map(|(name, _)| name);
    // The token of the table is of no configured issuer.
    table.issuer.is_some() || lacks_scope || claims.any(|name| !has(name))
}
