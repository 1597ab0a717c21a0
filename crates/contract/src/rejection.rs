//! All rejections of requests, in one table.
//!
//! One reason code appears in the response body (`data.reason`), the metric label, the log line and
//! the `WWW-Authenticate` header of a rejected token. Codes are part of the public interface: they
//! are added, never renamed.

mod grpc;
mod help;

use http::StatusCode;
use postern_http::invalid::InvalidRequest;
use postern_token::invalid::{InvalidProof, InvalidToken};

pub use self::help::Help;

/// Builds the `WWW-Authenticate` field of a row. The realm is fixed, because an echo of the URL
/// would let an attacker write into the header; `reason` is an attribute of ours, which RFC 6750 §3
/// allows.
macro_rules! challenge {
    (none, $reason:literal, $message:literal) => {
        None
    };
    // Without credentials of ours, RFC 6750 §3.1 requires a challenge without an error code.
    (bare, $reason:literal, $message:literal) => {
        Some("Bearer realm=\"postern\"")
    };
    ($error:ident, $reason:literal, $message:literal) => {
        Some(concat!(
            "Bearer realm=\"postern\", error=\"",
            stringify!($error),
            "\", error_description=\"",
            $message,
            "\", reason=\"",
            $reason,
            "\""
        ))
    };
}

/// Returns true for a row whose last word is `enforced`.
macro_rules! is_enforced {
    (enforced) => {
        true
    };
    (always) => {
        false
    };
}

/// The programs that make a rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// The auth server alone.
    AuthServer,
    /// The sidecar alone.
    Sidecar,
    /// Each of the two programs.
    Both,
}

/// Builds the enum and its accessors from the table, so that a row cannot be half added.
macro_rules! rejections {
    ($($(#[$doc:meta])* $name:ident: $status:ident, $reason:literal, $message:literal, $challenge:ident, $maker:ident, $when:ident;)+) => {
        /// A reason to reject a request. It determines the whole response to the client.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Rejection {
            $($(#[$doc])* $name,)+
        }

        impl Rejection {
            /// All rejections, in the table's order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the stable code: `data.reason`, metric label and log field.
            pub const fn reason(self) -> &'static str {
                match self { $(Self::$name => $reason,)+ }
            }

            /// Returns the HTTP status, which the envelope repeats in its `status` member.
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)+ }
            }

            /// Returns a sentence for people: the envelope's `msg`.
            pub const fn message(self) -> &'static str {
                match self { $(Self::$name => $message,)+ }
            }

            /// Returns the `WWW-Authenticate` field (RFC 6750 §3) of the rows that require
            /// credentials.
            pub const fn www_authenticate(self) -> Option<&'static str> {
                match self { $(Self::$name => challenge!($challenge, $reason, $message),)+ }
            }

            const fn maker(self) -> Maker {
                match self { $(Self::$name => Maker::$maker,)+ }
            }

            /// Returns true for rejections that only enforcement makes: of the token, of a rule, of
            /// keys that are away. All others protect the service from the request itself.
            pub const fn is_about_authorization(self) -> bool {
                match self { $(Self::$name => is_enforced!($when),)+ }
            }
        }
    };
}

