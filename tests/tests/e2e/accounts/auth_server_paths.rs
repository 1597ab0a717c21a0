//! The auth server's own pass list and static files (contract §1, §4.4).

use std::fs;

use tests::actors::auth_server::{AuthServer, AuthServerPlan, LOGIN, USER_DETAILS, credentials};
use tests::actors::client::Request;

/// Creates `static/app.js`, `assets/logo.svg`, and a secret beside them.
fn site() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("static/app.js", "1;"),
        ("static/sub/a b.txt", "x"),
        ("assets/logo.svg", "<svg/>"),
        ("secret.txt", "hush"),
    ] {
        let path = directory.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

fn serving(site: &tempfile::TempDir) -> AuthServer {
    AuthServerPlan::new()
        .flags(["--static-dir", site.path().to_str().unwrap()])
        .ready()
}

#[test]
fn contract_4_4_static_and_assets_are_served_without_a_token() {
    let site = site();
    let server = serving(&site);
    for (path, kind, text) in [
        ("/static/app.js", "text/javascript", "1;"),
        ("/static/sub/a%20b.txt", "text/plain", "x"),
        ("/assets/logo.svg", "image/svg+xml", "<svg/>"),
    ] {
        let response = server.anonymous().get(path);
        let found = (response.status(), response.text());
        assert_eq!(found, (200, text.to_owned()), "{path}");
        assert_eq!(response.header("content-type"), [kind], "{path}");
        assert_eq!(
            response.header("x-content-type-options"),
            ["nosniff"],
            "{path}"
        );
    }
}

#[test]
fn contract_4_4_nothing_outside_of_static_and_assets_is_served() {
    let site = site();
    fs::write(site.path().join("static/.env"), "hush").unwrap();
    std::os::unix::fs::symlink(
        site.path().join("secret.txt"),
        site.path().join("static/link.txt"),
    )
    .unwrap();
    let server = serving(&site);
    let paths = "/secret.txt /static/.env /static/link.txt /static/../secret.txt \
         /static/%2e%2e/secret.txt /static/..%2fsecret.txt /static/%2e%2e%2fsecret.txt \
         /static/..%5csecret.txt /static/%252e%252e/secret.txt /static/..;/secret.txt \
         /static//../secret.txt /static/sub/ /static/app.js%00.png";
    for path in paths.split(' ') {
        for client in [server.anonymous(), server.logged_in()] {
            let response = client.send(&client.request("GET", path));
            assert!(
                response.status() >= 400 && !response.text().contains("hush"),
                "{path}: {}",
                response.first_line()
            );
        }
    }
}

#[test]
fn contract_4_4_oauth_jwt_is_always_on_the_list() {
    let server = AuthServerPlan::new()
        .flags(["--public-path", "/public/**"])
        .ready();
    assert_eq!(server.anonymous().post(LOGIN, &credentials()).status(), 200);
    assert_eq!(server.anonymous().verdict("/public/x"), "404 not_found");
    let found = server.anonymous().verdict("/private/x");
    assert_eq!(found, "401 token_missing");
}

#[test]
fn contract_1_the_context_path_is_a_setting_and_may_be_empty() {
    for context in ["", "/login-service", "/a/b"] {
        let server = AuthServerPlan::new().context(context).ready();
        assert_eq!(server.logged_in().status(USER_DETAILS), 200, "{context}");
        let outside = Request::new("POST", format!("/elsewhere{LOGIN}")).json(&credentials());
        let found = server.anonymous().send(&outside).verdict();
        assert_eq!(found, "401 token_missing", "{context}");
    }
}
