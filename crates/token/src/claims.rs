//! The claims of a token (contract §2.4) and its user.

pub mod mapping;
pub mod name;
pub mod user_details;

use serde::Serialize;

use crate::claims::mapping::ClaimMapping;
use crate::claims::name::ClaimName;
use crate::claims::user_details::CurrentUserDetails;
use crate::invalid::InvalidToken;
use crate::possession::Binding;
use crate::strict_json::{Map, Value, is_whole, member};

/// The claims of a token. Their JSON, without absent values, is the payload of the auth server's tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Claims {
    /// `iss` (RFC 7519 §4.1.1).
    #[serde(rename = "iss", skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// `sub`; the auth server issues the user id.
    #[serde(rename = "sub", skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// `aud`: one string or several.
    #[serde(rename = "aud", skip_serializing_if = "Vec::is_empty")]
    pub audience: Vec<String>,
    /// `iat` in seconds since the epoch.
    #[serde(rename = "iat", skip_serializing_if = "Option::is_none")]
    pub issued_at: Option<i64>,
    /// `nbf` in seconds since the epoch; a fraction is rounded up.
    #[serde(rename = "nbf", skip_serializing_if = "Option::is_none")]
    pub not_before: Option<i64>,
    /// `exp` in seconds since the epoch; a fraction is rounded down.
    #[serde(rename = "exp", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
    /// `jti`.
    #[serde(rename = "jti", skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,
    /// `sid`: the session, with a refresh token, to which the token belongs.
    #[serde(rename = "sid", skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// `cnf` (RFC 7800 §3.1), unless the verifier does not check bindings.
    #[serde(rename = "cnf", skip_serializing_if = "Option::is_none")]
    pub binding: Option<Binding>,
    /// `client_id` of an application's own token (RFC 9068 §2.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The account.
    pub username: String,
    /// The name to show.
    #[serde(rename = "nickName", skip_serializing_if = "Option::is_none")]
    pub nick_name: Option<String>,
    /// The user's id.
    #[serde(rename = "userId")]
    pub user_id: String,
    /// The map of contract §2.4.
    #[serde(rename = "extraInfo")]
    pub extra_info: ExtraInfo,
    /// The whole user of a mapping, which has more fields than the contract's claims. Never issued.
    #[serde(skip)]
    pub mapped_user: Option<Box<CurrentUserDetails>>,
    /// The claims of [`VerificationPolicy::extra_claims`](crate::policy::VerificationPolicy), in
    /// its order; `None` for a missing claim. Never issued.
    #[serde(skip)]
    pub extra: Vec<Option<Value>>,
}

/// The times of a token, checked at each use: a signature stays valid, the time does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// `nbf` in seconds since the epoch.
    pub not_before: Option<i64>,
    /// `exp` in seconds since the epoch.
    pub expires_at: Option<i64>,
}

/// The extra-info map, string to string; absent values are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtraInfo {
    /// Address of the avatar picture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avatar: Option<String>,
    /// Telephone number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telephone: Option<String>,
    /// User type, such as `member`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_type: Option<String>,
    /// The tenant's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// The value of the users file; the contract gives it no meaning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grade: Option<String>,
}

impl Claims {
    /// Reads the members of a token's payload, with `mapping` for the claims of another issuer.
    /// Callers verify the signature before any claim counts.
    ///
    /// # Errors
    /// [`InvalidToken::Audience`] for an audience that is empty, or neither text nor a list of texts;
    /// [`InvalidToken::ClaimMissing`] without `username` or `userId`, or without the claims that
    /// `mapping` needs for `account` and `id`; [`InvalidToken::ClaimInvalid`] for a claim of the
    /// wrong type.
    pub(crate) fn from_members(
        members: Map,
        mapping: Option<&ClaimMapping>,
        extra: &[ClaimName],
    ) -> Result<Self, InvalidToken> {
        let extra = extra
            .iter()
            .map(|name| name.find(&members).cloned())
            .collect();
        let claims = match mapping {
            None => Self::from_contract(members),
            Some(mapping) => Self::from_another_issuer(members, mapping),
        };
        Ok(Self { extra, ..claims? })
    }

    fn from_contract(mut members: Map) -> Result<Self, InvalidToken> {
        Ok(Self {
            username: required_text(&mut members, "username")?,
            nick_name: text(&mut members, "nickName")?,
            user_id: required_text(&mut members, "userId")?,
            extra_info: ExtraInfo::from_members(&mut members)?,
            ..Self::registered(&mut members)?
        })
    }

    fn from_another_issuer(mut members: Map, mapping: &ClaimMapping) -> Result<Self, InvalidToken> {
        let user = mapping.user(&members)?;
        // A logout token or another statement about events (RFC 8417 §2.2): some have the type of an access token.
        if matches!(member(&members, "events"), Some(Value::Object(_))) {
            return Err(InvalidToken::ClaimInvalid);
        }
        let audience = mapping.audience(&members).cloned();
        members.insert("aud".to_owned(), audience.unwrap_or_default());
        // `sub` and `iat` have a meaning for revocations alone: no value of them is an error.
        Ok(Self {
            subject: lenient_name(&mut members, "sub"),
            issued_at: numeric_date(&mut members, "iat", f64::floor).unwrap_or_default(),
            token_id: lenient_name(&mut members, "jti"),
            username: user.account.clone().unwrap_or_default(),
            user_id: user.id.clone().unwrap_or_default(),
            mapped_user: Some(Box::new(user)),
            ..Self::registered(&mut members)?
        })
    }

