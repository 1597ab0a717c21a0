//! The response to a request for a JWK Set, and the location of the set beside the contract's key.
//!
//! A response of the key endpoint names it in a `Link` field. Only a path on the same server is
//! followed: another target could replace the keys.

use std::fmt;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use reqwest::Url;
use serde_json::Value;
use wire::keys::algorithms::AsymmetricAlgorithm;
use wire::keys::{Algorithm, KeyError, KeySet, VerificationKey};

use super::http_client::{KeyResponse, Unexpected};
use super::jwks_address::JwksAddress;
use super::link_header;

/// The relation type of the link to the set.
pub(crate) const RELATION: &str = "jwks";
/// Length of an address in a log line.
const MAX_ADDRESS_BYTES: usize = 256;

/// The reason why a key set is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JwksError {
    #[error("the response to the request for the key set was {}", Unexpected(*.0))]
    Status(StatusCode),
    /// The document holds the value for `--jwks` (OpenID Connect Discovery 1.0 §3).
    #[error("this is a discovery document; --jwks takes {0}")]
    Discovery(JwksUri),
    #[error("the key set cannot be used: {0}")]
    Unusable(#[from] KeyError),
    #[error("the key set lacks the key of the key endpoint")]
    Inconsistent,
}

/// The address in a discovery document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JwksUri(Option<JwksAddress>);

impl fmt::Display for JwksUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(address) => write!(f, "its jwks_uri, {address}"),
            None => f.write_str("its jwks_uri"),
        }
    }
}

impl JwksUri {
    /// Returns it where `body` is a discovery document. A value that is not an address is foreign
    /// text, and not logged.
    fn of(body: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(body).ok()?;
        let address = document.get("jwks_uri")?.as_str()?;
        let address = Some(address).filter(|address| address.len() <= MAX_ADDRESS_BYTES);
        Some(Self(address.and_then(|address| address.parse().ok())))
    }
}

/// A link that is not followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it leads to {0}")]
pub(crate) struct ForeignLink(String);

/// An accepted set, for the response "not modified".
#[derive(Debug, Clone)]
pub(crate) struct CachedJwks {
    target: String,
    version: HeaderValue,
    keys: KeySet,
}

/// Returns the first link of `relation` in the response to a request for `uri`: a path on the same
/// server.
///
/// # Errors
/// [`ForeignLink`] for another scheme, host or port.
pub(crate) fn target(
    headers: &HeaderMap,
    relation: &str,
    uri: &str,
) -> Result<Option<String>, ForeignLink> {
    let Some(link) = link_header::targets(headers, relation).into_iter().next() else {
        return Ok(None);
    };
    // Resolved as in a browser, so that `//host`, `/\host` and the like are recognised.
    let unreadable = |_| ForeignLink("no usable address".to_owned());
    let base = Url::parse(uri).map_err(unreadable)?;
    let url = base.join(&link).map_err(unreadable)?;
    if url.origin() != base.origin() || !url.username().is_empty() || url.password().is_some() {
        return Err(ForeignLink(url.origin().ascii_serialization()));
    }
    let query = url.query().map(|query| format!("?{query}"));
    Ok(Some(url.path().to_owned() + &query.unwrap_or_default()))
}

impl CachedJwks {
    /// Returns the `ETag` of the known set, if it is the one of `target`.
    pub(crate) fn version_of<'a>(known: Option<&'a Self>, target: &str) -> Option<&'a HeaderValue> {
        let known = known.filter(|known| known.target == target);
        known.map(|known| &known.version)
    }
}

/// Parses the keys of a response for `target`; `known` is the version that the request named. A key
/// is used with one of the `allowed` algorithms.
///
/// # Errors
/// [`JwksError::Status`], [`JwksError::Unusable`].
pub(crate) fn parse_response(
    response: &KeyResponse,
    target: &str,
    known: Option<&CachedJwks>,
    allowed: &[Algorithm],
) -> Result<(KeySet, Option<CachedJwks>), JwksError> {
    let known = known.filter(|known| known.target == target);
    match (response.status, known) {
        (StatusCode::OK, _) => {
            let keys = KeySet::from_jwks(&response.body, allowed)
                .map_err(|error| not_a_set(error, &response.body))?;
            let known = remembered(response, target, &keys);
            Ok((keys, known))
        }
        (StatusCode::NOT_MODIFIED, Some(known)) => Ok((known.keys.clone(), Some(known.clone()))),
        (status, _) => Err(JwksError::Status(status)),
    }
}

fn not_a_set(error: KeyError, body: &[u8]) -> JwksError {
    let document = Some(body).filter(|_| error == KeyError::NotAJwkSet);
    match document.and_then(JwksUri::of) {
        Some(uri) => JwksError::Discovery(uri),
        None => error.into(),
    }
}

/// Parses the set beside `contract_key`, which comes from the key endpoint and has to be among the
/// keys.
///
/// # Errors
/// See [`JwksError`].
pub(crate) fn parse_response_with_key(
    response: &KeyResponse,
    target: &str,
    known: Option<&CachedJwks>,
    contract_key: &VerificationKey,
) -> Result<(KeySet, Option<CachedJwks>), JwksError> {
    let (keys, known) = parse_response(response, target, known, &[contract_key.algorithm()])?;
    let thumbprint = contract_key.thumbprint();
    if keys.keys().iter().all(|key| key.thumbprint() != thumbprint) {
        return Err(JwksError::Inconsistent);
    }
    Ok((keys, known))
}

