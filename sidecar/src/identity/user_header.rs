//! The user header, and one header for each configured claim.
//!
//! [`UserHeader::apply`] is the only code that writes them: it strips every look-alike, then sets
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
    /// Removed from every request, with all names that CGI, WSGI or PHP map to the same variable.
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
    /// The position of the only issuer whose tokens fill it; `None` for all.
    issuer: Option<usize>,
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

/// The name of the contract, stripped even if another one is configured: services may still read
/// it.
const DEFAULT_NAME: HeaderName = HeaderName::from_static("x-current-user");

impl ClaimHeader {
    fn is_filled_by(&self, issuer: usize) -> bool {
        self.issuer.is_none_or(|only| only == issuer)
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

    /// Adds the header of one more claim, as `NAME=CLAIM`, for the tokens of one issuer or of all.
    ///
    /// # Errors
    /// [`ClaimHeaderError::Repeated`] for a name that another of these headers has, for the same
    /// tokens; others for what is no header of a claim.
    pub(crate) fn with_claim(
        mut self,
        text: &str,
        issuer: Option<usize>,
    ) -> Result<Self, ClaimHeaderError> {
        let (field, claim) = text.split_once('=').ok_or(ClaimHeaderError::NotAPair)?;
        let header = ClaimHeader {
            field: field.trim().parse()?,
            claim: claim.trim().parse().map_err(ClaimHeaderError::Claim)?,
            issuer,
        };
        // Of letters, digits and hyphens: names that CGI maps to one variable are equal.
        let name = &header.field.name;
        let is_same = |other: &ClaimHeader| {
            other.field.name == *name
                && header
                    .issuer
                    .is_none_or(|issuer| other.is_filled_by(issuer))
        };
        // The default name too: services may still read the user from it.
        if [&self.field.name, &DEFAULT_NAME].contains(&name) || self.claims.iter().any(is_same) {
            return Err(ClaimHeaderError::Repeated);
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
    /// [`UserHeader::extra_claims`], for a token of the issuer at this position.
    ///
    /// # Errors
    /// [`Rejection::IdentityTooLarge`] past the budget: services reject an oversize header block
    /// with errors that do not name the cause.
    pub(crate) fn identity(
        &self,
        user: &CurrentUserDetails,
        issuer: usize,
        claims: &[Option<Value>],
    ) -> Result<Identity, Rejection> {
        let user = self.user_value(user)?;
        let claims = self
            .claims
            .iter()
            .zip(claims)
            .map(|(header, claim)| {
                claim
                    .as_ref()
                    .filter(|_| header.is_filled_by(issuer))
                    .and_then(text_of)
                    .map(|text| value_of(text.into_bytes()))
                    .transpose()
            })
            .collect::<Result<_, _>>()?;
        let identity = Identity { user, claims };
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

    /// Reads the user from an identity that [`UserHeader::identity`] made.
    ///
    /// # Errors
    /// [`Rejection::Internal`] for any other identity.
    pub(crate) fn user(&self, identity: &Identity) -> Result<CurrentUserDetails, Rejection> {
        let value = identity.user.as_bytes();
        match self.encoding {
            Encoding::Json => serde_json::from_slice(value),
            Encoding::Base64url => {
                let json = URL_SAFE_NO_PAD.decode(value);
                serde_json::from_slice(&json.map_err(|_| Rejection::Internal)?)
            }
        }
        .map_err(|_| Rejection::Internal)
    }

    /// Strips every field with one of the names, or one that CGI, WSGI or PHP map to the same
    /// variable, then sets the headers of `identity`, if any.
    ///
    /// Call it last: a client could remove a header that is set earlier by naming it in
    /// `Connection`.
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
        let mut ours = self.stripped_names.iter();
        ours.any(|ours| cgi_equal(name, ours.as_str()))
    }
}

impl Identity {
    fn values(&self) -> impl Iterator<Item = &HeaderValue> {
        let claims = self.claims.iter().flatten();
        std::iter::once(&self.user).chain(claims)
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
        self.values().for_each(|value| drop(value.clone()));
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
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use proptest::prelude::*;

    use super::*;
    use crate::identity::service_fields::tests::{lines_of, received};

    fn header() -> UserHeader {
        UserHeader::new("X-Current-User", 1000).unwrap()
    }

    fn user(nick_name: &str) -> CurrentUserDetails {
        CurrentUserDetails {
            id: Some("1".into()),
            nick_name: Some(nick_name.into()),
            ..CurrentUserDetails::default()
        }
    }

    /// Returns the fields that the service gets of a request with `fields`.
    fn applied(
        header: &UserHeader,
        fields: &[(&str, &str)],
        identity: Option<&Identity>,
    ) -> Vec<String> {
        let mut fields = received(fields);
        header.apply(&mut fields, identity);
        lines_of(&fields)
    }

    #[test]
    fn the_value_is_json_without_nulls_in_ascii() {
        for (nick_name, json) in [
            ("Ada", r#"{"id":"1","nickName":"Ada"}"#),
            (
                "\u{7ba1}\u{7406}",
                r#"{"id":"1","nickName":"\u7ba1\u7406"}"#,
            ),
            ("\u{1f600}!", r#"{"id":"1","nickName":"\ud83d\ude00!"}"#),
            (
                "a\u{7f}\u{80}b",
                r#"{"id":"1","nickName":"a\u007f\u0080b"}"#,
            ),
            ("\r\n\0\"\\", r#"{"id":"1","nickName":"\r\n\u0000\"\\"}"#),
        ] {
            let identity = header().identity(&user(nick_name), 0, &[]).unwrap();
            assert_eq!(identity.user.to_str().unwrap(), json);
            assert_eq!(header().user(&identity).unwrap(), user(nick_name));
            let parsed: Value = serde_json::from_slice(identity.user.as_bytes()).unwrap();
            assert_eq!(parsed.get("nickName").unwrap().as_str(), Some(nick_name));
        }
    }

    #[test]
    fn base64url_holds_the_same_json() {
        let header = header().with_encoding(Encoding::Base64url);
        // Lengths of every remainder: none gets padding.
        for nick_name in ["Ada", "Adam", "Adele", "\u{7ba1}\u{7406}?>"] {
            let identity = header.identity(&user(nick_name), 0, &[]).unwrap();
            let text = identity.user.to_str().unwrap();
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            assert!(text.bytes().all(plain), "{text}");
            let json = URL_SAFE_NO_PAD.decode(text).unwrap();
            assert_eq!(json, ascii_json(&WithoutNulls(&user(nick_name))).unwrap());
            assert_eq!(header.user(&identity).unwrap(), user(nick_name));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn lesson_c25_any_user_is_visible_ascii_and_reads_back(
            fields in prop::collection::btree_map(
                prop::sample::select(CurrentUserDetails::FIELDS),
                prop_oneof![".{0,30}", "[\\x00-\\x1f\\x7f-\\u{a0}\\u{d7ff}\\u{e000}\\u{10ffff}\"\\\\]{0,30}"],
                0..8,
            ),
            limit in 2..2000_usize,
        ) {
            let user: CurrentUserDetails =
                serde_json::from_value(serde_json::to_value(&fields).unwrap()).unwrap();
            let unlimited = UserHeader::new("X-Current-User", usize::MAX).unwrap();
            let identity = unlimited.identity(&user, 0, &[]).unwrap();
            prop_assert!(identity.user.as_bytes().iter().all(|byte| matches!(byte, b' '..=b'~')));
            prop_assert_eq!(unlimited.user(&identity).unwrap(), user.clone());
            let limited = UserHeader::new("X-Current-User", limit).unwrap().identity(&user, 0, &[]);
            if identity.user.len() <= limit {
                prop_assert_eq!(limited, Ok(identity));
            } else {
                prop_assert_eq!(limited, Err(Rejection::IdentityTooLarge));
            }
        }
    }

    #[test]
    fn lesson_c25_values_past_the_budget_are_rejected_not_cut() {
        let json = r#"{"id":"1","nickName":"Ada"}"#;
        let base64url = json.len().div_ceil(3) * 4;
        let claim = |text: &str| vec![Some(Value::from(text))];
        for (encoding, claims, length) in [
            (Encoding::Json, vec![], json.len()),
            (Encoding::Base64url, vec![], base64url),
            (Encoding::Json, claim("four"), json.len() + 4),
            (Encoding::Json, claim("\u{e4}"), json.len() + 6),
            (Encoding::Json, vec![None], json.len()),
        ] {
            for (budget, fits) in [(length, true), (length - 1, false)] {
                let header = UserHeader::new("X-Current-User", budget).unwrap();
                let identity = header
                    .with_claim("X-Claim=claim", None)
                    .unwrap()
                    .with_encoding(encoding)
                    .identity(&user("Ada"), 0, &claims);
                let length = identity.map(|identity| identity.value_bytes());
                let expected = fits.then_some(budget).ok_or(Rejection::IdentityTooLarge);
                assert_eq!(length, expected, "{encoding:?} {claims:?}");
            }
        }
    }

    const ALIASES: [&str; 6] = [
        "X-Current-User",
        "x-current-user",
        "X_Current_User",
        "X.Current.User",
        "x~current!user",
        "X-CURRENT_USER",
    ];

    #[test]
    fn every_alias_is_stripped_without_a_user() {
        let mut fields = ALIASES.map(|name| (name, "forged")).to_vec();
        fields.extend([("X-Current-User", "twice"), ("X-Current-Users", "kept")]);
        fields.push(("XCurrentUser", "kept"));
        let kept = ["X-Current-Users: kept", "XCurrentUser: kept"];
        assert_eq!(applied(&header(), &fields, None), kept);
    }

    #[test]
    fn a_user_replaces_every_alias_as_configured() {
        let identity = header().identity(&user("Ada"), 0, &[]).unwrap();
        let fields = ALIASES.map(|name| (name, "forged"));
        assert_eq!(
            applied(&header(), &fields, Some(&identity)),
            ["X-Current-User: {\"id\":\"1\",\"nickName\":\"Ada\"}"]
        );
    }

    #[test]
    fn a_claim_replaces_every_alias_of_its_header() {
        let header = ["X-User-Id=sub", "x-Roles=/realm/a=b"]
            .into_iter()
            .fold(header(), |header, claim| {
                header.with_claim(claim, None).unwrap()
            });
        let names = [
            "x-user-id",
            "X_USER_ID",
            "x.roles",
            "X-Roles",
            "x_current_user",
        ];
        let claims =
            |values: [Value; 2]| header.identity(&user("Ada"), 0, &values.map(Some)).unwrap();
        let both = claims([Value::from("7"), Value::Array(vec!["a".into(), "b".into()])]);
        let one = claims([Value::from("7"), Value::Null]);
        let of_user = "X-Current-User: {\"id\":\"1\",\"nickName\":\"Ada\"}";
        for (identity, expected) in [
            (Some(both), &[of_user, "X-User-Id: 7", "x-Roles: a,b"][..]),
            (Some(one), &[of_user, "X-User-Id: 7"]),
            (None, &[]),
        ] {
            let mut fields = names.map(|name| (name, "forged")).to_vec();
            fields.push(("X-User-Id", "twice"));
            let sent = applied(&header, &fields, identity.as_ref());
            assert_eq!(sent, expected);
        }
    }
}
