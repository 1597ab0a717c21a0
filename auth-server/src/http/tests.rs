//! Routes without sockets: paths, tokens, responses.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use http::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST};
use http::{Method, Request};
use http_body_util::BodyExt;
use postern_contract::login::LoginRequest;
use postern_token::keys::signing_type::SigningType;
use serde_json::Value;
use tower::ServiceExt;

use super::*;
use crate::accounts::applications::Applications;
use crate::accounts::users::authenticate::Authenticator;
use crate::accounts::users::builtin::BuiltinUser;
use crate::accounts::users::{PresentUser, UserStore};
use crate::config::tests::config;
use crate::keys::pair::tests::pair;
use crate::keys::published::LiveKeys;
use crate::keys::published::tests::holding;
use crate::store::conformance::unsteady::Unsteady;
use crate::store::open_store::OpenStore;

mod jwks;
mod limits;
mod possession;

const LOGIN: &str = r#"{"username":"a","password":"b"}"#;

/// Returns the parts of a server with these flags, which holds the keys, without registered applications.
fn app(flags: &[&str], live_keys: LiveKeys) -> App {
    let config = config(flags).unwrap();
    let mut app = App::new(config, OpenStore::unencrypted(Arc::new(Unsteady::new())));
    app.registrations.reconcile(Some(Applications::default()));
    app.live_keys = Arc::new(live_keys);
    app
}

fn router(live_keys: LiveKeys) -> Router {
    super::router(Arc::new(app(&[], live_keys)))
}

/// Builds a server with a key.
fn serving() -> Router {
    router(holding(pair(SigningType::Ecdsa)))
}

/// Builds a request, with or without a token.
fn request(method: Method, path: &str, token: Option<&str>, body: &str) -> Request<Body> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "auth");
    request = request.header(CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

/// Returns status and envelope, and checks the headers that all JSON responses share.
async fn send(router: &Router, request: Request<Body>) -> (u16, Value) {
    let response = router.clone().oneshot(request).await.unwrap();
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "SAMEORIGIN"),
        ("referrer-policy", "no-referrer"),
        (
            "content-security-policy",
            "default-src 'none'; frame-ancestors 'none'",
        ),
    ] {
        assert_eq!(response.headers()[name], value);
    }
    assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
    assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let envelope: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(envelope["status"], status);
    assert_eq!(envelope["success"], status == 200);
    (status, envelope)
}

