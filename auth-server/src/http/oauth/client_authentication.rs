//! The credentials of an application: `Authorization: Basic`, or in the form (RFC 6749 §2.3.1).

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderValue, header};
use postern_contract::rejection::Rejection;
use postern_http::form::{Form, decode};
use postern_http::only_field::{Repeated, only_field};
use zeroize::Zeroizing;

use crate::accounts::applications::Credentials;

const SCHEME: &str = "Basic ";

/// The credentials of one application, not verified yet: several readings of id and secret, of which one may
/// be right, because many clients omit the form encoding of RFC 6749 §2.3.1.
pub(in crate::http) struct Presented(Vec<Credentials>);

impl Presented {
    /// Reads the credentials of a request.
    ///
    /// # Errors
    /// [`Rejection::ApplicationUnknown`] without any, [`Rejection::CredentialsAmbiguous`] for more
    /// than one kind, and [`Rejection::AuthorizationRepeated`].
    pub(in crate::http) fn read(headers: &HeaderMap, form: &Form) -> Result<Self, Rejection> {
        let field = only_field(headers, &header::AUTHORIZATION);
        let field = field.map_err(|Repeated| Rejection::AuthorizationRepeated)?;
        let id = form.value("client_id");
        match (field, form.value("client_secret")) {
            (Some(field), Some(_)) if !is_access_token(field) => {
                Err(Rejection::CredentialsAmbiguous)
            }
            (Some(field), None) => {
                let basic = Self::parse_basic(field).ok_or(Rejection::ApplicationUnknown)?;
                match id {
                    // The form may repeat the id, but not name another application.
                    Some(id) if !basic.has_id(id) => Err(Rejection::CredentialsAmbiguous),
                    _ => Ok(basic),
                }
            }
            (_, Some(secret)) => match id {
                Some(id) => Ok(Self(vec![Credentials::new(id, secret)])),
                None => Err(Rejection::ApplicationUnknown),
            },
            (None, None) => Err(Rejection::ApplicationUnknown),
        }
    }

    fn parse_basic(field: &HeaderValue) -> Option<Self> {
        let (scheme, token) = field.to_str().ok()?.split_at_checked(SCHEME.len())?;
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return None;
        }
        // RFC 9110 §11.4 allows more than one space after the scheme.
        let pair = Zeroizing::new(STANDARD.decode(token.trim()).ok()?);
        // RFC 7617 §2: a user-id has no colon, a password may have some.
        let (id, secret) = std::str::from_utf8(&pair).ok()?.split_once(':')?;
        let mut readings = Vec::new();
        // First the reading of RFC 6749, then the reading for clients that encode nothing.
        if let (Ok(id), Ok(secret)) = (decode(id), decode(secret).map(Zeroizing::new)) {
            readings.push(Credentials { id, secret });
        }
        let plain = Credentials::new(id, secret);
        if !readings.contains(&plain) {
            readings.push(plain);
        }
        Some(Self(readings))
    }

    fn has_id(&self, id: &str) -> bool {
        self.0.iter().any(|reading| reading.id == id)
    }

    /// Returns the readings of the credentials.
    pub(in crate::http) fn readings(&self) -> &[Credentials] {
        &self.0
    }
}

/// Returns true for an access token after its scheme: no credential of an application, and some clients send it
/// with every request.
pub(in crate::http) fn is_access_token(field: &HeaderValue) -> bool {
    for scheme in [&b"bearer "[..], b"dpop "] {
        if let Some(found) = field.as_bytes().get(..scheme.len())
            && found.eq_ignore_ascii_case(scheme)
        {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use http::HeaderValue;

    use super::*;

    fn read(fields: &[&str], form: &str) -> Result<Vec<(String, String)>, Rejection> {
        let values = fields
            .iter()
            .map(|field| HeaderValue::from_str(field).unwrap());
        let headers = values.map(|value| (header::AUTHORIZATION, value)).collect();
        let presented = Presented::read(&headers, &Form::parse(form.as_bytes()).unwrap())?;
        let pairs = presented.readings().iter();
        Ok(pairs
            .map(|it| (it.id.clone(), it.secret.to_string()))
            .collect())
    }

    fn basic(pair: &str) -> String {
        format!("Basic {}", STANDARD.encode(pair))
    }

    #[test]
    fn rfc_6749_2_3_1_credentials_stand_in_the_field_or_in_the_form() {
        let one = |id: &str, secret: &str| vec![(id.to_owned(), secret.to_owned())];
        for (field, form, expected) in [
            (Some(basic("jobs:s")), "", one("jobs", "s")),
            (Some(basic("jobs:s:t")), "", one("jobs", "s:t")),
            (Some(basic("jobs:")), "", one("jobs", "")),
            (
                Some(basic("jobs:s").replace("Basic", "bASIC")),
                "",
                one("jobs", "s"),
            ),
            (Some(basic("jobs:s")), "client_id=jobs", one("jobs", "s")),
            (Some(basic("größe:s")), "", one("größe", "s")),
            (
                None,
                "client_id=jobs&client_secret=s%2Bt",
                one("jobs", "s+t"),
            ),
            (
                Some("dPoP e.y.J".to_owned()),
                "client_id=jobs&client_secret=s",
                one("jobs", "s"),
            ),
            (
                Some(basic("a%20b:s+t")),
                "",
                [one("a b", "s t"), one("a%20b", "s+t")].concat(),
            ),
        ] {
            let fields: Vec<_> = field.iter().map(String::as_str).collect();
            assert_eq!(read(&fields, form), Ok(expected), "{field:?} {form}");
        }
    }
}
