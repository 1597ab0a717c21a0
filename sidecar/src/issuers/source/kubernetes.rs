//! The issuer of a cluster's ServiceAccount tokens, from within one of its pods.
//!
//! The API server publishes its key set to authenticated callers only: the fetch carries the pod's
//! own token, which is read again each time because the kubelet replaces it.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::key_set::bearer_token;

/// The key set of the API server.
pub(crate) const JWKS_URL: &str = "https://kubernetes.default.svc/openid/v1/jwks";
/// The token of the pod's ServiceAccount.
pub(crate) const TOKEN_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// The authority of the API server's certificate.
pub(crate) const CA_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// The one member that is read.
#[derive(Debug, Deserialize)]
struct Payload {
    iss: String,
}

/// Returns the `iss` of the cluster, which the pod's own token states.
///
/// # Errors
/// The file and what is wrong with it.
pub(crate) fn issuer(token_file: Option<&Path>) -> Result<String, String> {
    let file = token_file.unwrap_or(Path::new(TOKEN_FILE));
    let token = bearer_token(file)?;
    let issuer = issuer_of(&token).filter(|issuer| !issuer.is_empty());
    issuer.ok_or_else(|| format!("{}: is no token with an iss", file.display()))
}

/// Read without a check of its signature: the kubelet wrote it, and is trusted like the settings.
fn issuer_of(token: &str) -> Option<String> {
    let payload = token.split('.').nth(1)?;
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let payload: Payload = serde_json::from_slice(&payload).ok()?;
    Some(payload.iss)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_issuer_stands_in_the_payload() {
        let token = |payload: &str| format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(payload));
        for (token, issuer) in [
            (
                token(r#"{"iss":"https://kubernetes.default.svc","sub":"a"}"#),
                Some("https://kubernetes.default.svc"),
            ),
            (token(r#"{"sub":"a"}"#), None),
            (token(r#"{"iss":1}"#), None),
            ("no token".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(issuer_of(&token).as_deref(), issuer, "{token}");
        }
    }
}
