//! The verified token of a request: remembered with the keys that verified it, or verified now.

use std::sync::Arc;

use postern_contract::envelope::{Envelope, MSG_OPERATION_SUCCEEDED};
use postern_contract::rejection::Rejection;
use postern_token::claims::Claims;
use postern_token::claims::user_details::CurrentUserDetails;
use postern_token::observer::Observer;
use postern_token::policy::VerificationPolicy;
use postern_token::possession::{Binding, Possession};
use postern_token::revocations::TokenDigests;
use postern_transport::net::shares::Holder;

use crate::decision::issuers::Issuer;
use crate::decision::policy::AuthPolicy;
use crate::decision::possession::Presented;
use crate::issuers::installed_keys::InstalledKeys;
use crate::issuers::issuer_keys::KeysByIssuer;
use crate::issuers::token_cache::VerifiedToken;

/// The user of a verified token.
struct Verification {
    details: CurrentUserDetails,
    /// The token to cache and to forward. Its error stands beside the user: the current-user response needs
    /// no header.
    forwarded: Result<Arc<VerifiedToken>, Rejection>,
}

/// The claims of an accepted token, and what each later use is checked against.
struct CheckedClaims {
    claims: Claims,
    holder: Holder,
    digests: TokenDigests,
    possession: Option<Possession>,
}

impl AuthPolicy {
    /// Returns the verified token, from the cache if it has it.
    pub(super) fn verified<O: Observer>(
        &self,
        keys: &impl KeysByIssuer,
        presented: &Presented<'_>,
        observer: &mut O,
    ) -> Result<Arc<VerifiedToken>, Rejection> {
        if let Some(known) = self.cached(keys, presented, observer)? {
            return Ok(known);
        }
        let verification = self.verify(keys, presented, observer)?;
        observer.check("user_header", verification.forwarded)
    }

    /// Returns the body of the current-user response.
    pub(super) fn user_details<O: Observer>(
        &self,
        keys: &impl KeysByIssuer,
        presented: &Presented<'_>,
        observer: &mut O,
    ) -> Result<Vec<u8>, Rejection> {
        let details = match self.cached(keys, presented, observer)? {
            Some(known) => self.user_header.user(&known.identity)?,
            // A user who does not fit into the header still gets a response.
            None => self.verify(keys, presented, observer)?.details,
        };
        Envelope::ok(MSG_OPERATION_SUCCEEDED, details)
            .to_json()
            .map_err(|_| Rejection::Internal)
    }

    /// Verifies `token` by the keys and rules of its issuer.
    fn verify<O: Observer>(
        &self,
        keys: &impl KeysByIssuer,
        presented: &Presented<'_>,
        observer: &mut O,
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
        keys.with_keys(issuer.key_set, |keys| {
            let keys = observer.check("keys", keys)?;
            // Only now is it known which issuer's cache lacks the token.
            if !O::WATCHES {
                keys.verified_tokens().count_miss();
            }
            self.verify_with(issuer, keys, presented, observer)
        })
    }

    /// Verifies the token, and remembers it with the keys that verified it.
    fn verify_with<O: Observer>(
        &self,
        issuer: &Issuer,
        keys: &InstalledKeys,
        presented: &Presented<'_>,
        observer: &mut O,
    ) -> Result<Verification, Rejection> {
        let mut token = self.check_claims(issuer, keys, presented, observer)?;
        let validity = token.claims.validity();
        let mut extra = std::mem::take(&mut token.claims.extra);
        let rule_claims = extra.split_off(self.user_header.claim_count());
        let details = issuer.users.apply(token.claims.into_user_details());
        let details = observer.check("user", details)?;
        let identity = self.user_header.identity(&details, issuer.key_set, &extra);
        let forwarded = identity.map(|identity| {
            Arc::new(VerifiedToken {
                identity,
                validity,
                holder: token.holder,
                key_set: issuer.key_set,
                digests: token.digests,
                possession: token.possession.map(Box::new),
                rule_verdicts: self.access_rules.verdicts(&rule_claims),
                rules: self.generation,
            })
        });
        // An explanation remembers nothing.
        if !O::WATCHES
            && let Ok(verified) = &forwarded
        {
            keys.verified_tokens()
                .remember(presented.digest, Arc::clone(verified));
        }
        Ok(Verification { details, forwarded })
    }

    /// Checks the token, its revocation, and that its sender has what it is bound to.
    fn check_claims(
        &self,
        issuer: &Issuer,
        keys: &InstalledKeys,
        presented: &Presented<'_>,
        observer: &mut impl Observer,
    ) -> Result<CheckedClaims, Rejection> {
        let policy = &issuer.policy;
        let claims =
            policy.verify_observed(keys.keys(), presented.token, presented.now, observer)?;
        let digests = TokenDigests::from_claims(&claims);
        let holder = Holder::verified(claims.issuer.as_deref(), &claims.user_id);
        // Before it is remembered; a cached token is checked again at each use.
        let revocation = keys.check_revoked(&digests);
        if keys.has_list() {
            observer.check("revocation", revocation)?;
        } else {
            observer.skipped("revocation", "no list");
        }
        let possession = claims.binding.map(Possession::from);
        let (leeway, bound) = (policy.leeway_seconds, possession.as_ref());
        self.check_possession(leeway, presented, bound, holder, observer)?;
        Ok(CheckedClaims {
            claims,
            holder,
            digests,
            possession,
        })
    }

    /// Looks for a token that the present keys of its issuer and these rules verified, and that has
    /// neither expired nor been revoked.
    fn cached<O: Observer>(
        &self,
        keys: &impl KeysByIssuer,
        presented: &Presented<'_>,
        observer: &mut O,
    ) -> Result<Option<Arc<VerifiedToken>>, Rejection> {
        if O::WATCHES {
            // An explanation shows each check.
            return Ok(None);
        }
        // The issuer is unknown until the token is parsed, so each cache of its place is tried.
        for key_set in self.issuers.key_sets(presented.token.location()) {
            let found = keys.with_keys(key_set, |keys| {
                // Missing or stale keys are no error yet: `verify` reports the issuer's own.
                let keys = keys.ok()?;
                let known = keys
                    .verified_tokens()
                    .find(&presented.digest, self.generation)?;
                let policy = self.issuers.policy(known.key_set)?;
                let valid = self.still_valid(&known, policy, keys, presented, observer);
                Some(valid.map(|()| known))
            });
            if let Some(found) = found {
                return found.map(Some);
            }
        }
        Ok(None)
    }

    /// Checks a cached token by the keys and rules that verified it.
    fn still_valid(
        &self,
        known: &VerifiedToken,
        policy: &VerificationPolicy,
        keys: &InstalledKeys,
        presented: &Presented<'_>,
        observer: &mut impl Observer,
    ) -> Result<(), Rejection> {
        let possession = known.possession.as_deref();
        // The same token in another place, or under another scheme.
        Binding::check_scheme(possession.map(|it| &it.binding), presented.token)?;
        policy.check_times(known.validity, presented.now)?;
        keys.check_revoked(&known.digests)?;
        let leeway = policy.leeway_seconds;
        self.check_possession(leeway, presented, possession, known.holder, observer)
    }
}
