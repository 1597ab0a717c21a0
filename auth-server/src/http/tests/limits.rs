//! Logins against a users file, and their limits.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use http::HeaderValue;
use http::header::WWW_AUTHENTICATE;

use super::*;
use crate::accounts::users::file::tests::file_with;

/// Builds a server with the user ada (password `ada's`) behind the proxies of 10.0.0.0/8.
fn with_users(logins_per_minute: u32) -> Router {
    let (file, limit) = (file_with(&["ada"]), logins_per_minute.to_string());
    let flags = [
        &format!("--users=file:{}", file.path().display()),
        &format!("--login-rate-limit={limit}"),
        "--trusted-proxy=10.0.0.0/8",
    ];
    let live_keys = holding(pair(SigningType::Ecdsa));
    super::super::router(Arc::new(app(&flags, live_keys)))
}

fn login(account: &str, password: &str) -> Request<Body> {
    let body = serde_json::json!({"username": account, "password": password, "code": "x"});
    request(
        Method::POST,
        "/auth/oauth/jwt/token",
        None,
        &body.to_string(),
    )
}

fn from(mut request: Request<Body>, peer: &str, forwarded_for: &'static str) -> Request<Body> {
    let peer: IpAddr = peer.parse().unwrap();
    let peer = ConnectInfo(SocketAddr::new(peer, 1));
    request.extensions_mut().insert(peer);
    let value = HeaderValue::from_static(forwarded_for);
    request.headers_mut().insert("x-forwarded-for", value);
    request
}

async fn reason(router: &Router, request: Request<Body>) -> String {
    let (_, envelope) = send(router, request).await;
    let reason = envelope["data"]["reason"].as_str();
    reason.unwrap_or("ok").to_owned()
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_account_respond_alike() {
    let mut responses = Vec::new();
    for (account, password) in [("ada", "wrong"), ("nobody", "ada's")] {
        let router = with_users(0);
        let response = router.oneshot(login(account, password)).await.unwrap();
        assert_eq!(response.status(), 401);
        assert_eq!(
            response.headers()[WWW_AUTHENTICATE],
            r#"Bearer realm="postern""#
        );
        let mut headers = response.headers().clone();
        headers.remove(postern_http::trace::REQUEST_ID);
        responses.push((
            headers,
            response.into_body().collect().await.unwrap().to_bytes(),
        ));
    }
    assert_eq!(responses.first(), responses.last());
}

#[tokio::test]
async fn each_address_has_its_own_logins_and_proxies_are_trusted() {
    let router = with_users(1);
    for (peer, forwarded_for, expected) in [
        ("192.0.2.1", "", "ok"),
        ("192.0.2.1", "198.51.100.1", "too_many_attempts"),
        ("10.0.0.1", "198.51.100.1", "ok"),
        ("10.0.0.2", "198.51.100.1", "too_many_attempts"),
        ("10.0.0.1", "198.51.100.2", "ok"),
        (
            "10.0.0.1",
            "198.51.100.3, 198.51.100.2",
            "too_many_attempts",
        ),
    ] {
        let login = from(login("ada", "ada's"), peer, forwarded_for);
        assert_eq!(
            reason(&router, login).await,
            expected,
            "{peer} for {forwarded_for}"
        );
    }
}

#[tokio::test]
async fn what_is_no_login_takes_none_of_them() {
    let router = with_users(1);
    for _ in 0..5 {
        let empty = request(Method::POST, "/auth/oauth/jwt/token", None, "{}");
        assert_eq!(reason(&router, empty).await, "login_incomplete");
    }
    assert_eq!(reason(&router, login("ada", "ada's")).await, "ok");
}
