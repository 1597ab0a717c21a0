//! Faults from the field: the reason code in the response equals the one in the metrics, on the
//! status page and in the log, and docs/reasons.md has its remedy (lesson D27).

use std::fs;

use serde_json::{Value, json};
use tests::auth_server::admin_get;
use tests::client::{Request, reason};
use tests::clock;
use tests::echo_service::EchoService;
use tests::fake_auth_server::FakeAuthServer;
use tests::free_address::free_address;
use tests::keys::SigningType;
use tests::message::Message;
use tests::metrics::rejections;
use tests::programs::repository;
use tests::sidecar::{Sidecar, SidecarPlan};
use tests::stack::{ForgedStack, signing_flags};
use tests::token_forge::Forge;
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
    let expired = format!("Authorization: Bearer {}", of(json!({"exp": now - 60})));
    let oversize = format!("Cookie: {}", "x".repeat(70_000));
    for (line, expected) in [
        (expired, "token_expired"),
        (oversize, "request_header_too_large"),
        ("X-Current-User: {\"id\":\"0\"}".to_owned(), "token_missing"),
    ] {
        let request = Request::new("GET", "/orders/list").line(line);
        let response = stack.sidecar.anonymous().send(&request);
        is_explained(&stack.sidecar, &response, expected);
    }
    assert!(stack.service.requests().is_empty());
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
