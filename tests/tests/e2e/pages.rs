//! The console and the status page in a real browser. `POSTERN_UPDATE_DOCS=1` keeps the pictures of
//! them for the documents.

use std::fs;

use tests::auth_server::{AuthServer, AuthServerPlan};
use tests::browser::Browser;
use tests::echo_service::{EchoService, MARK};
use tests::loopback::own_address;
use tests::metrics::rejections;
use tests::programs::repository;
use tests::sidecar::{Sidecar, SidecarPlan};
use tests::socket_server::response;
use tests::wait;

const RULE: &str =
    "[[rule]]\nname = 'reports'\npaths = ['/reports/**']\nscope = ['reports:read']\n";

/// Starts the console's server, a sidecar that its page may call, and a service for browsers.
fn stack() -> (AuthServer, Sidecar, EchoService) {
    let sidecar_address = own_address(1);
    let auth_server = AuthServerPlan::new()
        .flags(["--issuer", "postern"])
        .flags(["--console-target", &format!("http://{sidecar_address}")])
        .start()
        .ready();
    let origin = format!("http://{}", auth_server.address());
    let service = EchoService::start();
    service.responds(response(
        "200 OK",
        &[
            &format!("{MARK}: 1"),
            "Content-Type: application/json",
            &format!("Access-Control-Allow-Origin: {origin}"),
            "Access-Control-Allow-Headers: authorization",
            "Vary: Origin",
        ],
        br#"{"order": 42, "state": "sent"}"#,
    ));
    let rules = auth_server.home().join("rules.toml");
    fs::write(&rules, RULE).unwrap();
    let sidecar = SidecarPlan::new(&service, &auth_server.url())
        .listen(sidecar_address)
        .public_paths(["/static/**"])
        .flags(["--config", rules.to_str().unwrap()])
        .flags([
            "--issuer",
            "postern",
            "--cors-origin",
            &origin,
            "--request-id",
        ])
        .start()
        .ready();
    (auth_server, sidecar, service)
}

fn console(auth_server: &AuthServer, sidecar: &Sidecar) -> String {
    format!(
        "{}/static/#target=http://{}&path=/orders/42",
        auth_server.url(),
        sidecar.address()
    )
}

fn keep(browser: &Browser, name: &str) {
    if std::env::var_os("POSTERN_UPDATE_DOCS").is_some() {
        let file = repository().join("docs/images").join(name);
        fs::write(file, browser.picture()).unwrap();
    }
}

#[test]
fn sign_in_call_see_the_user_and_a_rejection_with_its_reason() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let (auth_server, sidecar, _service) = stack();
    browser.open(&console(&auth_server, &sidecar));
    browser.until("body[data-ready]", "Console");

    // By keyboard alone, and first without a token.
    browser.click("#call button[type=submit]");
    browser.until("#call-result", "token_missing");
    browser.until("#call-result", "What to do: Log in");
    browser.until("#call-result", "WWW-Authenticate: Bearer realm=\"postern\"");
    browser.write("#username", "ada");
    browser.press("\u{e004}");
    browser.press("lovelace\u{e007}");
    browser.until("#sign-in-result", "Signed in");
    browser.until("#token-claims", "\"username\": \"admin\"");
    browser.until("#token-state", "Valid until");
    assert!(
        !browser.text("#token").contains("eyJ"),
        "the token itself is not shown"
    );

    browser.click("#call button[type=submit]");
    browser.until("#call-result", "\"order\": 42");
    browser.click("#who-am-i");
    browser.until("#call-result", "\"account\": \"admin\"");
    keep(&browser, "console.png");

    browser.clear("#path");
    browser.write("#path", "/orders/static/%2e%2e/admin?secret=hush");
    browser.click("#call button[type=submit]");
    // The browser itself normalizes the path; the rest is an unknown path of the service.
    browser.until("#call-result", "\"order\": 42");
    let _ = browser.complaints();

    for elsewhere in ["//elsewhere.example/x", "/\\elsewhere.example/x"] {
        browser.clear("#path");
        browser.write("#path", elsewhere);
        browser.click("#call button[type=submit]");
        let line = "Not sent: this path leads to http://elsewhere.example";
        browser.until("#call-result", line);
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn the_pages_hold_to_their_own_policy() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let (auth_server, sidecar, _service) = stack();
    browser.open(&console(&auth_server, &sidecar));
    browser.until("body[data-ready]", "Console");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let elsewhere = format!(
        "return fetch('http://{}/livez').then(() => 'sent', () => 'stopped')",
        sidecar.admin()
    );
    assert_eq!(browser.run(&elsewhere), "stopped");
    assert!(
        browser
            .complaints()
            .concat()
            .contains("Content Security Policy")
    );
}

#[test]
fn the_status_page_shows_figures_and_explains_requests() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let (auth_server, sidecar, _service) = stack();
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
    keep(&browser, "status.png");
}