    /// Reads the claims of RFC 7519 §4.1.
    pub(crate) fn registered(members: &mut Map) -> Result<Self, InvalidToken> {
        Ok(Self {
            issuer: name(members, "iss")?,
            subject: name(members, "sub")?,
            audience: audience(members.remove("aud"))?,
            issued_at: numeric_date(members, "iat", f64::floor)?,
            not_before: numeric_date(members, "nbf", f64::ceil)?,
            expires_at: numeric_date(members, "exp", f64::floor)?,
            token_id: name(members, "jti")?,
            session: lenient_name(members, "sid"),
            client_id: lenient_text(members, "client_id"),
            ..Self::default()
        })
    }

    /// Returns a claim of the wrong type, without which the reader accepts the other claims.
    pub(super) fn invalid<'m>(
        members: &'m Map,
        mapping: Option<&ClaimMapping>,
    ) -> Option<(&'m String, &'m Value)> {
        let read = |members: &Map| Self::from_members(members.clone(), mapping, &[]);
        // Each claim is left out in turn and stays out, until the rest can be read.
        let mut left = members.clone();
        for (name, value) in members {
            left.remove(name);
            match read(&left) {
                Err(InvalidToken::ClaimInvalid) => {}
                // A required claim stays for the second search, whatever it holds.
                Err(InvalidToken::ClaimMissing) => {
                    left.insert(name.clone(), value.clone());
                }
                _ => return Some((name, value)),
            }
        }
        // Of the required claims, the one in whose place a text would be accepted.
        members.iter().find(|(name, _)| {
            let mut replaced = left.clone();
            replaced
                .insert((*name).clone(), Value::String("x".to_owned()))
                .is_some()
                && read(&replaced) != Err(InvalidToken::ClaimInvalid)
        })
    }

    /// Returns the times between which the token is valid.
    pub const fn validity(&self) -> Validity {
        Validity {
            not_before: self.not_before,
            expires_at: self.expires_at,
        }
    }

    /// Returns the user of `/current/user/details` (contract §2.5).
    pub fn into_user_details(self) -> CurrentUserDetails {
        if let Some(user) = self.mapped_user {
            return *user;
        }
        CurrentUserDetails {
            id: Some(self.user_id),
            tenant_id: self.extra_info.tenant_id,
            client_id: self.client_id,
            nick_name: self.nick_name,
            avatar: self.extra_info.avatar,
            telephone: self.extra_info.telephone,
            account: Some(self.username),
            user_type: self.extra_info.user_type,
            grade: self.extra_info.grade,
            ..CurrentUserDetails::default()
        }
    }
}

impl ExtraInfo {
    fn from_members(members: &mut Map) -> Result<Self, InvalidToken> {
        let mut entries = match members.remove("extraInfo") {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Object(entries)) => entries,
            Some(_) => return Err(InvalidToken::ClaimInvalid),
        };
        // The contract requires strings, even in entries that are not read here.
        if !entries
            .values()
            .all(|v| v.as_str().is_some() || *v == Value::Null)
        {
            return Err(InvalidToken::ClaimInvalid);
        }
        Ok(Self {
            avatar: text(&mut entries, "avatar")?,
            telephone: text(&mut entries, "telephone")?,
            user_type: text(&mut entries, "userType")?,
            tenant_id: text(&mut entries, "tenantId")?,
            grade: text(&mut entries, "grade")?,
        })
    }
}

fn text(members: &mut Map, name: &str) -> Result<Option<String>, InvalidToken> {
    match members.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(InvalidToken::ClaimInvalid),
    }
}

/// Returns a claim that is the name of a user, an issuer or a token.
fn name(members: &mut Map, name: &str) -> Result<Option<String>, InvalidToken> {
    match text(members, name)? {
        Some(text) if !is_whole(&text) => Err(InvalidToken::ClaimInvalid),
        text => Ok(text),
    }
}

/// Returns a name by which a revocation may end the token; no other value is an error.
fn lenient_name(members: &mut Map, name: &str) -> Option<String> {
    Some(members.remove(name)?.name()?.to_owned())
}

