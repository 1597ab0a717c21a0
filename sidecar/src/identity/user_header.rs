//! The user header, and one header for each configured claim.
//!
//! [`UserHeader::apply`] is the only code that writes these headers: it strips every look-alike, then sets
//! the headers or leaves them absent. There is no third path.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::HeaderValue;
use http::header::HeaderName;
use postern_contract::rejection::Rejection;
use postern_http::header_alias::cgi_equal;
use postern_token::claims::name::ClaimName;
use postern_token::claims::user_details::CurrentUserDetails;
use postern_token::keys::KeySetIndex;
use postern_token::strict_json::Value;
use serde::Serialize;

use crate::identity::ascii_json::ascii_json;
use crate::identity::claim_text::text_of;
use crate::identity::field_name::FieldName;
pub(crate) use crate::identity::field_name::FieldNameError;
use crate::identity::service_fields::ServiceFields;

/// Configuration of the identity headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UserHeader {
    field: FieldName,
    encoding: Encoding,
    claims: Vec<ClaimHeader>,
    /// Names that are removed from every request, with all names that CGI, WSGI or PHP take for them.
    stripped_names: Vec<HeaderName>,
    /// Max bytes of all values together.
    max_value_bytes: usize,
}

/// Encoding of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Encoding {
    /// JSON in ASCII.
    #[default]
    Json,
    /// The same JSON in base64url without padding (RFC 4648 §5).
    Base64url,
}

/// A header that holds one claim.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ClaimHeader {
    field: FieldName,
    claim: ClaimName,
    /// The keys of the only tokens that fill it; `None` for all.
    key_set: Option<KeySetIndex>,
}

/// Error of a configured claim header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClaimHeaderError {
    #[error("expected NAME=CLAIM, such as X-User-Id=sub")]
    NotAPair,
    #[error("the header's name {0}")]
    Field(#[from] FieldNameError),
    #[error("the claim: {0}")]
    Claim(&'static str),
    #[error("this header is set already")]
    Repeated,
}

/// Header values of one user, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    user: HeaderValue,
    /// Values in the order of the configuration; `None` for a claim that the token lacks.
    claims: Box<[Option<HeaderValue>]>,
}

/// The name of the contract, stripped even if another name is configured: services may still read this one.
const DEFAULT_NAME: HeaderName = HeaderName::from_static("x-current-user");

impl ClaimHeader {
    fn is_filled_by(&self, key_set: KeySetIndex) -> bool {
        match self.key_set {
            Some(only) => only == key_set,
            None => true,
        }
    }
}

impl UserHeader {
    pub(crate) fn new(name: &str, max_value_bytes: usize) -> Result<Self, FieldNameError> {
        let field: FieldName = name.parse()?;
        let mut stripped_names = vec![field.name.clone()];
        if field.name != DEFAULT_NAME {
            stripped_names.push(DEFAULT_NAME);
        }
        Ok(Self {
            field,
            encoding: Encoding::Json,
            claims: Vec::new(),
            stripped_names,
            max_value_bytes,
        })
    }

    pub(crate) const fn with_encoding(mut self, encoding: Encoding) -> Self {
        self.encoding = encoding;
        self
    }

    /// Adds the header of one more claim, as `NAME=CLAIM`, for the tokens of one key set or of all.
    ///
    /// # Errors
    /// [`ClaimHeaderError::Repeated`] for a name that another of these headers has for the same tokens; other
    /// errors for text that is no header of a claim.
    pub(crate) fn with_claim(
        mut self,
        text: &str,
        key_set: Option<KeySetIndex>,
    ) -> Result<Self, ClaimHeaderError> {
        let (field, claim) = text.split_once('=').ok_or(ClaimHeaderError::NotAPair)?;
        let header = ClaimHeader {
            field: field.trim().parse()?,
            claim: claim.trim().parse().map_err(ClaimHeaderError::Claim)?,
            key_set,
        };
        let name = &header.field.name;
        // The default name is taken too: services may still read the user from it.
        if [&self.field.name, &DEFAULT_NAME].contains(&name) {
            return Err(ClaimHeaderError::Repeated);
        }
        for other in &self.claims {
            let has_same_tokens = match key_set {
                Some(key_set) => other.is_filled_by(key_set),
                None => true,
            };
            // A name has letters, digits and hyphens only: names that CGI maps to one variable are equal.
            if has_same_tokens && other.field.name == *name {
                return Err(ClaimHeaderError::Repeated);
            }
        }
        if !self.stripped_names.contains(name) {
            self.stripped_names.push(name.clone());
        }
        self.claims.push(header);
        Ok(self)
    }

