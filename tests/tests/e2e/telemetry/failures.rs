//! Faults from the field: the reason code in the response equals the one in the metrics and in the
//! log, and docs/reasons.md has its remedy (lesson D27).

use std::fs;

use serde_json::{Value, json};
use tests::actors::auth_server::admin_get;
use tests::actors::client::Request;
use tests::actors::programs::repository;
use tests::actors::sidecar::{Sidecar, SidecarPlan};
use tests::actors::stack::ForgedStack;
use tests::wait;
use tests::wire::clock;
use tests::wire::free_address::free_address;
use tests::wire::message::Message;
use tests::wire::metrics::rejections;

/// Checks that the response has this reason, and that metrics and log agree with it.
fn is_explained(sidecar: &Sidecar, response: &Message, expected: &str) {
    assert_eq!(response.reason(), expected, "{}", response.text());
    let reasons = fs::read_to_string(repository().join("docs/reasons.md")).unwrap();
    assert!(reasons.contains(&format!("\n### `{expected}` ")));
    // A request is counted and logged after its response.
    wait::until("the reason in the metrics", || {
        rejections(sidecar.admin(), expected) > 0
    });
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
    let bearer = |claims| format!("Authorization: Bearer {}", issued(&stack, &claims));
    let oversize = format!("Cookie: {}", "x".repeat(70_000));
    let (away, keyless) = (
        stack.in_front_of(
            &format!("http://{}", free_address()),
            &["--issuer", "postern"],
        ),
        SidecarPlan::to("http://127.0.0.1:1", "http://127.0.0.1:1/auth").start(),
    );
    let forged = "X-Current-User: {\"id\":\"0\"}".to_owned();
    for (sidecar, line, expected) in [
        (
            &stack.sidecar,
            bearer(json!({"exp": now - 60})),
            "token_expired",
        ),
        (&stack.sidecar, oversize, "request_header_too_large"),
        (&stack.sidecar, forged, "token_missing"),
        (&away, bearer(json!({})), "upstream_unavailable"),
        (&keyless, bearer(json!({})), "auth_keys_unavailable"),
    ] {
        let request = Request::new("GET", "/orders/list").line(line);
        let response = sidecar.anonymous().send(&request);
        is_explained(sidecar, &response, expected);
    }
    assert!(stack.service.requests().is_empty());
    let errors = "postern_sidecar_upstream_errors_total{reason=\"upstream_unavailable\"}";
    assert_eq!(away.metric(errors), Some(1));
    let page = admin_get(keyless.admin(), "/").text();
    let why = ["Not ready", "verification_key"];
    assert!(why.iter().all(|part| page.contains(part)), "{page}");
}
