//! The response to a request for a JWK Set.

use http::{HeaderMap, HeaderValue, StatusCode, header};
use postern_token::keys::{Algorithm, KeySet};

use super::KeySetError;
use crate::http_client::{HttpClient, HttpRequest, HttpResponse};

/// The media types of a set.
const JWK_SET: &str = "application/jwk-set+json, application/json";

/// The set of the last fetch with its `ETag`, for the response "not modified"; a failure clears it.
#[derive(Debug, Default)]
pub struct KnownSet(Option<(HeaderValue, KeySet)>);

impl KnownSet {
    /// Fetches the set. A key is used with one of the `allowed` algorithms.
    ///
    /// # Errors
    /// [`KeySetError`]
    pub async fn fetch(
        &mut self,
        client: &mut HttpClient,
        request: HttpRequest<'_>,
        allowed: &[Algorithm],
    ) -> Result<(KeySet, HeaderMap), KeySetError> {
        let known = std::mem::take(self);
        let request = HttpRequest {
            accept: Some(JWK_SET),
            known: known.0.as_ref().map(|(version, _)| version),
            ..request
        };
        let response = client
            .send(request)
            .await
            .map_err(KeySetError::SetTransport)?;
        // Only the API server of a cluster gets a token.
        if request.bearer.is_some() && response.status == StatusCode::FORBIDDEN {
            return Err(KeySetError::Forbidden);
        }
        let (keys, known) = parse(&response, known, allowed)?;
        *self = known;
        Ok((keys, response.headers))
    }
}

fn parse(
    response: &HttpResponse,
    known: KnownSet,
    allowed: &[Algorithm],
) -> Result<(KeySet, KnownSet), KeySetError> {
    let (version, keys) = match (response.status, known.0) {
        (StatusCode::OK, _) => {
            let keys = KeySet::from_jwks(&response.body, allowed)?;
            (response.headers.get(header::ETAG).cloned(), keys)
        }
        // The set is unchanged since the version that the request named.
        (StatusCode::NOT_MODIFIED, Some((version, keys))) => (Some(version), keys),
        (status, _) => return Err(KeySetError::Status(status)),
    };
    let known = version.map(|version| (version, keys.clone()));
    Ok((keys, KnownSet(known)))
}
