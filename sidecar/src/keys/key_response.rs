//! What the key endpoint answered (contract §2.1, §4.3): a key string, or why there is none.

use contract::rejection::Rejection;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

use super::http_client::Unexpected;

/// Why an answer holds no key string.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error("the auth server answered with {} ({reason})", Unexpected(*status))]
    Refused { status: StatusCode, reason: String },
    #[error("the answer is not the contract's envelope")]
    NotAnEnvelope,
    #[error("the envelope's data is not a string")]
    NotAString,
}

impl AnswerError {
    /// Whether nothing is served where the key was asked for. Our auth server says `token_missing` of every
    /// path that it does not know.
    pub(crate) fn is_of_another_path(&self) -> bool {
        match self {
            Self::Refused { status, reason } => {
                *status == StatusCode::NOT_FOUND
                    || (*status == StatusCode::UNAUTHORIZED && reason == TOKEN_MISSING)
            }
            Self::NotAnEnvelope | Self::NotAString => false,
        }
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

/// The key string of an answer that says success in every way it can.
pub(crate) fn key_string(
    status: StatusCode,
    body: &[u8],
) -> Result<Zeroizing<String>, AnswerError> {
    let envelope: Option<KeyEnvelope> = serde_json::from_slice(body).ok();
    match (status, envelope) {
        (StatusCode::OK, None) => Err(AnswerError::NotAnEnvelope),
        (
            StatusCode::OK,
            Some(KeyEnvelope {
                success: true,
                data,
            }),
        ) => match data {
            Value::String(text) => Ok(Zeroizing::new(text)),
            _ => Err(AnswerError::NotAString),
        },
        (status, envelope) => {
            let reason =
                envelope.map_or("no envelope".to_owned(), |envelope| reason(&envelope.data));
            Err(AnswerError::Refused { status, reason })
        }
    }
}

/// The reason code of a failure, if it looks like one: a stranger's text stays out of the log.
fn reason(data: &Value) -> String {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let code = data
        .get("reason")
        .and_then(Value::as_str)
        .filter(|code| (1..=64).contains(&code.len()) && code.bytes().all(plain));
    code.unwrap_or("no reason given").to_owned()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use contract::api::envelope::{Envelope, MSG_OPERATION_SUCCEEDED};

    use super::*;

    fn refused(status: StatusCode, reason: &str) -> AnswerError {
        let reason = reason.to_owned();
        AnswerError::Refused { status, reason }
    }

    #[test]
    fn contract_4_3_data_is_the_key_string() {
        let answer = Envelope::ok(MSG_OPERATION_SUCCEEDED, "key")
            .to_json()
            .unwrap();
        assert_eq!(*key_string(StatusCode::OK, &answer).unwrap(), "key");
        // Another implementation may say more, or in another order.
        let other = br#"{"data":"key","success":true,"status":200,"msg":"","trace":{}}"#;
        assert_eq!(*key_string(StatusCode::OK, other).unwrap(), "key");
    }

    #[test]
    fn contract_7_without_success_there_is_no_key_whatever_data_holds() {
        for (status, body, error) in [
            (
                StatusCode::OK,
                r#"{"success":false,"data":"key"}"#,
                refused(StatusCode::OK, "no reason given"),
            ),
            (
                StatusCode::BAD_GATEWAY,
                r#"{"success":true,"data":"key"}"#,
                refused(StatusCode::BAD_GATEWAY, "no reason given"),
            ),
            (
                StatusCode::FOUND,
                "",
                refused(StatusCode::FOUND, "no envelope"),
            ),
            (StatusCode::OK, "", AnswerError::NotAnEnvelope),
            (StatusCode::OK, "<html>", AnswerError::NotAnEnvelope),
            (StatusCode::OK, r#""key""#, AnswerError::NotAnEnvelope),
            (
                StatusCode::OK,
                r#"{"data":"key"}"#,
                AnswerError::NotAnEnvelope,
            ),
            (
                StatusCode::OK,
                r#"{"success":"true","data":"key"}"#,
                AnswerError::NotAnEnvelope,
            ),
            (
                StatusCode::OK,
                r#"{"success":false,"success":true,"data":"key"}"#,
                AnswerError::NotAnEnvelope,
            ),
            (
                StatusCode::OK,
                r#"{"success":true}"#,
                AnswerError::NotAString,
            ),
            (
                StatusCode::OK,
                r#"{"success":true,"data":{"key":"key"}}"#,
                AnswerError::NotAString,
            ),
        ] {
            assert_eq!(key_string(status, body.as_bytes()), Err(error), "{body}");
        }
    }

    #[test]
    fn a_refusal_is_quoted_only_where_it_is_a_code() {
        let answer = Envelope::rejection(Rejection::ApplicationUnknown)
            .to_json()
            .unwrap();
        let status = StatusCode::UNAUTHORIZED;
        let error = key_string(status, &answer).unwrap_err();
        assert_eq!(error, refused(status, "application_unknown"));
        for reason in ["", "A", "a b", "\n", &"a".repeat(65)] {
            let body = serde_json::json!({"success": false, "data": {"reason": reason}});
            let error = key_string(status, body.to_string().as_bytes()).unwrap_err();
            assert_eq!(error, refused(status, "no reason given"));
        }
    }
}
