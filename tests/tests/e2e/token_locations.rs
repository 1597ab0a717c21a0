//! Tokens from a cookie, and paths on which a token may be missing.

use serde_json::json;
use tests::client::{Client, Request, verdict};
use tests::clock;
use tests::h2_client::H2Client;
use tests::keys::SigningType;
use tests::metrics::sum;
use tests::stack::ForgedStack;
use tests::wait;

use super::reload::Reloading;

fn stack() -> ForgedStack {
    ForgedStack::with(SigningType::Ecdsa, |plan| {
        plan.flags([
            "--token-cookie",
            "session",
            "--optional-auth-path",
            "/feed/**",
        ])
        .public_paths(["/public/**"])
    })
}

fn with(client: &Client, method: &str, path: &str, lines: &[&str]) -> String {
    let request = lines
        .iter()
        .fold(client.request(method, path), |request, line| {
            request.line(*line)
        });
    verdict(&client.send(&request))
}

#[test]
fn a_cookie_is_as_good_as_a_header_and_no_better() {
    let stack = stack();
    let token = stack.token();
    let (cookie, bearer) = (
        format!("Cookie: a=1; session={token}"),
        format!("Authorization: Bearer {token}"),
    );
    let client = stack.sidecar.anonymous();
    for (lines, expected) in [
        (&[&*cookie][..], "200"),
        (&[&*bearer, "Cookie: session=bad"], "200"),
        (
            &["Authorization: Bearer bad", &*cookie],
            "401 token_malformed",
        ),
        (
            &["Authorization: Basic eDp5", &*cookie],
            "401 authorization_scheme",
        ),
        (&["Cookie: session=bad"], "401 token_malformed"),
        (&["Cookie: session="], "401 token_malformed"),
        (
            &[&*cookie, "Cookie: session=bad"],
            "400 authorization_repeated",
        ),
        (&[&*cookie, &*cookie, "Cookie: b=2"], "200"),
        (&["Cookie: other=1"], "401 token_missing"),
        (&[], "401 token_missing"),
    ] {
        assert_eq!(with(&client, "GET", "/list", lines), expected, "{lines:?}");
    }
    let seen = stack.service.last_request();
    assert_eq!(seen.header("X-Current-User").len(), 1);
    assert_eq!(
        with(&client, "GET", "/current/user/details", &[&cookie]),
        "200"
    );
}

#[test]
fn another_site_cannot_have_a_browser_change_anything() {
    let stack = stack();
    let cookie = format!("Cookie: session={}", stack.token());
    let client = stack.sidecar.anonymous();
    let own = format!("Origin: http://{}", stack.sidecar.address());
    for (method, line, expected) in [
        ("POST", "Sec-Fetch-Site: cross-site", "403 cross_site"),
        ("POST", "Origin: https://evil.test", "403 cross_site"),
        ("POST", "Origin: null", "403 cross_site"),
        ("GET", "Sec-Fetch-Site: cross-site", "200"),
        ("POST", "Sec-Fetch-Site: same-origin", "200"),
        ("POST", &own, "200"),
        ("POST", "Accept: */*", "200"),
    ] {
        let found = with(&client, method, "/list", &[&cookie, line]);
        assert_eq!(found, expected, "{method} {line}");
    }
    let bearer = stack.sidecar.bearing(&stack.token());
    assert_eq!(
        with(&bearer, "POST", "/list", &["Origin: https://evil.test"]),
        "200"
    );
}

#[test]
fn an_origin_may_use_the_cookie_only_where_named() {
    const APP: &str = "Origin: https://app.example";
    for (flag, expected) in [
        ("--cors-origin", "403 cross_site"),
        ("--cookie-origin", "200"),
    ] {
        let stack =
            ForgedStack::with_flags(["--token-cookie", "session", flag, "https://app.example"]);
        let cookie = format!("Cookie: session={}", stack.token());
        let client = stack.sidecar.anonymous();
        let verdict_of = |method: &str, lines: &[&str]| with(&client, method, "/list", lines);
        for site in ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"] {
            assert_eq!(
                verdict_of("POST", &[&cookie, APP, site]),
                expected,
                "{flag}"
            );
            assert_eq!(verdict_of("GET", &[&cookie, APP, site]), "200", "{flag}");
        }
        let other = "Origin: https://app.example.evil";
        assert_eq!(
            verdict_of("POST", &[&cookie, other]),
            "403 cross_site",
            "{flag}"
        );
        let bearer = stack.sidecar.bearing(&stack.token());
        assert_eq!(with(&bearer, "POST", "/list", &[APP]), "200", "{flag}");
    }
}

