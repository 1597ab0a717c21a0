//! The explainer for settings and a key file, without a running sidecar.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use runtime::files::bounded_read;
use runtime::process::exit::ExitError;
use wire::explain::report::{Explanation, KeyFacts};
use wire::keys::signing_type::SigningType;
use wire::keys::{KeySet, VerificationKey};
use wire::token::claim_mapping::ClaimMapping;
use zeroize::Zeroizing;

use crate::admin::explain::Explainer;
use crate::admin::explain::MAX_BODY_BYTES;
use crate::cli::explain_args::ExplainArgs;
use crate::config;
use crate::config::effective::EffectiveConfig;
use crate::config::issuers::KnownIssuers;
use crate::config::live::{CurrentRules, Rules};
use crate::keys::current::CurrentKeys;
use crate::keys::issuer_keys::IssuerKeys;
use crate::keys::key_response::{KeyResponseError, key_string};
use crate::keys::source::file::{Format, KeyFile};

/// Returns true with a key file.
pub(super) const fn is_requested(args: &ExplainArgs) -> bool {
    args.key_file.is_some() || args.jwks_file.is_some() || args.public_key_file.is_some()
}

/// Returns the explainer for these settings with the keys of a file; `None` without a file.
pub(super) fn explainer(args: &ExplainArgs) -> Result<Option<Explainer>, ExitError> {
    let (keys, mapping) = match (&args.key_file, &args.jwks_file, &args.public_key_file) {
        (Some(file), ..) => (contract_keys(file, args.signing_type)?, None),
        (_, Some(file), _) => issuer(args, file, Format::JwkSet)?,
        (.., Some(file)) => issuer(args, file, Format::Pem)?,
        _ => return Ok(None),
    };
    let current = CurrentKeys::default();
    current.install(keys, Instant::now());
    let upstream = config::upstream_address(&args.service)?;
    let issuers = KnownIssuers::of_tables(&args.issuers);
    Ok(Some(Explainer {
        rules: Arc::new(CurrentRules::new(Rules {
            auth_policy: config::auth_policy(&args.rules, mapping, &upstream, &issuers)?,
            upstream_request: config::upstream_request(&args.rules.upstream_request),
            effective: EffectiveConfig::default(),
            waiting_settings: Vec::new(),
        })),
        keys: Arc::new(IssuerKeys::only(Arc::new(current))),
        correlation: args.tracing.correlation(),
        to_http_2: upstream.speaks_http_2(),
    }))
}

/// Removes the age of the keys: a file has no fetch time.
pub(super) fn of_files(explanation: Explanation) -> Explanation {
    let keys = explanation.keys.map(|facts| KeyFacts {
        keys: facts.keys,
        ..KeyFacts::default()
    });
    Explanation {
        keys,
        ..explanation
    }
}

/// Reads the auth server's keys from a file.
fn contract_keys(file: &Path, signing_type: SigningType) -> Result<KeySet, ExitError> {
    let unusable = |error: &dyn std::fmt::Display| {
        ExitError::Config(format!("--key-file {}: {error}", file.display()))
    };
    let text =
        bounded_read::read_text(file, MAX_BODY_BYTES as u64).map_err(|why| unusable(&why))?;
    keys_of(signing_type, &text).map_err(|error| unusable(&error))
}

/// Parses the key endpoint's response, its key string alone, or a JWK Set.
fn keys_of(signing_type: SigningType, text: &str) -> Result<KeySet, Box<dyn Error>> {
    // A shared secret is in no key set, and may begin with any character.
    let may_be_key_set = signing_type != SigningType::Hmac && text.trim_start().starts_with('{');
    let key = match key_string(StatusCode::OK, text.as_bytes()) {
        Ok(key) => key,
        Err(KeyResponseError::NotAnEnvelope) if may_be_key_set => {
            let allowed = [signing_type.algorithm()];
            return Ok(KeySet::from_jwks(text.as_bytes(), &allowed)?);
        }
        Err(KeyResponseError::NotAnEnvelope) => Zeroizing::new(text.to_owned()),
        Err(KeyResponseError::Rejected { reason, .. }) => {
            return Err(format!("it holds a rejection ({reason})").into());
        }
        Err(error @ KeyResponseError::NotAString) => return Err(error.into()),
    };
    Ok(KeySet::nameless(VerificationKey::parse(
        signing_type,
        &key,
    )?))
}

/// Reads keys and claim mapping of another issuer.
fn issuer(
    args: &ExplainArgs,
    path: &Path,
    format: Format,
) -> Result<(KeySet, Option<ClaimMapping>), ExitError> {
    let file = KeyFile {
        path: path.to_owned(),
        format,
        algorithms: args.issuer_tokens.each_algorithm(),
    };
    let keys = file
        .read()
        .map_err(|error| ExitError::Config(format!("--{}: {error}", file.flag())))?;
    Ok((keys, Some(config::issuer_mapping(&args.issuer_tokens)?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use token_corpus::keys::{Algorithm, SigningKey};

    use super::*;

    fn read(signing_type: SigningType, text: &str) -> Result<Vec<String>, String> {
        let keys = keys_of(signing_type, text).map_err(|error| error.to_string())?;
        let id = |key: &VerificationKey| key.id().as_str().to_owned();
        Ok(keys.keys().iter().map(id).collect())
    }

    #[test]
    fn a_key_is_read_alone_and_from_the_endpoint_s_response() {
        let envelope = |success: bool, data: &serde_json::Value| {
            json!({"success": success, "status": 200, "msg": "", "data": data}).to_string()
        };
        let public = SigningKey::generate(Algorithm::ES256).served().to_string();
        let secret = "{\"a shared secret\": \"may look like JSON\"}";
        for (signing_type, key) in [
            (SigningType::Ecdsa, public.as_str()),
            (SigningType::Hmac, secret),
        ] {
            let alone = read(signing_type, key);
            assert_eq!(alone.as_ref().map(Vec::len), Ok(1), "{signing_type}");
            let response = envelope(true, &json!(key));
            assert_eq!(read(signing_type, &response), alone, "{signing_type}");
            let rejection = envelope(false, &json!({"reason": "application_unknown"}));
            assert_eq!(
                read(signing_type, &rejection),
                Err("it holds a rejection (application_unknown)".to_owned())
            );
            assert!(read(signing_type, &envelope(true, &json!(1))).is_err());
        }
    }
}
