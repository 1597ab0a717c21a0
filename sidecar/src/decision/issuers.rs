//! The accepted issuers.
//!
//! Of several, the place of a token and its unverified `iss` select one of them and nothing else: the keys and
//! the rules of that issuer decide, and they check `iss` again after the signature.

use http::HeaderName;
use postern_contract::rejection::Rejection;
use postern_http::folding::begins_alike;
use postern_token::claims::name::ClaimName;
use postern_token::claims::user_details::CurrentUserDetails;
use postern_token::keys::KeySetIndex;
use postern_token::policy::{RequiredIssuer, VerificationPolicy};
use postern_token::sources::bearer::{Bearer, TokenLocation};
use postern_token::unverified::detail;
use postern_token::verifier::unverified_issuer;

/// One value of `iss`, and the rules for its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Issuer {
    /// Among several, it requires the `iss` that selects it, or no `iss`.
    pub(crate) policy: VerificationPolicy,
    /// Its keys in [`IssuerKeys`](crate::issuers::issuer_keys::IssuerKeys), which several tenants of one
    /// key set share.
    pub(crate) key_set: KeySetIndex,
    /// The only header of its tokens; without one they come in the usual places.
    pub(crate) token_header: Option<HeaderName>,
    /// The names of its users.
    pub(crate) users: UserNames,
}

/// The names by which the service tells the users of one issuer from those of the others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct UserNames {
    /// Put before `id` and `account`.
    pub(crate) prefix: String,
    /// The beginnings of the names of other issuers' users.
    pub(crate) other_beginnings: Vec<String>,
}

impl UserNames {
    /// Puts the prefix before the names of a user.
    ///
    /// # Errors
    /// [`Rejection::TokenUser`] for a name that begins as those of another issuer's users do.
    pub(crate) fn apply(
        &self,
        mut user: CurrentUserDetails,
    ) -> Result<CurrentUserDetails, Rejection> {
        for name in [&mut user.id, &mut user.account].into_iter().flatten() {
            name.insert_str(0, &self.prefix);
            let mut other_beginnings = self.other_beginnings.iter();
            // An issuer without a prefix chooses its ids freely: one may begin with another's.
            if other_beginnings.any(|beginning| begins_alike(name, beginning)) {
                return Err(Rejection::TokenUser);
            }
        }
        Ok(user)
    }
}

/// All accepted issuers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Issuers {
    issuers: Vec<Issuer>,
    /// Each token header once.
    token_headers: Vec<HeaderName>,
    /// For each key set the position of its token header.
    header_of_keys: Vec<Option<usize>>,
}

impl Issuers {
    /// Creates the list. Tenants of one key set are neighbours, and the key sets are numbered from
    /// zero.
    pub(crate) fn new(issuers: Vec<Issuer>) -> Self {
        let mut token_headers: Vec<HeaderName> = Vec::new();
        let mut header_of_keys = Vec::new();
        for tenants in issuers.chunk_by(|one, next| one.key_set == next.key_set) {
            let Some(name) = tenants.first().and_then(|it| it.token_header.as_ref()) else {
                header_of_keys.push(None);
                continue;
            };
            let position = match token_headers.iter().position(|known| known == name) {
                Some(position) => position,
                None => {
                    token_headers.push(name.clone());
                    token_headers.len() - 1
                }
            };
            header_of_keys.push(Some(position));
        }
        Self {
            issuers,
            token_headers,
            header_of_keys,
        }
    }

    /// Reads these claims from the tokens of each issuer.
    pub(crate) fn set_extra_claims(&mut self, claims: &[ClaimName]) {
        for issuer in &mut self.issuers {
            issuer.policy.extra_claims = claims.to_vec();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Issuer> {
        self.issuers.iter()
    }

    /// Returns the rules for the tokens that a key set verifies. Those of its tenants differ in `iss`
    /// alone.
    pub(crate) fn policy(&self, key_set: KeySetIndex) -> Option<&VerificationPolicy> {
        Some(&self.issuers.iter().find(|it| it.key_set == key_set)?.policy)
    }

    /// Returns the token headers, in the order of their positions.
    pub(crate) fn token_headers(&self) -> &[HeaderName] {
        &self.token_headers
    }

    /// Returns each key set once, of the issuers whose tokens come from this place.
    pub(crate) fn key_sets(&self, location: TokenLocation) -> impl Iterator<Item = KeySetIndex> {
        self.header_of_keys
            .iter()
            .enumerate()
            .filter(move |(_, header)| **header == location.header())
            .map(|(index, _)| KeySetIndex(index))
    }

    /// Returns the issuer where there is only one, whose tokens come in the usual places.
    pub(crate) fn only(&self) -> Option<&Issuer> {
        match &self.issuers[..] {
            [only] if only.token_header.is_none() => Some(only),
            _ => None,
        }
    }

    /// Describes a token of none of them, for people.
    pub(crate) fn unknown(&self, token: Bearer<'_>) -> String {
        let claimed = match unverified_issuer(token) {
            Ok(claimed) => claimed,
            Err(_) => return detail::unreadable(token.as_str()).unwrap_or_default(),
        };
        let known = self.iter().filter_map(|it| match &it.policy.issuer {
            RequiredIssuer::Is(issuer) => Some(issuer),
            RequiredIssuer::Any | RequiredIssuer::Absent => None,
        });
        let claimed = match claimed {
            Some(claimed) => format!("{claimed:?}"),
            None => "absent or no text".to_owned(),
        };
        format!(
            "its `iss` is {claimed}; `issuer` of the tables {}, each in its place (`token-header`)",
            detail::quoted(known)
        )
    }

    /// Selects the issuer of a token: of several by its place and the `iss` that it claims.
    ///
    /// # Errors
    /// [`Rejection::TokenIssuer`] for any other, [`Rejection::TokenMalformed`].
    pub(crate) fn select(&self, token: Bearer<'_>) -> Result<&Issuer, Rejection> {
        if let Some(only) = self.only() {
            return Ok(only);
        }
        // Only selects: the rules of that issuer require this `iss` again after the signature.
        let claimed = unverified_issuer(token)?;
        let header = token.location().header();
        for issuer in self.iter() {
            let is_named = issuer.policy.issuer.accepts(claimed.as_deref());
            if is_named && self.header_of_keys.get(issuer.key_set.0) == Some(&header) {
                return Ok(issuer);
            }
        }
        Err(Rejection::TokenIssuer)
    }
}
