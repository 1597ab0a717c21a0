//! `sidecar explain` and `auth-server token inspect`: their output. [`super::explained`] compares
//! it with real requests.

use serde_json::Value;
use tests::actors::auth_server::{AuthServer, admin_get, file_store};
use tests::actors::client::Request;
use tests::actors::process::Finished;
use tests::actors::programs::Program;
use tests::actors::stack::ForgedStack;
use tests::services::h2_service::H2Service;
use tests::wire::certificates::Authority;
use tests::wire::raw_client::{HANDSHAKE, exchange};

#[test]
fn an_expected_outcome_is_a_gate_and_a_url_is_a_request() {
    let stack = ForgedStack::start();
    let token = format!("Authorization: Bearer {}", stack.token());
    let url = format!("http://{}/orders/1?page=2", stack.sidecar.address());
    for (target, lines, expected, code) in [
        (&*url, &[&*token][..], "verified", 0),
        (&*url, &[], "token_missing", 0),
        ("/orders/1", &[], "verified", 1),
        ("/orders/1", &[&*token], "token_missing", 1),
        ("/orders/1", &[&*token], "token_mising", 64),
        ("/orders/1", &[], "too_many_attempts", 64),
    ] {
        let end = stack
            .sidecar
            .explain(&["--expect", expected, target], lines);
        let output = end.stdout + &end.stderr;
        assert_eq!(end.code, Some(code), "{target}: {output}");
        assert_eq!(output.contains("--expect"), code != 0, "{output}");
        let list = "[possible values: verified, passed, responded, reported, ";
        assert_eq!(output.contains(list), code == 64, "{output}");
        let nearest = "a similar value exists: 'token_missing'";
        assert_eq!(
            output.contains(nearest),
            expected == "token_mising",
            "{output}"
        );
    }
}

/// Returns pseudo-fields and fields, in a fixed order.
fn lines_of(head: &http::Request<()>) -> Vec<String> {
    let uri = head.uri();
    let part = |part: Option<&str>| part.unwrap_or_default().to_owned();
    let mut lines = vec![
        format!(":method: {}", head.method()),
        format!(":scheme: {}", part(uri.scheme_str())),
        format!(
            ":authority: {}",
            part(uri.authority().map(|name| name.as_str()))
        ),
        format!(
            ":path: {}",
            part(uri.path_and_query().map(|path| path.as_str()))
        ),
    ];
    lines.extend(head.headers().iter().map(|(name, value)| {
        let value = match name.as_str() {
            "authorization" => "Bearer [as it was sent]",
            _ => value.to_str().unwrap(),
        };
        format!("{name}: {value}")
    }));
    lines.sort();
    lines
}

