//! A service that is away, silent or broken: the envelope with 502 or 504, and no request sent
//! twice.

use std::collections::HashMap;

use tests::actors::auth_server::admin_get;
use tests::actors::expect::has;
use tests::services::socket_server::{Reply, SocketServer};
use tests::tables;
use tests::tables::template;
use tests::wire::free_address::free_address;

use crate::e2e::requests::forwarding::stack;

#[test]
fn a_malformed_response_is_502_with_a_reason_of_its_own() {
    let stack = stack();
    let named = |name: &str| match name {
        "long" => Some(vec![b'a'; 2_000_000]),
        _ => (name == "fields").then(|| b"X: 1\r\n".repeat(300)),
    };
    let table: HashMap<String, Vec<[String; 2]>> = tables::load("malformed_responses.toml");
    for [response, cause] in &table["row"] {
        stack.service.responds(template::fill(response, named));
        let response = stack.sidecar.bearing(&stack.token()).get("/list");
        assert_eq!(response.verdict(), "502 upstream_malformed", "{cause}");
        stack.sidecar.until_logged(&format!("cause=\"{cause}\""));
    }
    assert!(!stack.sidecar.process().stderr().contains("secret"));
}

#[test]
fn log_and_page_say_where_the_service_was_sought() {
    const UNAVAILABLE: &str = "502 upstream_unavailable";
    let stack = stack();
    let silent = SocketServer::start(|_| Reply::Silence);
    let (away, silent) = (free_address().to_string(), silent.address().to_string());
    let unknown = "http://postern.invalid:3000";
    for (scheme, tried, reason, row) in [
        ("http://", &*away, UNAVAILABLE, "the last connection, at 20"),
        ("http://", &silent, "504 upstream_timeout", " succeeded"),
        ("unix:", "/nowhere/app.sock", UNAVAILABLE, ".sock, failed: "),
        ("", unknown, UNAVAILABLE, "its name does not resolve"),
    ] {
        let upstream = format!("{scheme}{tried}");
        let flags = ["--upstream-read-timeout=1", "--log-format=json"];
        let sidecar = stack.in_front_of(&upstream, &flags);
        let anonymous = sidecar.anonymous().get("/list?appSecret=hush");
        assert_eq!(anonymous.status(), 401);
        let response = sidecar.bearing(&stack.token()).get("/list?appSecret=hush");
        assert_eq!(response.verdict(), reason);
        // The service's state is not the sidecar's, but stands on its page.
        assert_eq!(sidecar.readiness(), 200);
        has(admin_get(sidecar.admin(), "/").text(), row);
        let line = |reason: &str| sidecar.process().json_line("reason", reason);
        let (_, reason) = reason.split_once(' ').unwrap();
        let failed = line(reason);
        assert_eq!(failed["upstream"], tried, "{failed}");
        let rejected = line("token_missing");
        assert!(rejected["upstream"].is_null(), "{rejected}");
        assert!(!sidecar.process().output().contains("hush"));
    }
}
