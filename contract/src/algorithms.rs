//! The algorithms that tokens of any issuer may be signed with: asymmetric ones by name.
//!
//! Not among them: `none`, which is no signature; HMAC, where whoever verifies may issue; ES512, which
//! the library does not verify; ES256K.

use std::{fmt, str::FromStr};

use jsonwebtoken::Algorithm;

/// One asymmetric algorithm of RFC 7518 §3.1 or RFC 8037.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsymmetricAlgorithm(Algorithm);

impl AsymmetricAlgorithm {
    /// All that can be verified, with their names.
    const NAMED: [(&'static str, Algorithm); 9] = [
        ("RS256", Algorithm::RS256),
        ("RS384", Algorithm::RS384),
        ("RS512", Algorithm::RS512),
        ("PS256", Algorithm::PS256),
        ("PS384", Algorithm::PS384),
        ("PS512", Algorithm::PS512),
        ("ES256", Algorithm::ES256),
        ("ES384", Algorithm::ES384),
        ("EdDSA", Algorithm::EdDSA),
    ];

    /// The algorithm as keys know it.
    pub const fn jws(self) -> Algorithm {
        self.0
    }
}

/// The name as it stands in a token's header.
impl fmt::Display for AsymmetricAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::NAMED.iter().find(|(_, other)| *other == self.0);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}

/// The name is none of the list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 or EdDSA")]
pub struct UnknownAlgorithm;

impl FromStr for AsymmetricAlgorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let named = Self::NAMED.iter().find(|(other, _)| *other == name);
        named
            .map(|(_, algorithm)| Self(*algorithm))
            .ok_or(UnknownAlgorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_asymmetric_algorithms_have_a_name_here() {
        for (name, algorithm) in AsymmetricAlgorithm::NAMED {
            let parsed = name.parse::<AsymmetricAlgorithm>();
            assert_eq!(
                parsed.as_ref().map(ToString::to_string),
                Ok(name.to_owned())
            );
            assert_eq!(parsed.map(AsymmetricAlgorithm::jws), Ok(algorithm));
        }
        for name in [
            "", "none", "None", "HS256", "HS384", "HS512", "rs256", "ES512", "RSA-OAEP",
        ] {
            assert_eq!(
                name.parse::<AsymmetricAlgorithm>(),
                Err(UnknownAlgorithm),
                "{name}"
            );
        }
    }
}
