//! Conformance programs of others through the sidecar: HTTP, gRPC and WebSockets.

use std::process::{Command, Output};

use serde_json::{Value, json};
use tests::actors::expect::has;
use tests::actors::process::Process;
use tests::actors::sidecar::SidecarPlan;
use tests::actors::stack::ForgedStack;
use tests::services::go::GoProgram;
use tests::services::python::Python;
use tests::services::streaming_service::StreamingService;
use tests::skip;

use crate::e2e::requests::forwarding::stack;

fn service(python: &Python, script: &str) -> (Process, String) {
    let mut process = python.start(script, &[]);
    let address = process.announced("listening on ");
    (process, address)
}

fn user_id(text: &str) -> Option<String> {
    let user: Value = serde_json::from_str(text).ok()?;
    user["id"].as_str().map(str::to_owned)
}

#[test]
fn grpcio_makes_calls_of_all_four_kinds() {
    let Some(python) = Python::with_protocols() else {
        return;
    };
    let stack = stack();
    let (_service, address) = service(&python, "grpc_service.py");
    let sidecar = stack.in_front_of(&format!("h2c://{address}"), &[]);
    let given = json!({"address": sidecar.address().to_string(), "token": stack.token()});
    let mut result = python.run("grpc_client.py", &given);
    let unary = result["unary"].take();
    let (hello, user) = unary.as_str().unwrap().split_once(" from ").unwrap();
    assert_eq!(hello, "hello");
    assert!(user_id(user).is_some_and(|id| id != "forged"), "{user}");
    assert_eq!(
        result,
        json!({
            "unary": null,
            "trailer": "unary",
            "server_stream": 1000,
            "client_stream": 1_000_000,
            "bidirectional": ["a", "b", "c"],
            "large": 20_000_000,
            "at_once": 200,
            "rejected_by_service": ["FAILED_PRECONDITION", "not today"],
            "without_token": ["UNAUTHENTICATED", "token_missing: no access token was sent"],
            "bad_token": ["UNAUTHENTICATED", "token_malformed: the access token is malformed"],
        })
    );
    let gone = stack.in_front_of("h2c://127.0.0.1:1", &[]);
    let given = json!({"address": gone.address().to_string(), "token": stack.token()});
    let call = python.run("grpc_rejection.py", &given);
    let unavailable = "upstream_unavailable: the service cannot be reached";
    assert_eq!(call, json!(["UNAVAILABLE", unavailable]));
}

#[test]
fn grpc_go_sees_the_code_and_the_reason_of_a_rejection() {
    let package = "google.golang.org/grpc";
    let Some(call) = GoProgram::built("grpc_rejection.go", package, "golang-google-grpc-dev")
    else {
        return;
    };
    let stack = ForgedStack::start();
    let rule = "[[rule]]\nname = 'all'\npaths = ['/**']\nscope = ['orders']\n";
    let plan = || stack.plan("h2c://127.0.0.1:1");
    let (strict, gone) = (plan().config(rule).ready(), plan().ready());
    let keyless = SidecarPlan::to("h2c://127.0.0.1:1", "http://127.0.0.1:1/auth").start();
    let bearer = format!("Bearer {}", stack.token());
    let of_long_name = format!("Bearer {}", stack.token_of_long_name());
    let exhausted = "ResourceExhausted";
    for (sidecar, authorization, code, reason) in [
        (&gone, "", "Unauthenticated", "token_missing"),
        (&gone, "Bearer a.b.c", "Unauthenticated", "token_malformed"),
        (&strict, &*bearer, "PermissionDenied", "insufficient_scope"),
        (&gone, &*of_long_name, exhausted, "identity_too_large"),
        (&keyless, &*bearer, "Unavailable", "auth_keys_unavailable"),
        (&gone, &*bearer, "Unavailable", "upstream_unavailable"),
    ] {
        let given = json!({"address": sidecar.address(), "authorization": authorization});
        let seen = call.run(&given);
        let [seen_code, message] = [&seen[0], &seen[1]].map(|part| part.as_str().unwrap());
        let begin = format!("{reason}: ");
        assert!(
            seen_code == code && message.starts_with(&begin),
            "{reason}: {seen:?}"
        );
    }
}

