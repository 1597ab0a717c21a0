//! The asymmetric algorithms of tokens, by name (RFC 7518 §3.1, RFC 8037).
//!
//! Left out: `none`, which is no signature; HMAC, where every verifier can issue tokens; ES512,
//! which the library does not verify; ES256K.

use jsonwebtoken::Algorithm;

/// All asymmetric algorithms that can be verified; for each type of key the usual algorithm first.
pub const ASYMMETRIC: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Returns the names of all asymmetric algorithms, with which proofs may be signed too.
#[must_use]
pub fn asymmetric_names() -> [String; ASYMMETRIC.len()] {
    ASYMMETRIC.map(name)
}

/// Parses the name of an asymmetric algorithm, in the form of a token's header.
///
/// # Errors
/// The known names.
pub fn asymmetric(name: &str) -> Result<Algorithm, &'static str> {
    parse(name)
        .filter(|named| ASYMMETRIC.contains(named))
        .ok_or("expected RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 or EdDSA")
}

/// Parses the name of any algorithm. `Ed25519` (RFC 9864) is the only curve on which `EdDSA` is
/// verified.
pub(crate) fn parse(name: &str) -> Option<Algorithm> {
    match name {
        "Ed25519" => Some(Algorithm::EdDSA),
        name => name.parse().ok(),
    }
}

/// Returns the name of any algorithm, which the library has in its `Debug` form alone.
pub(crate) fn name(algorithm: Algorithm) -> String {
    format!("{algorithm:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_asymmetric_algorithms_have_a_name_here() {
        for algorithm in ASYMMETRIC {
            assert_eq!(asymmetric(&name(algorithm)), Ok(algorithm));
        }
        let others = "none None HS256 HS384 HS512 rs256 ES512 RSA-OAEP";
        for name in others.split(' ').chain([""]) {
            assert!(asymmetric(name).is_err(), "{name}");
        }
    }
}
