//! Verification codes (TOTP, RFC 6238) of users that have a secret: six digits, SHA-1 and steps of
//! thirty seconds, as every authenticator makes them.

use std::collections::HashMap;
use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{HMAC_SHA1_FOR_LEGACY_USE_ONLY, Key, sign};
use data_encoding::BASE32_NOPAD;
use parking_lot::Mutex;
use zeroize::Zeroizing;

const STEP_SECONDS: i64 = 30;
/// Accepted steps before and after the present one, for clock differences and the time of typing
/// (RFC 6238 §5.2).
const STEPS_AROUND: i64 = 1;
const DIGITS: usize = 6;
const MODULUS: u32 = 1_000_000;
/// Wrong codes in a row before the wait. Only who knows the password gets to try one, so the wait may
/// be the same for all addresses (RFC 4226 §7.3).
const FREE_FAILURES: u32 = 5;
const WAIT_SECONDS: i64 = 60;
/// RFC 4226 §4 R6 requires 128 bits.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=64;

/// The secret that a user's authenticator shares.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TotpSecret(Zeroizing<Vec<u8>>);

const INVALID: &str = "not a secret of 16 to 64 bytes in base32, as user set-totp makes it";

impl fmt::Debug for TotpSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TotpSecret([redacted])")
    }
}

impl TotpSecret {
    /// Reads base32 (RFC 4648 §6), in any case and with or without padding. The error does not repeat
    /// the secret.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let text = Zeroizing::new(text.trim_end_matches('=').to_ascii_uppercase());
        let bytes = BASE32_NOPAD.decode(text.as_bytes());
        let bytes = Zeroizing::new(bytes.map_err(|_| INVALID)?);
        if SECRET_BYTES.contains(&bytes.len()) {
            Ok(Self(bytes))
        } else {
            Err(INVALID)
        }
    }

    /// Returns the step of a right code at `now`, in seconds since the epoch.
    fn step_of(&self, code: &str, now: i64) -> Option<i64> {
        let current = now.div_euclid(STEP_SECONDS);
        let steps = current - STEPS_AROUND..=current + STEPS_AROUND;
        // All are compared, so that the time does not reveal which one is near.
        steps.fold(None, |found, step| {
            let expected = self.code_at(step);
            let is_right = verify_slices_are_equal(expected.as_bytes(), code.as_bytes()).is_ok();
            if is_right { Some(step) } else { found }
        })
    }

    /// Returns the code of one step (RFC 4226 §5.3).
    fn code_at(&self, step: i64) -> Zeroizing<String> {
        let key = Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.0);
        let tag = sign(&key, &step.to_be_bytes());
        let tag = tag.as_ref();
        let offset = usize::from(tag.last().copied().unwrap_or_default() & 0x0f);
        let selected = tag.get(offset..).and_then(<[u8]>::first_chunk);
        let number = u32::from_be_bytes(selected.copied().unwrap_or_default());
        let code = (number & 0x7fff_ffff) % MODULUS;
        Zeroizing::new(format!("{code:0DIGITS$}"))
    }
}

/// The codes of each user so far: none is accepted twice (RFC 6238 §5.2), and many wrong ones make the
/// user wait. In the memory of one server, and bounded by the users that have a secret.
#[derive(Debug, Default)]
pub(super) struct UsedCodes(Mutex<HashMap<String, History>>);

#[derive(Debug, Default)]
struct History {
    accepted_step: Option<i64>,
    /// In a row.
    failures: u32,
    /// The time of the last one, in seconds since the epoch.
    failed_at: i64,
}

impl History {
    /// Returns true within the wait; a clock that was set back ends it.
    fn has_to_wait(&self, now: i64) -> bool {
        self.failures >= FREE_FAILURES && (0..WAIT_SECONDS).contains(&(now - self.failed_at))
    }
}

