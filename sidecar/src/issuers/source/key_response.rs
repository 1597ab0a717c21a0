//! The response of the key endpoint (contract §2.1, §4.3): a key string, or an error.

use http::StatusCode;
use postern_contract::rejection::Rejection;
use postern_transport::http_client::Unexpected;
use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

/// The reason why a response holds no key string.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyResponseError {
    #[error("the auth server responded with {} ({reason}){}", Unexpected(*status), remedy(reason))]
    Rejected { status: StatusCode, reason: String },
    #[error("the response is not an auth server's")]
    NotAnEnvelope,
    #[error("the response holds no key")]
    NotAString,
}

impl KeyResponseError {
    /// Returns true if there is no key endpoint at this path. Our auth server responds
    /// `token_missing` for every unknown path.
    pub(crate) fn is_of_another_path(&self) -> bool {
        match self {
            Self::Rejected { status, reason } => {
                *status == StatusCode::NOT_FOUND
                    || (*status == StatusCode::UNAUTHORIZED && reason == TOKEN_MISSING)
            }
            Self::NotAnEnvelope => true,
            Self::NotAString => false,
        }
    }
}

/// Names the remedy for a wrong application.
fn remedy(reason: &str) -> &'static str {
    if reason == Rejection::ApplicationUnknown.reason() {
        ": compare --app-id and the secret with `auth-server application list`; `application add` registers one"
    } else {
        ""
    }
}

const TOKEN_MISSING: &str = Rejection::TokenMissing.reason();

/// The members that are read of the envelope.
#[derive(Deserialize)]
struct KeyEnvelope {
    success: bool,
    #[serde(default)]
    data: Value,
}

/// Returns the key string of a response that reports success in status and envelope.
pub(crate) fn key_string(
    status: StatusCode,
    body: &[u8],
) -> Result<Zeroizing<String>, KeyResponseError> {
    let envelope: Option<KeyEnvelope> = serde_json::from_slice(body).ok();
    match (status, envelope) {
        (StatusCode::OK, None) => Err(KeyResponseError::NotAnEnvelope),
        (
            StatusCode::OK,
            Some(KeyEnvelope {
                success: true,
                data,
            }),
        ) => match data {
            Value::String(text) => Ok(Zeroizing::new(text)),
            _ => Err(KeyResponseError::NotAString),
        },
        (status, envelope) => {
            let reason = match envelope {
                Some(envelope) => reason(&envelope.data),
                None => "no envelope".to_owned(),
            };
            Err(KeyResponseError::Rejected { status, reason })
        }
    }
}

/// Returns the reason code of a failure, if it looks like one: foreign text stays out of the log.
fn reason(data: &Value) -> String {
    match data.get("reason") {
        Some(Value::String(code))
            if (1..=64).contains(&code.len()) && code.bytes().all(may_be_in_reason) =>
        {
            code.clone()
        }
        _ => "no reason given".to_owned(),
    }
}

fn may_be_in_reason(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use postern_contract::envelope::Envelope;

    use super::*;

    fn rejected(status: StatusCode, reason: &str) -> KeyResponseError {
        let reason = reason.to_owned();
        KeyResponseError::Rejected { status, reason }
    }

    #[test]
    fn a_rejection_is_quoted_only_where_it_is_a_code() {
        let response = Envelope::rejection(Rejection::ApplicationUnknown)
            .to_json()
            .unwrap();
        let status = StatusCode::UNAUTHORIZED;
        let error = key_string(status, &response).unwrap_err();
        assert_eq!(error, rejected(status, "application_unknown"));
        for reason in ["", "A", "a b", "\n", &"a".repeat(65)] {
            let body = serde_json::json!({"success": false, "data": {"reason": reason}});
            let error = key_string(status, body.to_string().as_bytes()).unwrap_err();
            assert_eq!(error, rejected(status, "no reason given"));
        }
    }
}
