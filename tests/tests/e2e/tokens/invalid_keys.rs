//! Faulty responses of the auth server: none of them becomes a key or replaces one (contract §7;
//! lessons B16, B17).

use serde_json::{Value, json};
use tests::actors::auth_server::{AuthServer, ECDSA, admin_get};
use tests::actors::expect::has;
use tests::actors::sidecar::{EVERY_SECOND, SidecarPlan};
use tests::actors::token_forge::Forge;
use tests::keys::SigningType;
use tests::services::echo_service::EchoService;
use tests::services::fake_auth_server::{FakeAuthServer, json_response, key_response};
use tests::services::socket_server::{Reply, response};
use tests::wait;
use tests::wire::clock;

#[test]
fn an_address_without_the_context_path_is_named() {
    let service = EchoService::start();
    let auth_server = AuthServer::start();
    let base = auth_server.url().replace("/auth", "");
    let lacking = format!("lack the context path, as in {base}/auth?");
    let admin = format!("http://{}/auth", auth_server.admin());
    for (address, hint) in [
        (&base, &*lacking),
        (&format!("{base}/authx"), "is /authx its context path"),
        (&admin, "and this its public port?"),
    ] {
        let sidecar = SidecarPlan::new(&service, address).start();
        let said = wait::until("the reason", || {
            let page = admin_get(sidecar.admin(), "/readyz").text();
            page.contains("/client/user/secret/key").then_some(page)
        });
        assert!(said.contains(hint), "{hint}\n{said}");
        has(&said, format!("{address}/client/user/secret/key"));
        assert!(!said.contains("appSecret"), "{said}");
        sidecar.until_logged(hint);
    }
}

/// Every invalid response is in a table of the sidecar's `source::auth_server`.
#[test]
fn lesson_b16_no_invalid_response_becomes_a_key_or_replaces_one() {
    let forge = Forge::new(SigningType::Ecdsa);
    let (good, other) = (forge.trusted().served(), forge.untrusted().served());
    let (auth_server, elsewhere) = (
        FakeAuthServer::serving(&good),
        FakeAuthServer::serving(&other),
    );
    let service = EchoService::start();
    let plan = || {
        SidecarPlan::new(&service, &auth_server.url())
            .flags(ECDSA)
            .flags(EVERY_SECOND)
    };
    let with_key = plan().ready();
    auth_server.set_reply(key_response(""));
    let without_key = plan().start();
    let token = forge.token(clock::now(), &Value::Null);
    let unsuccessful = json!({"success": false, "status": 200, "msg": "no", "data": other});
    let location = format!("Location: {}/client/user/secret/key", elsewhere.url());
    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{";
    for (name, reply) in [
        (
            "no success",
            json_response("200 OK", &unsuccessful.to_string()),
        ),
        (
            "a redirect",
            Reply::Bytes(response("302 Found", &[&location], b"")),
        ),
        ("half a response", Reply::BytesThenClose(half.to_vec())),
    ] {
        auth_server.set_reply(reply);
        // The second of two failures is of this response.
        let failures =
            || [&with_key, &without_key].map(|sidecar| sidecar.metric(FAILED).unwrap_or_default());
        let before = failures();
        wait::until("both to ask twice", || {
            let mut pairs = failures().into_iter().zip(before);
            pairs.all(|(now, before)| now >= before + 2)
        });
        let untrusted = forge.untrusted_token(clock::now(), &Value::Null);
        let verdicts = [&with_key, &without_key]
            .map(|sidecar| [&token, &untrusted].map(|token| sidecar.verdict_of(token)));
        let expected = [
            ["200", "401 token_signature"],
            ["503 auth_keys_unavailable"; 2],
        ];
        assert_eq!(verdicts, expected, "{name}");
        assert_eq!(without_key.readiness(), 503, "{name}");
    }
    assert_eq!(with_key.readiness(), 200, "the last good key serves");
    auth_server.set_reply(key_response(&good));
    assert_eq!(without_key.ready().verdict_of(&token), "200");
}

const FAILED: &str = r#"postern_sidecar_key_refreshes_total{outcome="failed"}"#;

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
    assert_eq!(sidecar.verdict_of("a.b.c"), "503 auth_keys_unavailable");
    auth_server.set_reply(key_response(&forge.trusted().served()));
    let token = forge.token(clock::now(), &Value::Null);
    assert_eq!(sidecar.ready().verdict_of(&token), "200");
}