rejections! {
    // The request's shape.
    /// Dot segments, a backslash, a control byte, a broken or a double escape in the path.
    PathNotCanonical: BAD_REQUEST, "path_not_canonical", "the path is not in canonical form", none, Both, always;
    /// A path past 8 KiB.
    PathTooLong: URI_TOO_LONG, "path_too_long", "the path is longer than 8 KiB", none, Both, always;
    /// A `Destination` on another host, repeated, or without a valid path.
    RequestDestination: BAD_REQUEST, "request_destination", "the Destination header names no path of this host", none, Sidecar, always;
    /// Ambiguous framing: Content-Length with Transfer-Encoding, and the like.
    RequestFraming: BAD_REQUEST, "request_framing", "the message framing is ambiguous", none, Both, always;
    /// Not a request at all: a broken request line, field or length.
    RequestMalformed: BAD_REQUEST, "request_malformed", "the request is not valid HTTP", none, Both, always;
    /// No `Host` field.
    HostMissing: BAD_REQUEST, "host_missing", "the Host header is missing", none, Both, always;
    /// The method is not allowed on this path, or never allowed (TRACE, CONNECT).
    MethodNotAllowed: METHOD_NOT_ALLOWED, "method_not_allowed", "the method is not allowed here", none, Both, always;
    /// An upgrade where upgrades are not allowed.
    UpgradeNotAllowed: BAD_REQUEST, "upgrade_not_allowed", "the connection cannot be upgraded here", none, Sidecar, always;
    /// The header block or the request target is longer than allowed.
    RequestHeaderTooLarge: REQUEST_HEADER_FIELDS_TOO_LARGE, "request_header_too_large", "the request header is too large", none, Both, always;
    /// The request did not arrive in time.
    RequestTimeout: REQUEST_TIMEOUT, "request_timeout", "the request did not arrive in time", none, Both, always;

    /// A token cookie in a request that another site triggered.
    CrossSite: FORBIDDEN, "cross_site", "another site made the browser send this request", none, Sidecar, enforced;

    // The token.
    /// The request carries no token.
    TokenMissing: UNAUTHORIZED, "token_missing", "no access token was sent", bare, Both, enforced;
    /// Credentials twice in one place: two fields, two values of a cookie (RFC 6750 §3.1: a bad request).
    AuthorizationRepeated: BAD_REQUEST, "authorization_repeated", "the credentials were sent twice", invalid_request, Both, enforced;
    /// The `Authorization` field is longer than the configured limit.
    AuthorizationTooLarge: REQUEST_HEADER_FIELDS_TOO_LARGE, "authorization_too_large", "the Authorization header is too large", none, Both, always;
    /// Another scheme than `Bearer`, or than `DPoP` where proofs are verified.
    AuthorizationScheme: UNAUTHORIZED, "authorization_scheme", "the Authorization scheme is not Bearer", bare, Both, enforced;
    /// Not a compact JWS of three base64url parts that hold JSON objects without duplicate members.
    TokenMalformed: UNAUTHORIZED, "token_malformed", "the access token is malformed", invalid_token, Both, enforced;
    /// Another algorithm than the key's.
    TokenAlgorithm: UNAUTHORIZED, "token_algorithm", "the access token names an algorithm that is not allowed", invalid_token, Both, enforced;
    /// A forbidden header member, or another `typ`.
    TokenHeader: UNAUTHORIZED, "token_header", "the access token has a header member that is not allowed", invalid_token, Both, enforced;
    /// A `kid` that is not in the key set.
    TokenKeyUnknown: UNAUTHORIZED, "token_key_unknown", "the access token names an unknown key", invalid_token, Both, enforced;
    /// A signature that does not verify with the key.
    TokenSignature: UNAUTHORIZED, "token_signature", "the signature of the access token is invalid", invalid_token, Both, enforced;
    /// A token past `exp` plus leeway.
    TokenExpired: UNAUTHORIZED, "token_expired", "the access token has expired", invalid_token, Both, enforced;
    /// A token before `nbf` minus leeway.
    TokenNotYetValid: UNAUTHORIZED, "token_not_yet_valid", "the access token is not valid yet", invalid_token, Both, enforced;
    /// A required claim is absent.
    TokenClaimMissing: UNAUTHORIZED, "token_claim_missing", "the access token lacks a required claim", invalid_token, Both, enforced;
    /// A claim of the wrong type or with an impossible value.
    TokenClaimInvalid: UNAUTHORIZED, "token_claim_invalid", "a claim of the access token is invalid", invalid_token, Both, enforced;
    /// `iss` is absent or not the configured issuer.
    TokenIssuer: UNAUTHORIZED, "token_issuer", "the access token comes from another issuer", invalid_token, Both, enforced;
    /// `aud` names none of the audiences of this program, or is absent where one is required.
    TokenAudience: UNAUTHORIZED, "token_audience", "the access token is meant for another audience", invalid_token, Both, enforced;
    /// A token with `cnf` (RFC 7800) that came without what it demands, or a plain one that came as if it
    /// were bound.
    TokenBound: UNAUTHORIZED, "token_bound", "the access token was not sent as its binding requires", invalid_token, Both, enforced;
    /// An id or account that could be a user of another issuer.
    TokenUser: UNAUTHORIZED, "token_user", "the user of the access token could be another issuer's", invalid_token, Sidecar, enforced;
    /// The token, its user or its application is on the revocation list.
    TokenRevoked: UNAUTHORIZED, "token_revoked", "the access token was revoked", invalid_token, Both, enforced;
    /// None of the scopes of a rule is in the token (RFC 6750 §3.1).
    InsufficientScope: FORBIDDEN, "insufficient_scope", "the access token lacks a required scope", insufficient_scope, Sidecar, enforced;
    /// A claim of the token has none of the values that a rule requires.
    ClaimNotAllowed: FORBIDDEN, "claim_not_allowed", "a claim of the access token does not allow this", none, Sidecar, enforced;
    /// No rule is for the request, and the default is to deny.
    NoRule: FORBIDDEN, "no_rule", "no rule allows this request", none, Sidecar, enforced;

    // The proof of the token's key (RFC 9449).
    /// No `DPoP` field, where a proof is required.
    ProofMissing: UNAUTHORIZED, "proof_missing", "no proof of the token's key was sent", invalid_dpop_proof, Both, enforced;
    /// More than one `DPoP` field.
    ProofRepeated: BAD_REQUEST, "proof_repeated", "the proof was sent twice", invalid_request, Both, enforced;
    /// Not a compact JWS of JSON objects without duplicate members.
    ProofMalformed: UNAUTHORIZED, "proof_malformed", "the proof is malformed", invalid_dpop_proof, Both, enforced;
    /// Another `typ` than `dpop+jwt`, or a header member that is not allowed.
    ProofHeader: UNAUTHORIZED, "proof_header", "the header of the proof is not one of a proof", invalid_dpop_proof, Both, enforced;
    /// A symmetric algorithm, `none`, or an unknown one.
    ProofAlgorithm: UNAUTHORIZED, "proof_algorithm", "the proof names an algorithm that is not allowed", invalid_dpop_proof, Both, enforced;
    /// No public key that can verify the proof: none, a private or a weak one, one for another use.
    ProofKey: UNAUTHORIZED, "proof_key", "the key of the proof cannot be used", invalid_dpop_proof, Both, enforced;
    /// A proof by another key than the one that the token is bound to.
    ProofKeyOther: UNAUTHORIZED, "proof_key_other", "the proof is by another key than the access token's", invalid_dpop_proof, Both, enforced;
    /// A signature that does not verify with the key in the proof.
    ProofSignature: UNAUTHORIZED, "proof_signature", "the signature of the proof is invalid", invalid_dpop_proof, Both, enforced;
    /// `jti`, `htm`, `htu`, `iat` or `ath` is missing, empty or of another type.
    ProofClaim: UNAUTHORIZED, "proof_claim", "a claim of the proof is missing or invalid", invalid_dpop_proof, Both, enforced;
    /// Another `htm` than the method of the request.
    ProofMethod: UNAUTHORIZED, "proof_method", "the proof is for another method", invalid_dpop_proof, Both, enforced;
    /// Another `htu` than a URL of the request.
    ProofTarget: UNAUTHORIZED, "proof_target", "the proof is for another URL", invalid_dpop_proof, Both, enforced;
    /// Another `ath` than the digest of the token.
    ProofToken: UNAUTHORIZED, "proof_token", "the proof is for another access token", invalid_dpop_proof, Both, enforced;
    /// An `iat` that is too old, or ahead by more than clocks may differ.
    ProofTime: UNAUTHORIZED, "proof_time", "the proof is too old, or of the future", invalid_dpop_proof, Both, enforced;
    /// A `jti` that the key has used within the time for which proofs count.
    ProofReplayed: UNAUTHORIZED, "proof_replayed", "the proof was used before", invalid_dpop_proof, Both, enforced;
    /// No nonce of ours, or an old one (RFC 9449 §9).
    ProofNonce: UNAUTHORIZED, "proof_nonce", "the proof needs the nonce of this response", use_dpop_nonce, Both, enforced;
    /// More proofs than are remembered, and this user holds most of them.
    ProofTooMany: TOO_MANY_REQUESTS, "proof_too_many", "too many proofs of one user", none, Both, enforced;

    // The client's certificate (RFC 8705).
    /// The token is bound to a certificate, and the client presented none.
    CertificateMissing: UNAUTHORIZED, "certificate_missing", "the access token is bound to a certificate, and none was presented", invalid_token, Both, enforced;
    /// The token is bound to another certificate.
    CertificateOther: UNAUTHORIZED, "certificate_other", "the access token is bound to another certificate", invalid_token, Both, enforced;
    /// A proxy's field with the client's certificate that cannot be read.
    CertificateUnreadable: UNAUTHORIZED, "certificate_unreadable", "the field with the client's certificate cannot be read", invalid_token, Sidecar, enforced;
    /// Two fields with the client's certificate: one of them could be the client's own.
    CertificateRepeated: BAD_REQUEST, "certificate_repeated", "the field with the client's certificate was sent twice", invalid_request, Sidecar, enforced;

    // The verification keys.
    /// No verification key has been fetched yet.
    AuthKeysUnavailable: SERVICE_UNAVAILABLE, "auth_keys_unavailable", "no verification key is available yet", none, Both, enforced;
    /// The verification keys are older than allowed.
    AuthKeysStale: SERVICE_UNAVAILABLE, "auth_keys_stale", "the verification key is too old to be trusted", none, Sidecar, enforced;
    /// The revocation list is older than allowed, or was never fetched.
    RevocationsStale: SERVICE_UNAVAILABLE, "revocations_stale", "the revocation list is too old to be trusted", none, Sidecar, enforced;

    // The way to the service.
    /// The user header would be longer than the configured limit.
    IdentityTooLarge: REQUEST_HEADER_FIELDS_TOO_LARGE, "identity_too_large", "the user of the access token does not fit into a header", none, Sidecar, always;
    /// The service cannot be reached, or closed the connection before its response.
    UpstreamUnavailable: BAD_GATEWAY, "upstream_unavailable", "the service cannot be reached", none, Sidecar, always;
    /// The service's response is not valid HTTP, is too large, or opens a tunnel without a request.
    UpstreamMalformed: BAD_GATEWAY, "upstream_malformed", "the service's response is not valid HTTP", none, Sidecar, always;
    /// The service did not respond in time.
    UpstreamTimeout: GATEWAY_TIMEOUT, "upstream_timeout", "the service did not respond in time", none, Sidecar, always;

    // The auth server's own operations.
    /// The login's body is missing, or username or password is empty (contract §4.1 rule 1).
    LoginIncomplete: BAD_REQUEST, "login_incomplete", "login information incomplete", none, AuthServer, always;
    /// The body is not the JSON object that is expected here.
    BodyMalformed: BAD_REQUEST, "body_malformed", "the body is not the expected JSON object in UTF-8", none, AuthServer, always;
    /// The body is longer than allowed.
    BodyTooLarge: PAYLOAD_TOO_LARGE, "body_too_large", "the body is too large", none, AuthServer, always;
    /// The body's media type is not `application/json`.
    MediaTypeUnsupported: UNSUPPORTED_MEDIA_TYPE, "media_type_unsupported", "the body must be application/json", none, AuthServer, always;
    /// A content coding.
    BodyEncoding: UNSUPPORTED_MEDIA_TYPE, "body_encoding", "the body must not be compressed", none, AuthServer, always;
    /// The body is no form, or repeats a parameter (RFC 6749 §3.2).
    FormMalformed: BAD_REQUEST, "form_malformed", "the body is not a form with each parameter once", none, AuthServer, always;
    /// A required parameter is missing, empty or unreadable.
    ParameterMissing: BAD_REQUEST, "parameter_missing", "a required parameter is missing", none, AuthServer, always;
    /// The application is not registered, or its secret is wrong; both look alike on purpose.
    ApplicationUnknown: UNAUTHORIZED, "application_unknown", "the application is unknown or its secret is wrong", bare, AuthServer, always;
    /// Credentials in the `Authorization` field and in the form, or of two applications.
    CredentialsAmbiguous: BAD_REQUEST, "credentials_ambiguous", "the application sent its credentials in more than one way", none, AuthServer, always;
    /// A grant type that the token endpoint does not know.
    GrantUnsupported: BAD_REQUEST, "grant_unsupported", "this grant type is not supported", none, AuthServer, always;
    /// The application was given no audience, or has the name of a user.
    GrantNotAllowed: BAD_REQUEST, "grant_not_allowed", "this application may not obtain tokens", none, AuthServer, always;
    /// A logout token or a security event of another issuer that does not count.
    StatementInvalid: BAD_REQUEST, "statement_invalid", "the logout token or security event does not count", none, AuthServer, always;
    /// An unknown, used or expired refresh token, or one of a session that has ended.
    GrantInvalid: BAD_REQUEST, "grant_invalid", "the refresh token is unknown, used or expired", none, AuthServer, always;
    /// Any request to the authorization endpoint: there is no page for a login.
    ResponseTypeUnsupported: BAD_REQUEST, "response_type_unsupported", "no response type is supported: this server has no page for a login", none, AuthServer, always;
    /// A resource (RFC 8707) beyond what the application or the user was given, or one that is no absolute URI.
    ResourceNotGranted: BAD_REQUEST, "resource_not_granted", "this resource was not given", none, AuthServer, always;
    /// A scope beyond what the application or the user was given, or one that is no scope.
    ScopeNotGranted: BAD_REQUEST, "scope_not_granted", "this scope was not given", none, AuthServer, always;
    /// An unknown account, a wrong password or a disabled user; all look alike on purpose.
    LoginFailed: UNAUTHORIZED, "login_failed", "the account or the password is wrong", bare, AuthServer, always;
    /// The users file was replaced where this program cannot read it, or another server has a newer one.
    UsersStale: SERVICE_UNAVAILABLE, "users_stale", "the users are too old to be trusted", none, AuthServer, always;
    /// Too many failures, or too many logins from one address; `Retry-After` has the seconds.
    TooManyAttempts: TOO_MANY_REQUESTS, "too_many_attempts", "too many attempts", none, AuthServer, always;
    /// Too much work is waiting already.
    ServerBusy: SERVICE_UNAVAILABLE, "server_busy", "the server is busy", none, Both, always;
    /// No endpoint has this path; at a sidecar, no document of a protected resource.
    NotFound: NOT_FOUND, "not_found", "nothing is served under this path", none, Both, enforced;
    /// The key store has not been reached yet, so there is no signing key.
    StoreUnavailable: SERVICE_UNAVAILABLE, "store_unavailable", "the key store is not available", none, AuthServer, always;
    /// The store did not say whether it made a change: it may have.
    StoreOutcomeUnknown: SERVICE_UNAVAILABLE, "store_outcome_unknown", "it is not known if the change was made; send the same request again", none, AuthServer, always;
    /// An error of this program; the log holds the cause.
    Internal: INTERNAL_SERVER_ERROR, "internal", "internal error", none, Both, always;
}

