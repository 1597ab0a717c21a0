//! The client's certificate: from its connection, or from a field of a trusted proxy in front.

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, PAD, STANDARD};
use base64::engine::{DecodePaddingMode, Engine};
use data_encoding::HEXLOWER_PERMISSIVE;
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use postern_contract::rejection::Rejection;
use postern_http::only_field::{Repeated, only_field};
use postern_token::digest::{Digest, sha256};
use postern_transport::tls::certificate;

use super::field_name::{has_a_meaning, may_be_in_field_name};
use crate::identity::client::Client;

/// RFC 8941 §4.2.7: parsers should fail neither for missing padding nor for bits of no byte.
const STRUCTURED: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    PAD.with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The field in which trusted proxies send the certificate of their client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateField(pub(crate) HeaderName);

impl std::str::FromStr for CertificateField {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse::<HeaderName>() {
            Ok(name) if has_a_meaning(name.as_str()) => Err("has a meaning of its own"),
            Ok(name) if text.bytes().all(may_be_in_field_name) => Ok(Self(name)),
            _ => Err("is not a header name of letters, digits and hyphens"),
        }
    }
}

/// The certificate of a request, unread where it is in a field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ClientCertificate<'a> {
    /// No certificate was presented.
    Missing,
    /// The digest of the connection's certificate.
    OfConnection(&'a Digest),
    /// The value of the field.
    InField(&'a HeaderValue),
}

impl<'a> ClientCertificate<'a> {
    /// Finds the certificate of a request. Behind a trusted proxy with the field, the certificate of the
    /// connection is the proxy's own, and never counts; from other clients the field never counts.
    ///
    /// # Errors
    /// [`Rejection::CertificateRepeated`]: one of two fields could be from the proxy's client.
    pub(crate) fn find(
        field: Option<&CertificateField>,
        client: &'a Client,
        headers: &'a HeaderMap,
    ) -> Result<Self, Rejection> {
        let name = match (field, &client.certificate) {
            (Some(CertificateField(name)), _) if client.is_trusted_proxy => name,
            (_, Some(digest)) => return Ok(Self::OfConnection(digest)),
            (_, None) => return Ok(Self::Missing),
        };
        match only_field(headers, name) {
            Ok(None) => Ok(Self::Missing),
            Ok(Some(value)) => Ok(Self::InField(value)),
            Err(Repeated) => Err(Rejection::CertificateRepeated),
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
                // The values that proxies send for a client without a certificate.
                Ok("" | "::" | "-" | "(null)") => Ok(None),
                Ok(text) => match read(text) {
                    None => Err(Rejection::CertificateUnreadable),
                    digest => Ok(digest),
                },
                Err(_) => Err(Rejection::CertificateUnreadable),
            },
        }
    }
}

/// Reads the form that the text begins with, and never another one where that fails: a gateway may have
/// appended its word to one of the client's own making.
fn read(text: &str) -> Option<Digest> {
    // RFC 9440 §2.1, a Structured Field: HAProxy, Caddy, Apache.
    if let Some(base64) = text.strip_prefix(':') {
        return read_base64(&STRUCTURED, base64.strip_suffix(':')?);
    }
    match text.split_once('=') {
        Some((name, _)) if is_one_of(name, &OF_ENVOY) => read_envoy(text),
        _ => read_escaped(text),
    }
}

fn read_base64(form: &GeneralPurpose, text: &str) -> Option<Digest> {
    let der = form.decode(text).ok()?;
    if certificate::is_whole(&der) {
        Some(sha256(&der))
    } else {
        None
    }
}

/// Reads text that is escaped as in a URL: PEM of nginx and AWS, or of Traefik its base64 alone, the
/// client's own certificate first.
fn read_escaped(escaped: &str) -> Option<Digest> {
    let text = percent_decode_str(escaped).decode_utf8().ok()?;
    if text.starts_with('-') {
        return read_pem(&text)?.first().copied();
    }
    let mut first = None;
    // Each has to be a whole certificate, although only the first counts.
    for base64 in text.split(',') {
        first.get_or_insert(read_base64(&STANDARD, base64)?);
    }
    first
}

/// Reads certificates in PEM, with nothing but white space between and after them.
fn read_pem(text: &str) -> Option<Vec<Digest>> {
    let mut digests = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (base64, behind) = rest
            .strip_prefix("-----BEGIN CERTIFICATE-----")?
            .split_once("-----END CERTIFICATE-----")?;
        let base64: String = base64.split_ascii_whitespace().collect();
        digests.push(read_base64(&STANDARD, &base64)?);
        rest = behind.trim_start();
    }
    Some(digests)
}

/// The members of an element of Envoy.
const OF_ENVOY: [&str; 7] = ["by", "hash", "cert", "chain", "subject", "uri", "dns"];

fn is_one_of(name: &str, names: &[&str]) -> bool {
    let name = name.trim();
    names.iter().any(|it| name.eq_ignore_ascii_case(it))
}

/// Reads `X-Forwarded-Client-Cert` of Envoy and Istio. Each proxy appends an element for its own client:
/// the right-most one is the word of the nearest.
fn read_envoy(text: &str) -> Option<Digest> {
    if !is_well_quoted(text) {
        return None;
    }
    let mut elements: Vec<&str> = split_unquoted(text, ',').collect();
    let nearest = elements.pop()?;
    if elements.into_iter().any(has_names_of_client) {
        return None;
    }
    let mut hash = None;
    for pair in split_unquoted(nearest, ';') {
        let (name, value) = pair.split_once('=')?;
        if is_one_of(name, &["hash"]) && hash.replace(value.trim()).is_some() {
            return None;
        }
    }
    let hex = hash?.trim_matches('"');
    HEXLOWER_PERMISSIVE
        .decode(hex.as_bytes())
        .ok()?
        .try_into()
        .ok()
}

