//! Public keys in PEM (RFC 7468), or as the bare base64 of their DER.

use jsonwebtoken::{AlgorithmFamily, DecodingKey};
use pem::Pem;

use super::KeyError;
use super::found::{BEGIN, found_in, pem_blocks};

/// The labels of SPKI (RFC 5280 §4.1) and PKCS #1 (RFC 8017 §A.1.1).
const LABELS: [&str; 2] = ["PUBLIC KEY", "RSA PUBLIC KEY"];

/// Returns the blocks of a text, which all hold public keys.
pub(super) fn blocks(bytes: &[u8]) -> Result<Vec<Pem>, KeyError> {
    // Text around the blocks may be in any encoding.
    let text = String::from_utf8_lossy(bytes);
    // Found in a block that is cut off, too.
    if text.contains("PRIVATE KEY-----") {
        return Err(KeyError::PrivateKey);
    }
    let blocks = if text.contains(BEGIN) {
        pem_blocks(&text)
    } else {
        let framed = format!("{BEGIN}PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n");
        pem_blocks(&framed)
    };
    let blocks = blocks.unwrap_or_default();
    if blocks.iter().any(|block| is_private_der(block.contents())) {
        return Err(KeyError::PrivateKey);
    }
    let is_public = |block: &Pem| {
        let content = block.contents();
        // The base64 of PEM is no DER, but base64 as well.
        let is_der = !content.is_empty() && !content.starts_with(BEGIN.as_bytes());
        is_der && LABELS.contains(&block.tag())
    };
    if blocks.is_empty() || !blocks.iter().all(is_public) {
        return Err(KeyError::NotPublicPem {
            found: found_in(bytes),
        });
    }
    Ok(blocks)
}

/// Returns the key of a block, and the family of its algorithms.
pub(super) fn key_of(block: &Pem) -> Result<(DecodingKey, AlgorithmFamily), KeyError> {
    let text = pem::encode(block);
    let pem = text.as_bytes();
    if let Ok(key) = DecodingKey::from_rsa_pem(pem) {
        return Ok((key, AlgorithmFamily::Rsa));
    }
    if let Ok(key) = DecodingKey::from_ec_pem(pem) {
        return Ok((key, AlgorithmFamily::Ec));
    }
    match DecodingKey::from_ed_pem(pem) {
        Ok(key) => Ok((key, AlgorithmFamily::Ed)),
        Err(_) => Err(KeyError::NotAPublicKey),
    }
}

/// Returns true for a private key (RFC 5958, RFC 8017 §A.1.2, RFC 5915), which starts with a version of one
/// byte; a public key starts with a SEQUENCE, or with its long modulus.
fn is_private_der(der: &[u8]) -> bool {
    const SEQUENCE: u8 = 0x30;
    const VERSION: [u8; 2] = [0x02, 0x01];
    let content = match der {
        [SEQUENCE, length, rest @ ..] if *length < 0x80 => rest,
        [SEQUENCE, length, rest @ ..] => rest.get(usize::from(length & 0x7f)..).unwrap_or(&[]),
        _ => &[],
    };
    content.starts_with(&VERSION)
}