/// Returns a claim that no decision about the request needs, so that no value is an error.
fn lenient_text(members: &mut Map, name: &str) -> Option<String> {
    match members.remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Returns a claim that identifies the user: the service could take an empty claim for another user.
fn required_text(members: &mut Map, name: &str) -> Result<String, InvalidToken> {
    match self::name(members, name)? {
        Some(text) if text.is_empty() => Err(InvalidToken::ClaimInvalid),
        Some(text) => Ok(text),
        None => Err(InvalidToken::ClaimMissing),
    }
}

/// Reads `aud`: one string or an array of strings (RFC 7519 §4.1.3). An empty `aud` is an error, because it
/// would be taken for an absent one.
pub(super) fn audience(aud: Option<Value>) -> Result<Vec<String>, InvalidToken> {
    let several = match aud {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(empty) if empty.says_nothing() => return Err(InvalidToken::Audience),
        Some(Value::Array(several)) => several,
        Some(one) => vec![one],
    };
    several
        .into_iter()
        .map(|one| match one {
            Value::String(audience) if is_whole(&audience) => Ok(audience),
            _ => Err(InvalidToken::Audience),
        })
        .collect()
}

/// Reads a `NumericDate`, which may have a fraction (RFC 7519 §2); `round` removes it on the safe
/// side.
pub(crate) fn numeric_date(
    members: &mut Map,
    name: &str,
    round: fn(f64) -> f64,
) -> Result<Option<i64>, InvalidToken> {
    match members.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => number
            .seconds(round)
            .map(Some)
            .ok_or(InvalidToken::ClaimInvalid),
        Some(_) => Err(InvalidToken::ClaimInvalid),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::{Value, json};

    use super::*;

    fn parse(payload: Value) -> Result<Claims, InvalidToken> {
        Claims::from_members(members(&payload), None, &[])
    }

    fn members(payload: &Value) -> Map {
        serde_json::from_value(payload.clone()).unwrap()
    }

    fn full() -> Value {
        json!({
            "iss": "auth", "sub": "1", "aud": ["a", "b"], "iat": 1, "nbf": 2, "exp": 3, "jti": "x",
            "username": "admin", "nickName": "Ädmin", "userId": "1",
            "extraInfo": {"avatar": "a", "telephone": "b", "userType": "c", "tenantId": "d", "grade": "e"}
        })
    }

    #[test]
    fn contract_2_4_what_is_issued_is_what_is_parsed() {
        let claims = parse(full()).unwrap();
        assert_eq!(serde_json::to_value(&claims).unwrap(), full());
    }

    #[test]
    fn rfc_9068_an_application_is_known_by_its_client_id() {
        let parse = |client_id: Value| {
            let payload = json!({"username": "a", "userId": "1", "client_id": client_id});
            parse(payload).unwrap().into_user_details().client_id
        };
        assert_eq!(parse(json!("jobs")).as_deref(), Some("jobs"));
        // Other implementations of the contract may use the name for anything.
        for other in [json!(7), Value::Null] {
            assert_eq!(parse(other), None);
        }
    }

    #[test]
    fn another_issuer_s_user_is_the_mapping_s_alone() {
        let mapping = ClaimMapping::parse(["account=name", "email=email"]).unwrap();
        let payload = json!({"iss": "i", "sub": "s", "exp": 1.5, "name": "ada", "email": "a@b",
            "username": 1, "extraInfo": 2, "nickName": "not mapped"});
        let parse = |payload: &Value| Claims::from_members(members(payload), Some(&mapping), &[]);
        let claims = parse(&payload).unwrap();
        let found = (claims.issuer.as_deref(), claims.expires_at);
        assert_eq!(found, (Some("i"), Some(1)));
        assert_eq!((&*claims.username, &*claims.user_id), ("ada", "s"));
        let details = claims.into_user_details();
        let present: Vec<_> = details.present().collect();
        assert_eq!(present, [("id", "s"), ("email", "a@b"), ("account", "ada")]);
        // The user is `7` to the service, and so to a logout.
        let numbered = parse(&json!({"sub": 7, "sid": 8, "name": "ada", "exp": 1})).unwrap();
        let names = (numbered.subject.as_deref(), numbered.session.as_deref());
        assert_eq!(names, (Some("7"), Some("8")));
        let incomplete = parse(&json!({"sub": "s"}));
        assert_eq!(incomplete, Err(InvalidToken::ClaimMissing));
        let typed_wrong = parse(&json!({"sub": "s", "name": "ada", "exp": "1"}));
        assert_eq!(typed_wrong, Err(InvalidToken::ClaimInvalid));
    }

    #[test]
    fn extra_claims_are_as_in_the_token_of_any_issuer() {
        let names = [
            "userId",
            "/extraInfo/userType",
            "roles",
            "exp",
            "/iss/x",
            "nbf",
        ];
        let names = names.map(|name| name.parse().unwrap());
        let mut payload = full();
        payload["roles"] = json!(["a", {"b": 1.5}]);
        payload["nbf"] = Value::Null;
        let expected = [
            Some(json!("1")),
            Some(json!("c")),
            Some(json!(["a", {"b": 1.5}])),
            Some(json!(3)),
            None,
            Some(Value::Null),
        ];
        let mapping = ClaimMapping::parse([]).unwrap();
        for mapping in [None, Some(&mapping)] {
            let claims = Claims::from_members(members(&payload), mapping, &names).unwrap();
            let found = serde_json::to_value(&claims.extra).unwrap();
            assert_eq!(found, serde_json::to_value(&expected).unwrap());
        }
    }
}
