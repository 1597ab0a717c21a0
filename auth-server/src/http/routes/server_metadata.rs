//! `GET …/.well-known/oauth-authorization-server` (RFC 8414) and `…/openid-configuration` (OpenID
//! Connect Discovery): where clients of any kind find the keys and the token endpoint.
//!
//! The routes exist only if the issuer is a URL. The documents name no secret and no application.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::header::CACHE_CONTROL;
use postern_token::keys::algorithms;
use serde_json::{Value, json};

use super::token::{CLIENT_CREDENTIALS, REFRESH_TOKEN};
use super::{AUTHORIZE_PATH, JWKS_PATH, REVOKE_PATH, TOKEN_PATH};
use crate::config::Config;
use crate::http::app::App;

const DOCUMENTS: [&str; 2] = [
    "/.well-known/oauth-authorization-server",
    "/.well-known/openid-configuration",
];

/// The document changes with a restart only.
const CACHEABLE: &str = "public, max-age=300";

/// Returns one document for both paths: each standard leaves room for the members of the other.
fn document(config: &Config) -> Value {
    let issuer = &config.issuer.issuer;
    let endpoint = |path: &str| format!("{}{path}", issuer.trim_end_matches('/'));
    let mut grants = vec![CLIENT_CREDENTIALS];
    let mut methods = vec!["client_secret_basic", "client_secret_post"];
    if config.refresh_tokens {
        grants.push(REFRESH_TOKEN);
        // A refresh token needs no client authentication: the user who logged in has it.
        methods.push("none");
    }
    let mut document = json!({
        "issuer": issuer,
        "jwks_uri": endpoint(JWKS_PATH),
        // MCP clients require an authorization endpoint of every server.
        "authorization_endpoint": endpoint(AUTHORIZE_PATH),
        "token_endpoint": endpoint(TOKEN_PATH),
        "revocation_endpoint": endpoint(REVOKE_PATH),
        // A token is its own permission.
        "revocation_endpoint_auth_methods_supported": ["none"],
        "grant_types_supported": grants,
        "token_endpoint_auth_methods_supported": methods,
        // Required and never empty, although the authorization endpoint accepts no response type.
        "response_types_supported": ["none"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [format!("{:?}", config.signing_type.algorithm())],
        "dpop_signing_alg_values_supported": algorithms::asymmetric_names(),
    });
    if config.binds_to_certificates {
        // The member of RFC 8705 §3.3.
        document["tls_client_certificate_bound_access_tokens"] = true.into();
    }
    document
}

/// Returns each path once: below the context path (OpenID Connect Discovery §4), and with the context
/// path at the end (RFC 8414 §3).
pub(crate) fn paths(config: &Config) -> BTreeSet<String> {
    let context = &config.context_path;
    let paths = |of: &str| [format!("{context}{of}"), format!("{of}{context}")];
    config
        .issuer_url
        .iter()
        .flat_map(|_| DOCUMENTS)
        .flat_map(paths)
        .collect()
}

pub(crate) async fn server_metadata(State(app): State<Arc<App>>) -> impl IntoResponse {
    ([(CACHE_CONTROL, CACHEABLE)], Json(document(&app.config)))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::config::tests::config;

    const ISSUER: &str = "--issuer=https://login.example/auth";

    #[test]
    fn rfc_8414_the_document_names_the_endpoints_below_the_issuer() {
        assert_eq!(
            document(&config(&[ISSUER, "--signing-type=ecdsa"]).unwrap()),
            json!({
                "issuer": "https://login.example/auth",
                "jwks_uri": "https://login.example/auth/.well-known/jwks.json",
                "authorization_endpoint": "https://login.example/auth/oauth/authorize",
                "token_endpoint": "https://login.example/auth/oauth/token",
                "revocation_endpoint": "https://login.example/auth/oauth/revoke",
                "revocation_endpoint_auth_methods_supported": ["none"],
                "grant_types_supported": ["client_credentials"],
                "token_endpoint_auth_methods_supported":
                    ["client_secret_basic", "client_secret_post"],
                "response_types_supported": ["none"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
                "dpop_signing_alg_values_supported":
                    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"],
            })
        );
        let with_refresh_tokens = document(&config(&[ISSUER, "--refresh-tokens=true"]).unwrap());
        assert_eq!(
            with_refresh_tokens["grant_types_supported"],
            json!(["client_credentials", "refresh_token"])
        );
        assert_eq!(
            with_refresh_tokens["token_endpoint_auth_methods_supported"],
            json!(["client_secret_basic", "client_secret_post", "none"])
        );
    }

    #[test]
    fn each_path_stands_there_once_where_there_are_keys_to_discover() {
        for (flags, expected) in [
            (
                [ISSUER, "--context-path=/auth"],
                &[
                    "/.well-known/oauth-authorization-server/auth",
                    "/.well-known/openid-configuration/auth",
                    "/auth/.well-known/oauth-authorization-server",
                    "/auth/.well-known/openid-configuration",
                ][..],
            ),
            ([ISSUER, "--context-path="], &DOCUMENTS),
            ([ISSUER, "--signing-type=hmac"], &[]),
            (["--issuer=auth", "--context-path=/auth"], &[]),
        ] {
            let paths = paths(&config(&flags).unwrap());
            assert!(paths.iter().eq(expected), "{paths:?}");
        }
    }
}