impl From<InvalidRequest> for Rejection {
    fn from(invalid: InvalidRequest) -> Self {
        match invalid {
            InvalidRequest::PathNotCanonical => Self::PathNotCanonical,
            InvalidRequest::PathTooLong => Self::PathTooLong,
            InvalidRequest::Destination => Self::RequestDestination,
            InvalidRequest::Framing => Self::RequestFraming,
            InvalidRequest::Malformed => Self::RequestMalformed,
            InvalidRequest::HostMissing => Self::HostMissing,
            InvalidRequest::MethodNotAllowed => Self::MethodNotAllowed,
            InvalidRequest::HeaderTooLarge => Self::RequestHeaderTooLarge,
            InvalidRequest::Timeout => Self::RequestTimeout,
            InvalidRequest::MemoryExhausted => Self::ServerBusy,
        }
    }
}

impl From<InvalidToken> for Rejection {
    fn from(invalid: InvalidToken) -> Self {
        match invalid {
            InvalidToken::AuthorizationRepeated => Self::AuthorizationRepeated,
            InvalidToken::AuthorizationTooLarge => Self::AuthorizationTooLarge,
            InvalidToken::AuthorizationScheme => Self::AuthorizationScheme,
            InvalidToken::Malformed => Self::TokenMalformed,
            InvalidToken::Algorithm => Self::TokenAlgorithm,
            InvalidToken::Header => Self::TokenHeader,
            InvalidToken::KeyUnknown => Self::TokenKeyUnknown,
            InvalidToken::Signature => Self::TokenSignature,
            InvalidToken::Expired => Self::TokenExpired,
            InvalidToken::NotYetValid => Self::TokenNotYetValid,
            InvalidToken::ClaimMissing => Self::TokenClaimMissing,
            InvalidToken::ClaimInvalid => Self::TokenClaimInvalid,
            InvalidToken::Issuer => Self::TokenIssuer,
            InvalidToken::Audience => Self::TokenAudience,
            InvalidToken::Bound => Self::TokenBound,
            InvalidToken::Proof(invalid) => invalid.into(),
            InvalidToken::CertificateMissing => Self::CertificateMissing,
            InvalidToken::CertificateOther => Self::CertificateOther,
        }
    }
}

