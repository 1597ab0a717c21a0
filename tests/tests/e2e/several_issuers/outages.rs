//! An issuer that is away, broken or rotating, beside others.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use tests::auth_server::{AuthServerPlan, ECDSA, admin_get};
use tests::certificates::Authority;
use tests::clock;
use tests::fake_auth_server::{FakeAuthServer, json_response};
use tests::keys::SigningType;
use tests::sidecar::{EVERY_SECOND, NEVER, SidecarPlan};
use tests::token_forge::Forge;
use tests::wait;

use super::published::{AWAY, Issuers};

#[test]
fn an_unknown_key_is_fetched_from_its_own_issuer_alone() {
    let issuers = Issuers::publish(&["shop", "cluster"]);
    let (shop, cluster) = (issuers.of("shop"), issuers.of("cluster"));
    let later = shop.jwks();
    let before = later.replace("key-1", "key-0");
    shop.replies(json_response("200 OK", &before));
    let sidecar = issuers.start();
    shop.replies(json_response("200 OK", &later));
    assert_eq!(sidecar.verdict_of(&shop.own()), "200");
    assert_eq!(shop.server.retrievals().len(), 2);
    assert_eq!(cluster.server.retrievals().len(), 1);
}

#[test]
fn an_issuer_that_is_away_hurts_no_other() {
    let issuers = Issuers::publish(&["shop", "cluster"]);
    let (shop, cluster) = (issuers.of("shop"), issuers.of("cluster"));
    cluster.replies(json_response(AWAY, "{}"));
    let sidecar = issuers.plan().flags(EVERY_SECOND).ready();
    assert_eq!(sidecar.verdict_of(&shop.own()), "200");
    let of_cluster = sidecar.bearing(&cluster.own());
    let without = of_cluster.get("/list");
    assert_eq!(without.verdict(), "503 auth_keys_unavailable");
    assert_eq!(without.header("retry-after").len(), 1);
    let report = admin_get(sidecar.admin(), "/readyz").text();
    assert!(
        report.contains("cluster: not fetched yet") && report.contains("shop: fetched"),
        "{report}"
    );
    cluster.replies(json_response("200 OK", &cluster.jwks()));
    wait::until("the keys of the other", || {
        of_cluster.verdict("/list") == "200"
    });
    // It goes on with its last good keys.
    cluster.replies(json_response(AWAY, "{}"));
    wait::until("a failed fetch", || {
        let failures = sidecar
            .process()
            .stderr()
            .matches("keeping the last good one")
            .count();
        failures > 0
    });
    assert_eq!(of_cluster.verdict("/list"), "200");
}

#[test]
fn a_required_list_that_is_missing_hurts_no_other_issuer() {
    let issuers = Issuers::publish(&["shop"]);
    let forge = Forge::new(SigningType::Ecdsa);
    // It publishes no list.
    let auth_server = FakeAuthServer::serving(&forge.trusted().served());
    let members =
        "[[issuer]]\nname = 'members'\nissuer = 'auth'\nauth-server = true\nuser-prefix = ''\n";
    fs::write(issuers.file(), format!("{members}{}", issuers.tables())).unwrap();
    let file = issuers.file().display().to_string();
    let sidecar = SidecarPlan::new(&issuers.service, &auth_server.url())
        .flags(["--config", &file, "--signing-type", "ecdsa"])
        .flags(["--revocations", "required"])
        .flags(NEVER)
        .ready();
    let shop = sidecar.bearing(&issuers.of("shop").own());
    assert_eq!(shop.verdict("/list"), "200");
    let token = forge.token(clock::now(), &json!({"iss": "auth"}));
    wait::until("the missing list", || {
        let seen = sidecar.verdict_of(&token);
        seen == "503 revocations_stale"
    });
    assert_eq!(sidecar.readiness(), 200);
}

