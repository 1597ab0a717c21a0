//! Log substitutes for names that are no accounts: such a name may be a mistyped password.

use std::fmt;

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::rand::SystemRandom;

/// Digests names under a random key of this process: equal names can be recognized in the log, but
/// no digest can be reversed by guessing.
pub(super) struct UnknownNames(Option<Key>);

/// Enough to keep some thousands of names apart.
const LOGGED_BYTES: usize = 6;

impl UnknownNames {
    pub(super) fn new() -> Self {
        // Without randomness all names look alike, which reveals nothing.
        Self(Key::generate(HMAC_SHA256, &SystemRandom::new()).ok())
    }

    pub(super) fn digest(&self, typed: &str) -> String {
        let Some(key) = &self.0 else {
            return "[unknown]".to_owned();
        };
        let tag = sign(key, typed.as_bytes());
        let logged = tag.as_ref().iter().take(LOGGED_BYTES);
        let hex: String = logged.map(|byte| format!("{byte:02x}")).collect();
        format!("[unknown {hex}]")
    }
}

impl fmt::Debug for UnknownNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnknownNames")
    }
}
