//! Tokens that are bound to the key or the certificate of the client that requests them.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use postern_token::digest::sha256;
use postern_transport::http_port::PeerCertificate;
use serde_json::json;
use token_corpus::keys::Algorithm;
use token_corpus::proof_rows::{ProofRow, ProofSetting};
use token_corpus::token_forge::Forge;

use super::*;

const LOGIN_URL: &str = "http://auth/auth/oauth/jwt/token";
const TOKEN_URL: &str = "http://auth/auth/oauth/token";

/// A client with a key.
struct Client(Forge);

impl Client {
    fn new() -> Self {
        Self(Forge::new(Algorithm::ES256))
    }

    fn thumbprint(&self) -> String {
        self.0.trusted().thumbprint()
    }

    fn proof(&self, url: &str, id: &str) -> String {
        let row = ProofRow::changed(id, &json!({"ath": null}));
        let setting = ProofSetting {
            method: "POST",
            url,
            token: b"",
            now: postern_process::clock::unix_now(),
        };
        String::from_utf8(row.field(&self.0, setting)).unwrap()
    }
}

fn with_sessions(flags: &[&str]) -> Router {
    let flags: Vec<_> = flags
        .iter()
        .chain(&["--refresh-tokens=on"])
        .copied()
        .collect();
    let live_keys = holding(pair(SigningType::Ecdsa));
    super::super::router(Arc::new(app(&flags, live_keys)))
}

fn login(proofs: &[&str]) -> Request<Body> {
    let mut login = request(Method::POST, "/auth/oauth/jwt/token", None, LOGIN);
    for proof in proofs {
        let proof = http::HeaderValue::from_str(proof).unwrap();
        login.headers_mut().append("dpop", proof);
    }
    login
}

fn refresh(token: &Value, proof: Option<&str>) -> Request<Body> {
    let form = format!(
        "grant_type=refresh_token&refresh_token={}",
        token.as_str().unwrap()
    );
    let request = Request::post("/auth/oauth/token")
        .header(HOST, "auth")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    let request = match proof {
        Some(proof) => request.header("DPoP", proof),
        None => request,
    };
    request.body(Body::from(form)).unwrap()
}

