//! Rejections as gRPC statuses: its clients read neither HTTP statuses nor bodies.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::Rejection;

impl Rejection {
    /// Returns the gRPC status code that corresponds to the HTTP status.
    pub const fn grpc_status(self) -> u8 {
        const INVALID_ARGUMENT: u8 = 3;
        const DEADLINE_EXCEEDED: u8 = 4;
        const PERMISSION_DENIED: u8 = 7;
        const RESOURCE_EXHAUSTED: u8 = 8;
        const UNIMPLEMENTED: u8 = 12;
        const INTERNAL: u8 = 13;
        const UNAVAILABLE: u8 = 14;
        const UNAUTHENTICATED: u8 = 16;
        match self.status().as_u16() {
            401 => UNAUTHENTICATED,
            403 => PERMISSION_DENIED,
            404 | 405 => UNIMPLEMENTED,
            408 | 504 => DEADLINE_EXCEEDED,
            413 | 414 | 429 | 431 => RESOURCE_EXHAUSTED,
            502 | 503 => UNAVAILABLE,
            400..500 => INVALID_ARGUMENT,
            _ => INTERNAL,
        }
    }

    /// Returns the field `grpc-message`: reason code and sentence, percent-encoded as gRPC requires.
    pub fn grpc_message(self) -> String {
        const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');
        utf8_percent_encode(&format!("{}: {}", self.reason(), self.message()), ESCAPED).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grpc_status_means_the_same_as_the_http_status() {
        for (rejection, status) in [
            (Rejection::TokenMissing, 16),
            (Rejection::TokenExpired, 16),
            (Rejection::CrossSite, 7),
            (Rejection::AuthKeysUnavailable, 14),
            (Rejection::ServerBusy, 14),
            (Rejection::UpstreamUnavailable, 14),
            (Rejection::UpstreamTimeout, 4),
            (Rejection::RequestTimeout, 4),
            (Rejection::IdentityTooLarge, 8),
            (Rejection::TooManyAttempts, 8),
            (Rejection::PathNotCanonical, 3),
            (Rejection::NotFound, 12),
            (Rejection::Internal, 13),
        ] {
            assert_eq!(rejection.grpc_status(), status, "{rejection}");
        }
    }

    #[test]
    fn a_message_begins_with_the_reason_and_is_printable() {
        for rejection in Rejection::ALL {
            let message = rejection.grpc_message();
            assert!(message.starts_with(&format!("{rejection}: ")), "{message}");
            assert!(
                message.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
                "{message}"
            );
        }
    }
}
