//! The response to a request for a JWK Set.

use http::{HeaderMap, HeaderValue, StatusCode, header};
use postern_token::keys::{Algorithm, KeyError, KeySet};

use super::fetch::FetchError;
use super::http_client::{KeyRequest, KeyResponse, Transport, Unexpected};

/// The media types of a set.
const JWK_SET: &str = "application/jwk-set+json, application/json";

/// The reason why a key set is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JwksError {
    #[error("the response to the request for the key set was {}", Unexpected(*.0))]
    Status(StatusCode),
    #[error("403: bind the ClusterRole system:service-account-issuer-discovery to this pod")]
    Forbidden,
    #[error("the key set cannot be used: {0}")]
    Unusable(#[from] KeyError),
    #[error("the key set lacks the key of the key endpoint")]
    Inconsistent,
}

/// The set of the last fetch with its `ETag`, for the response "not modified"; a failure clears it.
#[derive(Debug, Default)]
pub(crate) struct KnownSet(Option<(HeaderValue, KeySet)>);

impl KnownSet {
    /// Fetches the set. A key is used with one of the `allowed` algorithms.
    ///
    /// # Errors
    /// [`FetchError::JwksTransport`], [`FetchError::Jwks`].
    pub(super) async fn fetch(
        &mut self,
        transport: &mut Transport,
        request: KeyRequest<'_>,
        allowed: &[Algorithm],
    ) -> Result<(KeySet, HeaderMap), FetchError> {
        let known = std::mem::take(self);
        let request = KeyRequest {
            accept: JWK_SET,
            known: known.0.as_ref().map(|(version, _)| version),
            ..request
        };
        let response = transport.get(request).await;
        let response = response.map_err(FetchError::JwksTransport)?;
        // Only the API server of a cluster gets a token.
        if request.bearer.is_some() && response.status == StatusCode::FORBIDDEN {
            return Err(JwksError::Forbidden.into());
        }
        let (keys, known) = parse(&response, known, allowed)?;
        *self = known;
        Ok((keys, response.headers))
    }
}

fn parse(
    response: &KeyResponse,
    known: KnownSet,
    allowed: &[Algorithm],
) -> Result<(KeySet, KnownSet), JwksError> {
    let (version, keys) = match (response.status, known.0) {
        (StatusCode::OK, _) => {
            let keys = KeySet::from_jwks(&response.body, allowed)?;
            (response.headers.get(header::ETAG).cloned(), keys)
        }
        (StatusCode::NOT_MODIFIED, Some((version, keys))) => (Some(version), keys),
        (status, _) => return Err(JwksError::Status(status)),
    };
    let known = version.map(|version| (version, keys.clone()));
    Ok((keys, KnownSet(known)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use postern_token::keys::VerificationKey;
    use postern_token::keys::signing_type::SigningType;
    use serde_json::json;

    /// Two P-256 keys (SPKI).
    pub(crate) const ONE: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEfMVwmU++jJT+E3CZyufERNg0tK2IdtY+UJfTh6cyCKRyZZLdYzkCF07DFHSIuAm2YyWTUWL999y7uJ1vg19ZvA==";
    pub(crate) const OTHER: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEpqa4TBTfujEenIJcB13QS8k4MnXHn8RphvaDJWPihFTVo4Jk/x9frQLd2CjQGLal13+488b8Q1C2m1M4TVVHZw==";

    fn key(text: &str) -> VerificationKey {
        VerificationKey::parse(SigningType::Ecdsa, text).unwrap()
    }

    pub(crate) fn set_of(keys: &[&str]) -> String {
        let keys: Vec<_> = keys.iter().map(|text| key(text).to_jwk()).collect();
        json!({ "keys": keys }).to_string()
    }
}
