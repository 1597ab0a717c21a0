//! Tables that change at a reload.

use std::fs;

use tests::auth_server::admin_get;
use tests::sidecar::NEVER;
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
    let reload = |config: &str, said: &str| {
        let before = sidecar.process().stderr().matches(said).count();
        fs::write(issuers.file(), config).unwrap();
        sidecar.process().signal("HUP");
        wait::until("the reload", || {
            sidecar.process().stderr().matches(said).count() > before
        });
    };
    let other = issuers
        .tables()
        .replace("audience = [\"orders\"]", "audience = [\"stock\"]");
    reload(&other, "configuration reloaded");
    assert_eq!(bearer.verdict("/list"), "401 token_audience");
    let elsewhere = issuers
        .tables()
        .replace(&cluster.url(), "http://127.0.0.1:1/keys");
    reload(&elsewhere, "these settings take effect at the next start");
    // Audiences belong to the tables: all of them stay as they are meanwhile.
    assert_eq!(bearer.verdict("/list"), "401 token_audience");
    reload(&issuers.tables(), "configuration reloaded");
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
    let reload = |config: &str, restart_needed: &str| {
        let reloads = |metrics: &str| {
            let name = "postern_sidecar_config_reloads_total{outcome=\"applied\"";
            let line = metrics.lines().find(|line| line.starts_with(name));
            line.unwrap().rsplit(' ').next().unwrap().to_owned()
        };
        let metrics = || admin_get(sidecar.admin(), "/metrics").text();
        let before = reloads(&metrics());
        fs::write(issuers.file(), config).unwrap();
        sidecar.process().signal("HUP");
        wait::until("the reload", || reloads(&metrics()) != before);
        let line = format!("postern_sidecar_config_restart_needed {restart_needed}");
        let metrics = metrics();
        assert!(metrics.lines().any(|found| found == line), "{metrics}");
    };
    let rule = "[[rule]]\npaths = ['/admin/**', '/open/**']\nscope = ['admin']\n";
    reload(&format!("{rule}{}", shop.table()), "0");
    let closed = ["403 insufficient_scope", "403 insufficient_scope"];
    assert_eq!(verdicts(), closed);
    let both = shop.table() + &cluster.table();
    reload(&format!("{rule}{both}"), "1");
    assert_eq!(verdicts(), closed);
    // A pass list for which no rule of the file is, but the one that stays meanwhile.
    reload(&format!("public-path = ['/open/**']\n{both}"), "1");
    let expected = (closed.map(str::to_owned), "401 token_missing");
    assert_eq!((verdicts(), without().as_str()), expected);
    reload(
        &format!("public-path = ['/open/**']\n{}", shop.table()),
        "0",
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
    fs::write(issuers.file(), tables).unwrap();
    sidecar.process().signal("HUP");
    sidecar.until_logged("configuration reloaded");
    assert_eq!(sent(), ("other:5e".into(), "5e".to_owned()));
}