impl From<InvalidProof> for Rejection {
    fn from(invalid: InvalidProof) -> Self {
        match invalid {
            InvalidProof::Missing => Self::ProofMissing,
            InvalidProof::Repeated => Self::ProofRepeated,
            InvalidProof::Malformed => Self::ProofMalformed,
            InvalidProof::Header => Self::ProofHeader,
            InvalidProof::Algorithm => Self::ProofAlgorithm,
            InvalidProof::Key => Self::ProofKey,
            InvalidProof::OtherKey => Self::ProofKeyOther,
            InvalidProof::Signature => Self::ProofSignature,
            InvalidProof::Claim => Self::ProofClaim,
            InvalidProof::Method => Self::ProofMethod,
            InvalidProof::Target => Self::ProofTarget,
            InvalidProof::Token => Self::ProofToken,
            InvalidProof::Time => Self::ProofTime,
            InvalidProof::Replayed => Self::ProofReplayed,
            InvalidProof::Nonce => Self::ProofNonce,
            InvalidProof::TooMany => Self::ProofTooMany,
        }
    }
}

/// `Retry-After` by default: long enough not to overload a server, short enough that a caller soon notices a
/// recovery.
const RETRY_AFTER_SECONDS: u32 = 5;

impl Rejection {
    /// Returns the rejections that `program` makes, in the table's order.
    pub fn made_by(program: Maker) -> impl Iterator<Item = Self> {
        Self::ALL
            .iter()
            .copied()
            .filter(move |it| it.maker() == program || it.maker() == Maker::Both)
    }

