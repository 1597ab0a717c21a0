//! Identity headers sent by clients (lessons A2, A3, C22): on protected, pass-listed and
//! user-details paths, in every spelling.

use serde_json::{Value, json};
use tests::auth_server::USER_DETAILS;
use tests::client::{Request, verdict};
use tests::clock;
use tests::message::Message;
use tests::raw_client::{HANDSHAKE, RawClient};
use tests::stack::ForgedStack;

/// Header lines with which a client may try to pass for another user.
const FORGERIES: &[&[&str]] = &[
    &["X-Current-User: {\"id\":\"0\",\"account\":\"root\"}"],
    &["x-current-user: root"],
    &["X-CURRENT-USER: root"],
    &["X_Current_User: root"],
    &["x_current_user: root"],
    &["X.Current.User: root"],
    &["X-Current_User: root"],
    &["X!Current~User: root"],
    &["X-Current-User: root", "X-Current-User: admin"],
    &[
        "X-Current-User: root",
        "X_Current_User: root",
        "X.Current.User: root",
    ],
    &["X-Current-User:"],
    &["Connection: X-Current-User"],
    &["Connection: close, X-Current-User", "X-Current-User: root"],
    &["Connection: x_current_user", "X_Current_User: root"],
    &["Connection: X-Current-User, X_Current_User, Keep-Alive"],
    &[
        "X-Forwarded-User: root",
        "X-Remote-User: root",
        "Remote-User: root",
    ],
];

fn forged(request: Request, lines: &[&str]) -> Request {
    lines
        .iter()
        .fold(request, |request, line| request.line(*line))
}

/// Returns the lines that a CGI, WSGI or PHP service would take for the user.
fn users_seen(request: &Message) -> Vec<String> {
    let cgi = |name: &str| -> String {
        name.chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_uppercase()
                } else {
                    '_'
                }
            })
            .collect()
    };
    let is_user = |line: &String| {
        line.split_once(':')
            .is_some_and(|(name, _)| cgi(name) == "X_CURRENT_USER")
    };
    request.header_lines().into_iter().filter(is_user).collect()
}

#[test]
fn lesson_a2_and_a3_the_service_sees_the_verified_user_alone() {
    let stack = ForgedStack::with_public([]);
    let client = stack.sidecar.bearing(&stack.token());
    for forgery in FORGERIES {
        let response = client.send(&forged(client.request("GET", "/list"), forgery));
        assert_eq!(response.status(), 200, "{forgery:?}");
        let [seen] = users_seen(&stack.service.last_request())
            .try_into()
            .unwrap_or_else(|lines| panic!("{forgery:?}: {lines:?}"));
        let (name, value) = seen.split_once(": ").unwrap();
        assert_eq!(name, "X-Current-User", "{forgery:?}");
        let user: Value = serde_json::from_str(value).unwrap();
        assert_eq!(
            user,
            json!({"id": "10001", "account": "alice", "nickName": "Alice", "userType": "member"}),
            "{forgery:?}"
        );
    }
}

/// A user header whose name `--forwarded overwrite` strips from every client. The default name then
/// has no meaning.
#[test]
fn the_user_header_may_have_the_name_of_other_proxies() {
    for (name, forwarded) in [
        ("X-User", "append"),
        ("X-Forwarded-User", "overwrite"),
        ("X-Forwarded-Preferred-Username", "overwrite"),
    ] {
        let stack = ForgedStack::with_flags(["--user-header", name, "--forwarded", forwarded]);
        let client = stack.sidecar.bearing(&stack.token());
        let forgery = format!("{name}: root");
        let alias = forgery.replace('-', "_");
        let forgeries = [
            &*forgery,
            &*alias,
            "X-Current-User: root",
            "X_Current_User: root",
        ];
        let request = forged(client.request("GET", "/list"), &forgeries);
        assert_eq!(client.send(&request).status(), 200, "{name}");
        let lines = stack.service.last_request().header_lines();
        let is_user = |line: &&String| line.to_ascii_lowercase().contains("user");
        let users: Vec<_> = lines.iter().filter(is_user).collect();
        assert!(
            matches!(&users[..], [one] if one.starts_with(name) && one.contains("alice")),
            "{name}: {users:?}"
        );
    }
}

