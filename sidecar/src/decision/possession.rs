//! The proof and the certificate of a request, compared with what its token is bound to (RFC 9449, RFC
//! 8705).

use http::{HeaderName, HeaderValue, StatusCode};
use postern_contract::rejection::Rejection;
use postern_http::host::normal_url::NormalUrl;
use postern_http::request::received::ReceivedHead;
use postern_token::digest::Digest;
use postern_token::invalid::InvalidProof;
use postern_token::observer::Observer;
use postern_token::possession::proof::{DPOP, Proof, ProofRequest, VerifiedProof};
use postern_token::possession::{Binding, Possession};
use postern_token::sources::bearer::{Bearer, Scheme, TokenLocation};
use postern_token::unverified::detail;
use postern_transport::net::shares::Holder;

use super::policy::AuthPolicy;
use crate::identity::client::Client;
use crate::identity::client_certificate::ClientCertificate;
use crate::issuers::token_cache::TokenDigest;

/// The field with the nonce of the next proof (RFC 9449 §8).
pub(crate) const DPOP_NONCE: HeaderName = HeaderName::from_static("dpop-nonce");

/// A token with its request.
#[derive(Clone, Copy)]
pub(super) struct Presented<'a> {
    pub(super) request: &'a ReceivedHead,
    pub(super) client: &'a Client,
    pub(super) token: Bearer<'a>,
    pub(super) digest: TokenDigest,
    /// Seconds since the epoch.
    pub(super) now: i64,
}

impl AuthPolicy {
    /// Checks that the sender of a verified token, which is of `user`, has what the token is bound to.
    ///
    /// # Errors
    /// The rejection of the request.
    pub(super) fn check_possession<O: Observer>(
        &self,
        leeway_seconds: u32,
        presented: &Presented<'_>,
        bound: Option<&Possession>,
        user: Holder,
        observer: &mut O,
    ) -> Result<(), Rejection> {
        let field = self.possession.certificate_field.as_ref();
        let headers = &presented.request.headers;
        // First: two fields are rejected with any token.
        let certificate = ClientCertificate::find(field, presented.client, headers)?;
        let Some(bound) = bound else {
            return Ok(());
        };
        let checked = check_certificate(&bound.binding, certificate, observer)
            .and_then(|()| self.check_proof(leeway_seconds, presented, bound, user, observer));
        match checked {
            // Of two bindings one holds, which is no proof that the token is in the right hands. The client
            // needs the nonce, and the reasons that are no 401 are not about a binding.
            Err(rejection)
                if bound.binding.key.is_some()
                    && bound.binding.certificate.is_some()
                    && rejection.status() == StatusCode::UNAUTHORIZED
                    && rejection != Rejection::ProofNonce =>
            {
                Err(Rejection::TokenBound)
            }
            checked => checked,
        }
    }

    /// Verifies the proof for a token that is bound to a key, and uses it up.
    fn check_proof<O: Observer>(
        &self,
        leeway_seconds: u32,
        presented: &Presented<'_>,
        bound: &Possession,
        user: Holder,
        observer: &mut O,
    ) -> Result<(), Rejection> {
        let Some(key) = &bound.binding.key else {
            return Ok(());
        };
        let seen = &self.possession.seen;
        let used = match self.proof(leeway_seconds, presented, bound, key) {
            // An explanation uses no proof up.
            Ok(proof) if O::WATCHES => seen.check(user, &proof, presented.now),
            Ok(proof) => seen.enter(user, &proof, presented.now, leeway_seconds),
            Err(invalid) => Err(invalid),
        };
        observer.explains(&used, |_| describe(presented.request));
        Ok(observer.check("proof", used)?)
    }

    /// Verifies the proof of `key` for the request.
    fn proof(
        &self,
        leeway_seconds: u32,
        presented: &Presented<'_>,
        bound: &Possession,
        key: &Digest,
    ) -> Result<VerifiedProof, InvalidProof> {
        let request = presented.request;
        let Some(proof) = Proof::from_headers(&request.headers)? else {
            return Err(InvalidProof::Missing);
        };
        // RFC 9449 §4.3 item 12. First: no other key is worth a computation.
        if proof.key() != key {
            return Err(InvalidProof::OtherKey);
        }
        let for_request = ProofRequest {
            method: request.method.as_str(),
            is_target: &|url| self.is_url_of(request, url),
            token: Some(&presented.digest.0),
            nonces: self.possession.nonces.as_ref(),
            now: presented.now,
            leeway_seconds,
        };
        proof.verify(&for_request, &bound.key)
    }

    /// Returns true for a URL of the request: at the origin of a resource, with the path as it was
    /// received, or where a gateway has removed the resource's own path, with that before it. The
    /// client's `Host` and `X-Forwarded-Host` count for nothing.
    fn is_url_of(&self, request: &ReceivedHead, url: &NormalUrl) -> bool {
        let Ok(target) = request.checked_target() else {
            return false;
        };
        let Some(path) = NormalUrl::path_of(target.path()) else {
            return false;
        };
        for normal in self.resources.iter().map(|resource| &resource.normal) {
            let below = match url.path.strip_prefix(normal.path.trim_end_matches('/')) {
                // The resource itself.
                Some("") => Some("/"),
                below => below,
            };
            if normal.origin == url.origin && (url.path == path || below == Some(&path)) {
                return true;
            }
        }
        false
    }

    /// Returns the field with the next nonce for a request that came with a proof; `None` where no
    /// nonces are used.
    pub(crate) fn next_nonce(
        &self,
        request: &ReceivedHead,
        now: i64,
    ) -> Option<(HeaderName, HeaderValue)> {
        let nonces = self.possession.nonces.as_ref()?;
        if self.token(request)?.location() != TokenLocation::Authorization(Scheme::Dpop) {
            return None;
        }
        Some((DPOP_NONCE, HeaderValue::try_from(nonces.issue(now)).ok()?))
    }
}

fn check_certificate(
    binding: &Binding,
    presented: ClientCertificate<'_>,
    observer: &mut impl Observer,
) -> Result<(), Rejection> {
    if binding.certificate.is_none() {
        return Ok(());
    }
    let checked = presented.digest().and_then(|digest| {
        binding
            .check_certificate(digest.as_ref())
            .map_err(Rejection::from)
    });
    observer.check("certificate", checked)
}

/// Describes the proof of a request for people: the members that are compared.
fn describe(request: &ReceivedHead) -> Option<String> {
    detail::describe_proof(request.headers.get(DPOP)?.to_str().ok()?)
}

#[cfg(test)]
mod tests;
