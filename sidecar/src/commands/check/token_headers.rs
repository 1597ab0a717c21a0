//! A good token of each issuer in every place of a token, where tables name token headers: it is
//! accepted in its own place alone.

use std::sync::Arc;
use std::time::Instant;

use runtime::process::exit::ExitError;
use serde_json::Value;
use wire::rejection::Rejection;
use wire::token::verifier::VerificationPolicy;

use super::Outcome;
use super::attacks::{Attacks, authorize};
use super::rules::{keys, payload};
use super::tokens::{reason_of, usual_locations};
use crate::auth::authorize::AuthPolicy;
use crate::cli::ServeArgs;
use crate::keys::issuer_keys::{IssuerKeys, NamedKeys};

/// Tries all places on the rules of all issuers, which trust the same key for this.
///
/// # Errors
/// [`ExitError::Software`] for an unusable table.
pub(super) fn attack(
    args: &ServeArgs,
    rules: &AuthPolicy,
    (attacks, targets): (&Attacks, &[String]),
    outcome: &mut Outcome,
) -> Result<(), ExitError> {
    let named = |rules: &&AuthPolicy| {
        let issuers = rules.issuers();
        issuers.is_some_and(|issuers| !issuers.token_headers().is_empty())
    };
    let (Some(rules), Some(key)) = (Some(rules).filter(named), attacks.key.first()) else {
        return Ok(());
    };
    let Some(issuers) = rules.issuers() else {
        return Ok(());
    };
    let payload = payload(&key.good)?;
    let keys = Arc::new(keys(key)?);
    let of_one = || NamedKeys {
        name: None,
        keys: Arc::clone(&keys),
    };
    for issuer in issuers.iter() {
        let trusted = IssuerKeys::new((0..=issuer.keys).map(|_| of_one()).collect());
        let trial = rules.clone().with_issuers(
            issuers
                .clone()
                .with_policy(issuer.keys, &accepting(rules, &payload)),
        );
        let header =
            |name: &http::HeaderName| (Some(name.clone()), format!("{name}: {}", key.good));
        let usual = usual_locations(&args.rules.tokens, &key.good).into_iter();
        let locations = usual.map(|lines| (None, lines));
        let headers = issuers.token_headers().iter().map(header);
        for (location, lines) in locations.chain(headers.map(|(name, line)| (name, vec![line]))) {
            let reason = |target: &String| {
                let keys = trusted.at(Instant::now());
                reason_of(authorize(&trial, target, &lines, keys, attacks.issued))
            };
            let found: Vec<_> = targets.iter().map(reason).collect();
            let is_own = location == issuer.token_header;
            let expected = (!is_own).then_some(Rejection::TokenIssuer.reason());
            let location = location.map_or("a usual place".to_owned(), |name| name.to_string());
            let name = format!("a token of {} in {location}", issuer.name);
            outcome.compare(&name, &found, expected);
        }
    }
    Ok(())
}

/// The rules of an issuer to which the token of the table belongs.
fn accepting(rules: &AuthPolicy, payload: &Value) -> VerificationPolicy {
    let issuer = payload.get("iss").and_then(Value::as_str);
    VerificationPolicy {
        issuer: issuer.map(ToOwned::to_owned),
        audiences: Vec::new(),
        mapping: None,
        ..rules.policy.clone()
    }
}
