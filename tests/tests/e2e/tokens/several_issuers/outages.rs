//! An issuer that is away, broken or rotating, beside others.

use std::fs;

use serde_json::json;
use tests::actors::auth_server::{AuthServerPlan, ECDSA, admin_get};
use tests::actors::expect::has;
use tests::actors::sidecar::{EVERY_SECOND, NEVER, SidecarPlan};
use tests::actors::token_forge::Forge;
use tests::keys::SigningType;
use tests::services::fake_auth_server::{FakeAuthServer, json_response};
use tests::wait;
use tests::wire::certificates::Authority;
use tests::wire::clock;

use super::published::{AWAY, Issuers};

/// The auth server of the flags as an issuer.
const MEMBERS: &str =
    "[[issuer]]\nname = 'members'\nissuer = 'auth'\nauth-server = true\nuser-prefix = ''\n";

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
    for part in [
        "cluster: not fetched yet, the fetches fail since 20",
        "shop: key-1 (RS256) fetched ",
    ] {
        has(&report, part);
    }
    cluster.replies(json_response("200 OK", &cluster.jwks()));
    wait::until("the keys of the other", || {
        of_cluster.verdict("/list") == "200"
    });
    sidecar.until_logged("verification keys are fetched again");
    // It goes on with its last good keys.
    cluster.replies(json_response(AWAY, "{}"));
    sidecar.until_logged("keeping the last good one");
    assert_eq!(of_cluster.verdict("/list"), "200");
}

#[test]
fn a_required_list_that_is_missing_hurts_no_other_issuer() {
    let issuers = Issuers::publish(&["shop"]);
    let forge = Forge::new(SigningType::Ecdsa);
    // It publishes no list.
    let auth_server = FakeAuthServer::serving(&forge.trusted().served());
    let sidecar = SidecarPlan::new(&issuers.service, &auth_server.url())
        .config(&format!("{MEMBERS}{}", issuers.tables()))
        .flags(ECDSA)
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
    let ca = issuers.home.path().join("late.pem");
    let sidecar = SidecarPlan::polling(&issuers.service, &auth_server.url())
        .config(&format!("{MEMBERS}{}", issuers.tables()))
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
        let page = admin_get(sidecar.admin(), "/").text();
        has(&page, "broken: not fetched yet, the fetches fail since 20");
        assert!(!page.contains("keys.json: /nowhere"), "named twice: {page}");
    }
}
