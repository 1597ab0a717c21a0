//! Tokens from a cookie, and paths on which a token may be missing.

use tests::actors::client::Client;
use tests::actors::stack::ForgedStack;
use tests::wire::clock;
use tests::wire::h2_client::H2Client;

fn with(client: &Client, method: &str, path: &str, lines: &[&str]) -> String {
    client
        .send(&client.request(method, path).lines(lines))
        .verdict()
}

/// Forwarded requests with the token, once more, in every spelling, over both versions of HTTP.
#[test]
fn no_spelling_of_a_token_reaches_a_service_that_is_to_see_none() {
    let until = format!("--report-until={}", clock::now() + 600);
    for mode in [&[][..], &["--enforce=report", &until]] {
        let stack = ForgedStack::with(|plan| {
            plan.flags(["--token-cookie=my-session", "--websocket-token"])
                .flags(["--forward-authorization=false"])
                .flags(["--optional-auth-path=/feed/**"])
                .flags(mode)
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
        "X-Forwarded-Host: shop.example",
    ];
    assert_eq!(received(&[], &[]), ["127.0.0.1", "http", "", ""]);
    let host = "shop.example";
    let expected = ["203.0.113.7, 127.0.0.1", "https", host, "203.0.113.8"];
    assert_eq!(received(&[], &theirs), expected);
    let found = received(&["--forwarded", "overwrite"], &theirs);
    assert_eq!(found, ["127.0.0.1", "http", "", ""]);
    assert_eq!(
        received(&["--forwarded", "off"], &theirs),
        ["203.0.113.7", "https", host, "203.0.113.8"]
    );
}
