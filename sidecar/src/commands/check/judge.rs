//! Puts a made-up request before the rules, byte for byte as it would arrive.

use contract::rejection::Rejection;

use crate::admin::explain::replay;
use crate::auth::authorize::{AuthPolicy, Decision};
use crate::keys::current::KeyState;
use crate::request::head;

/// One GET.
#[derive(Debug)]
pub(super) struct Request<'r> {
    pub(super) target: &'r str,
    /// Header lines; a host is added.
    pub(super) lines: &'r [Vec<u8>],
}

impl Request<'_> {
    /// # Errors
    /// Why it is refused.
    pub(super) fn judged(
        &self,
        rules: &AuthPolicy,
        keys: Result<&KeyState, Rejection>,
        now: i64,
    ) -> Result<Decision, Rejection> {
        let session = replay::read(&self.raw())?;
        head::with_request_head(&session, |head| rules.authorize(head, keys, now))
    }

    fn raw(&self) -> Vec<u8> {
        let mut raw = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n", self.target).into_bytes();
        for line in self.lines {
            raw.extend_from_slice(line);
            raw.extend_from_slice(b"\r\n");
        }
        raw.extend_from_slice(b"\r\n");
        raw
    }
}
