//! The access log line of a request.

use std::net::SocketAddr;
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tests::actors::auth_server::AuthServer;
use tests::actors::expect::has;
use tests::actors::process::Process;
use tests::actors::sidecar::{NEVER, Sidecar};
use tests::actors::stack::ForgedStack;
use tests::services::socket_server::{Reply, SocketServer};
use tests::wait;
use tests::wire::clock;
use tests::wire::raw_client::{RawClient, exchange};

use crate::e2e::requests::forwarding::stack;
use crate::e2e::tokens::several_issuers::published::Issuers;

fn line(sidecar: &Sidecar, reason: &str) -> String {
    sidecar.process().line_with(&format!("reason=\"{reason}\""))
}

/// Rejections of one client at once, more than a second has lines for.
const FLOOD: usize = 1000;

/// For each reason; one more has the number of the others.
const LINES_A_SECOND: u64 = 50;

/// Floods a program, and waits until its lines with this text and the numbers in their place make all
/// rejections.
fn expect_counted_lines(process: &Process, address: SocketAddr, request: &[u8], text: &str) {
    let begun = Instant::now();
    let mut client = RawClient::connect(address);
    for _ in 0..FLOOD / 100 {
        client.send(&request.repeat(100));
        (0..100).for_each(|_| assert!(client.response("GET").status() >= 400));
    }
    let lines = wait::until("all rejections", || {
        let log = process.stderr();
        let lines = log.lines().filter(|line| line.contains(text));
        let number = |line: &str| match line.split_once(" lines=") {
            Some((_, number)) => number.split(' ').next()?.parse().ok(),
            None => Some(1),
        };
        let numbers: Vec<usize> = lines.filter_map(number).collect();
        (numbers.iter().sum::<usize>() == FLOOD).then_some(numbers.len() as u64)
    });
    let seconds = begun.elapsed().as_secs() + 2;
    assert!(lines <= seconds * (LINES_A_SECOND + 1), "{lines} lines");
}

