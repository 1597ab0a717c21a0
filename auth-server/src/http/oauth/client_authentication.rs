//! The credentials of an application: `Authorization: Basic`, or in the form (RFC 6749 §2.3.1).

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, header};
use postern_contract::rejection::Rejection;
use postern_http::form::{Form, decode};
use zeroize::Zeroizing;

const SCHEME: &str = "Basic ";

/// The credentials of one application, not verified yet: several readings of id and secret, of which one may
/// be right, because many clients omit the form encoding of RFC 6749 §2.3.1.
pub(in crate::http) struct Presented(Vec<(String, Zeroizing<String>)>);

impl Presented {
    /// Reads the credentials of a request.
    ///
    /// # Errors
    /// [`Rejection::ApplicationUnknown`] without any, [`Rejection::CredentialsAmbiguous`] for more
    /// than one kind, and [`Rejection::AuthorizationRepeated`].
    pub(in crate::http) fn read(headers: &HeaderMap, form: &Form) -> Result<Self, Rejection> {
        let mut fields = headers.get_all(header::AUTHORIZATION).iter();
        let (in_form, secret) = (form.value("client_id"), form.value("client_secret"));
        match (fields.next(), fields.next(), secret) {
            // Of two fields a proxy could read the first, and this server the second.
            (_, Some(_), _) => Err(Rejection::AuthorizationRepeated),
            (Some(_), None, Some(_)) => Err(Rejection::CredentialsAmbiguous),
            (Some(field), None, None) => {
                let basic = field
                    .to_str()
                    .ok()
                    .and_then(Self::basic)
                    .ok_or(Rejection::ApplicationUnknown)?;
                match in_form {
                    Some(id) if !basic.is_id(id) => Err(Rejection::CredentialsAmbiguous),
                    _ => Ok(basic),
                }
            }
            (None, _, Some(secret)) => {
                let id = in_form.ok_or(Rejection::ApplicationUnknown)?;
                let secret = Zeroizing::new(secret.to_owned());
                Ok(Self(vec![(id.to_owned(), secret)]))
            }
            (None, _, None) => Err(Rejection::ApplicationUnknown),
        }
    }

    fn basic(field: &str) -> Option<Self> {
        let (scheme, token) = field.split_at_checked(SCHEME.len())?;
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return None;
        }
        // RFC 9110 §11.4 allows more than one space after the scheme.
        let pair = Zeroizing::new(STANDARD.decode(token.trim()).ok()?);
        let pair = std::str::from_utf8(&pair).ok()?;
        // RFC 7617 §2: a user-id has no colon, a password may have some.
        let (id, secret) = pair.split_once(':')?;
        let plain = (id.to_owned(), Zeroizing::new(secret.to_owned()));
        let other = decode(id)
            .ok()
            .zip(decode(secret).ok())
            .map(|(id, secret)| (id, Zeroizing::new(secret)))
            .filter(|decoded| *decoded != plain);
        // First the reading of RFC 6749, then the reading for clients that encode nothing.
        Some(Self(other.into_iter().chain([plain]).collect()))
    }

    fn is_id(&self, id: &str) -> bool {
        self.0.iter().any(|(known, _)| *known == id)
    }

    /// Returns the id and the secret, as they are read first, for logs.
    pub(in crate::http) fn first(&self) -> (&str, &str) {
        self.pairs().first().copied().unwrap_or_default()
    }

    /// Returns the readings of the credentials.
    pub(in crate::http) fn pairs(&self) -> Vec<(&str, &str)> {
        self.0
            .iter()
            .map(|(id, secret)| (&**id, secret.as_str()))
            .collect()
    }
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
        let pairs = presented.pairs().into_iter();
        Ok(pairs
            .map(|(id, secret)| (id.into(), secret.into()))
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