/// Returns status and JSON.
async fn sent(router: &Router, request: Request<Body>) -> (u16, Value) {
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

/// Returns the `cnf` of an access token.
fn confirmation(token: &Value) -> Value {
    let payload = token.as_str().unwrap().split('.').nth(1).unwrap();
    let payload: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap();
    payload["cnf"].clone()
}

#[tokio::test]
async fn rfc_9449_5_a_session_is_bound_to_the_key_of_its_client() {
    let (router, client, thief) = (with_sessions(&[]), Client::new(), Client::new());
    let (status, body) = sent(&router, login(&[&client.proof(LOGIN_URL, "1")])).await;
    let data = &body["data"];
    assert_eq!(
        (status, &data["token_type"]),
        (200, &json!("DPoP")),
        "{body}"
    );
    let bound = json!({"jkt": client.thumbprint()});
    assert_eq!(confirmation(&data["access_token"]), bound);
    let token = &data["refresh_token"];
    for (proof, expected) in [
        (None, "proof_missing"),
        (Some(thief.proof(TOKEN_URL, "2")), "proof_key_other"),
        (Some(client.proof(LOGIN_URL, "3")), "proof_target"),
        (Some(client.proof(TOKEN_URL, "")), "proof_claim"),
    ] {
        let (status, body) = sent(&router, refresh(token, proof.as_deref())).await;
        assert_eq!((status, &body["reason"]), (400, &json!(expected)), "{body}");
        assert_eq!(body["error"], "invalid_dpop_proof");
    }
    // Without a right token no client makes the server verify proofs.
    let wrong = refresh(&json!("wrong"), Some("malformed"));
    assert_eq!(sent(&router, wrong).await.1["reason"], "grant_invalid");
    let proof = client.proof(TOKEN_URL, "4");
    let (status, body) = sent(&router, refresh(token, Some(&proof))).await;
    assert_eq!(
        (status, &body["token_type"]),
        (200, &json!("DPoP")),
        "{body}"
    );
    assert_eq!(confirmation(&body["access_token"]), bound);
    let (_, body) = sent(&router, refresh(&body["refresh_token"], Some(&proof))).await;
    assert_eq!(body["reason"], "proof_replayed");
}

#[tokio::test]
async fn a_session_is_bound_by_its_first_proof() {
    let (router, client) = (with_sessions(&[]), Client::new());
    let (_, body) = sent(&router, login(&[])).await;
    assert_eq!(body["data"]["token_type"], "Bearer");
    assert_eq!(confirmation(&body["data"]["access_token"]), Value::Null);
    let (_, body) = sent(&router, refresh(&body["data"]["refresh_token"], None)).await;
    assert_eq!(body["token_type"], "Bearer");
    let proof = client.proof(TOKEN_URL, "1");
    let (_, body) = sent(&router, refresh(&body["refresh_token"], Some(&proof))).await;
    assert_eq!(body["token_type"], "DPoP");
    let (_, body) = sent(&router, refresh(&body["refresh_token"], None)).await;
    assert_eq!(body["reason"], "proof_missing");
}

#[tokio::test]
async fn rfc_8705_3_a_token_is_bound_to_the_connections_certificate() {
    let router = with_sessions(&[]);
    let with = |mut request: Request<Body>, certificate: &[u8]| {
        let certificate = PeerCertificate(certificate.into());
        request.extensions_mut().insert(certificate);
        request
    };
    let (_, body) = sent(&router, with(login(&[]), b"own")).await;
    let bound = json!({"x5t#S256": URL_SAFE_NO_PAD.encode(sha256(b"own"))});
    assert_eq!(body["data"]["token_type"], "Bearer");
    assert_eq!(confirmation(&body["data"]["access_token"]), bound);
    let token = &body["data"]["refresh_token"];
    for (request, expected) in [
        (refresh(token, None), "certificate_missing"),
        (with(refresh(token, None), b"other"), "certificate_other"),
    ] {
        let (status, body) = sent(&router, request).await;
        // RFC 6749 §5.2: 401 is for applications with a wrong secret.
        assert_eq!((status, &body["reason"]), (400, &json!(expected)));
        assert_eq!(body["error"], "invalid_grant");
    }
    let (_, body) = sent(&router, with(refresh(token, None), b"own")).await;
    assert_eq!(confirmation(&body["access_token"]), bound);
}

#[tokio::test]
async fn rfc_9449_4_3_the_url_is_the_issuers_or_the_listeners() {
    let client = Client::new();
    const PUBLIC: &str = "https://login.example/x/oauth/jwt/token";
    for (number, (flags, url, expected)) in [
        (&["--issuer=auth"][..], LOGIN_URL, "ok"),
        (&["--issuer=auth"], PUBLIC, "proof_target"),
        (
            &["--issuer=auth"],
            "https://auth/auth/oauth/jwt/token",
            "proof_target",
        ),
        (&["--issuer=https://login.example/x/"], PUBLIC, "ok"),
        (
            &["--issuer=https://login.example/x"],
            LOGIN_URL,
            "proof_target",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let router = with_sessions(flags);
        let proof = client.proof(url, &number.to_string());
        let (_, body) = sent(&router, login(&[&proof])).await;
        let found = body["data"]["reason"].as_str().unwrap_or("ok");
        assert_eq!(found, expected, "{flags:?} {url}");
        let names_issuer = body["msg"].as_str().unwrap().contains("its --issuer");
        let is_possible = expected != "ok" && flags == ["--issuer=auth"];
        assert_eq!(names_issuer, is_possible, "{body}");
    }
    let router = with_sessions(&[]);
    let proofs = ["a", "b"].map(|id| client.proof(LOGIN_URL, id));
    let (status, body) = sent(&router, login(&[&proofs[0], &proofs[1]])).await;
    assert_eq!(
        (status, &body["data"]["reason"]),
        (400, &json!("proof_repeated"))
    );
    let (_, body) = sent(&router, login(&[""])).await;
    assert_eq!(body["data"]["reason"], "proof_malformed");
}

#[tokio::test]
async fn a_bound_token_is_no_bearer_token_here_and_can_be_ended() {
    let (router, client) = (with_sessions(&[]), Client::new());
    let (_, body) = sent(&router, login(&[&client.proof(LOGIN_URL, "1")])).await;
    let token = body["data"]["access_token"].as_str().unwrap();
    let details = request(Method::GET, "/auth/current/user/details", Some(token), "");
    let (_, body) = sent(&router, details).await;
    assert_eq!(body["data"]["reason"], "token_bound");
    let revoke = Request::post("/auth/oauth/revoke")
        .header(HOST, "auth")
        .header(AUTHORIZATION, format!("DPoP {token}"));
    let (status, _) = sent(&router, revoke.body(Body::empty()).unwrap()).await;
    assert_eq!(status, 200, "without a proof");
    let form = format!("token={token}");
    let revoke = Request::post("/auth/oauth/revoke")
        .header(HOST, "auth")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    let (status, _) = sent(&router, revoke.body(Body::from(form)).unwrap()).await;
    assert_eq!(status, 200);
}