#[test]
fn a_flood_of_rejections_is_few_lines_with_their_number() {
    let stack = ForgedStack::start();
    let (sidecar, request) = (
        &stack.sidecar,
        b"GET /orders/list HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    let address = sidecar.address();
    expect_counted_lines(
        sidecar.process(),
        address,
        request,
        "reason=\"token_missing\"",
    );
    let server = AuthServer::start();
    let (process, address) = (server.process(), server.address());
    let request = b"GET /auth/current/user/details HTTP/1.1\r\nHost: a\r\n\r\n";
    expect_counted_lines(process, address, request, "reason=\"token_missing\"");
    let login = b"POST /auth/oauth/jwt/token HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    expect_counted_lines(process, address, login, "event=login_rejected");
}

#[test]
fn a_rejection_names_the_client_behind_trusted_proxies_alone() {
    let stack = stack();
    for (flags, client) in [
        (&[][..], "127.0.0.1"),
        (&["--trusted-proxy", "10.0.0.0/8"], "127.0.0.1"),
        (&["--trusted-proxy", "10.0.0.0/8,127.0.0.1"], "203.0.113.9"),
    ] {
        let sidecar = stack.in_front_of(&stack.service.url(), flags);
        let request = "GET /orders/list HTTP/1.1\r\nHost: a\r\n\
                       X-Forwarded-For: 1.1.1.1, 203.0.113.9, 10.0.0.7\r\n\r\n";
        exchange(sidecar.address(), "GET", request.as_bytes());
        let rejected = line(&sidecar, "token_missing");
        let expected = format!(" client={client}");
        assert!(rejected.contains(&expected), "{flags:?}: {rejected}");

        // Without a request there is no proxy to trust: the client is the peer.
        exchange(sidecar.address(), "GET", b"\0\r\n\r\n");
        let rejected = line(&sidecar, "request_malformed");
        assert!(
            rejected.contains(" client=127.0.0.1"),
            "{flags:?}: {rejected}"
        );
    }
}

#[test]
fn a_line_has_times_bytes_and_the_user_only_if_configured() {
    for (flags, user) in [
        (&[][..], Value::Null),
        (&["--access-log-user", "off"], Value::Null),
        (&["--access-log-user", "id"], "10001".into()),
        (&["--access-log-user", "account"], "alice".into()),
    ] {
        let stack = ForgedStack::with(|plan| {
            let json = ["--access-log", "all", "--log-format", "json"];
            let plan = plan.flags(json).flags(flags);
            plan.public_paths(["/public/**"])
        });
        let sidecar = &stack.sidecar;
        stack.sidecar.bearing(&stack.token()).get("/list");
        stack.sidecar.anonymous().get("/public/a");
        stack.sidecar.anonymous().get("/rejected");
        let line = sidecar.process().json_line("path", "/orders/list");
        assert_eq!(line["user"], user, "{flags:?}: {line}");
        assert_eq!(line["bytes"], "echo".len(), "{line}");
        assert_eq!(line["status"], 200, "{line}");
        let ms = |line: &Value, field: &str| line[field].as_f64();
        assert!(
            ms(&line, "duration_ms") >= ms(&line, "upstream_ms"),
            "{line}"
        );
        assert!(ms(&line, "upstream_ms") > Some(0.0), "{line}");
        let public = sidecar.process().json_line("path", "/orders/public/a");
        assert_eq!(public["user"], Value::Null, "{public}");
        let rejected = sidecar.process().json_line("path", "/orders/rejected");
        assert!(rejected["bytes"].as_u64() > Some(50), "{rejected}");
        assert!(ms(&rejected, "duration_ms").is_some(), "{rejected}");
        assert_eq!(rejected["upstream_ms"], Value::Null, "{rejected}");
    }
}

#[test]
fn what_cannot_be_read_of_a_token_is_logged_without_its_content() {
    let stack =
        ForgedStack::with(|plan| plan.flags(["--access-log", "all", "--log-format", "json"]));
    let encoded = |json: &str| URL_SAFE_NO_PAD.encode(json);
    let of = |header: &str, payload: &str| {
        format!("Bearer {}.{}.aHVzaA", encoded(header), encoded(payload))
    };
    let fields = [
        (
            of(r#"{"alg":"RS256"}"#, r#"{"hush":1,"hush":2}"#),
            "a member twice at line 1 column 19",
        ),
        (
            of(r#"{"hush":1,"hush":2}"#, "{}"),
            "its header is no JSON that is accepted: a member twice",
        ),
        (
            of(r#"{"alg":"RS256"}"#, r#"{"a":{"hush":hush}}"#),
            "expected value at line 1 column 14",
        ),
        (
            "Bearer hush".to_owned(),
            "the number of its parts between dots is 1, and not 3",
        ),
        ("Token hush".to_owned(), "it begins with `Token`"),
        (
            "Bearer s=hush.hush.hush".to_owned(),
            "its header is no base64url without padding: character 2 of it is '='",
        ),
    ];
    for (number, (field, cause)) in fields.iter().enumerate() {
        let (path, field) = (
            format!("/orders/{number}"),
            format!("Authorization: {field}"),
        );
        let client = stack.sidecar.anonymous();
        let request = client.request("GET", &format!("/{number}")).line(&*field);
        assert_eq!(client.send(&request).status(), 401, "{field}");
        let line = stack.sidecar.process().json_line("path", &path);
        let found = line["cause"].as_str().unwrap_or_default();
        assert!(found.contains(cause), "{field}: {line}");
        assert!(!line.to_string().contains("hush"), "{line}");
        let end = stack.sidecar.explain(&[&path], &[&field]);
        assert!(end.stdout.contains(cause), "{field}: {}", end.stdout);
    }
}

#[test]
fn a_line_has_the_audience_of_a_token_for_others() {
    let flags = ["--audience", "orders", "--log-format", "json"];
    let stack = ForgedStack::with_flags(flags);
    for (audience, found) in [
        (
            json!("bill\n\u{1b}[31m"),
            "its `aud` is \"bill\\n\\u001b[31m\"; ",
        ),
        (json!(["a", "b"]), "its `aud` is [\"a\",\"b\"]; "),
        (json!("x".repeat(2000)), "its `aud` is text; "),
    ] {
        let token = stack.forge.token(clock::now(), &json!({"aud": audience}));
        let path = format!("/{}", found.len());
        let client = stack.sidecar.bearing(&token);
        assert_eq!(client.verdict(&path), "401 token_audience");
        let line = stack
            .sidecar
            .process()
            .json_line("path", &format!("/orders{path}"));
        let cause = line["cause"].as_str().unwrap_or_default();
        assert_eq!(cause, format!("{found}--audience is \"orders\""));
    }
}

#[test]
fn a_client_that_gives_up_on_a_service_that_hangs_has_a_line() {
    let silent = SocketServer::start(|_| Reply::Silence);
    let url = format!("http://{}", silent.address());
    let stack = ForgedStack::before(&url, &["--log-format", "json"]);
    let mut client = RawClient::connect(stack.sidecar.address());
    client.send(&stack.head("GET", "/orders/hangs", ""));
    wait::until("the service to be asked", || silent.connections().0 == 1);
    drop(client);
    let line = stack.sidecar.process().json_line("path", "/orders/hangs");
    assert_eq!(line["outcome"], "aborted", "{line}");
    assert_eq!(line["upstream"], silent.address().to_string(), "{line}");
    let token = format!("Authorization: Bearer {}", stack.token());
    let explained = stack.sidecar.explain(&["/orders/hangs"], &[&token]).stdout;
    has(&explained, "the service itself gets nothing");
}

#[test]
fn a_line_names_what_makes_a_path_no_canonical_one_and_no_query() {
    let stack = ForgedStack::with(|plan| plan.flags(["--log-format", "json"]));
    for (number, (target, cause)) in [
        ("%zz?hush", "`%zz` in segment 3 of the path is no escape"),
        (
            "..;hush=1/x",
            "segment 3 of the path is a dot segment (`..`, `%2e%2e`, `..;`)",
        ),
        ("%3Fhush/%2e%2e", "segment 4 of the path is a dot segment"),
        (
            "%E0%80%AE?hush",
            "segment 3 of the path holds UTF-8 in a longer form",
        ),
        ("#hush", "the target holds a fragment"),
    ]
    .into_iter()
    .enumerate()
    {
        let request = format!("GET /orders/{number}/{target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = exchange(stack.sidecar.address(), "GET", request.as_bytes());
        assert_eq!(response.verdict(), "400 path_not_canonical", "{target}");
        let found = format!("\"cause\":\"{cause}");
        let line = stack.sidecar.process().line_with(&found);
        assert!(!line.contains("hush"), "{line}");
    }
}

#[test]
fn a_line_names_the_issuer_where_there_may_be_several() {
    let issuers = Issuers::publish(&["shop", "stock"]);
    let (shop, stock) = (issuers.of("shop"), issuers.of("stock"));
    let plan = issuers.plan().flags(NEVER);
    let plan = plan.flags(["--access-log", "all", "--log-format", "json"]);
    let plan = plan.public_paths(["/public/**"]);
    let sidecar = plan.with_all_keys();
    for (path, token, issuer) in [
        ("/a", shop.own(), "shop".into()),
        ("/b", stock.own(), "stock".into()),
        ("/c", shop.signed(shop.token("expired")), "shop".into()),
        (
            "/d",
            shop.signed(shop.token("in the name of the other realm")),
            "stock".into(),
        ),
        (
            "/e",
            shop.signed(shop.token("in the name of an unknown realm")),
            Value::Null,
        ),
        ("/public/f", shop.own(), Value::Null),
    ] {
        sidecar.bearing(&token).get(path);
        let line = sidecar
            .process()
            .json_line("path", &format!("/orders{path}"));
        assert_eq!(line["issuer"], issuer, "{line}");
    }
    sidecar.anonymous().get("/g");
    let line = sidecar.process().json_line("path", "/orders/g");
    assert_eq!(line["issuer"], Value::Null, "{line}");
}
