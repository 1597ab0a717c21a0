//! The verified token of a request: remembered with the keys that verified it, or verified now.

use std::sync::Arc;

use postern_contract::envelope::{Envelope, MSG_OPERATION_SUCCEEDED};
use postern_contract::rejection::Rejection;
use postern_token::claims::user_details::CurrentUserDetails;
use postern_token::observer::Observer;
use postern_token::possession::{Possession, sha256};
use postern_token::revocations::TokenDigests;
use postern_transport::net::shares::Holder;

use super::AuthPolicy;
use crate::decision::issuers::Issuer;
use crate::decision::possession::Presented;
use crate::issuers::installed_keys::InstalledKeys;
use crate::issuers::issuer_keys::KeysByIssuer;
use crate::issuers::token_cache::{Lookup, TokenDigest, VerifiedToken};

/// The user, and the value to cache and to forward.
type Verification = (CurrentUserDetails, Result<Arc<VerifiedToken>, Rejection>);

impl AuthPolicy {
    /// Returns the verified token, from the cache if it has it.
    pub(super) fn verified<O: Observer>(
        &self,
        keys: &impl KeysByIssuer,
        presented: &Presented<'_>,
        observer: &mut O,
    ) -> Result<Arc<VerifiedToken>, Rejection> {
        let digest = match self.cached(keys, presented, observer)? {
            Lookup::Found(known) => return Ok(known),
            Lookup::Missing(digest) => digest,
        };
        let (_, verified) = self.verify(keys, presented, digest, observer)?;
        observer.check("user_header", verified)
    }

    /// Returns the body of the current-user response.
    pub(super) fn user_details<O: Observer>(
        &self,
        keys: &impl KeysByIssuer,
        presented: &Presented<'_>,
        observer: &mut O,
    ) -> Result<Vec<u8>, Rejection> {
        let details = match self.cached(keys, presented, observer)? {
            Lookup::Found(known) => self.user_header.user(&known.identity)?,
            // A user who does not fit into the header still gets a response.
            Lookup::Missing(digest) => self.verify(keys, presented, digest, observer)?.0,
        };
        Envelope::ok(MSG_OPERATION_SUCCEEDED, details)
            .to_json()
            .map_err(|_| Rejection::Internal)
    }

    /// Verifies `token` by the keys and rules of its issuer.
    fn verify(
        &self,
        keys: &impl KeysByIssuer,
        presented: &Presented<'_>,
        digest: Option<TokenDigest>,
        observer: &mut impl Observer,
    ) -> Result<Verification, Rejection> {
        let token = presented.token;
        let selected = self.issuers.select(token);
        if self.issuers.only().is_none() {
            let selected = observer.check("known_issuer", selected);
            observer.explains(&selected, |_| Some(self.issuers.unknown(token)));
        }
        let issuer = selected?;
        if let Some(name) = &issuer.policy.name {
            observer.learned("issuer", name);
        }
        keys.with_keys(issuer.keys, |keys| {
            let keys = observer.check("keys", keys)?;
            // Only now is it known which issuer's cache lacks the token.
            if digest.is_some() {
                keys.verified_tokens().count_miss();
            }
            self.verify_with(issuer, keys, (presented, digest), observer)
        })
    }

    /// Verifies `token`, and remembers it under `digest` with the keys that verified it.
    fn verify_with(
        &self,
        issuer: &Issuer,
        keys: &InstalledKeys,
        (presented, digest): (&Presented<'_>, Option<TokenDigest>),
        observer: &mut impl Observer,
    ) -> Result<Verification, Rejection> {
        let mut claims =
            issuer
                .policy
                .verify_observed(keys.keys(), presented.token, presented.now, observer)?;
        let validity = claims.validity();
        let digests = TokenDigests::from_claims(&claims);
        let holder = Holder::verified(claims.issuer.as_deref(), &claims.user_id);
        // Before it is remembered; a cached token is checked again at each use.
        observer.check("revocation", keys.check_revoked(&digests))?;
        let possession = claims.binding.map(Possession::from);
        let of_token = || match digest {
            Some(digest) => digest.0,
            None => sha256(presented.token.as_str().as_bytes()),
        };
        self.check_possession(presented, possession.as_ref(), of_token, observer)?;
        let mut extra = std::mem::take(&mut claims.extra);
        let of_rules = extra.split_off(self.user_header.claim_count());
        let details = issuer.users.apply(claims.into_user_details());
        let details = observer.check("user", details)?;
        // Its error is returned beside the user: the current-user response needs no header.
        let identity = self.user_header.identity(&details, issuer.keys, &extra);
        let verified = identity.map(|identity| {
            let verified = Arc::new(VerifiedToken {
                identity,
                validity,
                holder,
                issuer: issuer.keys,
                digests,
                possession: possession.map(Box::new),
                rule_verdicts: self.access_rules.verdicts(&of_rules),
                rules: self.generation,
            });
            keys.verified_tokens()
                .remember(digest, Arc::clone(&verified));
            verified
        });
        Ok((details, verified))
    }

    /// Looks for a token that the present keys of its issuer and these rules verified, and that has
    /// neither expired nor been revoked.
    fn cached<O: Observer>(
        &self,
        keys: &impl KeysByIssuer,
        presented: &Presented<'_>,
        observer: &mut O,
    ) -> Result<Lookup, Rejection> {
        if O::WATCHES {
            // An explanation shows each check, and remembers nothing.
            return Ok(Lookup::Missing(None));
        }
        let digest = TokenDigest::new(presented.token);
        let cached = |issuer| {
            keys.with_keys(issuer, |keys| {
                // Missing or stale keys are no error yet: `verify` reports the issuer's own.
                let keys = keys.ok()?;
                let known = keys.verified_tokens().find(&digest, self.generation)?;
                Some(
                    self.still_valid(&known, keys, presented.now)
                        .and_then(|()| {
                            self.check_possession(
                                presented,
                                known.possession.as_deref(),
                                || digest.0,
                                observer,
                            )
                        })
                        .map(|()| Lookup::Found(known)),
                )
            })
        };
        // The issuer is unknown until the token is parsed, so each cache of its place is tried.
        self.issuers
            .key_sets(presented.token.location())
            .find_map(cached)
            .unwrap_or(Ok(Lookup::Missing(Some(digest))))
    }

    /// Checks a cached token by the keys that verified it.
    fn still_valid(
        &self,
        known: &VerifiedToken,
        keys: &InstalledKeys,
        now: i64,
    ) -> Result<(), Rejection> {
        // The times are checked alike for every issuer.
        self.policy.check_times(known.validity, now)?;
        keys.check_revoked(&known.digests)
    }
}
