//! `sidecar explain` and `auth-server token inspect`: their output. [`super::explained`] compares
//! it with real requests.

use std::fs;

use serde_json::{Value, json};
use tests::auth_server::{AuthServer, admin_get, file_store};
use tests::client::Request;
use tests::clock;
use tests::h2_service::H2Service;
use tests::process::{CommandLine, Finished};
use tests::programs::Program;
use tests::raw_client::exchange;
use tests::sidecar::SidecarPlan;
use tests::stack::ForgedStack;

/// Runs `sidecar explain` with the headers on its standard input.
fn explain(arguments: &[&str], headers: &[String]) -> Finished {
    CommandLine::new(Program::Sidecar.path())
        .arguments(["explain", "-H", "@-"])
        .arguments(arguments.iter().copied())
        .input((headers.join("\n") + "\n").as_bytes())
        .run()
}

#[test]
fn explain_works_without_a_sidecar_from_settings_and_a_key_file() {
    let stack = ForgedStack::start();
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key.pem");
    fs::write(&key, stack.forge.trusted().served()).unwrap();
    let key = key.to_str().unwrap();
    let settings = [
        "--key-file",
        key,
        "--app-name",
        "orders",
        "--signing-type",
        "ecdsa",
    ];
    let now = clock::now();
    let token = format!(
        "Authorization: Bearer {}",
        stack.forge.token(now, &json!({"exp": now + 60}))
    );
    let (later, earlier) = ((now + 1000).to_string(), "2001-09-09T01:46:40Z");
    for (arguments, outcome, line) in [
        (&["/orders/42"][..], "verified", "✓ signature"),
        (&["/orders/42", "--at", &later], "token_expired", "✗ times"),
        (
            &["/orders/42", "--at", earlier],
            "token_not_yet_valid",
            "✗ times",
        ),
        (
            &["/orders/42", "--issuer", "other"],
            "token_issuer",
            "✗ issuer",
        ),
        (
            &["/orders/a/b", "--public-path", "/a/**"],
            "passed",
            "is open: /a/**",
        ),
    ] {
        let end = explain(
            &[&settings, arguments].concat(),
            std::slice::from_ref(&token),
        );
        assert_eq!(end.code, Some(0), "{}", end.stderr);
        assert!(
            end.stdout.contains(outcome) && end.stdout.contains(line),
            "{arguments:?}\n{}",
            end.stdout
        );
    }
}

#[test]
fn an_expected_outcome_is_a_gate_and_a_url_is_a_request() {
    let stack = ForgedStack::start();
    let admin = stack.sidecar.admin().to_string();
    let token = format!("Authorization: Bearer {}", stack.token());
    let url = format!("http://{}/orders/1?page=2", stack.sidecar.address());
    for (target, headers, expected, code) in [
        ("/orders/1", std::slice::from_ref(&token), "verified", 0),
        (&*url, std::slice::from_ref(&token), "verified", 0),
        (&*url, &[], "token_missing", 0),
        ("/orders/1", &[], "verified", 1),
        (
            "/orders/1",
            std::slice::from_ref(&token),
            "token_missing",
            1,
        ),
    ] {
        let arguments = ["--admin-listen", &admin, "--expect", expected, target];
        let end = explain(&arguments, headers);
        assert_eq!(
            end.code,
            Some(code),
            "{target}: {}{}",
            end.stdout,
            end.stderr
        );
        assert_eq!(end.stderr.contains("--expect"), code == 1, "{}", end.stderr);
    }
}

#[test]
fn explain_shows_no_token_of_a_query() {
    let stack = ForgedStack::start();
    let admin = stack.sidecar.admin().to_string();
    let token = stack.forge.token(clock::now(), &json!({}));
    let target = format!("/orders/42?access_token={token}&x=1");
    for flags in [&[][..], &["--json"]] {
        let end = explain(
            &[&["--admin-listen", &admin, &target], flags].concat(),
            &["X: 1".to_owned()],
        );
        assert_eq!(end.code, Some(0), "{}", end.stderr);
        assert!(
            end.stdout.contains("[as it was sent]&x=1"),
            "{}",
            end.stdout
        );
        assert!(!end.stdout.contains(&token), "{}", end.stdout);
    }
}

