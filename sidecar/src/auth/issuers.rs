//! The accepted issuers, where there may be several.
//!
//! The unverified `iss` of a token selects one of them and nothing else: the keys and the rules of
//! that issuer decide, and they check `iss` again behind the signature.

use contract::rejection::Rejection;
use contract::token::bearer::Bearer;
use contract::token::claim_name::ClaimName;
use contract::token::verifier::{VerificationPolicy, unverified_issuer};

/// One value of `iss`, and the rules for its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Issuer {
    /// The configured name.
    pub(crate) name: String,
    /// Requires the `iss` that selects it.
    pub(crate) policy: VerificationPolicy,
    /// The position of its keys in [`IssuerKeys`](crate::keys::issuer_keys::IssuerKeys), which
    /// several tenants of one key set share.
    pub(crate) keys: usize,
}

/// All accepted issuers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Issuers(Vec<Issuer>);

impl Issuers {
    pub(crate) const fn new(issuers: Vec<Issuer>) -> Self {
        Self(issuers)
    }

    /// Reads these claims from the tokens of each issuer.
    pub(crate) fn set_extra_claims(&mut self, claims: &[ClaimName]) {
        for issuer in &mut self.0 {
            issuer.policy.extra_claims = claims.to_vec();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Issuer> {
        self.0.iter()
    }

    /// Returns the position of each key set once.
    pub(crate) fn key_sets(&self) -> std::ops::Range<usize> {
        // Tenants of one key set are neighbours, and the key sets are numbered from zero.
        0..self.0.last().map_or(0, |last| last.keys + 1)
    }

    /// Selects the issuer of a token by the `iss` that it claims.
    ///
    /// # Errors
    /// [`Rejection::TokenIssuer`] for any other, [`Rejection::TokenMalformed`].
    pub(crate) fn select(&self, token: Bearer<'_>) -> Result<&Issuer, Rejection> {
        let claimed = unverified_issuer(token)?.ok_or(Rejection::TokenIssuer)?;
        let requires_it = |issuer: &&Issuer| issuer.policy.issuer.as_ref() == Some(&claimed);
        self.iter().find(requires_it).ok_or(Rejection::TokenIssuer)
    }
}
