//! The status page of the admin port: both programs, as text and in a browser.

use std::fs;
use std::net::SocketAddr;

use serde_json::json;
use tests::actors::auth_server::{AuthServerPlan, LOGIN, admin_get};
use tests::actors::browser::Browser;
use tests::actors::client::Request;
use tests::actors::expect::has;
use tests::actors::stack::ForgedStack;
use tests::actors::token_forge::kid_of;
use tests::actors::users_file::UsersFile;
use tests::wait;
use tests::wire::raw_client::exchange;

fn page(admin: SocketAddr) -> String {
    admin_get(admin, "/").text()
}

/// Waits until the page and the readiness of a program, which stays ready, name the last reload of
/// these files: rejected for this cause, or not.
fn until_reloaded(admin: SocketAddr, files: &str, cause: Option<&str>) {
    let expected = match cause {
        Some(_) => "warn     reload rejected at 20",
        None => " reloaded at 20",
    };
    wait::until(&format!("{files}: {expected}"), || {
        let page = page(admin);
        let line = page
            .lines()
            .find(|line| line.starts_with(&format!("{files} ")))?;
        (line.contains(expected) && line.contains(cause.unwrap_or_default())).then_some(())
    });
    let readiness = admin_get(admin, "/readyz");
    assert_eq!(readiness.status(), 200);
    let readiness = readiness.text();
    assert_eq!(
        readiness.contains("rejected"),
        cause.is_some(),
        "{readiness}"
    );
    has(readiness, cause.unwrap_or_default());
}

#[test]
fn a_rejected_reload_of_the_sidecar_stands_until_a_good_one() {
    let stack = ForgedStack::configured("public-path = [\"/first/**\"]");
    let sidecar = &stack.sidecar;
    sidecar.reload("public-path = [\"second\"]", "rejected");
    until_reloaded(
        sidecar.admin(),
        "configuration",
        Some("--public-path 'second'"),
    );
    has(
        page(sidecar.admin()),
        "public-path = [\"/first/**\"]  # `public-path` in ",
    );
    sidecar.reload(
        "public-path = [\"/second/**\"]\nmax-key-age = 60",
        "applied",
    );
    until_reloaded(sidecar.admin(), "configuration", None);
    let page = page(sidecar.admin());
    has(&page, "public-path = [\"/second/**\"]  # `public-path` in ");
    has(&page, "warn     reloaded at 20");
    has(&page, "; these take effect at the next start: max-key-age");
    let waits = "public-path = [\"/second/**\"]\nmax-key-age = 50";
    sidecar.reload(waits, "waiting");
    let log = sidecar.process().stderr();
    assert!(!log.contains("no setting has changed"), "{log}");
}

#[test]
fn a_rejected_users_file_stands_until_a_good_one() {
    let users = UsersFile::with("ada", "a long password");
    let server = AuthServerPlan::polling().flags(["--users", &users.location()]);
    let server = server.ready();
    let good = fs::read_to_string(users.path()).unwrap();
    fs::write(users.path(), "[[user]]\n").unwrap();
    until_reloaded(server.admin(), "users_file", Some("line 1"));
    fs::write(users.path(), good).unwrap();
    until_reloaded(server.admin(), "users_file", None);
    has(
        page(server.admin()),
        "signing-type = \"ecdsa\"  # the command line",
    );
}

#[test]
fn changed_settings_of_an_auth_server_are_noted() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("auth.toml");
    fs::write(&file, "token-lifetime = 600\n").unwrap();
    let server = AuthServerPlan::polling();
    let server = server.flags(["--config", file.to_str().unwrap()]).ready();
    let until = |row: &str, headline: &str| {
        wait::until(row, || {
            let page = page(server.admin());
            let has_headline = page.lines().any(|line| line.starts_with(headline));
            (has_headline && page.contains(row)).then_some(())
        });
    };
    let row = |word| format!("\n{:<26} {word}", "configuration");
    let good = row("ok\n");
    until(&good, "Ready, up ");
    fs::write(&file, "token-lifetime = 700\n").unwrap();
    let note = "the settings file has changed since the start";
    let noted = row("warn     ") + note;
    until(&noted, "Ready, with warnings, up ");
    has(server.process().line_with(note), "WARN");
    has(admin_get(server.admin(), "/readyz").text(), note);
    fs::write(&file, "token-lifetime = 600\n").unwrap();
    until(&good, "Ready, up ");
    assert_eq!(server.process().stderr().matches(note).count(), 1);
}

