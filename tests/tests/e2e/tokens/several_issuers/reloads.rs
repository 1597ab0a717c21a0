//! Tables that change at a reload.

use tests::actors::auth_server::admin_get;
use tests::actors::expect::has;
use tests::actors::sidecar::NEVER;
use tests::wait;

use super::published::Issuers;
use super::user;

#[test]
fn audiences_and_claims_change_at_a_reload_and_sources_wait() {
    let issuers = Issuers::publish(&["shop", "cluster"]);
    let sidecar = issuers.start();
    let cluster = issuers.of("cluster");
    let bearer = sidecar.bearing(&cluster.own());
    assert_eq!(bearer.verdict("/list"), "200");
    let other = issuers
        .tables()
        .replace("audience = [\"orders\"]", "audience = [\"stock\"]");
    sidecar.reload(&other, "applied");
    assert_eq!(bearer.verdict("/list"), "401 token_audience");
    let elsewhere = issuers
        .tables()
        .replace(&cluster.url(), "http://127.0.0.1:1/keys");
    sidecar.reload(&elsewhere, "waiting");
    sidecar.until_logged("these settings take effect at the next start");
    // Audiences belong to the tables: all of them stay as they are meanwhile.
    assert_eq!(bearer.verdict("/list"), "401 token_audience");
    sidecar.reload(&issuers.tables(), "applied");
    assert_eq!(bearer.verdict("/list"), "200");
}

#[test]
fn what_a_reload_closed_stays_closed_while_another_waits() {
    let issuers = Issuers::publish(&["shop", "cluster"]);
    let (shop, cluster) = (issuers.of("shop"), issuers.of("cluster"));
    let sidecar = issuers.plan_with(&shop.table()).flags(NEVER).ready();
    let bearer = sidecar.bearing(&shop.own());
    let verdicts = || ["/admin/x", "/open/x"].map(|path| bearer.verdict(path));
    let without = || sidecar.anonymous().verdict("/open/x");
    assert_eq!(verdicts(), ["200", "200"]);
    let reload = |config: &str, outcome: &str| {
        sidecar.reload(config, outcome);
        let metric = "postern_sidecar_config_restart_needed";
        let expected = Some(u64::from(outcome == "waiting"));
        wait::until(metric, || sidecar.metric(metric) == expected);
    };
    let rule = "[[rule]]\npaths = ['/admin/**', '/open/**']\nscope = ['admin']\n";
    reload(&format!("{rule}{}", shop.table()), "applied");
    let closed = ["403 insufficient_scope", "403 insufficient_scope"];
    assert_eq!(verdicts(), closed);
    let both = shop.table() + &cluster.table();
    reload(&format!("{rule}{both}"), "waiting");
    assert_eq!(verdicts(), closed);
    // A pass list for which no rule of the file is, but the one that stays meanwhile.
    reload(&format!("public-path = ['/open/**']\n{both}"), "waiting");
    let expected = (closed.map(str::to_owned), "401 token_missing");
    assert_eq!((verdicts(), without().as_str()), expected);
    let report = admin_get(sidecar.admin(), "/readyz").text();
    has(
        &report,
        "nothing new is in force; these take effect at the next start: issuer",
    );
    reload(
        &format!("public-path = ['/open/**']\n{}", shop.table()),
        "applied",
    );
    assert_eq!(
        (verdicts(), without().as_str()),
        (["200", "200"].map(str::to_owned), "200")
    );
}

#[test]
fn a_reload_changes_prefixes_and_claim_headers_of_known_tokens() {
    let issuers = Issuers::publish(&["shop", "cluster"]);
    let sidecar = issuers.start();
    let bearer = sidecar.bearing(&issuers.of("shop").own());
    let sent = || {
        assert_eq!(bearer.verdict("/list"), "200");
        let requests = issuers.service.take_requests();
        let sub = requests[0].header("X-Sub").concat();
        (user(&requests[0])["id"].clone(), sub)
    };
    assert_eq!(sent(), ("shop:5e".into(), String::new()));
    let more = "user-prefix = \"other:\"\nclaim-header = [\"X-Sub=sub\"]";
    let tables = issuers.tables().replace("user-prefix = \"shop:\"", more);
    sidecar.reload(&tables, "applied");
    assert_eq!(sent(), ("other:5e".into(), "5e".to_owned()));
}