/// Returns true if each quoted text is a whole value without a hash in it. A quote that the client opens could
/// otherwise take in what the proxy appends, up to the end of the appended text or to a quote in a name of the
/// client's certificate.
fn is_well_quoted(text: &str) -> bool {
    let mut rest = text;
    while let Some((before, quoted)) = rest.split_once('"') {
        let Some((value, behind)) = split_at_quote(quoted) else {
            return false;
        };
        let is_whole = before.ends_with('=')
            && (behind.is_empty() || behind.trim_start().starts_with([';', ',']));
        if !is_whole || value.to_ascii_lowercase().contains("hash=") {
            return false;
        }
        rest = behind;
    }
    true
}

/// Splits at the first quote without a backslash before it.
fn split_at_quote(text: &str) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return Some((text.get(..at)?, text.get(at + 1..)?)),
            _ => {}
        }
    }
    None
}

/// Returns true for an element with other members than those that Envoy quotes or takes from itself. It
/// writes the names of the client's certificate as they are: a comma in one would begin an element of the
/// client's own making.
fn has_names_of_client(element: &str) -> bool {
    split_unquoted(element, ';').any(|pair| {
        let name = pair.split('=').next().unwrap_or_default();
        !is_one_of(name, &["by", "hash", "cert", "chain", "subject"])
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
pub(crate) mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    /// RFC 9440 appendix A: the client's certificate, and as Envoy would send it.
    pub(crate) const RFC_9440: &str = ":MIIBqDCCAU6gAwIBAgIBBzAKBggqhkjOPQQDAjA6MRswGQYDVQQKDBJMZXQncyBBdXRoZW50aWNhdGUxGzAZBgNVBAMMEkxBIEludGVybWVkaWF0ZSBDQTAeFw0yMDAxMTQyMjU1MzNaFw0yMTAxMjMyMjU1MzNaMA0xCzAJBgNVBAMMAkJDMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE8YnXXfaUgmnMtOXU/IncWalRhebrXmckC8vdgJ1p5Be5F/3YC8OthxM4+k1M6aEAEFcGzkJiNy6J84y7uzo9M6NyMHAwCQYDVR0TBAIwADAfBgNVHSMEGDAWgBRm3WjLa38lbEYCuiCPct0ZaSED2DAOBgNVHQ8BAf8EBAMCBsAwEwYDVR0lBAwwCgYIKwYBBQUHAwIwHQYDVR0RAQH/BBMwEYEPYmRjQGV4YW1wbGUuY29tMAoGCCqGSM49BAMCA0gAMEUCIBHda/r1vaL6G3VliL4/Di6YK0Q6bMjeSkC3dFCOOB8TAiEAx/kHSB4urmiZ0NX5r5XarmPk0wmuydBVoU4hBVZ1yhk=:";

    fn certificate() -> Vec<u8> {
        STANDARD.decode(RFC_9440.trim_matches(':')).unwrap()
    }

    fn pem() -> String {
        pem::encode(&pem::Pem::new("CERTIFICATE", certificate())).replace('\r', "")
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
        let expected = sha256(certificate());
        let pem = pem();
        let escaped =
            percent_encoding::utf8_percent_encode(&pem, percent_encoding::NON_ALPHANUMERIC);
        // `+` is one of base64 here, and no blank.
        let partly = pem.replace('\n', "%0A");
        let hash = hex(&expected);
        for form in [
            RFC_9440.to_owned(),
            // RFC 8941 §4.2.7: neither padding nor these bits should make a parser fail.
            RFC_9440.replace('=', ""),
            RFC_9440.replace("hk=:", "hl=:"),
            escaped.to_string(),
            partly,
            [RFC_9440.trim_matches(':'); 2]
                .join(",")
                .replace('+', "%2B"),
            format!("Hash={hash}"),
            format!(
                "By=spiffe://a;Hash={};Subject=\"CN=a;By=b,c\\\";\"",
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
        for none in ["", "::", "-", "(null)", " "] {
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
            // Of a client's own making, with the element of an appending proxy behind it.
            format!("Hash={hash};Subject=\",By=b;Hash={hash}"),
            format!("Hash={hash};Subject=\"x,By=b;Hash={hash};URI=a\""),
            format!("Hash={hash};Subject=\"x\\\",By=b;hash={hash};URI=a\""),
            format!("Hash={hash};Subject=\"\"x,By=b;Hash={hash}"),
            format!("Hash=\"{hash}\"\",By=b;Hash={hash};URI=\""),
            format!("{},By=b;Hash={hash}", RFC_9440.trim_matches(':')),
            format!("{RFC_9440},By=b;Hash={hash}"),
            format!("{RFC_9440},By=b;Hash={hash};URI=a:"),
            format!("{},By=b;Hash={hash}", pem().replace('\n', "%0A")),
            format!(
                "{},By=b;Hash={hash};URI=-----END CERTIFICATE-----",
                pem().replace('\n', "%0A")
            ),
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
            ",AAAA".to_owned(),
            // Bytes that are no certificate.
            "null".to_owned(),
            ":AAAA:".to_owned(),
            format!(":{}:", STANDARD.encode([certificate(), vec![0]].concat())),
            format!(",Hash={hash}"),
        ] {
            assert_eq!(
                digest(&text),
                Err(Rejection::CertificateUnreadable),
                "{text}"
            );
        }
    }
}
