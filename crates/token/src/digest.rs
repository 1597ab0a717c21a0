//! SHA-256, the one digest of tokens, keys and certificates.

use aws_lc_rs::digest;

/// A SHA-256.
pub type Digest = [u8; 32];

/// Returns the SHA-256 of some bytes.
#[must_use]
pub fn sha256(bytes: impl AsRef<[u8]>) -> Digest {
    let digest = digest::digest(&digest::SHA256, bytes.as_ref());
    digest.as_ref().first_chunk().copied().unwrap_or_default()
}
