//! Nonces for proofs (RFC 9449 §8). They are signed, so that no server remembers them, and each of several
//! servers accepts the nonces of the others.

use std::fmt;

use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

/// Seconds for which a nonce counts. Clients get a new nonce with each response.
const LIFETIME: u64 = 300;
/// Min length of a key: shorter secrets could be guessed from a nonce.
const MIN_KEY_BYTES: usize = 32;

/// The keys of nonces: the first signs, and each verifies.
#[derive(Clone)]
pub struct NonceKeys(Vec<Key>);

/// Never prints the keys.
impl fmt::Debug for NonceKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NonceKeys([redacted])")
    }
}

impl NonceKeys {
    /// Parses the content of a key file: one key a line, the former key after the present one while servers
    /// still use it.
    ///
    /// # Errors
    /// The expected form, without any of the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let is_usable = |line: &&str| line.len() >= MIN_KEY_BYTES;
        if !(1..=2).contains(&lines.len()) || !lines.iter().all(is_usable) {
            return Err(
                "expected one or two lines of at least 32 characters, such as openssl rand -base64 32 prints",
            );
        }
        let key = |line: &&str| Key::new(HMAC_SHA256, line.as_bytes());
        Ok(Self(lines.iter().map(key).collect()))
    }

    /// Issues a nonce at `now`, in seconds since the epoch.
    #[must_use]
    pub fn issue(&self, now: i64) -> String {
        let time = now.to_be_bytes();
        let mut nonce = time.to_vec();
        if let Some(key) = self.0.first() {
            nonce.extend_from_slice(hmac::sign(key, &time).as_ref());
        }
        URL_SAFE_NO_PAD.encode(nonce)
    }

    /// Returns true for a nonce that counts at `now`.
    pub(super) fn accept(&self, nonce: &str, now: i64) -> bool {
        let bytes = URL_SAFE_NO_PAD.decode(nonce).unwrap_or_default();
        let Some((time, signature)) = bytes.split_first_chunk() else {
            return false;
        };
        // A nonce may be ahead by as much, because the clocks of two servers may differ.
        let is_current = now.abs_diff(i64::from_be_bytes(*time)) <= LIFETIME;
        let is_signed_by = |key| hmac::verify(key, time, signature).is_ok();
        is_current && self.0.iter().any(is_signed_by)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const NOW: i64 = 1_800_000_000;
    const ONE: &str = "0123456789abcdef0123456789abcdef";
    const OTHER: &str = "another key of thirty-two signs!";

    #[test]
    fn rfc_9449_8_a_nonce_counts_at_each_server_with_the_key() {
        let keys = |text: &str| NonceKeys::parse(text).unwrap();
        let nonce = keys(ONE).issue(NOW);
        let counts = |text: &str, nonce: &str, now| keys(text).accept(nonce, now);
        assert!(counts(ONE, &nonce, NOW));
        assert!(counts(ONE, &nonce, NOW + 300));
        assert!(!counts(ONE, &nonce, NOW + 301));
        assert!(counts(ONE, &nonce, NOW - 300));
        assert!(!counts(ONE, &nonce, NOW - 301));
        // The former key verifies, and signs no more.
        let both = format!("{OTHER}\n{ONE}\n");
        assert!(counts(&both, &nonce, NOW));
        assert!(!counts(OTHER, &nonce, NOW));
        assert!(counts(OTHER, &keys(&both).issue(NOW), NOW));
        for at in 0..nonce.len() {
            let mut changed = nonce.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(!counts(ONE, &changed, NOW), "{at}");
            assert!(!counts(ONE, &nonce[..at], NOW), "{at}");
        }
    }

    #[test]
    fn a_key_file_has_one_or_two_long_lines() {
        for text in [
            "",
            "short",
            &format!("{ONE}\n\n"),
            &format!("{ONE}\n{ONE}\n{ONE}"),
        ] {
            assert!(NonceKeys::parse(text).is_err(), "{text}");
        }
        let printed = format!("{:?}", NonceKeys::parse(ONE).unwrap());
        assert_eq!(printed, "NonceKeys([redacted])");
    }
}
