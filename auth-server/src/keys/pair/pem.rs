//! Encodings of a key string: writes PEM, reads PEM or the bare base64 of the DER.

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use zeroize::Zeroizing;

/// Begin of PEM, which base64 never has.
pub(super) const ARMOUR: &str = "-----BEGIN ";

/// Characters of a line of PEM (RFC 7468 §2).
const LINE_LENGTH: usize = 64;

pub(super) fn encode(label: &str, der: &[u8]) -> Zeroizing<String> {
    let base64 = Zeroizing::new(STANDARD.encode(der));
    let lines = base64.as_bytes().chunks(LINE_LENGTH);
    let lines: Vec<_> = lines.map(String::from_utf8_lossy).collect();
    let text = Zeroizing::new(lines.join("\n"));
    Zeroizing::new(format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        *text
    ))
}

/// Decodes an unencrypted PKCS#8 private key; `None` if the text is in neither encoding.
pub(super) fn decode_pkcs8(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    if text.contains(ARMOUR) {
        let der = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).ok()?;
        return Some(Zeroizing::new(der.secret_pkcs8_der().to_vec()));
    }
    let compact: Zeroizing<String> = Zeroizing::new(text.split_ascii_whitespace().collect());
    let der = Zeroizing::new(STANDARD.decode(compact.as_bytes()).ok()?);
    (!der.is_empty()).then_some(der)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_give_the_same_bytes() {
        let der = [0x30, 0x03, 0x02, 0x01, 0x00];
        let pem = encode("PRIVATE KEY", &der);
        assert_eq!(
            decode_pkcs8(&pem).as_deref().map(Vec::as_slice),
            Some(&der[..])
        );
        for bare in ["MAMCAQA=", " MAMC\n AQA=\n"] {
            assert_eq!(
                decode_pkcs8(bare).as_deref().map(Vec::as_slice),
                Some(&der[..])
            );
        }
    }

    #[test]
    fn what_is_neither_spelling_is_nothing() {
        for text in [
            "",
            "-----BEGIN PUBLIC KEY-----\nMAMCAQA=\n-----END PUBLIC KEY-----\n",
            "not base64!",
        ] {
            assert_eq!(decode_pkcs8(text), None, "{text}");
        }
    }
}
