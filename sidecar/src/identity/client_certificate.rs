//! The client's certificate: of its connection, or as a trusted proxy in front has sent it.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use postern_contract::rejection::Rejection;
use postern_token::possession::{Digest, sha256};

use super::field_name;
use crate::identity::forwarded::Client;

/// The field in which trusted proxies send the certificate of their client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateField(pub(crate) HeaderName);

impl std::str::FromStr for CertificateField {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let name = text
            .parse::<HeaderName>()
            .ok()
            .filter(|_| text.bytes().all(plain));
        let name = name.ok_or("is not a header name of letters, digits and hyphens")?;
        if field_name::has_a_meaning(name.as_str()) {
            Err("has a meaning of its own")
        } else {
            Ok(Self(name))
        }
    }
}

/// The certificate of a request, unread where it is in a field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ClientCertificate<'a> {
    /// None was presented.
    Missing,
    /// The digest of the connection's.
    OfConnection(&'a Digest),
    /// The value of the field.
    InField(&'a HeaderValue),
}

impl<'a> ClientCertificate<'a> {
    /// Finds the certificate of a request. Behind a trusted proxy with the field the connection has the
    /// proxy's own, which is never the client's; the field of another client counts for nothing.
    ///
    /// # Errors
    /// [`Rejection::CertificateRepeated`]: one of two could be from the proxy's client.
    pub(crate) fn find(
        field: Option<&CertificateField>,
        client: &'a Client,
        headers: &'a HeaderMap,
    ) -> Result<Self, Rejection> {
        let Some(CertificateField(name)) = field.filter(|_| client.is_trusted_proxy) else {
            return Ok(client
                .certificate
                .as_ref()
                .map_or(Self::Missing, Self::OfConnection));
        };
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(Self::Missing),
            (Some(value), None) => Ok(Self::InField(value)),
            (Some(_), Some(_)) => Err(Rejection::CertificateRepeated),
        }
    }

    /// Returns the SHA-256 of the certificate in DER (RFC 8705 §3.1), if one was presented.
    ///
    /// # Errors
    /// [`Rejection::CertificateUnreadable`].
    pub(crate) fn digest(self) -> Result<Option<Digest>, Rejection> {
        match self {
            Self::Missing => Ok(None),
            Self::OfConnection(digest) => Ok(Some(*digest)),
            Self::InField(value) => match value.to_str().map(str::trim) {
                // What proxies send of a client without a certificate.
                Ok("" | "::" | "-") => Ok(None),
                Ok(text) => read(text).map(Some).ok_or(Rejection::CertificateUnreadable),
                Err(_) => Err(Rejection::CertificateUnreadable),
            },
        }
    }
}

/// Reads the form that the text is in.
fn read(text: &str) -> Option<Digest> {
    // RFC 9440 §2.1, a Structured Field: HAProxy, Caddy, Apache.
    if let Some(base64) = text.strip_prefix(':').and_then(|it| it.strip_suffix(':')) {
        return STANDARD.decode(base64).ok().map(|der| sha256(&der));
    }
    read_envoy(text).or_else(|| read_escaped(text))
}

/// Reads text that is escaped as in a URL: PEM of nginx and AWS, or of Traefik its base64 alone, the
/// client's own certificate first.
fn read_escaped(escaped: &str) -> Option<Digest> {
    let text = percent_decode_str(escaped).decode_utf8().ok()?;
    if !text.starts_with('-') {
        let leaf = text.split(',').next()?;
        return STANDARD.decode(leaf).ok().map(|der| sha256(&der));
    }
    let block = pem::parse(text.as_bytes()).ok()?;
    (block.tag() == "CERTIFICATE").then(|| sha256(block.contents()))
}

/// Reads `X-Forwarded-Client-Cert` of Envoy and Istio. Each proxy appends an element for its own client:
/// the right-most one is the word of the nearest.
fn read_envoy(text: &str) -> Option<Digest> {
    let mut elements: Vec<&str> = split_unquoted(text, ',').collect();
    let nearest = elements.pop()?;
    if elements.into_iter().any(has_names_of_client) {
        return None;
    }
    let mut hash = None;
    for pair in split_unquoted(nearest, ';') {
        let (name, value) = pair.split_once('=')?;
        if name.trim().eq_ignore_ascii_case("hash") && hash.replace(value.trim()).is_some() {
            return None;
        }
    }
    let hex = hash?.trim_matches('"');
    let mut digest = Digest::default();
    let mut bytes = hex.as_bytes().chunks(2).map(|pair| {
        let digits = str::from_utf8(pair).ok()?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)
    });
    for byte in &mut digest {
        *byte = bytes.next()??;
    }
    (hex.len() == 2 * digest.len()).then_some(digest)
}

/// Returns true for an element with other members than those that Envoy quotes or takes from itself. It
/// writes the names of the client's certificate as they are: a comma in one would begin an element of the
/// client's own making.
fn has_names_of_client(element: &str) -> bool {
    split_unquoted(element, ';').any(|pair| {
        let name = pair.split('=').next().unwrap_or_default().trim();
        let plain = ["by", "hash", "cert", "chain", "subject"];
        !plain.iter().any(|it| name.eq_ignore_ascii_case(it))
    })
}

