//! `sidecar explain` and `auth-server token inspect`: the judge's own words. That they are true: [`super::explained`].

use std::fs;

use serde_json::{Value, json};
use tests::auth_server::{AuthServer, admin_get, file_store};
use tests::client::Request;
use tests::clock;
use tests::process::{CommandLine, Finished};
use tests::programs::Program;
use tests::raw_client::exchange;
use tests::stack::ForgedStack;

/// `sidecar explain`, the headers on its standard input.
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
            &["/orders/a/b", "--pass", "/a/**"],
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
fn explain_without_a_sidecar_takes_the_auth_server_s_key_set_too() {
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

#[test]
fn what_cannot_be_explained_is_a_slip_of_the_command_line_and_named() {
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
        (&["orders/42"], "'orders/42' is no target"),
        (&["?a=b"], "'?a=b' is no target"),
        (&["a b://c"], "is no target"),
        (&["-X", "G T", "/"], "method:"),
        (&["-H", "a b: c", "/"], "--header"),
    ] {
        for source in [&running[..], &offline] {
            let end = explain(&[source, arguments].concat(), &[]);
            assert_eq!(end.code, Some(64), "{arguments:?}: {}", end.stderr);
            assert!(end.stderr.contains(part), "{arguments:?}: {}", end.stderr);
        }
    }
    for (settings, part) in [
        (&["--jwks-file", "/keys"][..], "--issuer"),
        (&["--public-key-file", "/key"], "--issuer"),
        (&["--key-file", "/key", "--claim", "id=sub"], "--claim"),
        (
            &["--key-file", "/key", "--algorithms", "ES256"],
            "--algorithms",
        ),
        (
            &["--key-file", "/key", "--jwks-file", "/keys"],
            "cannot be used with",
        ),
        (
            &["--jwks-file", "/keys", "--signing-type", "rsa"],
            "cannot be used with",
        ),
    ] {
        let end = explain(&[settings, &["/"]].concat(), &[]);
        assert_eq!(end.code, Some(64), "{settings:?}: {}", end.stderr);
        assert!(end.stderr.contains(part), "{settings:?}: {}", end.stderr);
    }
}

#[test]
fn explain_is_for_loopback_and_for_nobody_s_web_page() {
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
        let answer = exchange(admin, "POST", &request.bytes(&host));
        assert_eq!(answer.status(), status, "{media_type} {host} {body}");
    }
    let large = Request::new("POST", "/explain")
        .line("Content-Type: application/json")
        .body(vec![b' '; 200_000]);
    let answer = exchange(admin, "POST", &large.bytes(&admin.to_string()));
    assert_eq!(answer.status(), 413);
    assert_eq!(admin_get(admin, "/livez").status(), 200);
}

#[test]
fn a_command_without_a_sidecar_to_ask_says_so() {
    let end = explain(&["--admin-listen", "127.0.0.1:1", "/"], &[]);
    assert_eq!(end.code, Some(69), "{}", end.stderr);
    let end = explain(&["--header", "no field", "/"], &[]);
    assert_eq!(end.code, Some(64), "{}", end.stderr);
}

#[test]
fn token_inspect_tells_what_a_token_says_and_why_it_is_refused() {
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
