//! What a log says in the place of a name that is no account: it may be a password.

use std::fmt;

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::rand::SystemRandom;

/// Gives each typed name a digest under a key that this process made and nobody knows: one name tried
/// a thousand times differs from a thousand names, and no digest can be turned back by guessing.
pub(super) struct UnknownNames(Option<Key>);

/// Enough to tell some thousands of names apart.
const SHOWN_BYTES: usize = 6;

impl UnknownNames {
    pub(super) fn new() -> Self {
        // Without randomness all names look alike, which gives nothing away.
        Self(Key::generate(HMAC_SHA256, &SystemRandom::new()).ok())
    }

    pub(super) fn digest(&self, typed: &str) -> String {
        let Some(key) = &self.0 else {
            return "[unknown]".to_owned();
        };
        let tag = sign(key, typed.as_bytes());
        let shown = tag.as_ref().iter().take(SHOWN_BYTES);
        let hex: String = shown.map(|byte| format!("{byte:02x}")).collect();
        format!("[unknown {hex}]")
    }
}

impl fmt::Debug for UnknownNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnknownNames")
    }
}