#[test]
fn the_page_of_an_auth_server_has_the_times_of_its_keys() {
    let server = AuthServerPlan::polling()
        .flags(["--rotate-every", "7d"])
        .ready();
    let first = kid_of(&server.login());
    server.keys(&["rotate"]);
    let until = |part: &str| wait::until(part, || page(server.admin()).contains(part));
    until(r#""role":"next","signsFrom":"20"#);
    until("\nnext change: 20");
    server.keys(&["revoke", &first]);
    until(&format!(r#"{{"kid":"{first}","role":"revoked"}}"#));
}

#[test]
fn both_pages_have_requests_by_outcome_and_rejections_by_reason() {
    let stack = ForgedStack::start();
    let server = AuthServerPlan::polling().ready();
    let signing = kid_of(&server.login());
    let explained = stack.sidecar.explain::<&str>(&["/orders/list"], &[]).stdout;
    let keys = explained
        .lines()
        .find_map(|line| line.strip_prefix("keys "));
    let (trusted, _) = keys.unwrap().trim().split_once(", fetched").unwrap();
    let expired = stack.forge.token(0, &json!({}));
    assert_eq!(stack.sidecar.verdict_of(&expired), "401 token_expired");
    assert_eq!(stack.sidecar.verdict_of(&stack.token()), "200");
    server
        .anonymous()
        .send(&Request::new("POST", format!("/auth{LOGIN}")).json(&json!({})));
    for (admin, key, counted, reason, cause) in [
        (
            stack.sidecar.admin(),
            format!("{trusted} fetched "),
            "verified",
            "token_expired",
            "The token's time (",
        ),
        (
            server.admin(),
            format!(r#"{{"kid":"{signing}","role":"current"}}"#),
            "4xx",
            "login_incomplete",
            "The login",
        ),
    ] {
        // A request is counted after its response.
        let page = wait::until("both requests", || {
            let page = page(admin);
            let is_counted = |name: &str| page.contains(&format!("\n{name:<26} 1 "));
            (is_counted(reason) && page.contains(&format!("\n{counted} "))).then_some(page)
        });
        has(&page, "last ");
        has(&page, key);
        let request = Request::new("GET", "/").line("Accept: text/html,*/*;q=0.8");
        let html = exchange(admin, "GET", &request.bytes(&admin.to_string()));
        assert_eq!(html.header("content-type"), ["text/html; charset=utf-8"]);
        has(html.text(), reason);
        has(html.text(), cause);
    }
}

/// Returns the smallest contrast of a text with its background (WCAG 2.2 §1.4.3).
const CONTRAST: &str = r"
    const luminance = (color) => {
        const [r, g, b] = color.match(/[\d.]+/g).map((part) => part / 255)
            .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const back = luminance(getComputedStyle(document.body).backgroundColor);
    const contrasts = [...document.body.querySelectorAll('*')].map((element) => {
        const text = luminance(getComputedStyle(element).color);
        return (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05);
    });
    return Math.min(...contrasts);";

#[test]
fn both_pages_fit_a_phone_in_light_and_in_dark_without_a_script() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let users = UsersFile::with("ada", "a long password");
    let server = AuthServerPlan::polling().flags(["--users", &users.location()]);
    let server = server.ready();
    fs::write(users.path(), "[[user]]\n").unwrap();
    until_reloaded(server.admin(), "users_file", Some("line 1"));
    let stack =
        ForgedStack::configured("[[rule]]\npaths = [\"/a/**\", \"/b/**\"]\nscope = [\"read\"]");
    stack.sidecar.anonymous().get("/a");
    let unready = stack
        .plan("http://127.0.0.1:9")
        .flags(["--max-key-age", "1"])
        .start();
    let mut backgrounds = Vec::new();
    for is_dark in [false, true] {
        for width in [320, 375, 1200] {
            browser.emulate(width, is_dark);
            for admin in [unready.admin(), server.admin(), stack.sidecar.admin()] {
                browser.open(&format!("http://{admin}/"));
                browser.run(
                    "document.querySelectorAll('details').forEach((it) => { it.open = true })",
                );
                let is_read = |script: &str| browser.run(&format!("return {script}"));
                let widths = "[innerWidth, document.documentElement.scrollWidth]";
                assert_eq!(is_read(widths), json!([width, width]), "{admin}");
                assert_eq!(is_read("document.scripts.length"), 0);
                assert!(browser.run(CONTRAST).as_f64() > Some(4.5), "{is_dark}");
                backgrounds.push(is_read("getComputedStyle(document.body).backgroundColor"));
            }
        }
    }
    backgrounds.dedup();
    assert_eq!(backgrounds.len(), 2, "{backgrounds:?}");
    browser.click("summary");
    let is_open = "return document.querySelector('details').open";
    assert_eq!(browser.run(is_open), json!(false));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