/// Returns the lines of the head that the service would get.
pub(crate) fn service_lines(explained: &Finished) -> Vec<String> {
    assert_eq!(explained.code, Some(0), "{}", explained.stderr);
    let explanation: Value = serde_json::from_str(&explained.stdout).unwrap();
    let lines = explanation["service"].as_array().unwrap().iter();
    lines.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[test]
fn explain_shows_the_head_that_a_service_of_http_2_gets() {
    let service = H2Service::start();
    let stack = ForgedStack::before(&service.url(), &[]);
    for (method, framing, body) in [
        ("GET", None, ""),
        ("POST", Some("Transfer-Encoding: chunked"), "0\r\n\r\n"),
        ("POST", Some("Content-Length: 2"), "ab"),
    ] {
        let bearer = format!("Authorization: Bearer {}", stack.token());
        let mut lines = vec![
            "Host: a.example",
            "X-Mixed: Case",
            "Cookie: a=1",
            "TE: trailers",
            "Connection: keep-alive, x-hop",
            "X-Hop: 1",
            &bearer,
        ];
        lines.extend(framing);
        // A URI of HTTP/2 has these bytes escaped.
        let target = "/orders/42?a=<b>";
        let head = format!("{method} {target} HTTP/1.1\r\n{}", lines.join("\r\n"));
        let request = format!("{head}\r\n\r\n{body}");
        let response = exchange(stack.sidecar.address(), method, request.as_bytes());
        assert_eq!(response.status(), 200);
        let received = lines_of(&service.requests().last().unwrap().head);
        let end = stack
            .sidecar
            .explain(&["--json", "-X", method, target], &lines);
        let mut displayed = service_lines(&end);
        displayed.sort();
        assert_eq!(displayed, received);
    }
    let bearer = format!("Authorization: Bearer {}", stack.token());
    let websocket: Vec<_> = HANDSHAKE.lines().chain([&*bearer]).collect();
    let end = stack.sidecar.explain(
        &["/orders/chat", "--expect=upgrade_not_allowed"],
        &websocket,
    );
    assert_eq!(end.code, Some(0), "{}{}", end.stdout, end.stderr);
    // No URI of HTTP/2 has such a host.
    let lines = ["Host: b%C3%BCcher.example", &bearer];
    let head = format!("GET /orders/42 HTTP/1.1\r\n{}\r\n\r\n", lines.join("\r\n"));
    let response = exchange(stack.sidecar.address(), "GET", head.as_bytes());
    assert_eq!(response.verdict(), "400 request_framing");
    let end = stack
        .sidecar
        .explain(&["/orders/42", "--expect=request_framing"], &lines);
    assert_eq!(end.code, Some(0), "{}{}", end.stdout, end.stderr);
}

#[test]
fn explain_shows_the_head_of_a_request_that_this_machine_sends() {
    let (stack, authority) = (ForgedStack::start(), Authority::new());
    let tls = authority.issue("server").flags();
    let flags = tls.iter().map(String::as_str);
    let flags: Vec<_> = flags.chain(["--trusted-proxy", "127.0.0.1"]).collect();
    let sidecar = stack.in_front_of(&stack.service.url(), &flags);
    let bearer = format!("Authorization: Bearer {}", stack.token());
    let lines = ["Host: a.example", "X-Original-URL: /a", &bearer];
    let mut client = authority.client().connect(sidecar.address()).unwrap();
    let head = lines.join("\r\n");
    client.send(format!("GET /orders/42 HTTP/1.1\r\n{head}\r\n\r\n").as_bytes());
    assert_eq!(client.response("GET").status(), 200);
    let received = stack.service.last_request().header_lines();
    let displayed = service_lines(&sidecar.explain(&["--json", "/orders/42"], &lines));
    for line in ["X-Original-URL: /a", "X-Forwarded-Proto: https"] {
        assert!(received.iter().any(|sent| sent == line), "{received:?}");
        assert!(displayed.iter().any(|sent| sent == line), "{displayed:?}");
    }
}

#[test]
fn a_cause_names_the_setting_where_it_was_given() {
    let stack = ForgedStack::with(|plan| plan.environment("POSTERN_AUDIENCE", "orders"));
    let bearer = format!("Authorization: Bearer {}", stack.token());
    let end = stack.sidecar.explain(&["/orders/1"], &[bearer]);
    let cause =
        "its `aud` is absent; --audience is \"orders\"; --audience comes from POSTERN_AUDIENCE";
    assert!(end.stdout.contains(cause), "{}", end.stdout);
}

#[test]
fn what_cannot_be_explained_is_a_named_usage_error() {
    let stack = ForgedStack::start();
    for (arguments, part) in [
        (&["/a\rb"][..], "target: byte 3 is 0x0d"),
        (&["orders/42"], "'orders/42' is not a request target"),
        (&["-X", "G T", "/"], "method:"),
        (&["-H", "a b: c", "/"], "header 'a b'"),
        (&["-H", "no field", "/"], "header: expected"),
        (&["--public-path", "/a/**", "/a"], "--public-path"),
    ] {
        let end = stack.sidecar.explain::<&str>(arguments, &[]);
        assert_eq!(end.code, Some(64), "{arguments:?}: {}", end.stderr);
        assert!(end.stderr.contains(part), "{arguments:?}: {}", end.stderr);
    }
    let away = Program::Sidecar
        .command()
        .arguments(["explain", "--admin-listen", "127.0.0.1:1", "/"])
        .run();
    away.says(69, "is 127.0.0.1:1 the --admin-listen of a running server?");
}

#[test]
fn explain_is_for_loopback_and_for_no_page_of_another_site() {
    let stack = ForgedStack::start();
    let admin = stack.sidecar.admin();
    let json = "application/json";
    let question = r#"{"head":"GET / HTTP/1.1\r\nhost: a\r\n\r\n"}"#;
    let (own_host, long) = (admin.to_string(), " ".repeat(200_000));
    let (evil_host, evil) = ("evil.example", Some("http://evil.example"));
    for (media_type, host, origin, body, status) in [
        (json, &*own_host, None, question, 200),
        ("text/plain", &own_host, None, question, 415),
        (json, evil_host, None, question, 421),
        (json, &own_host, evil, question, 403),
        (json, &own_host, None, "{}", 422),
        (json, &own_host, None, &long, 413),
    ] {
        let request = Request::new("POST", "/explain")
            .line(format!("Content-Type: {media_type}"))
            .body(body.as_bytes());
        let request = request.lines(origin.map(|origin| format!("Origin: {origin}")));
        let response = exchange(admin, "POST", &request.bytes(host));
        assert_eq!(response.status(), status, "{host} {origin:?}");
    }
    assert_eq!(admin_get(admin, "/livez").status(), 200);
}

#[test]
fn token_inspect_prints_claims_and_the_reason_of_a_rejection() {
    let server = AuthServer::start();
    let token = server.login();
    let store = file_store(&server.home().join("data"));
    let inspect = |token: &str, more: &[&str]| {
        let end = Program::AuthServer
            .command()
            .arguments(["token", "inspect", "--store", &store])
            .arguments(more.iter().copied())
            .input(token.as_bytes())
            .run();
        let code = i32::from(end.stdout.contains("rejected"));
        assert_eq!(end.code, Some(code), "{}", end.stderr);
        end.stdout
    };
    let (header_and_claims, signature) = token.rsplit_once('.').unwrap();
    let other = if signature.starts_with('A') { 'B' } else { 'A' };
    let tampered = format!("{header_and_claims}.{other}{}", &signature[1..]);
    for (token, more, expected) in [
        (token.as_str(), &[][..], "verdict   verified"),
        (&format!("Bearer {token}\n"), &[], "username = \"admin\""),
        (&token, &["--at", "2100-01-01T00:00:00Z"], "token_expired"),
        (&token, &["--issuer", "other"], "token_issuer"),
        (&tampered, &[], "NOT VERIFIED"),
        ("junk", &[], "token_malformed"),
        ("e30.e30.e30.e30.e30", &[], "it is encrypted (JWE)"),
        (
            "eyJhIjoNfQ.e30.e30",
            &[],
            "its header is no JSON that is accepted: expected value",
        ),
    ] {
        let text = inspect(token, more);
        assert!(text.contains(expected), "{expected}\n{text}");
        assert!(!text.contains(signature), "{text}");
    }
    let json: Value = serde_json::from_str(&inspect(&token, &["--json"])).unwrap();
    assert_eq!(json["outcome"], "verified");
    assert_eq!(json["token"]["claims"]["userId"], "1");
    let revoke = ["revoke", "--store", &store, "--jti", &token];
    assert_eq!(
        Program::AuthServer.command().arguments(revoke).run().code,
        Some(0)
    );
    let text = inspect(&token, &[]);
    assert!(text.contains("✗ revocation     token_revoked"), "{text}");
}

#[test]
fn explain_names_what_makes_a_path_any_path() {
    let rules = "[[rule]]\npaths = ['/list']\n[[rule]]\npaths = ['/admin/**']\n";
    let stack = ForgedStack::configured(rules);
    let token = format!("Authorization: Bearer {}", stack.token());
    for (target, why) in [
        ("/orders/list", None),
        ("/orders/list/+", None),
        (
            "/orders/a;b/c",
            Some("programs read ; in 'a;b' differently"),
        ),
        (
            "/orders//list",
            Some("programs read an empty name differently"),
        ),
        (
            "/orders/a%EF%BC%8Fb",
            Some("programs read ／ (U+FF0F) in 'a%EF%BC%8Fb' differently"),
        ),
        (
            "/orders/+/:x",
            Some("two of its names, '+' and ':x', are empty to some programs"),
        ),
        ("/elsewhere", Some("it is outside the context path")),
    ] {
        let explained = stack.sidecar.explain(&[target], &[&token]).stdout;
        let expected = why.map(|why| format!("every rule of its method is for it: {why}"));
        let found = explained
            .lines()
            .find(|line| line.contains("every rule of its method is for it"));
        let matches = match (&expected, found) {
            (Some(expected), Some(found)) => found.ends_with(expected.as_str()),
            (None, None) => true,
            _ => false,
        };
        assert!(matches, "{target}: {explained}");
    }
}
