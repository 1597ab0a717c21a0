//! The one envelope (contract §2.1, §7) on every response of either program, failures included.

use postern_contract::rejection::Rejection;
use serde_json::{Value, json};
use tests::actors::auth_server::{LOGIN, SECRET_KEY, USER_DETAILS, credentials};
use tests::actors::stack::Stack;
use tests::tables::openapi;
use tests::wire::message::Message;

#[test]
fn contract_2_1_every_success_has_four_members_in_order() {
    let stack = Stack::start();
    let user = stack.auth_server.logged_in();
    let behind = stack.sidecar.bearing(&stack.auth_server.login());
    let responses = [
        (user.post(LOGIN, &credentials()), "login succeeded"),
        (user.get(USER_DETAILS), "operation succeeded"),
        (user.get(SECRET_KEY), "operation succeeded"),
        (behind.get(USER_DETAILS), "operation succeeded"),
    ];
    for (response, message) in responses {
        assert_eq!(response.header("content-type"), ["application/json"]);
        let text = response.text();
        let at = |name: &str| {
            text.find(&format!("\"{name}\":"))
                .unwrap_or_else(|| panic!("{name} in {text}"))
        };
        assert!(
            at("success") < at("msg") && at("status") < at("msg") && at("msg") < at("data"),
            "{text}"
        );
        let envelope = response.json();
        let found = (&envelope["success"], &envelope["status"]);
        assert_eq!(found, (&json!(true), &json!(200)));
        assert_eq!(envelope["msg"], message);
        assert_eq!(envelope.as_object().unwrap().len(), 4);
    }
}

#[test]
fn contract_7_every_failure_has_status_message_and_reason() {
    let stack = Stack::start();
    let (auth, sidecar) = (stack.auth_server.anonymous(), stack.sidecar.anonymous());
    for response in [
        auth.get("/nowhere"),
        auth.get(LOGIN),
        auth.post(LOGIN, &json!({})),
        auth.get("/client/user/secret/key"),
        sidecar.get("/nowhere"),
        sidecar.get(USER_DETAILS),
        sidecar.bearing("a.b.c").get("/list"),
    ] {
        assert_failure(&response);
    }
}

fn assert_failure(response: &Message) {
    let envelope = response.json();
    assert_eq!(envelope["success"], json!(false));
    assert_eq!(envelope["status"], json!(response.status()));
    assert!(
        envelope["msg"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    );
    assert!(
        envelope["data"]["reason"]
            .as_str()
            .is_some_and(|code| !code.is_empty())
    );
}

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

#[test]
fn contract_8_no_envelope_holds_a_date_of_another_form() {
    let stack = Stack::start();
    let user = stack.auth_server.logged_in();
    for response in [
        user.post(LOGIN, &credentials()),
        user.get(USER_DETAILS),
        user.get(SECRET_KEY),
        user.get("/x"),
    ] {
        let found = openapi::wrong_date(&response.json());
        assert_eq!(found, None, "{}", response.text());
    }
}
