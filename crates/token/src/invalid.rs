//! The reasons for which a request has no valid token, and no valid proof of its key.

/// A token that is not accepted, or credentials that hold no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum InvalidToken {
    /// Credentials twice in one place: two fields, two values of a cookie.
    #[error("credentials twice")]
    AuthorizationRepeated,
    /// The `Authorization` field is longer than the configured limit.
    #[error("credentials that are too long")]
    AuthorizationTooLarge,
    /// Another scheme than `Bearer`.
    #[error("another scheme than Bearer")]
    AuthorizationScheme,
    /// Not a compact JWS of three base64url parts that hold JSON objects without duplicate members.
    #[error("malformed")]
    Malformed,
    /// Another algorithm than the key's.
    #[error("an algorithm that is not allowed")]
    Algorithm,
    /// A forbidden header member, or another `typ`.
    #[error("a header member that is not allowed")]
    Header,
    /// A `kid` that is not in the key set.
    #[error("an unknown key")]
    KeyUnknown,
    /// A signature that does not verify with the key.
    #[error("an invalid signature")]
    Signature,
    /// A token past `exp` plus leeway.
    #[error("expired")]
    Expired,
    /// A token before `nbf` minus leeway.
    #[error("not valid yet")]
    NotYetValid,
    /// A required claim is absent.
    #[error("a missing claim")]
    ClaimMissing,
    /// A claim of the wrong type or with an impossible value.
    #[error("an invalid claim")]
    ClaimInvalid,
    /// `iss` is absent or not the configured issuer.
    #[error("another issuer")]
    Issuer,
    /// `aud` names none of the audiences of this program, or is absent where one is required.
    #[error("another audience")]
    Audience,
    /// A token with `cnf` (RFC 7800) that came without the demanded proof, or a plain token that came as if
    /// it were bound.
    #[error("bound to a key of its holder")]
    Bound,
    /// The token's key was not proven.
    #[error("with a proof that is {0}")]
    Proof(#[from] InvalidProof),
    /// The token is bound to a certificate, and the client presented no certificate.
    #[error("without the certificate that it is bound to")]
    CertificateMissing,
    /// The token is bound to another certificate than the client's.
    #[error("bound to another certificate")]
    CertificateOther,
}

/// The reasons for which a request has no valid proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum InvalidProof {
    /// No `DPoP` field, where a proof is required.
    #[error("missing")]
    Missing,
    /// More than one `DPoP` field.
    #[error("repeated")]
    Repeated,
    /// Not a compact JWS of three base64url parts that hold JSON objects without duplicate members.
    #[error("malformed")]
    Malformed,
    /// Another `typ`, or a header member that is not allowed.
    #[error("a header that is not allowed")]
    Header,
    /// An algorithm that is symmetric, `none`, or not the key's.
    #[error("an algorithm that is not allowed")]
    Algorithm,
    /// The proof holds no public key that can verify it.
    #[error("an unusable key")]
    Key,
    /// A signature that does not verify with the key in the proof.
    #[error("an invalid signature")]
    Signature,
    /// A required claim is missing, or of another type.
    #[error("a missing or invalid claim")]
    Claim,
    /// Another `htm` than the method.
    #[error("another method")]
    Method,
    /// Another `htu` than a URL of the request.
    #[error("another URL")]
    Target,
    /// An `iat` outside of the window.
    #[error("too old, or of the future")]
    Time,
    /// Another `ath` than the token's digest.
    #[error("another token")]
    Token,
    /// Another key than the token's.
    #[error("another key")]
    OtherKey,
    /// The proof has no nonce of this program, or an old one.
    #[error("without a current nonce")]
    Nonce,
    /// A `jti` that was used.
    #[error("used before")]
    Replayed,
    /// More proofs of the key than are remembered.
    #[error("one of too many")]
    TooMany,
}
