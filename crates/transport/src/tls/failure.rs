//! A failure of TLS in words: its cause, with the setting that repairs it. The library's own texts are Rust
//! names and lists of numbers.

use std::error::Error;
use std::iter::successors;

use super::peer_settings::PeerSettings;
use postern_process::logs::sanitize::LogText;

/// A piece of the library's text, and the words for it; the first piece that is found counts. Pieces
/// and not types, because other libraries pass on the text alone.
const TEXTS: &str = include_str!("failures.txt");

/// The library's notation of the names in a certificate.
const NOTATION: [&str; 4] = ["DnsName(", "IpAddress(", "\"", ")"];

/// Joins an error and its causes, because libraries keep the real cause in the chain.
#[must_use]
pub fn with_causes(error: &(dyn Error + 'static), settings: &PeerSettings) -> String {
    let mut text = error.to_string();
    for cause in successors(error.source(), |&cause| cause.source()) {
        let cause = cause.to_string();
        text += ": ";
        text += &in_words(&cause, settings).unwrap_or(cause);
    }
    text
}

/// Returns words for the text of a TLS error, with the connection's settings; `None` for any other text.
#[must_use]
pub fn in_words(text: &str, settings: &PeerSettings) -> Option<String> {
    let (found, words) = TEXTS.lines().find_map(|line| {
        let (piece, words) = line.split_once(" => ")?;
        Some((text.get(text.find(piece)?..)?, words))
    })?;
    let mut found = found.to_owned();
    for notation in NOTATION {
        found = found.replace(notation, "");
    }
    Some(
        words
            .replace("{ca}", settings.ca)
            .replace("{certificate}", settings.certificate)
            .replace("{found}", &LogText(&found).to_string()),
    )
}

#[cfg(test)]
mod handshake_tests;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::io;
    use std::sync::Arc;

    use rustls::pki_types::AlgorithmIdentifier;
    use rustls::{
        AlertDescription, CertificateError, InvalidMessage, OtherError, PeerIncompatible,
        PeerMisbehaved,
    };

    use super::*;

    const SETTINGS: PeerSettings = PeerSettings {
        ca: "--ca",
        certificate: "--cert",
        key: "--key",
    };

    fn signed_with(id: &[u8]) -> CertificateError {
        CertificateError::UnsupportedSignatureAlgorithmContext {
            signature_algorithm_id: id.to_vec(),
            supported_algorithms: vec![AlgorithmIdentifier::from_slice(&[6, 9]); 60],
        }
    }

    /// As the verifier below the library names what that has no name for.
    fn other(name: &str) -> CertificateError {
        CertificateError::Other(OtherError(Arc::new(io::Error::other(name.to_owned()))))
    }

    #[test]
    fn each_cause_has_its_own_remedy_and_no_name_of_rust() {
        use CertificateError as C;
        let certificate = |error: C| rustls::Error::InvalidCertificate(error);
        let alert = |alert: AlertDescription| rustls::Error::AlertReceived(alert);
        for (error, words) in [
            (
                certificate(other("Unheard")),
                "its certificate is not accepted",
            ),
            (
                certificate(other("EmptyEkuExtension")),
                "extended key usage without any use",
            ),
            (
                certificate(other("ExtensionValueInvalid")),
                "a value that is not allowed",
            ),
            (certificate(other("MalformedExtensions")), "are malformed"),
            (
                certificate(other("MalformedNameConstraint")),
                "are malformed",
            ),
            (
                certificate(other("MaximumPathDepthExceeded")),
                "longer than 6",
            ),
            (
                certificate(other("SignatureAlgorithmMismatch")),
                "names two algorithms",
            ),
            (certificate(C::BadSignature), "RSA below 2048 bits"),
            (
                certificate(signed_with(&[6, 7, 42, 134, 72, 206, 61, 4, 1])),
                "signed with SHA-1",
            ),
            (
                certificate(signed_with(&[
                    6, 9, 42, 134, 72, 134, 247, 13, 1, 1, 10, 48,
                ])),
                "signed with RSA-PSS",
            ),
            (
                certificate(signed_with(&[6, 3, 43, 101, 113])),
                "an algorithm that is not accepted",
            ),
            (
                certificate(C::UnsupportedSignatureAlgorithmForPublicKeyContext {
                    signature_algorithm_id: vec![6, 8, 42],
                    public_key_algorithm_id: vec![6, 9, 42],
                }),
                "does not belong to the issuer's key",
            ),
            (certificate(C::Expired), "ends before it begins"),
            (certificate(C::Revoked), "revoked"),
            (certificate(C::BadEncoding), "cannot be parsed"),
            (
                certificate(C::ApplicationVerificationFailure),
                "not accepted",
            ),
            (
                rustls::Error::NoCertificatesPresented,
                "presented no certificate",
            ),
            (
                rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType),
                "no TLS came back",
            ),
            (
                rustls::Error::InvalidMessage(InvalidMessage::UnsupportedCurveType),
                "broken TLS",
            ),
            (
                rustls::Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13),
                "no version (1.2, 1.3)",
            ),
            (
                rustls::Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare),
                "broken TLS",
            ),
            (rustls::Error::DecryptError, "broken TLS"),
            (
                alert(AlertDescription::CertificateRequired),
                "requires a certificate; --cert",
            ),
            (
                alert(AlertDescription::HandshakeFailure),
                "or requires a certificate; --cert",
            ),
            (
                alert(AlertDescription::UnknownCA),
                "does not trust the authority",
            ),
            (
                alert(AlertDescription::ProtocolVersion),
                "neither TLS 1.2 nor 1.3",
            ),
            (
                alert(AlertDescription::UnrecognisedName),
                "for the name by which",
            ),
            (
                alert(AlertDescription::Unknown(99)),
                "the peer ended the handshake",
            ),
        ] {
            let text = in_words(&error.to_string(), &SETTINGS).unwrap();
            assert!(text.contains(words), "{error}: {text}");
            let is_of_rust = |word: &str| {
                let rest = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
                let humps = rest.as_bytes().windows(2);
                rest.bytes().all(|byte| byte.is_ascii_alphabetic())
                    && humps
                        .into_iter()
                        .any(|it| it[0].is_ascii_lowercase() && it[1].is_ascii_uppercase())
            };
            assert!(!text.split(' ').any(is_of_rust), "{text}");
            assert!(!text.contains(['{', '"']) && text.len() < 250, "{text}");
        }
    }

    #[test]
    fn a_remedy_is_of_its_cause_alone() {
        for line in TEXTS.lines() {
            let (piece, words) = line.split_once(" => ").unwrap();
            let is_of_authority = ["peer certificate: UnknownIssuer", "CaUsedAsEndEntity"];
            assert_eq!(
                words.contains("{ca}"),
                is_of_authority.contains(&piece),
                "{line}"
            );
            assert_eq!(in_words(words, &SETTINGS), None, "{line}");
        }
        assert_eq!(in_words("connection refused", &SETTINGS), None);
    }
}
