//! Stores with old, wrong or foreign contents: the reaction of running servers, and of a server
//! that starts then (ADR 0006).

use serde_json::{Value, json};
use tests::actors::auth_server::{AuthServer, AuthServerPlan, SECRET_KEY};
use tests::actors::sidecar::SidecarPlan;
use tests::actors::token_forge::kid_of;
use tests::keys::{SigningKey, SigningType};
use tests::services::echo_service::EchoService;
use tests::services::redis_server::Redis;
use tests::wait;

const RING: &str = "{auth:user-token}:ring";
const APPLICATIONS: &str = "{auth:user-token}:application:all";
/// A time past every clock: the year 36812.
const FAR_OFF: i64 = 1 << 40;

fn ring(redis: &Redis) -> Value {
    let text = redis.command(&["GET", RING]).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Returns a server that polls the store every second.
fn plan(redis: &Redis) -> AuthServerPlan {
    let plan = AuthServerPlan::polling().store(redis.url());
    plan.flags(["--rotation-lead", "2"])
}

fn server(redis: &Redis) -> AuthServer {
    plan(redis).ready()
}

fn is_rejected(server: &AuthServer, token: &str) -> bool {
    server.verdict(token) == "401 token_key_unknown"
}

#[test]
fn unreadable_applications_stop_no_revocation_and_open_nothing() {
    let Some(redis) = Redis::start() else { return };
    let running = server(&redis);
    let token = running.login();
    let bad = r#"{"applications":{"orders":{"secretSha256":["short"]}}}"#;
    redis.command(&["SET", APPLICATIONS, bad]);
    running.keys(&["revoke", &kid_of(&token)]);
    wait::until("the revocation", || is_rejected(&running, &token));
    let note = wait::until("the record in /readyz", || running.store_note());
    assert!(note.contains(APPLICATIONS), "{note}");
    let verdict = || running.anonymous().get(SECRET_KEY).verdict();
    assert_eq!(verdict(), "401 application_unknown");
    assert_eq!(plan(&redis).fails().code, Some(78));
    assert_eq!(redis.command(&["GET", APPLICATIONS]).as_deref(), Some(bad));
    // Gone as if the store had lost it: this authorizes no one.
    redis.command(&["DEL", APPLICATIONS]);
    wait::until("the note to go", || running.store_note().is_none());
    assert_eq!(verdict(), "401 application_unknown");
}

#[test]
fn a_ring_full_of_keys_keeps_no_sidecar_from_starting() {
    let Some(redis) = Redis::start() else { return };
    let running = server(&redis);
    let entry = |until| {
        let public = SigningKey::generate(SigningType::Ecdsa).served();
        json!({"public": public, "until": until})
    };
    let mut retired: Vec<Value> = (0..400).map(|_| entry(FAR_OFF)).collect();
    retired.push(retired[0].clone());
    let planted = json!({"retired": retired, "revoked": [], "epoch": FAR_OFF, "generation": 1});
    redis.command(&["SET", RING, &planted.to_string()]);
    wait::until("fewer keys in the store", || {
        let ring = ring(&redis);
        let count = ring["retired"].as_array()?.len();
        (1..=64).contains(&count).then_some(())
    });
    let set = running.anonymous().get("/.well-known/jwks.json");
    assert!(set.text().len() <= 64 * 1024);
    let service = EchoService::start();
    let response = SidecarPlan::polling(&service, &running.url())
        .ready()
        .bearing(&running.login())
        .get("/list");
    assert_eq!(response.status(), 200, "{}", response.text());
}
