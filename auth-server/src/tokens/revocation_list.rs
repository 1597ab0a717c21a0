//! The head of the revocation list, signed by the current key.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use postern_token::revocations::{LIST_TYPE, ListHead, SIGNED_EVERY};

use super::issuer::{SigningError, sign};
use crate::keys::pair::SigningKeyPair;
use crate::revocations::log::RevocationLog;

/// Signs one head for each change, although every sidecar fetches it in the same second.
#[derive(Debug, Default)]
pub(crate) struct RevocationListSigner {
    /// The `iss` of this server's own tokens.
    issuer: String,
    signed: Mutex<Option<Signed>>,
}

#[derive(Debug)]
struct Signed {
    by: Arc<SigningKeyPair>,
    head: ListHead,
    jws: String,
}

impl RevocationListSigner {
    pub(crate) fn new(issuer: String) -> Self {
        Self {
            issuer,
            signed: Mutex::default(),
        }
    }

    /// Returns the head at `now`, and the lines after those of a reader, in parts.
    pub(crate) fn list(
        &self,
        log: &RevocationLog,
        pair: Arc<SigningKeyPair>,
        after: Option<&str>,
        now: i64,
    ) -> Result<Vec<Bytes>, SigningError> {
        let issued_at = now.saturating_sub(now.rem_euclid(SIGNED_EVERY));
        let published = log.published();
        let head = ListHead {
            issuer: Some(self.issuer.clone()),
            ..published.list.head(published.seq, issued_at)
        };
        let mut signed = self.signed.lock();
        let is_present = |it: &Signed| Arc::ptr_eq(&it.by, &pair) && it.head == head;
        let jws = match signed.take().filter(is_present) {
            Some(signed) => signed.jws,
            None => sign(&pair, LIST_TYPE, &head)?,
        };
        *signed = Some(Signed {
            by: pair,
            head,
            jws: jws.clone(),
        });
        drop(signed);
        let mut list = vec![Bytes::from(jws + "\n")];
        list.extend(published.list.after(after));
        Ok(list)
    }
}