#[test]
fn the_cookie_stays_with_us_if_the_service_is_to_see_no_token() {
    let stack = ForgedStack::with_flags([
        "--token-cookie",
        "session",
        "--forward-authorization",
        "false",
    ]);
    let token = stack.token();
    let client = stack.sidecar.anonymous();
    let cookie = format!("Cookie: a=1; session={token}; b=2");
    assert_eq!(with(&client, "GET", "/list", &[&cookie]), "200");
    assert_eq!(stack.service.last_request().header("cookie"), ["a=1; b=2"]);
}

/// Forwarded requests with the token, once more, in every spelling, over both versions of HTTP.
#[test]
fn no_spelling_of_a_token_reaches_a_service_that_is_to_see_none() {
    let until = format!("--report-until={}", clock::now() + 600);
    for mode in [&[][..], &["--enforce=report", &until]] {
        let stack = ForgedStack::with(SigningType::Ecdsa, |plan| {
            plan.flags(["--token-cookie=my-session", "--websocket-token"])
                .flags(["--forward-authorization=false"])
                .flags(["--optional-auth-path=/feed/**"])
                .flags(mode.iter().copied())
                .public_paths(["/public/**"])
        });
        let token = stack.token();
        let bearer = format!("Bearer {token}");
        let client = stack.sidecar.anonymous();
        let http_2 = H2Client::connect(stack.sidecar.address());
        for (name, value) in [
            ("cookie", "my-session=T"),
            ("cookie", "my-session =T"),
            ("cookie", "a=1;\tmy-session\t=T"),
            ("cookie", "a=1, my-session=T"),
            ("cookie", "a=1 my-session=T"),
            ("cookie", "=my-session=T"),
            ("cookie", "\"my-session\"=T"),
            ("cookie", "MY_SESSION=T"),
            ("cookie", "my-session=\"T\"; my-session=T; my-session =T"),
            ("sec-websocket-protocol", "bearer, T, bearer, T"),
            ("sec-websocket-protocol", "chat, bearer, T, T"),
            ("sec-websocket-protocol", "bearer, , T"),
            ("sec-websocket-protocol", "bearer, bearer, T"),
            ("sec_websocket_protocol", "bearer, T"),
        ] {
            let value = value.replace('T', &token);
            for path in ["/list", "/feed/1", "/public/1"] {
                let mut fields = vec![(name, value.as_str())];
                if mode.is_empty() {
                    fields.push(("authorization", &bearer));
                }
                let lines: Vec<_> = fields.iter().map(|(k, v)| format!("{k}: {v}")).collect();
                let lines: Vec<_> = lines.iter().map(String::as_str).collect();
                assert_eq!(with(&client, "GET", path, &lines), "200", "{name}: {value}");
                let request = http_2.request("GET", &format!("/orders{path}"), &fields);
                assert_eq!(http_2.send(request, b"").unwrap().verdict(), "200");
                let seen = stack.service.take_requests();
                assert_eq!(seen.len(), 2);
                for seen in seen.iter().flat_map(|seen| seen.header_lines()) {
                    assert!(!seen.contains(&token), "{path}, {name}: {value}\n{seen}");
                }
            }
        }
    }
}

#[test]
fn where_a_token_is_optional_a_bad_one_is_rejected() {
    let stack = stack();
    let client = stack.sidecar.anonymous();
    let forged = "X-Current-User: {\"id\":\"0\"}";
    assert_eq!(with(&client, "GET", "/feed/1", &[forged]), "200");
    let seen = stack.service.last_request();
    assert_eq!(seen.header("X-Current-User"), Vec::<String>::new());
    for line in [
        "Authorization: Bearer bad",
        "Authorization: x",
        "Cookie: session=bad",
    ] {
        assert!(
            with(&client, "GET", "/feed/1", &[line]).starts_with("401 "),
            "{line}"
        );
    }
    let known = stack.sidecar.bearing(&stack.token());
    assert_eq!(with(&known, "GET", "/feed/1", &[]), "200");
    assert_eq!(
        stack.service.last_request().header("X-Current-User").len(),
        1
    );
    for path in ["/feed//1", "/feed/%2e%2e/list", "/feed/..;/list", "/list"] {
        assert_ne!(with(&client, "GET", path, &[]), "200", "{path}");
    }
}

