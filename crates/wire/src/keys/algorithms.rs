//! The asymmetric algorithms of tokens, by name.
//!
//! Left out: `none`, which is no signature; HMAC, where every verifier can issue tokens; ES512,
//! which the library does not verify; ES256K.

use std::{fmt, str::FromStr};

use jsonwebtoken::Algorithm;

/// One asymmetric algorithm of RFC 7518 §3.1 or RFC 8037.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsymmetricAlgorithm(Algorithm);

impl AsymmetricAlgorithm {
    /// All algorithms that can be verified.
    const ALL: [Algorithm; 9] = [
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

    /// Returns all algorithms: of those for one type of key, the usual one first.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().map(Self)
    }

    /// Returns the algorithm in the type that keys use.
    pub const fn jws(self) -> Algorithm {
        self.0
    }
}

/// Parses the name of an algorithm, as it stands in a token's header. `Ed25519` (RFC 9864) is the only
/// curve on which `EdDSA` is verified.
pub(crate) fn parse(name: &str) -> Option<Algorithm> {
    match name {
        "Ed25519" => Some(Algorithm::EdDSA),
        name => name.parse().ok(),
    }
}

/// Returns the name of any key's algorithm, as it stands in a token's header.
#[must_use]
pub const fn name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::HS256 => "HS256",
        Algorithm::HS384 => "HS384",
        Algorithm::HS512 => "HS512",
        Algorithm::RS256 => "RS256",
        Algorithm::RS384 => "RS384",
        Algorithm::RS512 => "RS512",
        Algorithm::PS256 => "PS256",
        Algorithm::PS384 => "PS384",
        Algorithm::PS512 => "PS512",
        Algorithm::ES256 => "ES256",
        Algorithm::ES384 => "ES384",
        Algorithm::EdDSA => "EdDSA",
        // A later version of the library may have more, for which no key exists.
        _ => "unknown",
    }
}

/// Formats the name as it stands in a token's header.
impl fmt::Display for AsymmetricAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name(self.0))
    }
}

/// The name is not on the list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 or EdDSA")]
pub struct UnknownAlgorithm;

impl FromStr for AsymmetricAlgorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut known = Self::ALL.into_iter();
        let named = parse(text).and_then(|named| known.find(|known| *known == named));
        named.map(Self).ok_or(UnknownAlgorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_asymmetric_algorithms_have_a_name_here() {
        for algorithm in AsymmetricAlgorithm::ALL {
            let name = name(algorithm);
            assert_eq!(name.parse(), Ok(algorithm), "the library agrees");
            let parsed = name.parse::<AsymmetricAlgorithm>();
            let found = parsed.as_ref().map(ToString::to_string);
            assert_eq!(found, Ok(name.to_owned()));
            assert_eq!(parsed.map(AsymmetricAlgorithm::jws), Ok(algorithm));
        }
        for name in [
            "", "none", "None", "HS256", "HS384", "HS512", "rs256", "ES512", "RSA-OAEP",
        ] {
            let expected = Err(UnknownAlgorithm);
            assert_eq!(name.parse::<AsymmetricAlgorithm>(), expected, "{name}");
        }
    }
}
