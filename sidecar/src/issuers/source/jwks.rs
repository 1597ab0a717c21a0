//! The response to a request for a JWK Set.

use http::{HeaderValue, StatusCode, header};
use serde_json::Value;
use wire::keys::{Algorithm, KeyError, KeySet, VerificationKey};

use super::http_client::{KeyResponse, Unexpected};

/// The media types of a set.
pub(crate) const JWK_SET: &str = "application/jwk-set+json, application/json";

/// The reason why a key set is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JwksError {
    #[error("the response to the request for the key set was {}", Unexpected(*.0))]
    Status(StatusCode),
    #[error("this is a discovery document: --issuer-url takes its issuer, --jwks its jwks_uri")]
    Discovery,
    #[error("the key set cannot be used: {0}")]
    Unusable(#[from] KeyError),
    #[error("the key set lacks the key of the key endpoint")]
    Inconsistent,
}

/// An accepted set, for the response "not modified".
#[derive(Debug, Clone)]
pub(crate) struct CachedJwks {
    version: HeaderValue,
    keys: KeySet,
}

impl CachedJwks {
    /// Returns its `ETag`.
    pub(crate) const fn version(&self) -> &HeaderValue {
        &self.version
    }
}

/// Parses the keys of a response; `known` is the version that the request named. A key
/// is used with one of the `allowed` algorithms.
///
/// # Errors
/// [`JwksError::Status`], [`JwksError::Unusable`].
pub(crate) fn parse_response(
    response: &KeyResponse,
    known: Option<&CachedJwks>,
    allowed: &[Algorithm],
) -> Result<(KeySet, Option<CachedJwks>), JwksError> {
    match (response.status, known) {
        (StatusCode::OK, _) => {
            let keys = KeySet::from_jwks(&response.body, allowed)
                .map_err(|error| not_a_set(error, &response.body))?;
            let known = remembered(response, &keys);
            Ok((keys, known))
        }
        (StatusCode::NOT_MODIFIED, Some(known)) => Ok((known.keys.clone(), Some(known.clone()))),
        (status, _) => Err(JwksError::Status(status)),
    }
}

fn not_a_set(error: KeyError, body: &[u8]) -> JwksError {
    let document: Option<Value> = serde_json::from_slice(body).ok();
    let is_document = document.is_some_and(|document| document.get("jwks_uri").is_some());
    match error {
        KeyError::NotAJwkSet { .. } if is_document => JwksError::Discovery,
        error => error.into(),
    }
}

/// Parses the set beside `contract_key`, which comes from the key endpoint and has to be among the
/// keys.
///
/// # Errors
/// See [`JwksError`].
pub(crate) fn parse_response_with_key(
    response: &KeyResponse,
    known: Option<&CachedJwks>,
    contract_key: &VerificationKey,
) -> Result<(KeySet, Option<CachedJwks>), JwksError> {
    let (keys, known) = parse_response(response, known, &[contract_key.algorithm()])?;
    let thumbprint = contract_key.thumbprint();
    if keys.keys().iter().all(|key| key.thumbprint() != thumbprint) {
        return Err(JwksError::Inconsistent);
    }
    Ok((keys, known))
}

