//! The one JSON envelope of every response (contract §2.1).

use std::borrow::Cow;

use serde::Serialize;

use crate::rejection::Rejection;

/// `msg` of a successful login (contract §2.1).
pub const MSG_LOGIN_SUCCEEDED: &str = "login succeeded";
/// `msg` of every other successful operation (contract §2.1).
pub const MSG_OPERATION_SUCCEEDED: &str = "operation succeeded";

/// `{success, status, msg, data}`, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Envelope<T> {
    /// True if the operation succeeded.
    pub success: bool,
    /// 200 on success, otherwise the HTTP status of the response.
    pub status: u16,
    /// A sentence for people.
    pub msg: Cow<'static, str>,
    /// The operation's payload.
    pub data: T,
}

/// `data` of every failure: the stable reason code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// [`Rejection::reason`].
    pub reason: &'static str,
}

impl<T> Envelope<T> {
    /// Wraps the data of a successful operation.
    pub const fn ok(msg: &'static str, data: T) -> Self {
        Self {
            success: true,
            status: 200,
            msg: Cow::Borrowed(msg),
            data,
        }
    }
}

impl Envelope<Reason> {
    /// Wraps a rejection.
    pub const fn rejection(rejection: Rejection) -> Self {
        Self {
            success: false,
            status: rejection.status().as_u16(),
            msg: Cow::Borrowed(rejection.message()),
            data: Reason {
                reason: rejection.reason(),
            },
        }
    }
}

impl<T: Serialize> Envelope<T> {
    /// Serialises the envelope.
    ///
    /// # Errors
    /// Only if `data` cannot be serialised, which no type of this crate causes.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn text<T: Serialize>(envelope: &Envelope<T>) -> String {
        String::from_utf8(envelope.to_json().unwrap()).unwrap()
    }

    #[test]
    fn contract_2_1_success_has_the_four_members() {
        assert_eq!(
            text(&Envelope::ok(MSG_OPERATION_SUCCEEDED, "key")),
            r#"{"success":true,"status":200,"msg":"operation succeeded","data":"key"}"#
        );
        assert_eq!(
            text(&Envelope::ok(MSG_OPERATION_SUCCEEDED, None::<String>)),
            r#"{"success":true,"status":200,"msg":"operation succeeded","data":null}"#
        );
    }

    #[test]
    fn contract_2_1_failure_repeats_status_and_names_the_reason() {
        assert_eq!(
            text(&Envelope::rejection(Rejection::TokenExpired)),
            r#"{"success":false,"status":401,"msg":"the access token has expired","data":{"reason":"token_expired"}}"#
        );
    }
}