/// Converts the algorithms.
pub(crate) fn jws(algorithms: &[AsymmetricAlgorithm]) -> Vec<Algorithm> {
    algorithms.iter().map(|named| named.jws()).collect()
}

fn remembered(response: &KeyResponse, target: &str, keys: &KeySet) -> Option<CachedJwks> {
    Some(CachedJwks {
        target: target.to_owned(),
        version: response.headers.get(header::ETAG)?.clone(),
        keys: keys.clone(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
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
        let mut headers = HeaderMap::new();
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

    fn led_to(link: &str) -> Result<Option<String>, ForeignLink> {
        let mut headers = HeaderMap::new();
        headers.append(header::LINK, link.parse().unwrap());
        let uri = "http://auth.internal:9000/auth/client/user/secret/key";
        target(&headers, RELATION, uri)
    }

    #[test]
    fn links_to_the_same_server_are_followed() {
        for (link, target) in [
            ("</auth/keys>; rel=jwks", "/auth/keys"),
            ("</auth/keys?v=1#top>; rel=jwks", "/auth/keys?v=1"),
            ("<keys>; rel=jwks", "/auth/client/user/secret/keys"),
            ("<http://auth.internal:9000/keys>; rel=jwks", "/keys"),
        ] {
            assert_eq!(led_to(link), Ok(Some(target.to_owned())), "{link}");
        }
        assert_eq!(led_to("</auth/keys>; rel=next"), Ok(None));
    }

    #[test]
    fn links_to_another_scheme_host_or_port_are_not_followed() {
        for link in [
            "https://auth.internal:9000/keys",
            "http://auth.internal/keys",
            "http://10.0.0.1:9000/keys",
            "http://evil/keys",
            "//evil/keys",
            r"/\evil/keys",
            r"\\evil/keys",
            "http://auth.internal:9000@evil/keys",
            "http://evil@auth.internal:9000/keys",
            "file:///etc/passwd",
            "data:application/json,{}",
            "http://[",
        ] {
            let led = led_to(&format!("<{link}>; rel=jwks"));
            assert!(led.is_err(), "{link}: {led:?}");
        }
        let error = led_to("<http://evil/keys>; rel=jwks").unwrap_err();
        assert_eq!(error.to_string(), "it leads to http://evil");
    }

    #[test]
    fn the_set_has_to_hold_the_key_of_the_key_endpoint() {
        let one = key(ONE);
        let ok = |body: &str| {
            parse_response_with_key(&response(StatusCode::OK, body, None), "/keys", None, &one)
        };
        let (keys, known) = ok(&set_of(&[OTHER, ONE])).unwrap();
        assert_eq!(keys.keys().len(), 2);
        assert!(keys.is_named() && known.is_none(), "no version was named");
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
    fn a_discovery_document_error_names_its_jwks_uri() {
        for (uri, taken) in [
            (
                "https://idp.example/keys?v=1",
                "its jwks_uri, https://idp.example/keys",
            ),
            ("no address", "its jwks_uri"),
            ("https://user:password@idp.example/keys", "its jwks_uri"),
        ] {
            let body = json!({"issuer": "https://idp.example", "jwks_uri": uri}).to_string();
            let response = response(StatusCode::OK, &body, None);
            let error = taken_error(&response);
            let expected = format!("this is a discovery document; --jwks takes {taken}");
            assert_eq!(error, expected);
        }
        let response = response(StatusCode::OK, "{}", None);
        assert_eq!(
            taken_error(&response),
            "the key set cannot be used: not a JWK Set"
        );
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
        let error = parse_response(response, "/keys", None, &[Algorithm::RS256]).unwrap_err();
        error.to_string()
    }

    #[test]
    fn not_modified_keeps_the_set_of_the_same_address() {
        let first = response(StatusCode::OK, &set_of(&[ONE]), Some("\"1\""));
        let (_, known) = parse_response_with_key(&first, "/keys", None, &key(ONE)).unwrap();
        let version = CachedJwks::version_of(known.as_ref(), "/keys").unwrap();
        assert_eq!(version, "\"1\"");
        assert_eq!(CachedJwks::version_of(known.as_ref(), "/other"), None);
        let unchanged = response(StatusCode::NOT_MODIFIED, "", None);
        let parse =
            |target: &str, known, key| parse_response_with_key(&unchanged, target, known, &key);
        let (keys, still_known) = parse("/keys", known.as_ref(), key(ONE)).unwrap();
        assert_eq!(keys.keys()[0].id(), key(ONE).id());
        assert!(still_known.is_some());
        assert_eq!(
            parse("/keys", known.as_ref(), key(OTHER)).unwrap_err(),
            JwksError::Inconsistent
        );
        for (target, known) in [("/keys", None), ("/other", known.as_ref())] {
            let error = parse(target, known, key(ONE)).unwrap_err();
            assert_eq!(error, JwksError::Status(StatusCode::NOT_MODIFIED));
        }
    }
}