#[test]
fn explain_without_a_sidecar_takes_the_key_set_too() {
    let server = AuthServer::start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jwks.json");
    let set = server.anonymous().get("/.well-known/jwks.json");
    fs::write(&file, set.text()).unwrap();
    let headers = [
        format!("Authorization: Bearer {}", server.login()),
        "X-Trace-ME: 1".to_owned(),
    ];
    let file = file.to_str().unwrap();
    let end = explain(&["--key-file", file, "--request-id", "/"], &headers);
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    for part in ["verified", "X-Trace-ME: 1", "x-request-id: "] {
        assert!(end.stdout.contains(part), "{part}\n{}", end.stdout);
    }
    assert!(!end.stdout.contains("fetched"), "{}", end.stdout);
}

#[test]
fn explain_holds_a_websocket_to_what_the_service_speaks() {
    let stack = ForgedStack::start();
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key.pem");
    fs::write(&key, stack.forge.trusted().served()).unwrap();
    let mut headers: Vec<String> = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ]
    .map(str::to_owned)
    .to_vec();
    headers.push(format!("Authorization: Bearer {}", stack.token()));
    for (upstream, outcome) in [
        ("http://127.0.0.1:1", "verified"),
        ("h2c://127.0.0.1:1", "upgrade_not_allowed"),
    ] {
        let settings = ["--signing-type", "ecdsa", "--upstream", upstream, "/chat"];
        let file = ["--key-file", key.to_str().unwrap()];
        let end = explain(&[&file[..], &settings].concat(), &headers);
        assert_eq!(end.code, Some(0), "{}", end.stderr);
        assert!(end.stdout.contains(outcome), "{upstream}\n{}", end.stdout);
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

#[test]
fn explain_shows_the_head_that_a_service_of_http_2_gets() {
    let stack = ForgedStack::start();
    let service = H2Service::start();
    let sidecar = SidecarPlan::to(&service.url(), &stack.auth_server.url())
        .flags(["--signing-type", "ecdsa"])
        .start()
        .ready();
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key.pem");
    fs::write(&key, stack.forge.trusted().served()).unwrap();
    let admin = format!("--admin-listen={}", sidecar.admin());
    let of_file = [
        format!("--key-file={}", key.display()),
        "--app-name=orders".to_owned(),
        "--signing-type=ecdsa".to_owned(),
        format!("--upstream={}", service.url()),
    ];
    for (method, framing, body) in [
        ("GET", None, ""),
        ("POST", Some("Transfer-Encoding: chunked"), "0\r\n\r\n"),
        ("POST", Some("Content-Length: 2"), "ab"),
    ] {
        let mut lines: Vec<String> = [
            "Host: a.example",
            "X-Mixed: Case",
            "Cookie: a=1",
            "TE: trailers",
            "Connection: keep-alive, x-hop",
            "X-Hop: 1",
        ]
        .map(str::to_owned)
        .to_vec();
        lines.extend(framing.map(str::to_owned));
        lines.push(format!("Authorization: Bearer {}", stack.token()));
        let head = format!("{method} /orders/42?a=b HTTP/1.1\r\n{}", lines.join("\r\n"));
        let response = exchange(
            sidecar.address(),
            method,
            format!("{head}\r\n\r\n{body}").as_bytes(),
        );
        assert_eq!(response.status(), 200);
        let received = lines_of(&service.requests().last().unwrap().head);
        for mode in [std::slice::from_ref(&admin), &of_file] {
            let mut arguments = vec!["--json", "-X", method];
            arguments.extend(mode.iter().map(String::as_str));
            arguments.push("/orders/42?a=b");
            let end = explain(&arguments, &lines);
            assert_eq!(end.code, Some(0), "{}", end.stderr);
            let explanation: Value = serde_json::from_str(&end.stdout).unwrap();
            let displayed = explanation["head"].as_array().unwrap();
            let mut displayed: Vec<_> = displayed
                .iter()
                .map(|line| line.as_str().unwrap())
                .collect();
            displayed.sort_unstable();
            assert_eq!(displayed, received, "{}", mode[0]);
        }
    }
}

#[test]
fn settings_without_effect_are_rejected_where_typed() {
    let stack = ForgedStack::start();
    let admin = stack.sidecar.admin().to_string();
    let directory = tempfile::tempdir().unwrap();
    let (key, config) = (
        directory.path().join("key.pem"),
        directory.path().join("a.toml"),
    );
    fs::write(&key, stack.forge.trusted().served()).unwrap();
    fs::write(&config, "public-path = ['/a/**']\n").unwrap();
    let of_file = ["--signing-type=ecdsa", "--key-file", key.to_str().unwrap()];
    for (arguments, rejected) in [
        (
            &["--public-path", "/a/**"][..],
            Some("--public-path: a running sidecar"),
        ),
        (
            &["--optional-auth-path=/a/**"],
            Some("--optional-auth-path: a running sidecar"),
        ),
        (
            &["--upstream=h2c://a:1"],
            Some("--upstream: a running sidecar"),
        ),
        (&["--request-id"], Some("--request-id: a running sidecar")),
        (
            &["--signing-type=rsa"],
            Some("--signing-type: a running sidecar"),
        ),
        (&["-X", "POST", "--at", "1"], None),
        (&["--config", config.to_str().unwrap()], None),
    ] {
        let running = ["--admin-listen", &admin];
        let end = explain(&[&running[..], arguments, &["/orders/a/b"]].concat(), &[]);
        assert_eq!(end.code, Some(rejected.map_or(0, |_| 64)), "{}", end.stderr);
        assert!(
            end.stderr.contains(rejected.unwrap_or_default()),
            "{}",
            end.stderr
        );
    }
    let end = explain(
        &[&of_file[..], &["--admin-listen", &admin, "/"]].concat(),
        &[],
    );
    assert_eq!(end.code, Some(64), "{}", end.stderr);
    assert!(
        end.stderr.contains("--admin-listen: with a key file"),
        "{}",
        end.stderr
    );
    let with_variables = |arguments: &[&str]| {
        let command = CommandLine::new(Program::Sidecar.path()).arguments(["explain", "/"]);
        let command = command.environment("POSTERN_PUBLIC_PATH", "/a/**");
        let command = command.environment("POSTERN_ADMIN_LISTEN", admin.as_str());
        command.arguments(arguments.iter().copied()).run().code
    };
    for mode in [&[][..], &of_file] {
        assert_eq!(with_variables(mode), Some(0), "{mode:?}");
    }
}

#[test]
fn what_cannot_be_explained_is_a_named_usage_error() {
    let stack = ForgedStack::start();
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key.pem");
    fs::write(&key, stack.forge.trusted().served()).unwrap();
    let admin = stack.sidecar.admin().to_string();
    let running = ["--admin-listen", &admin];
    let offline = [
        "--signing-type",
        "ecdsa",
        "--key-file",
        key.to_str().unwrap(),
    ];
    for (arguments, part) in [
        (&["/a\rb"][..], "target: byte 3 is 0x0d"),
        (&["/a\nb"], "target: byte 3 is 0x0a"),
        (&["orders/42"], "'orders/42' is not a request target"),
        (&["?a=b"], "'?a=b' is not a request target"),
        (&["a b://c"], "is not a request target"),
        (&["-X", "G T", "/"], "method:"),
        (&["-H", "a b: c", "/"], "--header"),
    ] {
        for source in [&running[..], &offline] {
            let end = explain(&[source, arguments].concat(), &[]);
            assert_eq!(end.code, Some(64), "{arguments:?}: {}", end.stderr);
            assert!(end.stderr.contains(part), "{arguments:?}: {}", end.stderr);
        }
    }
    for (settings, code, part) in [
        // Without the required `--issuer`.
        (&["--jwks-file", "/keys"][..], 78, "--issuer"),
        (&["--public-key-file", "/key"], 78, "--issuer"),
        (&["--key-file", "/key", "--claim", "id=sub"], 64, "--claim"),
        (
            &["--key-file", "/key", "--algorithms", "ES256"],
            64,
            "--algorithms",
        ),
        (
            &["--key-file", "/key", "--jwks-file", "/keys"],
            64,
            "cannot be used with",
        ),
        (
            &["--jwks-file", "/keys", "--signing-type", "rsa"],
            78,
            "cannot be used with",
        ),
    ] {
        let end = explain(&[settings, &["/"]].concat(), &[]);
        assert_eq!(end.code, Some(code), "{settings:?}: {}", end.stderr);
        assert!(end.stderr.contains(part), "{settings:?}: {}", end.stderr);
    }
}

#[test]
fn explain_is_for_loopback_and_for_no_web_page() {
    let stack = ForgedStack::start();
    let body = r#"{"method":"GET","target":"/","headers":[["host","a"]]}"#;
    let admin = stack.sidecar.admin();
    for (media_type, host, body, status) in [
        ("application/json", admin.to_string(), body, 200),
        ("text/plain", admin.to_string(), body, 415),
        ("application/json", "evil.example".into(), body, 421),
        ("application/json", admin.to_string(), "{}", 400),
        (
            "application/json",
            admin.to_string(),
            r#"{"method":"G T","target":"/","headers":[]}"#,
            400,
        ),
        (
            "application/json",
            admin.to_string(),
            r#"{"method":"GET","target":"/","headers":[["a b","c"]]}"#,
            400,
        ),
        (
            "application/json",
            admin.to_string(),
            r#"{"method":"GET","target":"/","headers":[["a","b\r\nc: d"]]}"#,
            400,
        ),
    ] {
        let request = Request::new("POST", "/explain")
            .line(format!("Content-Type: {media_type}"))
            .body(body);
        let response = exchange(admin, "POST", &request.bytes(&host));
        assert_eq!(response.status(), status, "{media_type} {host} {body}");
    }
    let large = Request::new("POST", "/explain")
        .line("Content-Type: application/json")
        .body(vec![b' '; 200_000]);
    let response = exchange(admin, "POST", &large.bytes(&admin.to_string()));
    assert_eq!(response.status(), 413);
    assert_eq!(admin_get(admin, "/livez").status(), 200);
}

#[test]
fn a_command_without_a_running_sidecar_reports_it() {
    let end = explain(&["--admin-listen", "127.0.0.1:1", "/"], &[]);
    assert_eq!(end.code, Some(69), "{}", end.stderr);
    let end = explain(&["--header", "no field", "/"], &[]);
    assert_eq!(end.code, Some(64), "{}", end.stderr);
}

#[test]
fn token_inspect_prints_claims_and_the_reason_of_a_rejection() {
    let server = AuthServer::start();
    let token = server.login();
    let store = file_store(&server.home().join("data"));
    let inspect = |token: &str, more: &[&str]| {
        let end = CommandLine::new(Program::AuthServer.path())
            .arguments(["token", "inspect", "--store", &store])
            .arguments(more.iter().copied())
            .input(token.as_bytes())
            .run();
        assert_eq!(end.code, Some(0), "{}", end.stderr);
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
    ] {
        let text = inspect(token, more);
        assert!(text.contains(expected), "{expected}\n{text}");
        assert!(!text.contains(signature), "{text}");
    }
    let json: Value = serde_json::from_str(&inspect(&token, &["--json"])).unwrap();
    assert_eq!(json["verdict"]["outcome"], "verified");
    assert_eq!(json["token"]["claims"]["userId"], "1");
}
