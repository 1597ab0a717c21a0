//! Single claims as header fields (`--claim-header`), and the user header in base64url. What a client
//! sends of them is in `spoofing`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tests::auth_server::USER_DETAILS;
use tests::clock;
use tests::echo_service::EchoService;
use tests::sidecar::SidecarPlan;
use tests::stack::ForgedStack;

#[test]
fn a_claim_of_any_kind_is_ascii_and_never_breaks_its_field() {
    let stack = ForgedStack::with_flags(["--claim-header=X-Forwarded-Email=email"]);
    for (claim, expected) in [
        (json!("ada@example.com"), Some("ada@example.com")),
        (json!("Ada Lovelace"), Some("Ada Lovelace")),
        (json!("Žofie"), Some("%C5%BDofie")),
        (json!("50%, or so"), Some("50%25%2C or so")),
        (
            json!("a\r\nX-Admin: 1\u{0}\u{7f}"),
            Some("a%0D%0AX-Admin: 1%00%7F"),
        ),
        (json!(" a "), Some("%20a%20")),
        (json!(42), Some("42")),
        (json!(true), Some("true")),
        (json!(["a", 1, "ü"]), Some("a,1,%C3%BC")),
        (json!({"a": ["ü"]}), Some(r#"{"a":["\u00fc"]}"#)),
        (json!(""), None),
        (json!([]), None),
        (json!(null), None),
    ] {
        let token = stack.forge.token(clock::now(), &json!({"email": claim}));
        // The second token is the remembered one.
        for _ in 0..2 {
            let response = stack.sidecar.bearing(&token).get("/list");
            assert_eq!(response.status(), 200, "{claim}");
            let seen = stack.service.last_request();
            assert!(seen.head.is_ascii(), "{claim}");
            assert_eq!(seen.header("X-Admin"), Vec::<String>::new(), "{claim}");
            let expected: Vec<_> = expected.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(seen.header("X-Forwarded-Email"), expected, "{claim}");
        }
    }
}

#[test]
fn another_issuer_s_claims_are_named_as_in_its_token() {
    let stack = ForgedStack::start();
    let home = tempfile::tempdir().unwrap();
    let key = home.path().join("key.pem");
    std::fs::write(&key, stack.forge.trusted().served()).unwrap();
    let service = EchoService::start();
    let sidecar = SidecarPlan::of_issuer(
        &service,
        [
            "--jwks",
            key.to_str().unwrap(),
            "--issuer=auth",
            "--audience=orders",
            "--claim=account=username",
            "--claim-header=X-Subject=sub,X-Tenant=/https:~1~1idp~1claims/tenant",
        ],
    )
    .ready();
    let claims = json!({"aud": ["orders"], "sub": "s-7", "https://idp/claims": {"tenant": "t-7"}});
    let token = stack.forge.token(clock::now(), &claims);
    let response = sidecar.bearing(&token).get("/list");
    assert_eq!(response.verdict(), "200");
    let seen = service.last_request();
    assert_eq!(seen.header("X-Subject"), ["s-7"]);
    assert_eq!(seen.header("X-Tenant"), ["t-7"]);
}

#[test]
fn the_user_may_come_in_base64url() {
    let stack = ForgedStack::with_flags(["--user-header-encoding", "base64url"]);
    let token = stack
        .forge
        .token(clock::now(), &json!({"nickName": "Žofie 😀"}));
    let client = stack.sidecar.bearing(&token);
    for _ in 0..2 {
        let details = client.get(USER_DETAILS).json();
        assert_eq!(details["data"]["nickName"], "Žofie 😀");
        let request = client.request("GET", "/list").line("x_current_user: e30");
        assert_eq!(client.send(&request).status(), 200);
        let seen = stack.service.last_request();
        let value = seen.header("X-Current-User").concat();
        let user: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(value).unwrap()).unwrap();
        assert_eq!(user["nickName"], "Žofie 😀");
        assert_eq!(seen.header("x_current_user"), Vec::<String>::new());
    }
}
