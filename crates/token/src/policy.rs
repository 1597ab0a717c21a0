//! The requirements of a verifier besides a valid signature.

use crate::claims::mapping::ClaimMapping;
use crate::claims::name::ClaimName;

/// The requirements for a token besides a valid signature. The default tolerates no deviation, and leaves
/// claims that need a setting unchecked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerificationPolicy {
    /// The `[[issuer]]` table that describes the issuer, in logs and messages; `None` where flags do.
    pub name: Option<String>,
    /// The required `iss`.
    pub issuer: RequiredIssuer,
    /// The audiences as which the verifier identifies itself.
    pub audience: Audience,
    /// Accepted clock difference for `exp` and `nbf`, in seconds.
    pub leeway_seconds: u32,
    /// True if a token without `exp` counts forever.
    pub accept_no_expiry: bool,
    /// The treatment of tokens that are bound to a key of their holder.
    pub bound_tokens: BoundTokens,
    /// True if a token counts only with a proof of the key that it is bound to (RFC 9449).
    pub requires_proof: bool,
    /// The mapping of another issuer's claims; `None` for the contract's claims.
    pub mapping: Option<ClaimMapping>,
    /// The claims of [`Claims::extra`], as they stand in the token.
    pub extra_claims: Vec<ClaimName>,
}

/// The treatment of a token with `cnf` (RFC 7800).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BoundTokens {
    /// The token is rejected, because no property of its holder is checked.
    #[default]
    Rejected,
    /// The verifier checks that the holder has the key or certificate of
    /// [`Claims::binding`](crate::claims::Claims).
    Checked,
    /// The token counts without a check, because a proxy in front has made it.
    Unchecked,
}

/// The `iss` that a token has to have.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequiredIssuer {
    /// `iss` is not checked.
    #[default]
    Any,
    /// A token may have none.
    Absent,
    /// A token must have this `iss`.
    Is(String),
}

impl RequiredIssuer {
    /// Returns true if a token with this `iss` is of the issuer.
    pub fn accepts(&self, claimed: Option<&str>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => claimed.is_none(),
            Self::Is(issuer) => claimed == Some(issuer),
        }
    }
}

/// The audiences as which a verifier identifies itself: RFC 7519 §4.1.3 makes it reject a token whose
/// `aud` names none of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// A token has to name one of these.
    OneOf(Vec<String>),
    /// A token may name one of these, or have no audience, as the contract's tokens.
    OneOfOrNone(Vec<String>),
    /// A token may name any audience, because it comes back to the server that issued it.
    Any,
}

impl Default for Audience {
    fn default() -> Self {
        Self::OneOfOrNone(Vec::new())
    }
}

impl Audience {
    /// Returns true if a token for these audiences is for this verifier.
    pub fn accepts(&self, named: &[String]) -> bool {
        match self {
            Self::Any => true,
            Self::OneOfOrNone(_) if named.is_empty() => true,
            Self::OneOf(own) | Self::OneOfOrNone(own) => named.iter().any(|one| own.contains(one)),
        }
    }
}
