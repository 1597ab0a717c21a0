//! The names by which the lines of a list may end a token: digests of the ids of the token, its session, its
//! user and its application. An id of another issuer counts together with that issuer.

use std::fmt;
use std::str::FromStr;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use super::Malformed;
use crate::claims::Claims;
use crate::digest::sha256;

/// Bytes of a digest: enough that no two of a million ids share one.
const DIGEST_BYTES: usize = 12;

/// The beginning of the SHA-256 of an id and its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RevocationDigest([u8; DIGEST_BYTES]);

impl RevocationDigest {
    /// Returns the digest of a token's `jti`, or of the `sid` of all tokens of a session. Both have one kind,
    /// because no `jti` equals a `sid`.
    pub fn for_token(id: &str) -> Self {
        Self::for_id("token", id)
    }

    /// Returns the digest of a user's id.
    pub fn for_user(id: &str) -> Self {
        Self::for_id("user", id)
    }

    /// Returns the digest of an application's id.
    pub fn for_application(id: &str) -> Self {
        Self::for_id("application", id)
    }

    /// Returns the digest of a session at another issuer.
    #[must_use]
    pub fn for_foreign_session(issuer: &str, id: &str) -> Self {
        Self::for_foreign("session", issuer, id)
    }

    /// Returns the digest of a user of another issuer, by the `sub` there.
    #[must_use]
    pub fn for_foreign_user(issuer: &str, subject: &str) -> Self {
        Self::for_foreign("subject", issuer, subject)
    }

    /// Returns the digest of another issuer itself.
    #[must_use]
    pub fn for_issuer(issuer: &str) -> Self {
        Self::for_id("issuer", issuer)
    }

    /// Returns the digest of a statement of another issuer, by its `jti`.
    #[must_use]
    pub fn for_statement(issuer: &str, id: &str) -> Self {
        Self::for_foreign("statement", issuer, id)
    }

    fn for_foreign(kind: &str, issuer: &str, id: &str) -> Self {
        // The length separates the two: the end of an issuer could be the beginning of an id.
        Self::for_id(kind, &format!("{}:{issuer}:{id}", issuer.len()))
    }

    /// Returns the digest of a whole token, whatever it is.
    #[must_use]
    pub fn for_text(text: &str) -> Self {
        Self::for_id("text", text)
    }

    fn for_id(kind: &str, id: &str) -> Self {
        // With the kind: the id of a user may equal the `jti` of a token.
        let digest = sha256(format!("{kind}:{id}"));
        Self(digest.first_chunk().copied().unwrap_or_default())
    }
}

impl fmt::Display for RevocationDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl From<RevocationDigest> for String {
    fn from(digest: RevocationDigest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for RevocationDigest {
    type Error = Malformed;

    fn try_from(text: String) -> Result<Self, Malformed> {
        text.parse()
    }
}

impl FromStr for RevocationDigest {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let mut bytes = [0; DIGEST_BYTES];
        match URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) {
            Ok(DIGEST_BYTES) => Ok(Self(bytes)),
            _ => Err(Malformed),
        }
    }
}

/// The digests under which a list may name one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenDigests {
    names: Names,
    /// Set for a token of another issuer, unless the list is of that one.
    foreign: Option<Names>,
    /// The time of issuance in seconds since the epoch.
    pub(super) issued_at: Option<i64>,
}

/// The names of a token at the auth server whose list it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) token: Option<RevocationDigest>,
    pub(super) session: Option<RevocationDigest>,
    pub(super) user: Option<RevocationDigest>,
    /// The application that got the token, or the other issuer that issued it.
    pub(super) application: Option<RevocationDigest>,
}

impl TokenDigests {
    /// Returns the digests of a verified token.
    pub fn from_claims(claims: &Claims) -> Self {
        let of = |name: &Option<String>, digest: fn(&str) -> RevocationDigest| {
            name.as_deref().map(digest)
        };
        let is_foreign = claims.mapped_user.is_some();
        let user = if is_foreign {
            // A mapping may take the user from any claim; issuers and lists name users by `sub`.
            claims.subject.as_deref()
        } else {
            Some(claims.user_id.as_str())
        };
        Self {
            names: Names {
                token: of(&claims.token_id, RevocationDigest::for_token),
                session: of(&claims.session, RevocationDigest::for_token),
                user: user.map(RevocationDigest::for_user),
                application: of(&claims.client_id, RevocationDigest::for_application),
            },
            foreign: if is_foreign {
                Some(Names::foreign(claims))
            } else {
                None
            },
            issued_at: claims.issued_at,
        }
    }

    /// Returns the digests for a list of `issuer`, whose own tokens have other names than foreign ones.
    #[must_use]
    pub(super) fn in_list_of(self, issuer: Option<RevocationDigest>) -> Self {
        let foreign = self.foreign.filter(|names| names.application != issuer);
        Self { foreign, ..self }
    }

    pub(super) fn names(&self) -> Names {
        self.foreign.unwrap_or(self.names)
    }
}

impl Names {
    /// Returns the names of a token of another issuer.
    fn foreign(claims: &Claims) -> Self {
        let issuer = claims.issuer.as_deref().unwrap_or_default();
        let session = claims.session.as_deref();
        let user = claims.subject.as_deref();
        Self {
            token: None,
            session: session.map(|id| RevocationDigest::for_foreign_session(issuer, id)),
            user: user.map(|id| RevocationDigest::for_foreign_user(issuer, id)),
            application: Some(RevocationDigest::for_issuer(issuer)),
        }
    }
}