#[test]
fn websockets_holds_a_conversation_however_it_shows_its_token() {
    let Some(python) = Python::with_protocols() else {
        return;
    };
    let (_service, address) = service(&python, "websocket_service.py");
    let stack = ForgedStack::before(&format!("http://{address}"), &["--websocket-token"]);
    let given = json!({"address": stack.sidecar.address().to_string(), "token": stack.token()});
    let result = python.run("websocket_client.py", &given);
    for (way, protocol) in [
        ("header", json!(null)),
        ("protocol", json!("bearer")),
        ("both", json!("chat")),
    ] {
        let held = &result[way];
        assert!(user_id(held["user"].as_str().unwrap()).is_some(), "{held}");
        assert_eq!(held["text"], "hello", "{way}");
        assert_eq!(held["binary"], true, "{way}");
        assert_eq!(held["protocol"], protocol, "{way}");
    }
    assert_eq!(result["anonymous"], 401);
    assert_eq!(result["forged"], 401);
}

/// Runs a program; `None`, with a SKIP line, where it is not installed.
fn output(program: &str, package: &str, arguments: &[&str]) -> Option<Output> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => Some(output),
        Err(_) => {
            skip::skip(&format!("conformance with {program}"), package);
            None
        }
    }
}

#[test]
fn h2load_gets_every_response_over_both_versions() {
    let stack = stack();
    let authorization = format!("authorization: Bearer {}", stack.token());
    let url = format!("http://{}/orders/list", stack.sidecar.address());
    for version in [&["--h1"][..], &[]] {
        let usual = ["-n", "2000", "-c", "8", "-m", "10", "-H", &authorization];
        let arguments = [&usual, version, &[url.as_str()]].concat();
        let Some(output) = output("h2load", "apt-get install nghttp2-client", &arguments) else {
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        has(&text, "2000 succeeded, 0 failed, 0 errored");
        has(&text, "status codes: 2000 2xx");
    }
}

#[test]
fn nghttp_sees_the_response_of_the_service_and_a_rejection() {
    let stack = stack();
    let authorization = format!("authorization: Bearer {}", stack.token());
    let url = format!("http://{}/orders/list", stack.sidecar.address());
    let nghttp = |more: &[&str]| {
        let arguments = [&["-v", "--no-dep"], more, &[url.as_str()]].concat();
        output("nghttp", "apt-get install nghttp2-client", &arguments)
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (Some(known), Some(unknown)) = (nghttp(&["-H", &authorization]), nghttp(&[])) else {
        return;
    };
    assert!(
        known.contains(":status: 200") && known.contains("echo"),
        "{known}"
    );
    has(&unknown, ":status: 401");
    has(&unknown, "\"reason\":\"token_missing\"");
}

#[test]
fn curl_sends_odd_requests() {
    let service = StreamingService::start();
    let stack = ForgedStack::before(&service.url(), &["--public-path", "/public/**"]);
    let authorization = format!("Authorization: Bearer {}", stack.token());
    let base = format!("http://{}/orders", stack.sidecar.address());
    let absolute = format!("{base}/list");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("body");
    std::fs::write(&file, vec![b'x'; 3_000_000]).unwrap();
    let upload = format!("@{}", file.display());
    let path = file.display().to_string();
    for (arguments, target, expected) in [
        (&["--http1.1"][..], "/list", "200 1.1 fine"),
        (&["--http1.0"], "/list", "200 1.1 fine"),
        (&["--http2-prior-knowledge"], "/list", "200 2 fine"),
        // Requests an upgrade to HTTP/2, and continues without.
        (&["--http2"], "/list", "200 1.1 fine"),
        (&["--data-binary", &upload], "/upload", "200 1.1 3000000"),
        (
            &["--upload-file", &path, "-H", "Transfer-Encoding: chunked"],
            "/upload",
            "200 1.1 3000000",
        ),
        (
            &["--data-binary", &upload, "-H", "Expect: 100-continue"],
            "/upload",
            "200 1.1 3000000",
        ),
        (
            &["--http2-prior-knowledge", "--data-binary", &upload],
            "/upload",
            "200 2 3000000",
        ),
        (&["--path-as-is"], "/public/../list", "400 1.1"),
        (&["--request-target", "*", "-X", "OPTIONS"], "/", "400 1.1"),
        (&["--request-target", &absolute], "/", "200 1.1 fine"),
        (
            &["--request-target", "http://other/orders/list"],
            "/",
            "200 1.1 fine",
        ),
        (&["--compressed"], "/until-close", "200 1.1 until the end"),
    ] {
        let url = format!("{base}{target}");
        let usual = [
            "-s",
            "-m",
            "30",
            "-H",
            &authorization,
            "-w",
            "\n%{http_code} %{http_version}",
        ];
        let arguments = [&usual, arguments, &[url.as_str()]].concat();
        let Some(output) = output("curl", "apt-get install curl", &arguments) else {
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let (body, status) = text.rsplit_once('\n').unwrap();
        let body = if status.starts_with("200") { body } else { "" };
        assert_eq!(
            format!("{status} {body}").trim(),
            expected,
            "{arguments:?}: {text}"
        );
    }
}
