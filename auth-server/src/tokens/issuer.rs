//! Makes claims and signs them; nothing else in the program signs.

use aws_lc_rs::error::Unspecified;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::Header;
use postern_token::claims::{Claims, ExtraInfo};
use postern_token::possession::Binding;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::accounts::applications::AppId;
use crate::accounts::grants::Grant;
use crate::accounts::users::{APPLICATION, User};
use crate::keys::pair::SigningKeyPair;

/// Settings that all tokens of this server share.
#[derive(Debug, Clone)]
pub(crate) struct TokenIssuer {
    /// `iss`.
    pub(crate) issuer: String,
    /// `aud`, omitted if empty.
    pub(crate) audience: Vec<String>,
    /// Seconds from `iat` to `exp`.
    pub(crate) lifetime: u32,
}

/// `iat` and `exp` of a token, in seconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IssuedTimes {
    pub(crate) issued_at: i64,
    pub(crate) expires: i64,
}

impl IssuedTimes {
    /// Returns the times of a token that is issued at `now`, and lives for so many seconds.
    pub(crate) const fn new(now: i64, lifetime: i64) -> Self {
        Self {
            issued_at: now,
            expires: now.saturating_add(lifetime),
        }
    }
}

/// The ids in a token, and what it is bound to.
#[derive(Debug, Default)]
pub(crate) struct TokenIdentity {
    /// `jti`.
    pub(crate) token_id: String,
    /// `sid`; `None` for a login without a session.
    pub(crate) session: Option<String>,
    /// `cnf`.
    pub(crate) binding: Option<Binding>,
}

/// `typ` of a token for a user (RFC 7519 §5.1).
pub(crate) const TOKEN_TYPE: &str = "JWT";
/// `typ` of a token for an application (RFC 9068 §2.1).
const ACCESS_TOKEN_TYPE: &str = "at+jwt";

/// The payload. A user without a grant has the contract's claims alone.
#[derive(Debug, Serialize)]
struct Payload<'a> {
    #[serde(flatten)]
    contract: Claims,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(flatten)]
    further: &'a Map<String, Value>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SigningError {
    #[error("cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("cannot be signed")]
    Signature(#[from] Unspecified),
}

impl TokenIssuer {
    /// Signs a JWT for `user` (contract §2.4).
    pub(crate) fn issue(
        &self,
        pair: &SigningKeyPair,
        user: &User,
        times: IssuedTimes,
        ids: TokenIdentity,
    ) -> Result<String, SigningError> {
        let contract = Claims {
            session: ids.session,
            binding: ids.binding,
            subject: Some(user.id.clone()),
            username: user.account.clone(),
            nick_name: Some(user.nick_name.clone()),
            user_id: user.id.clone(),
            extra_info: user.extra_info.clone(),
            ..self.common_claims(&user.grant, times, ids.token_id)
        };
        sign(
            pair,
            TOKEN_TYPE,
            &Payload {
                contract,
                scope: user.grant.scope.text(),
                further: user.grant.claims.members(),
            },
        )
    }

    /// Signs a JWT for an application (RFC 9068) with audience, scope and claims of its grant. It has the
    /// contract's claims as well, so that every verifier of the contract accepts it.
    pub(crate) fn issue_to_application(
        &self,
        pair: &SigningKeyPair,
        id: &AppId,
        grant: &Grant,
        now: i64,
        ids: TokenIdentity,
    ) -> Result<String, SigningError> {
        let contract = Claims {
            subject: Some(id.to_string()),
            client_id: Some(id.to_string()),
            username: id.to_string(),
            user_id: id.to_string(),
            extra_info: ExtraInfo {
                user_type: Some(APPLICATION.to_owned()),
                ..ExtraInfo::default()
            },
            binding: ids.binding,
            ..self.common_claims(grant, self.times_from(now), ids.token_id)
        };
        sign(
            pair,
            ACCESS_TOKEN_TYPE,
            &Payload {
                contract,
                scope: grant.scope.text(),
                further: grant.claims.members(),
            },
        )
    }

    /// Returns the times of a token that is issued at `now`.
    pub(crate) fn times_from(&self, now: i64) -> IssuedTimes {
        IssuedTimes::new(now, self.lifetime.into())
    }

    /// Returns the `aud` of a token; an audience of the grant takes the place of the common one.
    pub(crate) fn audience(&self, grant: &Grant) -> Vec<String> {
        if grant.audience.is_empty() {
            self.audience.clone()
        } else {
            grant.audience.iter().map(ToString::to_string).collect()
        }
    }

    /// Returns the claims about issuer, audience and times.
    fn common_claims(&self, grant: &Grant, times: IssuedTimes, token_id: String) -> Claims {
        Claims {
            issuer: Some(self.issuer.clone()),
            audience: self.audience(grant),
            issued_at: Some(times.issued_at),
            not_before: Some(times.issued_at),
            expires_at: Some(times.expires),
            token_id: Some(token_id),
            ..Claims::default()
        }
    }
}

/// Signs a JWS of this type (`typ`).
pub(crate) fn sign(
    pair: &SigningKeyPair,
    typ: &str,
    payload: &impl Serialize,
) -> Result<String, SigningError> {
    let mut header = Header::new(pair.verification_key().algorithm());
    header.typ = Some(typ.to_owned());
    header.kid = Some(pair.id().as_str().to_owned());
    let mut token = format!("{}.{}", part(&header)?, part(payload)?);
    let signature = pair.sign(token.as_bytes())?;
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut token);
    Ok(token)
}

/// Encodes one of the first two parts of a compact JWS (RFC 7515 §3.1).
fn part(value: &impl Serialize) -> Result<String, serde_json::Error> {
    serde_json::to_vec(value).map(|json| URL_SAFE_NO_PAD.encode(json))
}
