//! The one envelope (contract §2.1, §7) on every response of either program, failures included.

use postern_contract::rejection::Rejection;
use serde_json::Value;
use tests::actors::stack::Stack;
use tests::tables::openapi;

#[test]
fn every_401_names_the_realm_and_an_error_after_a_token() {
    let stack = Stack::start();
    for client in [stack.auth_server.anonymous(), stack.sidecar.anonymous()] {
        let missing = client.get("/list?x=1");
        let found = missing.header("www-authenticate");
        assert_eq!(found, [r#"Bearer realm="postern""#]);
        // RFC 6750 §3.1: no error code for a client with another scheme; the body gives the reason.
        let request = client.request("GET", "/list?x=1");
        let foreign = client.send(&request.line("Authorization: Basic YTpi"));
        assert_eq!(foreign.json()["data"]["reason"], "authorization_scheme");
        let expected = [r#"Bearer realm="postern""#];
        assert_eq!(foreign.header("www-authenticate"), expected);
        let rejected = client
            .bearing("a.b.c")
            .get("/list?x=1")
            .header("www-authenticate");
        let [challenge] = rejected.as_slice() else {
            panic!("{rejected:?}")
        };
        assert!(
            challenge.starts_with(r#"Bearer realm="postern", error="invalid_token""#),
            "{challenge}"
        );
        assert!(
            !challenge.contains("list"),
            "the URL is never echoed: {challenge}"
        );
    }
}

#[test]
fn the_openapi_document_knows_every_reason_code_and_no_other() {
    let described: Vec<&str> =
        openapi::document().value()["components"]["schemas"]["Reason"]["enum"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
    let known: Vec<&str> = Rejection::ALL
        .iter()
        .map(|rejection| rejection.reason())
        .collect();
    assert_eq!(described, known);
}
