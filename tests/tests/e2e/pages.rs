//! The status page in a real browser. `POSTERN_UPDATE_DOCS=1` keeps its picture for the documents.

use std::fs;

use tests::auth_server::AuthServer;
use tests::browser::Browser;
use tests::echo_service::EchoService;
use tests::metrics::rejections;
use tests::programs::repository;
use tests::sidecar::SidecarPlan;
use tests::wait;

const RULE: &str =
    "[[rule]]\nname = 'reports'\npaths = ['/reports/**']\nscope = ['reports:read']\n";

#[test]
fn the_status_page_shows_figures_and_explains_requests() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let (auth_server, service) = (AuthServer::start(), EchoService::start());
    let rules = auth_server.home().join("rules.toml");
    fs::write(&rules, RULE).unwrap();
    let sidecar = SidecarPlan::new(&service, &auth_server.url())
        .public_paths(["/static/**"])
        .flags(["--config", rules.to_str().unwrap()])
        .start()
        .ready();
    let token = auth_server.login();
    for _ in 0..40 {
        sidecar.bearing(&token).get("/42");
        sidecar.anonymous().get("/static/a.css");
    }
    sidecar.bearing(&token).get("/reports/7");
    sidecar.anonymous().get("/reports/7?token=hush");
    wait::until("the last rejection", || {
        (rejections(sidecar.admin(), "token_missing") == 1).then_some(())
    });
    browser.open(&format!("http://{}/", sidecar.admin()));
    browser.until(".state", "Ready");
    browser.until("tbody", "rule_refusals_total{rule=\"reports\"} 1");
    browser.run("document.querySelector('[name=target]').value = '/orders/reports/7'");
    let fill = "document.querySelector('[name=headers]').value = 'Authorization: Bearer ";
    browser.run(&format!("{fill}{token}'"));
    browser.click("form button");
    browser.until("#explanation", "verdict   refused: 403 insufficient_scope");
    browser.until("#explanation", "✗ reports: needs scope reports:read");
    assert_eq!(browser.run("return document.scripts.length"), 0);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let page = browser.run("return document.documentElement.outerHTML");
    for secret in ["hush", token.rsplit('.').next().unwrap()] {
        assert!(!page.as_str().unwrap().contains(secret), "{secret}");
    }
    if std::env::var_os("POSTERN_UPDATE_DOCS").is_some() {
        let file = repository().join("docs/images/status.png");
        fs::write(file, browser.picture()).unwrap();
    }
}
