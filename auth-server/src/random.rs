//! The only source of randomness of this program.

use aws_lc_rs::error::Unspecified;
#[cfg(not(feature = "simulation"))]
use aws_lc_rs::rand::fill;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

/// 32 random bytes in base64url: an hmac key (RFC 7518 §3.2) or an application secret.
pub(crate) fn secret() -> Result<Zeroizing<String>, Unspecified> {
    text::<32>().map(Zeroizing::new)
}

/// 16 random bytes in base64url: enough that no two tokens share a `jti`.
pub(crate) fn token_id() -> Result<String, Unspecified> {
    text::<16>()
}

/// Random bytes for a refresh token, or the salt of a password.
pub(crate) fn bytes<const BYTES: usize>() -> Result<Zeroizing<[u8; BYTES]>, Unspecified> {
    let mut bytes = Zeroizing::new([0; BYTES]);
    fill(bytes.as_mut_slice())?;
    Ok(bytes)
}

/// Returns a number for an id that is no secret, such as a request's or a log entry's.
pub(crate) fn number() -> u128 {
    let mut bytes = [0; 16];
    let _ = fill(&mut bytes);
    u128::from_ne_bytes(bytes)
}

/// Returns an even spread over 0.0 ..= 1.0, for the jitter of retries.
pub(crate) fn fraction() -> f64 {
    let mut bytes = [0; 4];
    // A failed source makes every server retry at the same moment, which is tolerable.
    let _ = fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

/// Fills the bytes with the random numbers of the simulated world.
#[cfg(feature = "simulation")]
fn fill(bytes: &mut [u8]) -> Result<(), Unspecified> {
    postern_process::simulation::fill(bytes);
    Ok(())
}

fn text<const BYTES: usize>() -> Result<String, Unspecified> {
    bytes::<BYTES>().map(|bytes| URL_SAFE_NO_PAD.encode(bytes.as_slice()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn secrets_hold_32_bytes_and_differ() {
        let (one, other) = (secret().unwrap(), secret().unwrap());
        assert_eq!(URL_SAFE_NO_PAD.decode(one.as_bytes()).unwrap().len(), 32);
        assert_ne!(one, other);
    }

    #[test]
    fn a_fraction_stays_within_its_bounds() {
        assert!((0..100).all(|_| (0.0..=1.0).contains(&fraction())));
    }
}
