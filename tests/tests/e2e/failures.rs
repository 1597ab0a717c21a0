//! Faults from the field: the reason code in the response equals the one in the metrics, on the
//! status page and in the log, and docs/reasons.md has its remedy (lesson D27).

use std::fs;

use serde_json::{Value, json};
use tests::auth_server::{AuthServerPlan, admin_get, file_store};
use tests::client::{Request, reason};
use tests::clock;
use tests::echo_service::EchoService;
use tests::fake_auth_server::FakeAuthServer;
use tests::free_address::free_address;
use tests::keys::SigningType;
use tests::message::Message;
use tests::metrics::rejections;
use tests::programs::{Program, repository};
use tests::sidecar::{EVERY_SECOND, Sidecar, SidecarPlan};
use tests::stack::{ForgedStack, signing_flags};
use tests::token_forge::{Forge, claims, header_of, signing_input};
use tests::wait;

/// Checks that the response has this reason, and that metrics, page and log agree with it.
fn is_explained(sidecar: &Sidecar, response: &Message, expected: &str) {
    assert_eq!(reason(response), expected, "{}", response.text());
    let reasons = fs::read_to_string(repository().join("docs/reasons.md")).unwrap();
    assert!(reasons.contains(&format!("\n### `{expected}` ")));
    // A request is counted and logged after its response.
    wait::until("the reason in the metrics", || {
        rejections(sidecar.admin(), expected) > 0
    });
    let page = admin_get(sidecar.admin(), "/").text();
    assert!(
        page.contains(&format!("reason=&quot;{expected}&quot;")),
        "{page}"
    );
    let logged = format!("reason=\"{expected}\"");
    sidecar.until_logged(&logged);
}

fn stack() -> ForgedStack {
    ForgedStack::with_flags(["--issuer", "postern", "--public-path", "/static/**"])
}

fn issued(stack: &ForgedStack, changes: &Value) -> String {
    let mut all = json!({"iss": "postern"});
    let changes = changes.as_object().cloned().unwrap_or_default();
    all.as_object_mut().unwrap().extend(changes);
    stack.forge.token(clock::now(), &all)
}

#[test]
fn lesson_d27_each_failure_has_one_reason_everywhere() {
    let stack = stack();
    let now = clock::now();
    let of = |changes: Value| issued(&stack, &changes);
    let other_key = stack.forge.untrusted_token(now, &json!({"iss": "postern"}));
    let changed = claims(now, &json!({"iss": "postern", "userId": "0"}));
    let good = of(Value::Null);
    let spoofed = format!(
        "{}.{}",
        signing_input(
            stack.forge.plain_header().as_bytes(),
            changed.to_string().as_bytes()
        ),
        good.rsplit('.').next().unwrap()
    );
    let bearer = |token: &str| format!("Authorization: Bearer {token}");
    let behind = json!({"nbf": now + 600, "exp": now + 900});
    for (failure, line, expected) in [
        (
            "an expired token",
            bearer(&of(json!({"exp": now - 60}))),
            "token_expired",
        ),
        (
            "a token of another key",
            bearer(&other_key),
            "token_signature",
        ),
        (
            "a clock that is behind",
            bearer(&of(behind)),
            "token_not_yet_valid",
        ),
        (
            "another issuer",
            bearer(&of(json!({"iss": "staging"}))),
            "token_issuer",
        ),
        (
            "a path that is not public",
            "Accept: */*".to_owned(),
            "token_missing",
        ),
        (
            "an oversized token",
            bearer(&"x".repeat(17_000)),
            "authorization_too_large",
        ),
        (
            "an oversized head",
            format!("Cookie: {}", "x".repeat(70_000)),
            "request_header_too_large",
        ),
        (
            "a header of a user",
            "X-Current-User: {\"id\":\"0\"}".to_owned(),
            "token_missing",
        ),
        (
            "claims of another user",
            bearer(&spoofed),
            "token_signature",
        ),
    ] {
        let request = Request::new("GET", "/orders/list").line(line);
        let response = stack.sidecar.anonymous().send(&request);
        assert_eq!(reason(&response), expected, "{failure}");
        is_explained(&stack.sidecar, &response, expected);
    }
    assert!(stack.service.requests().is_empty());
}

#[test]
fn a_token_of_a_key_that_was_taken_out_of_use_has_a_reason() {
    let auth_server = AuthServerPlan::new()
        .flags(signing_flags(SigningType::Ecdsa).iter().copied())
        .flags(["--store-poll-interval", "1"])
        .ready();
    let service = EchoService::start();
    let sidecar = SidecarPlan::new(&service, &auth_server.url())
        .flags(signing_flags(SigningType::Ecdsa).iter().copied())
        .flags(EVERY_SECOND)
        .ready();
    let token = auth_server.login();
    let client = sidecar.bearing(&token);
    assert_eq!(client.get("/list").status(), 200);
    let kid = header_of(&token)["kid"].as_str().unwrap().to_owned();
    let end = Program::AuthServer
        .command()
        .arguments(["keys", "revoke", &kid])
        .arguments(["--store", &file_store(&auth_server.home().join("data"))])
        .arguments(signing_flags(SigningType::Ecdsa).iter().copied())
        .run();
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    let response = wait::until("the sidecar to hear of it", || {
        Some(client.get("/list")).filter(|response| response.status() == 401)
    });
    is_explained(&sidecar, &response, "token_key_unknown");
}

#[test]
fn a_service_that_is_down_has_a_reason() {
    let closed = free_address();
    let forge = Forge::new(SigningType::Ecdsa);
    let auth_server = FakeAuthServer::serving(&forge.trusted().served());
    let sidecar = SidecarPlan::to(&format!("http://{closed}"), &auth_server.url())
        .flags(signing_flags(SigningType::Ecdsa).iter().copied())
        .ready();
    let token = forge.token(clock::now(), &Value::Null);
    let response = sidecar.bearing(&token).get("/list");
    is_explained(&sidecar, &response, "upstream_unavailable");
    let errors = "postern_sidecar_upstream_errors_total{reason=\"upstream_unavailable\"}";
    assert_eq!(sidecar.metric(errors), Some(1));
}

#[test]
fn an_auth_server_that_is_down_has_a_reason() {
    let closed = free_address();
    let service = EchoService::start();
    let sidecar = SidecarPlan::new(&service, &format!("http://{closed}/auth")).start();
    let forge = Forge::new(SigningType::Rsa);
    let token = forge.token(clock::now(), &Value::Null);
    let response = sidecar.bearing(&token).get("/list");
    is_explained(&sidecar, &response, "auth_keys_unavailable");
    let page = admin_get(sidecar.admin(), "/").text();
    assert!(
        page.contains("Not ready") && page.contains("verification_key"),
        "{page}"
    );
}