impl UsedCodes {
    /// Accepts a right code that is newer than the last one of this user, once. After some wrong codes
    /// it evaluates one a minute.
    pub(super) fn accept(
        &self,
        user_id: &str,
        secret: &TotpSecret,
        code: Option<&str>,
        now: i64,
    ) -> bool {
        let Some(code) = code else {
            return false;
        };
        let mut users = self.0.lock();
        let history = users.entry(user_id.to_owned()).or_default();
        if history.has_to_wait(now) {
            return false;
        }
        let is_newer = |step: &i64| history.accepted_step.is_none_or(|last| *step > last);
        let Some(step) = secret.step_of(code, now).filter(is_newer) else {
            history.failures = history.failures.saturating_add(1);
            history.failed_at = now;
            return false;
        };
        *history = History {
            accepted_step: Some(step),
            ..History::default()
        };
        true
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use super::*;

    /// The secret of RFC 6238 Appendix B, `12345678901234567890`, in base32.
    pub(crate) const SECRET: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";

    fn secret() -> TotpSecret {
        TotpSecret::parse(SECRET).unwrap()
    }

    #[test]
    fn rfc_6238_appendix_b_every_vector_is_met() {
        let vectors = include_str!("totp/rfc6238.txt");
        let rows = vectors.lines().filter(|line| !line.starts_with('#'));
        let mut checked = 0;
        for row in rows {
            let (time, code) = row.split_once(' ').unwrap();
            let time: i64 = time.parse().unwrap();
            // The vectors have eight digits, of which an authenticator shows the last six.
            let code = &code[code.len() - DIGITS..];
            let step = time / STEP_SECONDS;
            assert_eq!(*secret().code_at(step), code, "{time}");
            assert_eq!(secret().step_of(code, time), Some(step), "{time}");
            checked += 1;
        }
        assert_eq!(checked, 6);
    }

    #[test]
    fn a_code_counts_for_a_step_around_its_own_and_no_longer() {
        let (secret, step) = (secret(), 1_000);
        let code = secret.code_at(step);
        let at = |step: i64| secret.step_of(&code, step * STEP_SECONDS);
        for (now, expected) in [
            (step - 2, None),
            (step - 1, Some(step)),
            (step, Some(step)),
            (step + 1, Some(step)),
            (step + 2, None),
        ] {
            assert_eq!(at(now), expected, "{now}");
        }
        for wrong in ["", "0", "000000", "12345", &format!("{}0", *code)] {
            assert_eq!(secret.step_of(wrong, step * STEP_SECONDS), None, "{wrong}");
        }
    }

    #[test]
    fn rfc_6238_5_2_no_code_is_accepted_twice() {
        let (secret, used) = (secret(), UsedCodes::default());
        let now = 1_000 * STEP_SECONDS;
        let accept =
            |user: &str, step: i64| used.accept(user, &secret, Some(&secret.code_at(step)), now);
        assert!(!used.accept("1", &secret, None, now));
        assert!(accept("1", 1_000));
        assert!(!accept("1", 1_000), "again");
        assert!(!accept("1", 999), "an older one");
        assert!(accept("1", 1_001), "the next one");
        assert!(!accept("1", 1_000), "the first one again");
        assert!(accept("2", 1_000), "another user");
    }

    #[test]
    fn rfc_4226_7_3_after_wrong_codes_one_a_minute_is_evaluated() {
        let (secret, used) = (secret(), UsedCodes::default());
        let start = 1_000 * STEP_SECONDS;
        let right = |user: &str, now: i64| {
            let code = secret.code_at(now.div_euclid(STEP_SECONDS));
            used.accept(user, &secret, Some(&code), now)
        };
        let wrong = |now| assert!(!used.accept("1", &secret, Some("x"), now));
        let fail = |times, now| (0..times).for_each(|_| wrong(now));
        fail(4, start);
        assert!(!used.accept("1", &secret, None, start), "no guess");
        assert!(right("1", start), "after four");
        fail(5, start + 30);
        // A try within the wait does not prolong it.
        for waits in [30, 60, 89] {
            assert!(!right("1", start + waits), "{waits}");
        }
        assert!(right("2", start + 30), "another user");
        fail(1, start + 90);
        assert!(!right("1", start + 149), "the next wait");
        assert!(right("1", start + 150));
        fail(4, start + 180);
        assert!(right("1", start + 180), "a right one clears the failures");
        fail(5, start + 3_600);
        assert!(right("1", start + 1_800), "a clock that was set back");
    }

    #[test]
    fn a_secret_is_base32_of_some_length() {
        for text in [
            SECRET.to_owned(),
            SECRET.to_lowercase(),
            format!("{SECRET}===="),
            "A".repeat(26),
        ] {
            assert!(TotpSecret::parse(&text).is_ok(), "{text}");
        }
        for text in ["", "GEZDGNBV", "hush", "0189", &"A".repeat(104)] {
            assert_eq!(TotpSecret::parse(text), Err(INVALID), "{text}");
        }
        assert!(!format!("{:?}", secret()).contains("GEZ"));
    }
}
