//! Stored passwords: argon2id in the PHC string format, within bounds.

use std::fmt;

use argon2::password_hash::{self, SaltString};
use argon2::{ARGON2ID_IDENT, Algorithm, Argon2, Params, PasswordHasher, Version};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use postern_http::folding::compatible;
use zeroize::Zeroizing;

use crate::random;

/// Bounds one check, so that a foreign hash in the file cannot exhaust the machine: 256 MiB, ten
/// passes, sixteen lanes.
const MAX_MEMORY_KIB: u32 = 256 * 1024;
const MAX_PASSES: u32 = 10;
const MAX_LANES: u32 = 16;
/// Bounds the time to about a second: 1 GiB written in all.
const MAX_WORK_KIB: u64 = 1024 * 1024;
/// Maximum length of a salt in the format.
const MAX_SALT_BYTES: usize = 48;
const HASH_BYTES: std::ops::RangeInclusive<usize> = 16..=64;

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct HashedPassword {
    params: Params,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

/// Redacted: hashes can be attacked offline.
impl fmt::Debug for HashedPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashedPassword([redacted])")
    }
}

const NOT_ARGON2ID: &str = "not an argon2id PHC string ($argon2id$v=19$m=…,t=…,p=…$salt$hash)";
const TOO_COSTLY: &str = "its parameters are out of bounds (m up to 262144 KiB, t up to 10, p up to 16, m·t up to 1048576 KiB)";

impl HashedPassword {
    /// Parses a hash; the error does not repeat the hash.
    pub(crate) fn parse(phc: &str) -> Result<Self, &'static str> {
        let not_argon2id = |_| NOT_ARGON2ID;
        let parsed = password_hash::PasswordHash::new(phc).map_err(not_argon2id)?;
        if parsed.algorithm != ARGON2ID_IDENT || parsed.version != Some(Version::V0x13.into()) {
            return Err(NOT_ARGON2ID);
        }
        let (Some(salt), Some(hash)) = (parsed.salt, parsed.hash) else {
            return Err(NOT_ARGON2ID);
        };
        let params = Params::try_from(&parsed).map_err(not_argon2id)?;
        // Any user could log in with such a hash, so its cost is bounded when it is read.
        if !is_bearable(&params) {
            return Err(TOO_COSTLY);
        }
        let mut buffer = [0; MAX_SALT_BYTES];
        let salt = salt.decode_b64(&mut buffer).map_err(not_argon2id)?;
        if !HASH_BYTES.contains(&hash.len()) {
            return Err(NOT_ARGON2ID);
        }
        Ok(Self {
            params,
            salt: salt.to_vec(),
            hash: hash.as_bytes().to_vec(),
        })
    }

    /// Verifies a password; takes tens of milliseconds and the memory of the parameters. Another program may
    /// have hashed the password as it was typed. Takes the same time for a right and a wrong password,
    /// because the login may be rejected for another reason.
    pub(crate) fn matches(&self, password: &str) -> bool {
        let form = Zeroizing::new(compatible(password));
        // Computed before the `||` below, which would skip it after a match of the other form.
        let as_typed = *form != password && self.hashes(password);
        self.hashes(&form) || as_typed
    }

    fn hashes(&self, password: &str) -> bool {
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, self.params.clone());
        let mut hash = vec![0; self.hash.len()];
        argon2
            .hash_password_into(password.as_bytes(), &self.salt, &mut hash)
            .is_ok()
            && verify_slices_are_equal(&hash, &self.hash).is_ok()
    }

    /// Returns a hash of the same cost that no password matches, for unknown accounts.
    pub(crate) fn unmatchable(&self) -> Self {
        Self {
            // No password is known for this hash.
            hash: vec![0; self.hash.len()],
            ..self.clone()
        }
    }

    pub(crate) fn params(&self) -> &Params {
        &self.params
    }

    /// Returns the cost of a check.
    pub(crate) fn cost(&self) -> Cost {
        Cost {
            memory: self.params.m_cost(),
            passes: self.params.t_cost(),
            lanes: self.params.p_cost(),
        }
    }
}

/// The cost of a check; checks of equal cost take the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Cost {
    /// In KiB.
    pub(crate) memory: u32,
    pub(crate) passes: u32,
    pub(crate) lanes: u32,
}

/// A stand-in with the cost that OWASP recommends, for a file without users.
impl Default for HashedPassword {
    fn default() -> Self {
        Self {
            params: Params::default(),
            salt: vec![0; 16],
            hash: vec![0; Params::DEFAULT_OUTPUT_LEN],
        }
    }
}

fn is_bearable(params: &Params) -> bool {
    let work = u64::from(params.m_cost()) * u64::from(params.t_cost());
    params.m_cost() <= MAX_MEMORY_KIB
        && params.t_cost() <= MAX_PASSES
        && params.p_cost() <= MAX_LANES
        && work <= MAX_WORK_KIB
}