#[test]
fn a_late_authority_brings_keys_and_revocations_of_its_server() {
    let (issuers, authority) = (Issuers::publish(&["shop"]), Authority::new());
    let plan = AuthServerPlan::new().flags(ECDSA);
    let auth_server = plan.tls(&authority, &authority.issue("auth")).ready();
    let members =
        "[[issuer]]\nname = 'members'\nissuer = 'auth'\nauth-server = true\nuser-prefix = ''\n";
    fs::write(issuers.file(), format!("{members}{}", issuers.tables())).unwrap();
    let ca = issuers.file().with_file_name("late.pem");
    let sidecar = SidecarPlan::polling(&issuers.service, &auth_server.url())
        .flags(["--config", issuers.file().to_str().unwrap()])
        .flags(["--auth-ca", ca.to_str().unwrap()])
        .flags(["--revocations", "required"])
        .ready();
    let member = sidecar.bearing(&auth_server.login());
    let without = member.verdict("/list");
    assert_eq!(without, "503 auth_keys_unavailable");
    fs::copy(authority.file(), &ca).unwrap();
    wait::until("keys and list", || member.verdict("/list") == "200");
}

#[test]
fn broken_keys_of_one_issuer_stop_no_start() {
    let issuers = Issuers::publish(&["shop"]);
    let broken =
        FakeAuthServer::replying(json_response("200 OK", "{\"keys\":[{\"kty\":\"RSA\"}]}"));
    let more = |members: &str| {
        format!(
            "{}[[issuer]]\nname = 'broken'\nissuer = 'b'\naudience = ['a']\nuser-prefix = 'b:'\n{members}\n",
            issuers.tables()
        )
    };
    let url = format!("jwks = 'http://{}/'", broken.address());
    for members in [
        url.as_str(),
        "jwks = '/nowhere/keys.json'",
        "jwks = 'https://127.0.0.1:1/keys'\nca = '/nowhere/ca.pem'",
    ] {
        let sidecar = issuers.plan_with(&more(members)).flags(NEVER).ready();
        let response = sidecar.bearing(&issuers.of("shop").own()).get("/list");
        assert_eq!(response.verdict(), "200", "{members}");
        wait::until("the failure in the log", || {
            let said = sidecar.process().stderr();
            let mut lines = said.lines();
            lines.any(|line| line.contains("ERROR") && line.contains("broken"))
        });
    }
}

#[test]
fn a_rotation_under_load_rejects_no_token_of_any_issuer() {
    let issuers = Issuers::publish(&["github-actions", "shop"]);
    let (rotating, other) = (issuers.of("github-actions"), issuers.of("shop"));
    let both: Value = serde_json::from_str(&rotating.jwks()).unwrap();
    let only = |index: usize| json!({"keys": [both["keys"][index]]}).to_string();
    let token = rotating.token("the token of a workflow");
    // The table signs it with the second key.
    rotating.replies(json_response("200 OK", &only(0)));
    let sidecar = issuers.plan().flags(EVERY_SECOND).with_all_keys();
    let (ended, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let rejected = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for one in [rotating, other] {
            let (sidecar, ended, sent, rejected) = (&sidecar, &ended, &sent, &rejected);
            scope.spawn(move || {
                // The first request of the rotating issuer names the key that is not known yet.
                while !ended.load(Ordering::Relaxed) {
                    let text = match one.row.name.as_str() {
                        "shop" => one.own(),
                        _ => one.signed(token),
                    };
                    let verdict = sidecar.verdict_of(&text);
                    sent.fetch_add(1, Ordering::Relaxed);
                    if verdict != "200" {
                        rejected
                            .lock()
                            .unwrap()
                            .push(format!("{}: {verdict}", one.row.name));
                    }
                }
            });
            // The new key is published before its first token, as a rotation does.
            rotating.replies(json_response("200 OK", &both.to_string()));
        }
        for _ in 0..3 {
            let fetches = rotating.server.retrievals().len();
            wait::until("another fetch", || {
                rotating.server.retrievals().len() > fetches
            });
        }
        rotating.replies(json_response("200 OK", &only(1)));
        let fetches = rotating.server.retrievals().len();
        wait::until("a fetch of the last key", || {
            rotating.server.retrievals().len() > fetches + 1
        });
        ended.store(true, Ordering::Relaxed);
    });
    let rejected = rejected.into_inner().unwrap();
    assert_eq!(rejected, Vec::<String>::new());
    assert!(sent.into_inner() > 10);
}