/// Splits at a separator outside of quoted text, in which a backslash escapes.
fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |c| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match c {
            '\\' if is_quoted => is_escaped = !was_escaped,
            '"' if !was_escaped => is_quoted = !is_quoted,
            _ => {}
        }
        c == separator && !is_quoted
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    /// RFC 9440 appendix A: the client's certificate, and as Envoy would send it.
    const RFC_9440: &str = ":MIIBqDCCAU6gAwIBAgIBBzAKBggqhkjOPQQDAjA6MRswGQYDVQQKDBJMZXQncyBBdXRoZW50aWNhdGUxGzAZBgNVBAMMEkxBIEludGVybWVkaWF0ZSBDQTAeFw0yMDAxMTQyMjU1MzNaFw0yMTAxMjMyMjU1MzNaMA0xCzAJBgNVBAMMAkJDMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE8YnXXfaUgmnMtOXU/IncWalRhebrXmckC8vdgJ1p5Be5F/3YC8OthxM4+k1M6aEAEFcGzkJiNy6J84y7uzo9M6NyMHAwCQYDVR0TBAIwADAfBgNVHSMEGDAWgBRm3WjLa38lbEYCuiCPct0ZaSED2DAOBgNVHQ8BAf8EBAMCBsAwEwYDVR0lBAwwCgYIKwYBBQUHAwIwHQYDVR0RAQH/BBMwEYEPYmRjQGV4YW1wbGUuY29tMAoGCCqGSM49BAMCA0gAMEUCIBHda/r1vaL6G3VliL4/Di6YK0Q6bMjeSkC3dFCOOB8TAiEAx/kHSB4urmiZ0NX5r5XarmPk0wmuydBVoU4hBVZ1yhk=:";

    fn certificate() -> Vec<u8> {
        STANDARD.decode(RFC_9440.trim_matches(':')).unwrap()
    }

    fn hex(digest: &Digest) -> String {
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn digest(value: &str) -> Result<Option<Digest>, Rejection> {
        let value = HeaderValue::from_str(value).unwrap();
        ClientCertificate::InField(&value).digest()
    }

    #[test]
    fn each_form_of_a_proxy_names_the_same_certificate() {
        let expected = sha256(&certificate());
        let pem = pem::encode(&pem::Pem::new("CERTIFICATE", certificate()));
        let escaped =
            percent_encoding::utf8_percent_encode(&pem, percent_encoding::NON_ALPHANUMERIC);
        // `+` is one of base64 here, and no blank.
        let partly = pem.replace("\r\n", "%0A").replace('\n', "%0A");
        let hash = hex(&expected);
        for form in [
            RFC_9440.to_owned(),
            escaped.to_string(),
            partly,
            RFC_9440.trim_matches(':').replace('+', "%2B") + ",AAAA",
            format!("Hash={hash}"),
            format!(
                "By=spiffe://a;Hash={};Subject=\"CN=a;Hash=b,c\\\";\"",
                hash.to_uppercase()
            ),
            format!(
                "Hash={};Subject=\"CN=b\", By=spiffe://c;Hash={hash};URI=spiffe://a",
                hex(&[7; 32])
            ),
        ] {
            assert_eq!(digest(&form), Ok(Some(expected)), "{form}");
        }
    }

    #[test]
    fn any_other_text_is_missing_or_unreadable() {
        for none in ["", "::", "-", " "] {
            assert_eq!(digest(none), Ok(None), "{none:?}");
        }
        let hash = hex(&sha256(b"a"));
        for text in [
            ":!:".to_owned(),
            RFC_9440[1..].to_owned(),
            "-----BEGIN%20PUBLIC%20KEY-----%0AAAAA%0A-----END%20PUBLIC%20KEY-----".to_owned(),
            "-----BEGIN%20CERTIFICATE-----".to_owned(),
            "--%ff".to_owned(),
            format!("Hash={}", &hash[1..]),
            format!("Hash={hash}0"),
            format!("Hash=+{}", &hash[1..]),
            format!("Hash={hash};Hash={hash}"),
            format!("Hash={hash},By=spiffe://b"),
            format!("By=\"Hash={hash}"),
            // A client's own name with a comma.
            format!(
                "Hash={};URI=spiffe://a,Hash={hash}",
                &hash.replace('c', "d")
            ),
            format!(
                "Hash={};Subject=\"\";DNS=a,By=b;Hash={hash}",
                &hash.replace('c', "d")
            ),
            format!(
                "Hash={};URI=spiffe://a;Hash={hash}",
                &hash.replace('c', "d")
            ),
            "Hash=".to_owned(),
        ] {
            assert_eq!(
                digest(&text),
                Err(Rejection::CertificateUnreadable),
                "{text}"
            );
        }
    }
}
