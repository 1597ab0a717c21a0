//! Faulty responses of the auth server: none of them becomes a key or replaces one (contract §7;
//! lessons B16, B17).

use serde_json::{Value, json};
use tests::auth_server::{AuthServer, ECDSA, admin_get};
use tests::client::verdict;
use tests::clock;
use tests::echo_service::EchoService;
use tests::fake_auth_server::{FakeAuthServer, json_response, key_response};
use tests::keys::{SigningKey, SigningType};
use tests::sidecar::{EVERY_SECOND, SidecarPlan};
use tests::socket_server::{Reply, response};
use tests::token_forge::Forge;
use tests::wait;

/// A public key of 1024 bits: too small to trust.
const SMALL_RSA_KEY: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDAYjsmcwCgKCOu6ddbFdkIrfLn
ymwG9zqBaPsCnzPNMVqIuhGpmv9LIwWhTEUnfEtESy1UkIf10yDAMBp1juR2ZUP8
BcEj9A+XTthvl1WJt1k7hd/elOPoupg44NWTlK0vN/1eT4biYZ6w8cQnjE762nah
Qo1LFjxBNK4jMmOeVwIDAQAB
-----END PUBLIC KEY-----
";

/// Returns every response of the auth server that must not replace a key. `elsewhere` is the target
/// of a redirect, with a usable key.
fn invalid_responses(good: &SigningKey, elsewhere: &FakeAuthServer) -> Vec<(&'static str, Reply)> {
    let location = format!("Location: {}/client/user/secret/key", elsewhere.url());
    let failure = json!({"success": false, "status": 200, "msg": "no", "data": SigningKey::generate(SigningType::Ecdsa).served()});
    let huge =
        json!({"success": true, "status": 200, "msg": "x".repeat(100_000), "data": good.served()});
    vec![
        (
            "success:false with HTTP 200",
            json_response("200 OK", &failure.to_string()),
        ),
        (
            "success:false with HTTP 503",
            json_response("503 Service Unavailable", &failure.to_string()),
        ),
        (
            "success as a string",
            json_response(
                "200 OK",
                &json!({"success": "true", "data": good.served()}).to_string(),
            ),
        ),
        (
            "no success",
            json_response("200 OK", &json!({"data": good.served()}).to_string()),
        ),
        (
            "data is null",
            json_response(
                "200 OK",
                &json!({"success": true, "status": 200, "msg": "", "data": null}).to_string(),
            ),
        ),
        (
            "data is an object",
            json_response(
                "200 OK",
                &json!({"success": true, "data": {"key": good.served()}}).to_string(),
            ),
        ),
        ("an empty key", key_response("")),
        ("garbage as the key", key_response("not a key")),
        (
            "the private key",
            key_response(&SigningKey::generate(SigningType::Ecdsa).private()),
        ),
        ("an RSA key of 1024 bits", key_response(SMALL_RSA_KEY)),
        (
            "a key of another type",
            key_response(&SigningKey::generate(SigningType::Rsa).served()),
        ),
        (
            "half an envelope",
            json_response("200 OK", "{\"success\":true,\"data\":\"-----BEG"),
        ),
        (
            "an HTML page",
            Reply::Bytes(response(
                "200 OK",
                &["Content-Type: text/html"],
                b"<html>login</html>",
            )),
        ),
        (
            "a redirect",
            Reply::Bytes(response("302 Found", &[&location], b"")),
        ),
        (
            "an envelope of 100 KB",
            json_response("200 OK", &huge.to_string()),
        ),
        (
            "an error page",
            Reply::Bytes(response("500 Internal Server Error", &[], b"oops")),
        ),
        (
            "half a response",
            Reply::BytesThenClose(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{".to_vec()),
        ),
        (
            "no HTTP",
            Reply::BytesThenClose(b"SSH-2.0-OpenSSH_9\r\n".to_vec()),
        ),
        ("a closed connection", Reply::BytesThenClose(Vec::new())),
    ]
}

/// Waits for `more` further fetches of the sidecar.
fn wait_for_fetches(auth_server: &FakeAuthServer, more: usize) {
    let before = auth_server.retrievals().len();
    wait::until("the sidecar to ask again", || {
        auth_server.retrievals().len() >= before + more
    });
}

#[test]
fn an_address_without_the_context_path_is_named() {
    let service = EchoService::start();
    let auth_server = AuthServer::start();
    let base = auth_server.url().replace("/auth", "");
    for (address, hint) in [
        (
            base.clone(),
            format!("lack the context path, as in {base}/auth?"),
        ),
        (
            format!("{base}/authx"),
            "is /authx its context path".to_owned(),
        ),
        (
            format!("http://{}/auth", auth_server.admin()),
            "and this its public port?".to_owned(),
        ),
    ] {
        let sidecar = SidecarPlan::new(&service, &address).start();
        let said = wait::until("the reason", || {
            let page = admin_get(sidecar.admin(), "/readyz").text();
            page.contains("/client/user/secret/key").then_some(page)
        });
        assert!(said.contains(&hint), "{hint}\n{said}");
        assert!(
            said.contains(&format!("{address}/client/user/secret/key")),
            "{said}"
        );
        assert!(!said.contains("appSecret"), "{said}");
        sidecar.until_logged(&hint);
    }
}

#[test]
fn contract_7_an_invalid_response_never_replaces_the_key() {
    let forge = Forge::new(SigningType::Ecdsa);
    let (auth_server, service) = (
        FakeAuthServer::serving(&forge.trusted().served()),
        EchoService::start(),
    );
    let plan = SidecarPlan::new(&service, &auth_server.url())
        .flags(ECDSA)
        .flags(EVERY_SECOND);
    let sidecar = plan.ready();
    let elsewhere = FakeAuthServer::serving(&forge.untrusted().served());
    for (name, invalid) in invalid_responses(forge.trusted(), &elsewhere) {
        auth_server.set_reply(invalid);
        // The second request proves that the response to the first was processed.
        wait_for_fetches(&auth_server, 2);
        let token = forge.token(clock::now(), &Value::Null);
        assert_eq!(sidecar.bearing(&token).get("/list").status(), 200, "{name}");
        let untrusted = forge.untrusted_token(clock::now(), &Value::Null);
        assert_eq!(
            verdict(&sidecar.bearing(&untrusted).get("/list")),
            "401 token_signature",
            "{name}"
        );
    }
    assert_eq!(sidecar.readiness(), 200, "the last good key serves");
}

#[test]
fn lesson_b16_no_invalid_response_at_the_start_becomes_a_key() {
    let forge = Forge::new(SigningType::Ecdsa);
    let auth_server = FakeAuthServer::serving("");
    let service = EchoService::start();
    let plan = SidecarPlan::new(&service, &auth_server.url())
        .flags(ECDSA)
        .flags(EVERY_SECOND);
    let sidecar = plan.start();
    let token = forge.token(clock::now(), &Value::Null);
    let elsewhere = FakeAuthServer::serving(&forge.trusted().served());
    for (name, invalid) in invalid_responses(forge.trusted(), &elsewhere) {
        auth_server.set_reply(invalid);
        wait_for_fetches(&auth_server, 2);
        assert_eq!(
            verdict(&sidecar.bearing(&token).get("/list")),
            "503 auth_keys_unavailable",
            "{name}"
        );
        assert_eq!(sidecar.readiness(), 503, "{name}");
    }
    auth_server.set_reply(key_response(&forge.trusted().served()));
    let sidecar = sidecar.ready();
    assert_eq!(sidecar.bearing(&token).get("/list").status(), 200);
    assert_eq!(service.requests().len(), 1);
}

#[test]
fn lesson_b17_a_hanging_auth_server_is_given_up() {
    let forge = Forge::new(SigningType::Ecdsa);
    let auth_server = FakeAuthServer::replying(Reply::Silence);
    let service = EchoService::start();
    let plan = SidecarPlan::new(&service, &auth_server.url())
        .flags(ECDSA)
        .flags(EVERY_SECOND);
    let sidecar = plan.start();
    wait::until("the first request", || !auth_server.retrievals().is_empty());
    assert_eq!(
        verdict(&sidecar.bearing("a.b.c").get("/list")),
        "503 auth_keys_unavailable"
    );
    auth_server.set_reply(key_response(&forge.trusted().served()));
    let sidecar = sidecar.ready();
    assert_eq!(
        sidecar
            .bearing(&forge.token(clock::now(), &Value::Null))
            .get("/list")
            .status(),
        200
    );
}
