//! Interop with PyJWT, in both directions.

use serde_json::{Value, json};
use tests::actors::auth_server::{AuthServerPlan, USER_DETAILS};
use tests::actors::sidecar::SidecarPlan;
use tests::actors::stack::signing_flags;
use tests::actors::token_forge::{encode, payload_of};
use tests::keys::SigningType;
use tests::services::echo_service::EchoService;
use tests::services::fake_auth_server::FakeAuthServer;
use tests::services::python::Python;

#[test]
fn contract_2_4_pyjwt_verifies_our_tokens() {
    let Some(python) = Python::with_pyjwt() else {
        return;
    };
    for signing_type in [SigningType::Rsa, SigningType::Ecdsa] {
        pyjwt_verifies(&python, signing_type);
    }
}

fn pyjwt_verifies(python: &Python, signing_type: SigningType) {
    let server = AuthServerPlan::new()
        .flags(["--signing-type", signing_type.name()])
        .ready();
    let token = server.login();
    let task = |token: &str| {
        json!({
            "key": server.served_key(), "token": token, "algorithm": signing_type.algorithm(), "issuer": "auth",
        })
    };
    let verified = python.run("verify.py", &task(&token));
    assert_eq!(verified["claims"], payload_of(&token));
    assert_eq!(verified["header"]["alg"], signing_type.algorithm());

    let (signed, signature) = token.rsplit_once('.').unwrap();
    let forged = format!(
        "{}.{}.{signature}",
        signed.split('.').next().unwrap(),
        encode(b"{}")
    );
    assert!(
        !python.succeeds("verify.py", &task(&forged)),
        "the script would notice a forgery"
    );
}

/// Takes PyJWT as another implementation of the contract: its own key, no `kid`, extra claims.
#[test]
fn contract_5_3_the_sidecar_accepts_what_pyjwt_signs() {
    let Some(python) = Python::with_pyjwt() else {
        return;
    };
    for signing_type in [SigningType::Rsa, SigningType::Ecdsa] {
        sidecar_accepts(&python, signing_type);
    }
}

fn sidecar_accepts(python: &Python, signing_type: SigningType) {
    let minted = python.run("mint.py", &json!({"algorithm": signing_type.algorithm()}));
    let auth_server = FakeAuthServer::serving(minted["key"].as_str().unwrap());
    let service = EchoService::start();
    let plan = SidecarPlan::new(&service, &auth_server.url()).flags(signing_flags(signing_type));
    let sidecar = plan.ready();

    for (name, token) in minted["accepted"].as_object().unwrap() {
        let client = sidecar.bearing(token.as_str().unwrap());
        let user = client.get(USER_DETAILS).json()["data"].clone();
        let found = (&user["account"], &user["nickName"]);
        assert_eq!(found, (&json!("žofie"), &json!("小明")), "{name}");
        assert_eq!(client.status("/list"), 200, "{name}");
        let header: Value =
            serde_json::from_str(&service.last_request().header("X-Current-User")[0]).unwrap();
        assert_eq!(header["id"], "42", "{name}");
    }
    service.take_requests();
    for (name, token) in minted["rejected"].as_object().unwrap() {
        let response = sidecar.bearing(token.as_str().unwrap()).get("/list");
        assert_eq!(response.status(), 401, "{name}: {}", response.text());
    }
    assert_eq!(service.requests().len(), 0);
}