/// Hashes a password with a fresh salt into a PHC string. The default `params` are those that OWASP
/// recommends (19 MiB, two passes, one lane).
///
/// # Errors
/// Without randomness for the salt, and the errors of argon2.
pub(crate) fn hash(password: &str, params: &Params) -> Result<String, String> {
    // The length that RFC 9106 §3.1 recommends for a salt.
    let salt = random::bytes::<16>().map_err(|_| "no randomness for a salt")?;
    hash_with(salt.as_slice(), password, params)
        .map_err(|error| format!("the password cannot be hashed: {error}"))
}

fn hash_with(salt: &[u8], password: &str, params: &Params) -> password_hash::Result<String> {
    let salt = SaltString::encode_b64(salt)?;
    // `params` may hold the output length of the hash that they came from.
    let cost = Params::new(params.m_cost(), params.t_cost(), params.p_cost(), None)?;
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, cost);
    let form = Zeroizing::new(compatible(password));
    Ok(argon2.hash_password(form.as_bytes(), &salt)?.to_string())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use super::*;

    /// Returns a cheap hash, for tests that do not measure time.
    pub(crate) fn cheap(password: &str) -> String {
        let params = Params::new(8, 1, 1, None).unwrap();
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let salt = SaltString::encode_b64(b"a salt of 16 byt").unwrap();
        argon2
            .hash_password(password.as_bytes(), &salt)
            .unwrap()
            .to_string()
    }

    #[test]
    fn only_the_password_matches() {
        let hash = |password| hash(password, &Params::default()).unwrap();
        let stored = hash("correct horse");
        assert!(
            stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{stored}"
        );
        assert_ne!(stored, hash("correct horse"), "each has its own salt");
        let parsed = HashedPassword::parse(&stored).unwrap();
        assert!(parsed.matches("correct horse"));
        let typed = "\u{ff2d}u\u{308}ller";
        let composed = HashedPassword::parse(&hash("M\u{fc}ller")).unwrap();
        assert!(composed.matches(typed) && composed.matches("M\u{fc}ller"));
        let of_others = HashedPassword::parse(&cheap(typed)).unwrap();
        assert!(of_others.matches(typed) && !of_others.matches("M\u{fc}ller"));
        for wrong in ["", "correct hors", "Correct horse", "correct horse\0"] {
            assert!(!parsed.matches(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn a_new_hash_costs_what_it_is_meant_to() {
        let params = Params::new(16, 3, 2, Some(64)).unwrap();
        let stored = hash("p", &params).unwrap();
        assert!(stored.contains("$m=16,t=3,p=2$"), "{stored}");
        assert!(HashedPassword::parse(&stored).unwrap().matches("p"));
    }

    #[test]
    fn what_others_wrote_is_understood() {
        // The reference implementation: echo -n password | argon2 somesalt -id -t 2 -m 16 -p 1 -l 32
        let phc = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        assert!(HashedPassword::parse(phc).unwrap().matches("password"));
    }

    #[test]
    fn the_stand_in_costs_the_same_and_matches_nothing() {
        let stored = HashedPassword::parse(&cheap("p")).unwrap();
        let stand_in = stored.unmatchable();
        assert_eq!(stand_in.cost(), stored.cost());
        assert!(!stand_in.matches("p"));
        let Cost {
            memory,
            passes,
            lanes,
        } = HashedPassword::default().cost();
        assert_eq!([memory, passes, lanes], [19_456, 2, 1]);
        assert!(!HashedPassword::default().matches(""));
    }

    #[test]
    fn anything_else_than_argon2id_is_rejected() {
        let good = cheap("p");
        for phc in [
            "",
            "hush",
            "$2b$12$abcdefghijklmnopqrstuv",
            &good.replace("argon2id", "argon2i"),
            &good.replace("argon2id", "argon2d"),
            &good.replace("v=19", "v=16"),
            &good.replace("$v=19", ""),
            good.rsplit_once('$').unwrap().0,
            &format!("{good} "),
        ] {
            let rejected = HashedPassword::parse(phc);
            assert_eq!(rejected, Err(NOT_ARGON2ID), "{phc}");
        }
    }

    #[test]
    fn what_would_exhaust_the_machine_is_rejected() {
        let good = cheap("p");
        for (params, bearable) in [
            ("m=262144,t=4,p=1", true),
            ("m=65536,t=10,p=16", true),
            ("m=8388608,t=1,p=1", false),
            ("m=262145,t=1,p=1", false),
            ("m=262144,t=5,p=1", false),
            ("m=1024,t=11,p=1", false),
            ("m=1024,t=1,p=17", false),
            ("m=4294967295,t=4294967295,p=1", false),
        ] {
            let outcome = HashedPassword::parse(&good.replace("m=8,t=1,p=1", params));
            let expected = if bearable { None } else { Some(TOO_COSTLY) };
            assert_eq!(outcome.err(), expected, "{params}");
        }
    }
}