#[test]
fn the_service_learns_the_way_a_request_came() {
    let received = |flags: &[&str], lines: &[&str]| {
        let stack = ForgedStack::with_flags(flags.iter().copied());
        let client = stack.sidecar.bearing(&stack.token());
        assert_eq!(with(&client, "GET", "/list", lines), "200");
        let seen = stack.service.last_request();
        let field = |name: &str| seen.header(name).join("; ");
        [
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-forwarded-host",
            "x_forwarded_for",
        ]
        .map(field)
    };
    let theirs = [
        "X-Forwarded-For: 203.0.113.7",
        "X_Forwarded_For: 203.0.113.8",
        "X-Forwarded-Proto: https",
    ];
    assert_eq!(received(&[], &[]), ["127.0.0.1", "http", "", ""]);
    assert_eq!(
        received(&[], &theirs),
        ["203.0.113.7, 127.0.0.1", "https", "", "203.0.113.8"]
    );
    assert_eq!(
        received(&["--forwarded", "overwrite"], &theirs),
        ["127.0.0.1", "http", "", ""]
    );
    assert_eq!(
        received(&["--forwarded", "off"], &theirs),
        ["203.0.113.7", "https", "", "203.0.113.8"]
    );
}

#[test]
fn nothing_about_the_way_opens_a_door() {
    let stack = stack();
    for line in [
        "X-Forwarded-For: 127.0.0.1",
        "Forwarded: for=127.0.0.1",
        "X-Real-IP: ::1",
    ] {
        let request = Request::new("GET", "/orders/list").line(line);
        assert_eq!(
            verdict(&stack.sidecar.anonymous().send(&request)),
            "401 token_missing"
        );
    }
}

#[test]
fn a_bound_token_is_no_bearer_token_wherever_it_stands() {
    let stack = ForgedStack::with(SigningType::Ecdsa, |plan| {
        let locations = ["--token-cookie=session", "--websocket-token"];
        plan.flags(locations)
            .flags(["--optional-auth-path", "/feed/**"])
    });
    let claims = json!({"cnf": {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}});
    let token = stack.forge.token(clock::now(), &claims);
    let bearer = format!("Bearer {token}");
    let client = stack.sidecar.anonymous();
    let bound = "401 token_bound";
    for lines in [
        &[&*format!("Authorization: {bearer}")][..],
        &[&format!("Cookie: session={token}")],
        &[
            &format!("Sec-WebSocket-Protocol: bearer, {token}"),
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ],
    ] {
        for path in ["/list", "/feed/a", "/current/user/details"] {
            assert_eq!(with(&client, "GET", path, lines), bound, "{path} {lines:?}");
        }
    }
    // No scheme of ours promises a proof.
    let dpop = format!("Authorization: DPoP {token}");
    let scheme = "401 authorization_scheme";
    assert_eq!(with(&client, "GET", "/list", &[&dpop]), scheme);
    let client = H2Client::connect(stack.sidecar.address());
    let request = client.request("GET", "/orders/list", &[("authorization", &bearer)]);
    assert_eq!(client.send(request, &[]).unwrap().verdict(), bound);
    assert_eq!(stack.service.requests().len(), 0);
    let counted = || {
        let reason = [("reason", "token_bound")];
        sum(
            stack.sidecar.admin(),
            "postern_sidecar_requests_total",
            &reason,
        )
    };
    wait::until("the rejections to be counted", || counted() == 10);
}

#[test]
fn a_bound_token_that_was_accepted_is_rejected_after_a_reload() {
    let reloading = Reloading::with("accept-bound-tokens = true");
    let claims = json!({"cnf": {}});
    let token = reloading.stack.forge.token(clock::now(), &claims);
    let bearer = reloading.sidecar().bearing(&token);
    for (setting, expected) in [("on", "200"), ("off", "401 token_bound"), ("on", "200")] {
        reloading.reload(&format!("accept-bound-tokens = '{setting}'"), "applied");
        assert_eq!(verdict(&bearer.get("/list")), expected, "{setting}");
    }
}
