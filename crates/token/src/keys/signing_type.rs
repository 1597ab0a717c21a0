//! The configured signing method (contract §2.4) and its one algorithm.

use std::{fmt, str::FromStr};

use jsonwebtoken::Algorithm;

/// `rsa` (default), `hmac` or `ecdsa`, the same in both programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SigningType {
    /// RSASSA-PKCS1-v1_5 with SHA-256 (RS256), modulus of 2048 bits or more.
    #[default]
    Rsa,
    /// HMAC with SHA-256 (HS256): every holder of the verification key can also issue tokens.
    Hmac,
    /// ECDSA on P-256 with SHA-256 (ES256).
    Ecdsa,
}

impl SigningType {
    /// All signing types, for `--help` and tables.
    pub const ALL: [Self; 3] = [Self::Rsa, Self::Hmac, Self::Ecdsa];

    /// Returns the only algorithm of this type. The key decides, never the token.
    pub const fn algorithm(self) -> Algorithm {
        match self {
            Self::Rsa => Algorithm::RS256,
            Self::Hmac => Algorithm::HS256,
            Self::Ecdsa => Algorithm::ES256,
        }
    }

    /// Returns the word of the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rsa => "rsa",
            Self::Hmac => "hmac",
            Self::Ecdsa => "ecdsa",
        }
    }
}

impl fmt::Display for SigningType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SigningType {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|signing_type| signing_type.as_str() == word)
            .ok_or("expected rsa, hmac or ecdsa")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_2_4_the_three_words_and_the_default() {
        for signing_type in SigningType::ALL {
            assert_eq!(signing_type.to_string().parse(), Ok(signing_type));
        }
        assert_eq!(SigningType::default(), SigningType::Rsa);
        for word in ["", "RSA", "none", "rs256"] {
            assert!(word.parse::<SigningType>().is_err(), "{word}");
        }
    }
}