    /// Returns the names of the claims that [`UserHeader::identity`] takes, in this order.
    pub(crate) fn extra_claims(&self) -> Vec<ClaimName> {
        self.claims
            .iter()
            .map(|header| header.claim.clone())
            .collect()
    }

    /// Returns the number of these claims.
    pub(crate) fn claim_count(&self) -> usize {
        self.claims.len()
    }

    /// Writes the header values of `user` and of `claims`, in the order of
    /// [`UserHeader::extra_claims`], for a token that these keys verified.
    ///
    /// # Errors
    /// [`Rejection::IdentityTooLarge`] past the budget: services reject an oversize header block
    /// with errors that do not name the cause.
    pub(crate) fn identity(
        &self,
        user: &CurrentUserDetails,
        key_set: KeySetIndex,
        claims: &[Option<Value>],
    ) -> Result<Identity, Rejection> {
        let user = self.user_value(user)?;
        let mut values = Vec::with_capacity(self.claims.len());
        for (header, claim) in self.claims.iter().zip(claims) {
            let text = match claim {
                Some(claim) if header.is_filled_by(key_set) => text_of(claim),
                _ => None,
            };
            values.push(match text {
                Some(text) => Some(value_of(text.into_bytes())?),
                None => None,
            });
        }
        let identity = Identity {
            user,
            claims: values.into(),
        };
        if identity.value_bytes() > self.max_value_bytes {
            return Err(Rejection::IdentityTooLarge);
        }
        Ok(identity)
    }

    /// Writes the fields that have a value as JSON in ASCII.
    fn user_value(&self, user: &CurrentUserDetails) -> Result<HeaderValue, Rejection> {
        let json = ascii_json(&WithoutNulls(user)).map_err(|_| Rejection::Internal)?;
        value_of(match self.encoding {
            Encoding::Json => json,
            Encoding::Base64url => URL_SAFE_NO_PAD.encode(json).into_bytes(),
        })
    }

    /// Reads the user back from an identity that [`UserHeader::identity`] made: a cached token keeps the
    /// header alone.
    ///
    /// # Errors
    /// [`Rejection::Internal`] for any other identity.
    pub(crate) fn user(&self, identity: &Identity) -> Result<CurrentUserDetails, Rejection> {
        let value = identity.user.as_bytes();
        let user = match self.encoding {
            Encoding::Json => serde_json::from_slice(value),
            Encoding::Base64url => {
                let json = URL_SAFE_NO_PAD.decode(value);
                serde_json::from_slice(&json.map_err(|_| Rejection::Internal)?)
            }
        };
        user.map_err(|_| Rejection::Internal)
    }

    /// Strips every field with one of the names, or one that CGI, WSGI or PHP map to the same
    /// variable, then sets the headers of `identity`, if any.
    ///
    /// Call this last: a client could remove a header that is set earlier by naming it in `Connection`.
    pub(crate) fn apply(&self, request: &mut ServiceFields<'_>, identity: Option<&Identity>) {
        request.remove_where(|name| self.is_alias(name));
        let Some(identity) = identity else {
            return;
        };
        request.set(self.field.written.clone(), identity.user.clone());
        for (header, value) in self.claims.iter().zip(&identity.claims) {
            if let Some(value) = value {
                request.set(header.field.written.clone(), value.clone());
            }
        }
    }

    /// Returns true for the name of one of these headers, and for one that CGI, WSGI or PHP map to
    /// the same variable.
    pub(crate) fn is_alias(&self, name: &str) -> bool {
        self.stripped_names
            .iter()
            .any(|ours| cgi_equal(name, ours.as_str()))
    }
}

impl Identity {
    fn values(&self) -> impl Iterator<Item = &HeaderValue> {
        std::iter::once(&self.user).chain(self.claims.iter().flatten())
    }

    /// Returns the length of all values together.
    pub(crate) fn value_bytes(&self) -> usize {
        self.values().map(HeaderValue::len).sum()
    }

    /// Returns the number of configured claims, present or not.
    pub(crate) fn claims(&self) -> usize {
        self.claims.len()
    }

    /// Makes each value shared now, so that the first clone on the hot path does not allocate.
    pub(crate) fn pre_share_buffers(&self) {
        for value in self.values() {
            drop(value.clone());
        }
    }
}

/// Converts `text` without spare capacity: the value may be cached for long.
fn value_of(text: Vec<u8>) -> Result<HeaderValue, Rejection> {
    HeaderValue::from_maybe_shared(Bytes::from(text.into_boxed_slice()))
        .map_err(|_| Rejection::Internal)
}

struct WithoutNulls<'a>(&'a CurrentUserDetails);

impl Serialize for WithoutNulls<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.present())
    }
}

#[cfg(test)]
mod tests;