async fn token(router: &Router) -> String {
    let login = request(Method::POST, "/auth/oauth/jwt/token", None, LOGIN);
    let (_, envelope) = send(router, login).await;
    envelope["data"]["access_token"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Method, path, and the outcomes without and with a token.
const PATHS: &str = "
    GET     /auth/current/user/details                        token_missing       ok
    POST    /auth/current/user/details                        method_not_allowed  method_not_allowed
    GET     /auth/oauth/jwt/token                             method_not_allowed  method_not_allowed
    GET     /auth/oauth/jwt/other                             not_found           not_found
    GET     /auth/client/user/secret/key?appId=a&appSecret=b  ok                  ok
    GET     /auth/client/user/secret/key?appId=a              parameter_missing   parameter_missing
    DELETE  /auth/client/user/secret/key                      method_not_allowed  method_not_allowed
    GET     /auth/client/user/secret/key/                     token_missing       not_found
    GET     /auth/client/user/secret/ke%79                    token_missing       not_found
    GET     /auth/static/missing.css                          not_found           not_found
    POST    /auth/static/                                     method_not_allowed  method_not_allowed
    TRACE   /auth/static/                                     method_not_allowed  method_not_allowed
    GET     /auth/static/../current                           path_not_canonical  path_not_canonical
    GET     /auth/static/%61.css                              token_missing       not_found
    GET     /auth/unknown                                     token_missing       not_found
    GET     /static/                                          token_missing       not_found
    GET     /                                                 token_missing       not_found
    GET     /auth/oauth/jwt                                   not_found           not_found
    GET     /auth/assets/missing.js                           not_found           not_found
    GET     /auth                                             token_missing       not_found
    GET     /auth/oauth                                       token_missing       not_found
    GET     /auth/Oauth/jwt/token                             token_missing       not_found
    GET     /auth/client/user/secret                          token_missing       not_found
    GET     /auth/client/user/secret/keys                     token_missing       not_found
    GET     /auth/client/user/secret//key                     token_missing       not_found
    GET     /auth/current/user/details/x                      token_missing       not_found
    POST    /auth/.well-known/jwks.json                       method_not_allowed  method_not_allowed
    GET     /auth/.well-known/jwks.json/                      token_missing       not_found
    GET     /auth/.well-known/jwks.jso%6e                     token_missing       not_found
    GET     /auth/.well-known/other                           token_missing       not_found
    GET     /.well-known/jwks.json                            token_missing       not_found
";

#[tokio::test]
async fn contract_4_each_path_without_and_with_a_token() {
    let router = serving();
    let token = token(&router).await;
    for row in PATHS.trim().lines() {
        let cells: Vec<&str> = row.split_whitespace().collect();
        let [method, path, without, with] = cells[..] else {
            unreachable!("{row}")
        };
        let method: Method = method.parse().unwrap();
        for (token, expected) in [(None, without), (Some(token.as_str()), with)] {
            let (_, envelope) = send(&router, request(method.clone(), path, token, "")).await;
            let code = envelope["data"]["reason"].as_str().unwrap_or("ok");
            assert_eq!(
                code,
                expected,
                "{method} {path}, token: {}",
                token.is_some()
            );
        }
    }
}

#[tokio::test]
async fn a_response_to_a_wrong_method_names_the_right_ones() {
    for (method, path, allowed) in [
        (Method::GET, "/auth/oauth/jwt/token", "POST"),
        (Method::PUT, "/auth/client/user/secret/key", "GET"),
        (Method::HEAD, "/auth/client/user/secret/key", "GET"),
        (Method::POST, "/auth/current/user/details", "GET, HEAD"),
        (Method::POST, "/auth/assets/x", "GET,HEAD"),
        (Method::TRACE, "/auth/oauth/jwt/token", "POST"),
        (Method::TRACE, "/auth/client/user/secret/key", "GET"),
        (Method::TRACE, "/auth/assets/x", "GET, HEAD"),
        (Method::TRACE, "/auth/oidc/backchannel-logout", "POST"),
        (Method::TRACE, "/auth/oauth/authorize", "GET,HEAD,POST"),
    ] {
        let response = serving()
            .oneshot(request(method, path, None, ""))
            .await
            .unwrap();
        assert_eq!(response.headers()[ALLOW], allowed, "{path}");
    }
}

/// A user who is disabled while the password is checked.
#[derive(Debug, Default)]
struct LeavingUser(AtomicBool);

impl UserStore for LeavingUser {
    fn authenticate(&self, request: &LoginRequest) -> Option<PresentUser> {
        self.0.store(true, Ordering::SeqCst);
        BuiltinUser.authenticate(request)
    }

    fn present(&self, account: &str) -> Option<PresentUser> {
        let is_gone = self.0.load(Ordering::SeqCst);
        BuiltinUser.present(account).filter(|_| !is_gone)
    }

    fn is_user(&self, _: &str) -> bool {
        true
    }

    fn checks_passwords(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_user_who_is_disabled_during_a_login_gets_no_token() {
    let live_keys = holding(pair(SigningType::Ecdsa));
    let mut app = app(&[], live_keys);
    app.users = Arc::new(LeavingUser::default());
    app.authenticator = Authenticator::new(Arc::clone(&app.users));
    let login = request(Method::POST, "/auth/oauth/jwt/token", None, LOGIN);
    let (status, envelope) = send(&super::router(Arc::new(app)), login).await;
    assert_eq!(
        (status, envelope["data"]["reason"].as_str()),
        (401, Some("login_failed"))
    );
}

#[tokio::test]
async fn a_request_names_one_host() {
    for (hosts, reason) in [
        (&[][..], "host_missing"),
        (&[""], "host_missing"),
        (&["a/../b c"], "request_malformed"),
        (&["a", "a"], "request_malformed"),
        (&["a"], "not_found"),
    ] {
        let mut request = Request::get("/auth/static/nothing");
        for host in hosts {
            request = request.header("host", *host);
        }
        let (_, envelope) = send(&serving(), request.body(Body::empty()).unwrap()).await;
        assert_eq!(envelope["data"]["reason"], reason, "{hosts:?}");
    }
}
