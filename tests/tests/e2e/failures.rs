//! Ten faults from the field: the reason code in the response equals the one in the metrics, on the
//! status page and in the log, and docs/reasons.md has its remedy (lesson D27).

use std::fs;
use std::net::TcpListener;

use serde_json::{Value, json};
use tests::auth_server::{AuthServerPlan, admin_get, file_store};
use tests::client::{Request, reason};
use tests::clock;
use tests::echo_service::EchoService;
use tests::fake_auth_server::FakeAuthServer;
use tests::keys::SigningType;
use tests::message::Message;
use tests::metrics::rejections;
use tests::process::CommandLine;
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
        (rejections(sidecar.admin(), expected) > 0).then_some(())
    });
    let page = admin_get(sidecar.admin(), "/").text();
    assert!(
        page.contains(&format!("reason=&quot;{expected}&quot;")),
        "{page}"
    );
    let logged = format!("reason=\"{expected}\"");
    wait::until("the reason in the log", || {
        sidecar.process().stderr().contains(&logged).then_some(())
    });
}

fn stack() -> ForgedStack {
    ForgedStack::with(SigningType::Ecdsa, |plan| {
        plan.flags(["--issuer", "postern", "--public-path", "/static/**"])
    })
}

fn issued(stack: &ForgedStack, changes: &Value) -> String {
    let mut all = json!({"iss": "postern"});
    let changes = changes.as_object().cloned().unwrap_or_default();
    all.as_object_mut().unwrap().extend(changes);
    stack.forge.token(clock::now(), &all)
}

#[test]
fn failure_1_an_expired_token() {
    let stack = stack();
    let token = issued(&stack, &json!({"exp": clock::now() - 60}));
    let response = stack.sidecar.bearing(&token).get("/list");
    is_explained(&stack.sidecar, &response, "token_expired");
}

#[test]
fn failure_2_a_token_of_another_key() {
    let stack = stack();
    let token = stack
        .forge
        .untrusted_token(clock::now(), &json!({"iss": "postern"}));
    let response = stack.sidecar.bearing(&token).get("/list");
    is_explained(&stack.sidecar, &response, "token_signature");
}

#[test]
fn failure_3_a_token_of_a_key_that_was_taken_out_of_use() {
    let auth_server = AuthServerPlan::new()
        .flags(signing_flags(SigningType::Ecdsa).iter().copied())
        .flags(["--store-poll-interval", "1"])
        .start()
        .ready();
    let service = EchoService::start();
    let sidecar = SidecarPlan::new(&service, &auth_server.url())
        .flags(signing_flags(SigningType::Ecdsa).iter().copied())
        .flags(EVERY_SECOND)
        .start()
        .ready();
    let token = auth_server.login();
    let client = sidecar.bearing(&token);
    assert_eq!(client.get("/list").status(), 200);
    let kid = header_of(&token)["kid"].as_str().unwrap().to_owned();
    let end = CommandLine::new(Program::AuthServer.path())
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
fn failure_4_a_clock_that_is_behind() {
    let stack = stack();
    let token = issued(
        &stack,
        &json!({"nbf": clock::now() + 600, "exp": clock::now() + 900}),
    );
    let response = stack.sidecar.bearing(&token).get("/list");
    is_explained(&stack.sidecar, &response, "token_not_yet_valid");
}

#[test]
fn failure_5_a_token_of_another_issuer() {
    let stack = stack();
    let token = issued(&stack, &json!({"iss": "staging"}));
    let response = stack.sidecar.bearing(&token).get("/list");
    is_explained(&stack.sidecar, &response, "token_issuer");
}

#[test]
fn failure_6_a_public_path_that_is_missing_from_the_pass_list() {
    let stack = stack();
    assert_eq!(stack.sidecar.anonymous().get("/static/a").status(), 200);
    let response = stack.sidecar.anonymous().get("/assets/a");
    is_explained(&stack.sidecar, &response, "token_missing");
}

#[test]
fn failure_7_a_service_that_is_down() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let forge = Forge::new(SigningType::Ecdsa);
    let auth_server = FakeAuthServer::serving(&forge.trusted().served());
    let sidecar = SidecarPlan::to(&format!("http://{closed}"), &auth_server.url())
        .flags(signing_flags(SigningType::Ecdsa).iter().copied())
        .start()
        .ready();
    let token = forge.token(clock::now(), &Value::Null);
    let response = sidecar.bearing(&token).get("/list");
    is_explained(&sidecar, &response, "upstream_unavailable");
    let errors = "postern_sidecar_upstream_errors_total{reason=\"upstream_unavailable\"}";
    assert_eq!(sidecar.metric(errors), Some(1));
}

#[test]
fn failure_8_an_auth_server_that_is_down() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
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

#[test]
fn failure_9_an_oversized_header() {
    let stack = stack();
    let response = stack.sidecar.bearing(&"x".repeat(9000)).get("/list");
    is_explained(&stack.sidecar, &response, "authorization_too_large");
    let request =
        Request::new("GET", "/orders/list").line(format!("Cookie: {}", "x".repeat(70_000)));
    let response = stack.sidecar.anonymous().send(&request);
    is_explained(&stack.sidecar, &response, "request_header_too_large");
}

#[test]
fn failure_10_a_spoofed_user() {
    let stack = stack();
    let spoofed = Request::new("GET", "/orders/list").line("X-Current-User: {\"id\":\"0\"}");
    let response = stack.sidecar.anonymous().send(&spoofed);
    is_explained(&stack.sidecar, &response, "token_missing");

    let changed = claims(clock::now(), &json!({"iss": "postern", "userId": "0"}));
    let good = issued(&stack, &Value::Null);
    let signature = good.rsplit('.').next().unwrap();
    let input = signing_input(
        stack.forge.plain_header().as_bytes(),
        changed.to_string().as_bytes(),
    );
    let token = format!("{input}.{signature}");
    let response = stack.sidecar.bearing(&token).get("/list");
    is_explained(&stack.sidecar, &response, "token_signature");
    assert!(stack.service.requests().is_empty());
}