fn remembered(response: &KeyResponse, keys: &KeySet) -> Option<CachedJwks> {
    Some(CachedJwks {
        version: response.headers.get(header::ETAG)?.clone(),
        keys: keys.clone(),
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use serde_json::json;
    use wire::keys::signing_type::SigningType;
    use zeroize::Zeroizing;

    use super::*;

    /// Two P-256 keys (SPKI).
    pub(crate) const ONE: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEfMVwmU++jJT+E3CZyufERNg0tK2IdtY+UJfTh6cyCKRyZZLdYzkCF07DFHSIuAm2YyWTUWL999y7uJ1vg19ZvA==";
    pub(crate) const OTHER: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEpqa4TBTfujEenIJcB13QS8k4MnXHn8RphvaDJWPihFTVo4Jk/x9frQLd2CjQGLal13+488b8Q1C2m1M4TVVHZw==";

    fn key(text: &str) -> VerificationKey {
        VerificationKey::parse(SigningType::Ecdsa, text).unwrap()
    }

    fn response(status: StatusCode, body: &str, etag: Option<&'static str>) -> KeyResponse {
        let mut headers = http::HeaderMap::new();
        if let Some(etag) = etag {
            headers.insert(header::ETAG, HeaderValue::from_static(etag));
        }
        KeyResponse {
            status,
            headers,
            body: Zeroizing::new(body.as_bytes().to_vec()),
        }
    }

    pub(crate) fn set_of(keys: &[&str]) -> String {
        let keys: Vec<_> = keys.iter().map(|text| key(text).to_jwk()).collect();
        json!({ "keys": keys }).to_string()
    }

    #[test]
    fn the_set_has_to_hold_the_key_of_the_key_endpoint() {
        let one = key(ONE);
        let ok =
            |body: &str| parse_response_with_key(&response(StatusCode::OK, body, None), None, &one);
        let (keys, known) = ok(&set_of(&[OTHER, ONE])).unwrap();
        assert_eq!(keys.keys().len(), 2);
        assert!(keys.keys()[0].is_named() && known.is_none(), "no version");
        let renamed = set_of(&[ONE]).replace(one.id().as_str(), "mine");
        assert_eq!(ok(&renamed).unwrap().0.keys()[0].id().as_str(), "mine");
        let impostor = set_of(&[OTHER]).replace(key(OTHER).id().as_str(), one.id().as_str());
        for body in [set_of(&[OTHER]), impostor] {
            assert_eq!(ok(&body).unwrap_err(), JwksError::Inconsistent);
        }
        let error = ok(r#"{"keys":[]}"#).unwrap_err();
        let is_expected = matches!(error, JwksError::Unusable(KeyError::NoUsableKey { .. }));
        assert!(is_expected, "{error}");
    }

    #[test]
    fn what_is_no_set_is_named() {
        for (body, named) in [
            (
                r#"{"jwks_uri": "https://idp/keys"}"#,
                "this is a discovery document",
            ),
            (
                "{}",
                "expected a JWK Set, {\"keys\": […]}, and found an object without keys",
            ),
        ] {
            let error = taken_error(&response(StatusCode::OK, body, None));
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn a_response_without_a_set_is_named() {
        for (status, said) in [
            (StatusCode::FOUND, "302 Found; redirects are not followed"),
            (StatusCode::NOT_FOUND, "404 Not Found"),
        ] {
            let error = taken_error(&response(status, "", None));
            let expected = format!("the response to the request for the key set was {said}");
            assert_eq!(error, expected);
        }
    }

    fn taken_error(response: &KeyResponse) -> String {
        let error = parse_response(response, None, &[Algorithm::RS256]).unwrap_err();
        error.to_string()
    }

    #[test]
    fn not_modified_keeps_the_set() {
        let first = response(StatusCode::OK, &set_of(&[ONE]), Some("\"1\""));
        let (_, known) = parse_response_with_key(&first, None, &key(ONE)).unwrap();
        assert_eq!(known.as_ref().unwrap().version(), "\"1\"");
        let unchanged = response(StatusCode::NOT_MODIFIED, "", None);
        let parse = |known, key| parse_response_with_key(&unchanged, known, &key);
        let (keys, still_known) = parse(known.as_ref(), key(ONE)).unwrap();
        assert_eq!(keys.keys()[0].id(), key(ONE).id());
        assert!(still_known.is_some());
        let other = parse(known.as_ref(), key(OTHER)).unwrap_err();
        assert_eq!(other, JwksError::Inconsistent);
        let error = parse(None, key(ONE)).unwrap_err();
        assert_eq!(error, JwksError::Status(StatusCode::NOT_MODIFIED));
    }
}
