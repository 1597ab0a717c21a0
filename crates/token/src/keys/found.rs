//! Words for the kind of content that a file or a response has in place of keys or certificates; the content
//! itself is never quoted.

use std::collections::BTreeSet;

use memchr::memmem;
use pem::Pem;

use crate::strict_json::{self, Value};
use postern_http::text_encoding::is_utf_16;

/// The beginning of a block of PEM, which base64 never has.
pub(super) const BEGIN: &str = "-----BEGIN ";
/// Max length of a foreign text in an error.
pub(super) const READABLE_BYTES: usize = 32;
/// Max number of labels that are named for a file with many blocks.
const MAX_LABELS: usize = 4;

/// Returns true for a text that is JSON, and no PEM with a text in front of it: a line of JSON never
/// begins as a block does.
pub(super) fn is_json(bytes: &[u8]) -> bool {
    let begins = matches!(bytes.trim_ascii_start(), [b'{' | b'[', ..]);
    begins && memmem::find(bytes, b"\n-----BEGIN ").is_none()
}

/// Returns the blocks of PEM, if all are whole. Text around the blocks is ignored (RFC 7468 §2).
pub(super) fn pem_blocks(text: &str) -> Option<Vec<Pem>> {
    let blocks = pem::parse_many(text).ok()?;
    // The parser leaves out a block without an end.
    (blocks.len() == text.matches(BEGIN).count()).then_some(blocks)
}

/// Names the kind of these bytes, which have no byte order mark.
pub fn found_in(bytes: &[u8]) -> String {
    if is_utf_16(bytes) {
        return "UTF-16: it has to be UTF-8".to_owned();
    }
    if is_json(bytes) {
        return json_in(bytes);
    }
    let Some(blocks) = pem_blocks(&String::from_utf8_lossy(bytes)) else {
        return "PEM that is cut off, or has other characters than base64".to_owned();
    };
    // Without a block of PEM the bytes are of another kind, such as DER.
    if blocks.is_empty() {
        return other_kind(bytes).to_owned();
    }
    // A set, because a chain has many blocks with the same label.
    let labels: BTreeSet<_> = blocks.iter().map(|block| readable(block.tag())).collect();
    let named: Vec<_> = labels.into_iter().take(MAX_LABELS).collect();
    format!("PEM of {}", named.join(", "))
}

/// Returns the beginning of a foreign text, on one line.
pub(super) fn readable(text: &str) -> String {
    text.escape_debug().take(READABLE_BYTES).collect()
}

fn json_in(bytes: &[u8]) -> String {
    let document = match strict_json::value(bytes) {
        Ok(document) => document,
        Err(error) => return format!("JSON that cannot be read: {error}"),
    };
    let has = |member: &str| document.get(member).is_some();
    let found = match &document {
        Value::Array(_) => "a list: {\"keys\": […]} has to be around it",
        _ if has("jwks_uri") => {
            "a discovery document: --issuer-url takes its issuer, --jwks its jwks_uri"
        }
        _ if has("keys") => "a member keys that is no list",
        // Some issuers publish an object of certificates beside their JWK Set.
        _ if memmem::find(bytes, b"-----BEGIN CERTIFICATE-----").is_some() => {
            "certificates by name: the issuer has another address for its JWK Set"
        }
        _ => "an object without keys",
    };
    found.to_owned()
}

fn other_kind(bytes: &[u8]) -> &'static str {
    match bytes.trim_ascii_start() {
        [] => "nothing",
        [0x1f, 0x8b, ..] => "gzip: it has to be sent without an encoding",
        // A SEQUENCE whose length has several bytes, or is the length of the rest.
        [0x30, length, rest @ ..] if *length > 0x80 || usize::from(*length) == rest.len() => {
            "DER or PKCS #12, which openssl converts to PEM"
        }
        [0xfe, 0xed, 0xfe, 0xed, ..] | [0xce, 0xce, 0xce, 0xce, ..] => {
            "a Java keystore: keytool converts it to PKCS #12, and openssl that to PEM"
        }
        // The base64 of `-----BEGIN`, as Secrets of Kubernetes hold it.
        text if text.starts_with(b"LS0tLS1C") => "the base64 of PEM: base64 -d decodes it",
        [b'<', ..] => "HTML",
        text if text.starts_with(b"ssh-") || text.starts_with(b"ecdsa-") => {
            "a key of OpenSSH: ssh-keygen -e -m PKCS8 -f FILE writes PEM"
        }
        _ => "something else",
    }
}
