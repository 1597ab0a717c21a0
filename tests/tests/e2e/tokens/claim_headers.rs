//! Single claims as header fields (`--claim-header`), and the user header in base64url. What a client
//! sends of them is in `spoofing`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tests::actors::auth_server::USER_DETAILS;
use tests::actors::sidecar::SidecarPlan;
use tests::actors::stack::ForgedStack;
use tests::services::echo_service::EchoService;
use tests::wire::clock;

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
