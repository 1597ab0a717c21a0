//! The revocation list, signed by the current key.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::HeaderValue;
use jsonwebtoken::Header;
use jsonwebtoken::crypto::JwtSigner;
use jsonwebtoken::signature::Signer;
use serde::ser::Error;
use tokio::sync::Mutex;
use wire::token::revocations::LIST_TYPE;

use super::issuer::SigningError;
use crate::keys::published::PublishedKeys;

/// Seconds after which an unchanged list is signed anew, at each multiple, so that an old one shows
/// its age.
const SIGNED_EVERY: i64 = 600;

/// A signed list, as it is served.
#[derive(Debug, Clone)]
pub(crate) struct SignedList {
    pub(crate) jws: Bytes,
    /// The same on every server for the same entries and key.
    pub(crate) etag: HeaderValue,
}

/// Signs the list once for each state of the ring, although every sidecar fetches it in the same
/// second.
#[derive(Debug, Default)]
pub(crate) struct RevocationListSigner(Mutex<Option<Signed>>);

#[derive(Debug)]
struct Signed {
    keys: Arc<PublishedKeys>,
    issued_at: i64,
    list: SignedList,
}

impl RevocationListSigner {
    /// Returns the list of `keys` at `now`.
    pub(crate) async fn list(
        &self,
        keys: &Arc<PublishedKeys>,
        now: i64,
    ) -> Result<SignedList, SigningError> {
        let issued_at = now.saturating_sub(now.rem_euclid(SIGNED_EVERY));
        let mut signed = self.0.lock().await;
        if let Some(signed) = &*signed
            && Arc::ptr_eq(&signed.keys, keys)
            && signed.issued_at == issued_at
        {
            return Ok(signed.list.clone());
        }
        let list = sign(keys, issued_at)?;
        *signed = Some(Signed {
            keys: Arc::clone(keys),
            issued_at,
            list: list.clone(),
        });
        Ok(list)
    }
}

fn sign(keys: &PublishedKeys, issued_at: i64) -> Result<SignedList, SigningError> {
    let pair = keys.ring().current();
    let signing_key = pair.signing_key();
    let mut header = Header::new(signing_key.algorithm());
    header.typ = Some(LIST_TYPE.to_owned());
    header.kid = Some(pair.id().as_str().to_owned());
    let header = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&header)?);
    let claims = keys.ring().revocations().claims(issued_at);
    let payload = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&claims)?);
    let mut jws = format!("{header}.{payload}");
    // Of the signed part: an ECDSA signature differs each time.
    let tag = URL_SAFE_NO_PAD.encode(digest(&SHA256, jws.as_bytes()));
    let signature = signing_key.try_sign(jws.as_bytes())?;
    jws.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut jws);
    Ok(SignedList {
        jws: Bytes::from(jws),
        etag: HeaderValue::try_from(format!("\"{tag}\"")).map_err(serde_json::Error::custom)?,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use wire::keys::signing_type::SigningType;
    use wire::token::claims::Claims;
    use wire::token::revocations::{RevocationList, TokenDigests};

    use super::*;
    use crate::keys::live::LiveKeys;
    use crate::keys::pair::tests::pair;
    use crate::keys::ring::KeyRing;
    use crate::revocations::tests::{token, user};

    const NOW: i64 = 1_800_000_300;

    fn published(ring: KeyRing) -> Arc<PublishedKeys> {
        LiveKeys::holding_ring(ring).published().unwrap()
    }

    #[tokio::test]
    async fn the_list_of_each_signing_type_verifies_and_revokes() {
        for signing_type in SigningType::ALL {
            let ring = KeyRing::of(Arc::new(pair(signing_type)));
            let ring = ring.revoke_tokens(&[token("a", "1", NOW), user("2", 5, NOW)], NOW);
            let keys = published(ring);
            let list = RevocationListSigner::default().list(&keys, NOW).await;
            let jws = String::from_utf8(list.unwrap().jws.to_vec()).unwrap();
            let list = RevocationList::verify(keys.verification_keys(), &jws).unwrap();
            assert_eq!(list.issued_at(), NOW - 300, "{signing_type}");
            assert_eq!((list.seq(), list.entries()), (NOW.unsigned_abs(), 2));
            for (id, user, revoked) in [("a", "1", true), ("b", "1", false), ("b", "2", true)] {
                let digests = TokenDigests::of(&Claims {
                    token_id: Some(id.to_owned()),
                    user_id: user.to_owned(),
                    issued_at: Some(4),
                    ..Claims::default()
                });
                assert_eq!(list.revokes(&digests), revoked);
            }
        }
    }

    #[tokio::test]
    async fn an_unchanged_list_is_the_same_for_ten_minutes() {
        let ring = KeyRing::of(Arc::new(pair(SigningType::Ecdsa)));
        let (one, other) = (published(ring.clone()), published(ring.clone()));
        let changed = published(ring.revoke_tokens(&[token("a", "1", NOW)], NOW));
        let tag = async |keys: &Arc<PublishedKeys>, now| {
            let list = RevocationListSigner::default().list(keys, now).await;
            list.unwrap().etag
        };
        let first = tag(&one, NOW).await;
        assert_eq!(tag(&other, NOW + 299).await, first);
        assert_ne!(tag(&one, NOW + 300).await, first);
        assert_ne!(tag(&changed, NOW).await, first);
    }
}
