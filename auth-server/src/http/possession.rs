//! The key and the certificate of the client that requests a token: the token is bound to them (RFC 9449
//! §5, RFC 8705 §3).

use std::sync::OnceLock;

use http::request::Parts;
use http::{HeaderMap, header};
use postern_contract::rejection::Rejection;
use postern_http::host::normal_url::NormalUrl;
use postern_token::digest::sha256;
use postern_token::invalid::InvalidProof;
use postern_token::possession::Binding;
use postern_token::possession::proof::{Proof, ProofRequest, VerifiedProof};
use postern_transport::http_port::PeerCertificate;
use postern_transport::net::shares::Holder;

use super::response::ErrorResponse;
use crate::http::app::App;

const NO_URL: &str = "the proof is for another URL; where a proxy ends TLS in front of this server, its --issuer \
                      has to be the URL that clients use";

/// A request for a token, whose client may present a key and a certificate.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Possession<'r> {
    pub(in crate::http) parts: &'r Parts,
    /// The path of the endpoint, relative to the context path.
    pub(in crate::http) path: &'static str,
}

impl Possession<'_> {
    /// Returns the key and certificate that the token for `subject` gets bound to, and uses the proof up.
    /// Called once the credentials were right, so that no other client makes this server verify proofs. The
    /// client has to present everything that its refresh token is `bound` to.
    ///
    /// # Errors
    /// The rejection of the proof, or the first binding that does not hold.
    pub(in crate::http) fn binding(
        self,
        app: &App,
        subject: &str,
        bound: Option<&Binding>,
    ) -> Result<Option<Binding>, ErrorResponse> {
        let proof = match self.proof(app) {
            Ok(proof) => proof,
            Err(InvalidProof::Target) if app.config.issuer_url.is_none() => {
                let rejection = Rejection::from(InvalidProof::Target);
                return Err(ErrorResponse::from(rejection).described(NO_URL));
            }
            Err(invalid) => return Err(Rejection::from(invalid).into()),
        };
        let certificate = self.parts.extensions.get::<PeerCertificate>();
        let presented = Binding {
            key: proof.map(|proof| proof.key),
            certificate: certificate.map(|leaf| sha256(&leaf.0)),
        };
        if let Some(bound) = bound {
            check(bound, &presented)?;
        }
        if let Some(proof) = &proof {
            app.seen_proofs
                .enter(
                    Holder::verified(None, subject),
                    proof,
                    app.now(),
                    app.config.policy.leeway_seconds,
                )
                .map_err(Rejection::from)?;
        }
        Ok(presented.or_none())
    }

    /// Verifies the proof of the request; `None` without a proof.
    fn proof(self, app: &App) -> Result<Option<VerifiedProof>, InvalidProof> {
        let Some(proof) = Proof::from_headers(&self.parts.headers)? else {
            return Ok(None);
        };
        let url = endpoint(app, &self.parts.headers, self.path);
        let request = ProofRequest {
            method: self.parts.method.as_str(),
            is_target: &|target| url.as_ref() == Some(target),
            token: None,
            nonces: None,
            now: app.now(),
            leeway_seconds: app.config.policy.leeway_seconds,
        };
        proof.verify(&request, &OnceLock::new()).map(Some)
    }
}

/// Compares a refresh token's binding with the one that its client presents (RFC 9449 §5, RFC 8705 §4).
fn check(bound: &Binding, presented: &Binding) -> Result<(), Rejection> {
    bound.check_certificate(presented.certificate.as_ref())?;
    match (bound.key, presented.key) {
        (Some(_), None) => Err(Rejection::ProofMissing),
        (Some(key), Some(presented)) if key != presented => Err(Rejection::ProofKeyOther),
        _ => Ok(()),
    }
}

/// Returns the URL of an endpoint: below an issuer that is a URL, or as the client has reached this
/// listener.
fn endpoint(app: &App, headers: &HeaderMap, path: &str) -> Option<NormalUrl> {
    let config = &app.config;
    if config.issuer_url.is_some() {
        let issuer = config.issuer.issuer.trim_end_matches('/');
        return NormalUrl::parse(&format!("{issuer}{path}"));
    }
    let scheme = match config.tls {
        Some(_) => "https",
        None => "http",
    };
    let host = headers.get(header::HOST)?.to_str().ok()?;
    let context = &config.context_path;
    NormalUrl::parse(&format!("{scheme}://{host}{context}{path}"))
}