    /// Returns the `Retry-After` field in seconds, for temporary conditions (RFC 9110 §10.2.3). A
    /// caller with a better estimate may send another value.
    pub const fn retry_after(self) -> Option<u32> {
        match self {
            Self::AuthKeysUnavailable
            | Self::AuthKeysStale
            | Self::RevocationsStale
            | Self::ServerBusy
            | Self::StoreUnavailable
            | Self::StoreOutcomeUnknown
            | Self::UsersStale
            | Self::ProofTooMany
            | Self::TooManyAttempts => Some(RETRY_AFTER_SECONDS),
            _ => None,
        }
    }
}

impl std::fmt::Display for Rejection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.reason())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_fits_into_labels_fields_and_bodies() {
        let mut seen = std::collections::HashSet::new();
        for rejection in Rejection::ALL {
            let (reason, status) = (rejection.reason(), rejection.status());
            assert!(seen.insert(reason), "{reason} stands twice");
            assert!(reason.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            let plain = |b: u8| matches!(b, b' '..=b'~') && b != b'"' && b != b'\\';
            assert!(rejection.message().bytes().all(plain), "{rejection}");
            let has_challenge = rejection.www_authenticate().is_some();
            assert!(
                has_challenge || status != StatusCode::UNAUTHORIZED,
                "{rejection}"
            );
            // Only what heals by itself.
            let heals = [
                StatusCode::SERVICE_UNAVAILABLE,
                StatusCode::TOO_MANY_REQUESTS,
            ];
            assert_eq!(
                rejection.retry_after().is_some(),
                heals.contains(&status),
                "{rejection}"
            );
        }
    }

    #[test]
    fn a_request_without_credentials_has_no_error_code() {
        for without in [Rejection::TokenMissing, Rejection::AuthorizationScheme] {
            let challenge = without.www_authenticate();
            assert_eq!(challenge, Some(r#"Bearer realm="postern""#), "{without}");
        }
        assert_eq!(
            Rejection::TokenExpired.www_authenticate(),
            Some(
                r#"Bearer realm="postern", error="invalid_token", error_description="the access token has expired", reason="token_expired""#
            )
        );
    }
}
