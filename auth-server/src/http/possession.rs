//! The key and the certificate of the client that requests a token: the token is bound to them (RFC 9449
//! §5, RFC 8705 §3).

use std::sync::OnceLock;

use http::request::Parts;
use http::{HeaderMap, header};
use postern_contract::rejection::Rejection;
use postern_http::host::normal_url::NormalUrl;
use postern_token::invalid::InvalidProof;
use postern_token::possession::proof::{Proof, ProofRequest, VerifiedProof};
use postern_token::possession::{Binding, sha256};
use postern_transport::http_port::PeerCertificate;

use super::response::ErrorResponse;
use crate::http::app::App;

const NO_URL: &str = "the proof is for another URL; where a proxy ends TLS in front of this server, its --issuer \
                      has to be the URL that clients use";

/// Certificate and proof of a client, before its credentials were checked.
#[derive(Debug, Default)]
pub(in crate::http) struct Possession {
    proof: Option<VerifiedProof>,
    certificate: Option<[u8; 32]>,
}

impl Possession {
    /// Reads the certificate of the connection, and verifies the proof for the endpoint at `path`, which
    /// is relative to the context path.
    ///
    /// # Errors
    /// The rejection of the proof.
    pub(in crate::http) fn read(
        app: &App,
        parts: &Parts,
        path: &str,
    ) -> Result<Self, ErrorResponse> {
        let certificate = parts.extensions.get::<PeerCertificate>();
        let proof = proof(app, parts, path).map_err(|invalid| {
            let error = ErrorResponse::from(Rejection::from(invalid));
            match invalid {
                InvalidProof::Target if app.config.issuer_url.is_none() => error.described(NO_URL),
                _ => error,
            }
        })?;
        Ok(Self {
            proof,
            certificate: certificate.map(|leaf| sha256(&leaf.0)),
        })
    }

    /// Checks that a refresh token came with all that it is bound to (RFC 9449 §5, RFC 8705 §4).
    ///
    /// # Errors
    /// The first binding that does not hold.
    pub(in crate::http) fn check(&self, bound: Option<&Binding>) -> Result<(), Rejection> {
        let Some(bound) = bound else {
            return Ok(());
        };
        bound.check_certificate(self.certificate.as_ref())?;
        match (&bound.key, &self.proof) {
            (None, _) => Ok(()),
            (Some(_), None) => Err(Rejection::ProofMissing),
            (Some(key), Some(proof)) if *key == proof.key => Ok(()),
            (Some(_), Some(_)) => Err(Rejection::ProofKeyOther),
        }
    }

    /// Uses the proof up, once the credentials beside it were right, and returns what the token is to be
    /// bound to. A client without credentials cannot fill the memory of proofs.
    ///
    /// # Errors
    /// [`Rejection::ProofReplayed`], [`Rejection::ProofTooMany`].
    pub(in crate::http) fn binding(&self, app: &App) -> Result<Option<Binding>, Rejection> {
        let leeway = app.config.policy.leeway_seconds;
        if let Some(proof) = &self.proof {
            app.seen_proofs
                .enter(&proof.key, &proof.id, app.now(), leeway)?;
        }
        let binding = Binding {
            key: self.proof.as_ref().map(|proof| proof.key),
            certificate: self.certificate,
        };
        let is_bound = binding.key.is_some() || binding.certificate.is_some();
        Ok(is_bound.then_some(binding))
    }
}

fn proof(app: &App, parts: &Parts, path: &str) -> Result<Option<VerifiedProof>, InvalidProof> {
    let Some(proof) = Proof::from_headers(&parts.headers)? else {
        return Ok(None);
    };
    let url = endpoint(app, &parts.headers, path);
    let request = ProofRequest {
        method: parts.method.as_str(),
        is_target: &|target| url.as_ref() == Some(target),
        token: None,
        nonces: None,
        now: app.now(),
        leeway_seconds: app.config.policy.leeway_seconds,
    };
    proof.verify(&request, &OnceLock::new()).map(Some)
}

/// Returns the URL of an endpoint: below an issuer that is a URL, or as the client has reached this
/// listener.
fn endpoint(app: &App, headers: &HeaderMap, path: &str) -> Option<NormalUrl> {
    let config = &app.config;
    if config.issuer_url.is_some() {
        let issuer = config.issuer.issuer.trim_end_matches('/');
        return NormalUrl::parse(&format!("{issuer}{path}"));
    }
    let scheme = if config.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let host = headers.get(header::HOST)?.to_str().ok()?;
    let context = &config.context_path;
    NormalUrl::parse(&format!("{scheme}://{host}{context}{path}"))
}