/// Without the forgeries that name `Connection`: the handshake needs that field.
#[test]
fn lesson_c22_an_upgrade_carries_the_verified_user_alone() {
    let stack = ForgedStack::with_public([]);
    let client = stack.sidecar.bearing(&stack.token());
    let handshake: Vec<_> = HANDSHAKE.lines().collect();
    let names_connection = |forgery: &&&[&str]| forgery[0].starts_with("Connection");
    for forgery in FORGERIES
        .iter()
        .filter(|forgery| !names_connection(forgery))
    {
        let request = forged(forged(client.request("GET", "/ws"), forgery), &handshake);
        let response = client.send(&request);
        assert_eq!(response.status(), 200, "{forgery:?}");
        let received = stack.service.last_request();
        assert!(!received.header("Upgrade").is_empty(), "{forgery:?}");
        let users = users_seen(&received);
        assert!(
            matches!(&users[..], [one] if one.contains("alice")),
            "{forgery:?}: {users:?}"
        );
    }
}

#[test]
fn lesson_c22_on_a_pass_listed_path_there_is_no_user() {
    let stack = ForgedStack::with_public([]);
    for client in [
        stack.sidecar.anonymous(),
        stack.sidecar.bearing(&stack.token()),
    ] {
        for forgery in FORGERIES {
            let response = client.send(&forged(client.request("GET", "/public/x"), forgery));
            assert_eq!(response.status(), 200, "{forgery:?}");
            assert_eq!(
                users_seen(&stack.service.last_request()),
                Vec::<String>::new(),
                "{forgery:?}"
            );
        }
    }
}

#[test]
fn contract_4_2_on_the_user_details_path_only_the_token_counts() {
    let stack = ForgedStack::with_public([]);
    let client = stack.sidecar.bearing(&stack.token());
    for forgery in FORGERIES {
        let response = client.send(&forged(client.request("GET", USER_DETAILS), forgery));
        assert_eq!(response.json()["data"]["account"], "alice", "{forgery:?}");
        let anonymous = stack.sidecar.anonymous();
        for path in [USER_DETAILS, "/list"] {
            let response = anonymous.send(&forged(anonymous.request("GET", path), forgery));
            assert_eq!(
                verdict(&response),
                "401 token_missing",
                "{path} {forgery:?}"
            );
        }
    }
    assert_eq!(stack.service.requests().len(), 0);
}

#[test]
fn lesson_c22_a_trailer_never_becomes_an_identity() {
    let stack = ForgedStack::with_public([]);
    for (path, credentials) in [
        ("/orders/public/x", String::new()),
        (
            "/orders/list",
            format!("Authorization: Bearer {}\r\n", stack.token()),
        ),
    ] {
        stack.service.take_requests();
        let mut client = RawClient::connect(stack.sidecar.address());
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\n{credentials}Trailer: X-Current-User\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        client.send(head.as_bytes());
        client.send(b"4\r\nbody\r\n0\r\nX-Current-User: root\r\nX_Current_User: root\r\n\r\n");
        assert_eq!(client.response("POST").status(), 200, "{path}");
        let [request] = &stack.service.take_requests()[..] else {
            panic!("{path}: the service received something else than one request");
        };
        let users = users_seen(request);
        assert!(!users.iter().any(|line| line.contains("root")), "{path}");
        let body = String::from_utf8_lossy(&request.body);
        assert!(!body.contains("root"), "{path}");
    }
}

#[test]
fn lesson_c25_the_header_is_ascii_for_any_user_name() {
    let stack = ForgedStack::with_public([]);
    for name in [
        "Žofie",
        "小明",
        "😀",
        "a\u{7f}b",
        "a\r\nX-Admin: 1",
        "quote\" and \\ backslash",
        "\u{0}",
        "\u{202e}right-to-left",
    ] {
        let token = stack.forge.token(clock::now(), &json!({"nickName": name}));
        assert_eq!(
            stack.sidecar.bearing(&token).get("/list").status(),
            200,
            "{name:?}"
        );
        let request = stack.service.last_request();
        assert!(request.head.is_ascii(), "{name:?}");
        assert_eq!(request.header("X-Admin"), Vec::<String>::new());
        let user: Value = serde_json::from_str(&request.header("X-Current-User")[0]).unwrap();
        assert_eq!(user["nickName"], name);
    }
}

#[test]
fn lesson_c25_a_user_too_long_for_the_header_is_rejected() {
    let stack = ForgedStack::with_public([]);
    for (name, expected) in [
        ("a".repeat(5_000), "200"),
        ("é".repeat(1_100), "431 identity_too_large"),
    ] {
        let token = stack.forge.token(clock::now(), &json!({"nickName": name}));
        assert_eq!(
            verdict(&stack.sidecar.bearing(&token).get("/list")),
            expected
        );
    }
    assert_eq!(stack.service.requests().len(), 1);
}
