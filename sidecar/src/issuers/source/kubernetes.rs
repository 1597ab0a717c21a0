//! The issuer of a cluster's ServiceAccount tokens, from within one of its pods.
//!
//! The API server publishes its key set to authenticated callers only: the fetch carries the pod's
//! own token, which is read again each time because the kubelet replaces it.

use std::path::Path;

use postern_token::unverified::DecodedToken;
use postern_transport::issuer::key_set::bearer_token;

/// The `issuer` of the cluster whose pod this is.
pub(crate) const ISSUER: &str = "kubernetes:///";
/// The key set of the API server.
pub(crate) const JWKS_URL: &str = "https://kubernetes.default.svc/openid/v1/jwks";
/// The token of the pod's ServiceAccount.
pub(crate) const TOKEN_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// The authority of the API server's certificate.
pub(crate) const CA_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// Returns the `iss` of the cluster, which the pod's own token states.
///
/// # Errors
/// The file and what is wrong with it.
pub(crate) fn issuer(token_file: Option<&Path>) -> Result<String, String> {
    let file = token_file.unwrap_or(Path::new(TOKEN_FILE));
    let token = bearer_token(file)
        .map_err(|why| format!("{why}; is the pod's automountServiceAccountToken false?"))?;
    // Read without a check of its signature: the kubelet wrote it, and is trusted like the settings.
    if let Some(token) = DecodedToken::decode(&token)
        && let Some(issuer) = token.claims.get("iss")
        && let Some(issuer) = issuer.as_str()
        && !issuer.is_empty()
    {
        return Ok(issuer.to_owned());
    }
    Err(format!("{}: is no token with an iss", file.display()))
}
