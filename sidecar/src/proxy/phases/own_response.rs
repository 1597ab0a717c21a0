//! The sidecar's own response to a request.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::AuthProxy;
use crate::config::live::Rules;
use crate::telemetry::request_id::RequestIds;

impl AuthProxy {
    /// Returns the headers of all our own responses: CORS and the request id.
    pub(in crate::proxy) fn common_response_headers(
        rules: &Rules,
        ids: &RequestIds,
        received: &HeaderMap,
    ) -> Vec<(HeaderName, HeaderValue)> {
        let origins = rules.auth_policy.interceptor.allowed_origins();
        let mut fields = origins.answer_fields(received);
        fields.extend(ids.echo());
        fields
    }
}
