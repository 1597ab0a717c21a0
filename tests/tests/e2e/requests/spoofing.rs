//! Identity headers sent by clients (lessons A2, A3, C22): the user and single claims
//! (`--claim-header`), on every kind of path and in every spelling.

use serde_json::json;
use tests::actors::auth_server::USER_DETAILS;
use tests::actors::stack::ForgedStack;
use tests::wire::clock;
use tests::wire::h2_frames::{FrameClient, fields_of};
use tests::wire::message::Message;
use tests::wire::raw_client::{HANDSHAKE, RawClient};

/// The headers that the sidecar sets.
const NAMES: [&str; 5] = [
    "x_current_user",
    "x_roles",
    "x_user_id",
    "x_user_type",
    "x_forwarded_email",
];

/// The lines that a service gets of the verified user; without a claim `email` there is no such field.
const VERIFIED: [&str; 4] = [
    r#"X-Current-User: {"id":"10001","nickName":"Alice","account":"alice","userType":"member"}"#,
    "x-roles: user,a%2Cb",
    "X-User-Id: 10001",
    "X-User-Type: member",
];

/// Returns a stack and a token.
fn stack() -> (ForgedStack, String) {
    let stack = ForgedStack::with_public([
        "--claim-header=X-User-Id=userId",
        "--claim-header=X-User-Type=/extraInfo/userType",
        // Beside Connection, a field for the next hop alone.
        "--claim-header=x-roles=/realm_access/roles,X-Forwarded-Email=email",
        "--optional-auth-path=/feed/**",
        "--cors-origin=https://app.example",
    ]);
    let claims = json!({"realm_access": {"roles": ["user", "a,b"]}});
    let token = stack.forge.token(clock::now(), &claims);
    (stack, token)
}

/// Header lines with which a client may try to pass for another user, those of one request between bars.
const FORGERIES: &str = r#"X-Current-User: {"id":"0","account":"root"}
x-current-user: root
X-CURRENT-USER: root
X_Current_User: root
x_current_user: root
X.Current.User: root
X-Current_User: root
X!Current~User: root
X-Current-User: root|X-Current-User: admin
X-Current-User: root|X_Current_User: root|X.Current.User: root
X-Current-User:
Connection: X-Current-User
Connection: close, X-Current-User|X-Current-User: root
Connection: x_current_user|X_Current_User: root
Connection: X-Current-User, X_Current_User, Keep-Alive
X-Forwarded-User: root|X-Remote-User: root|Remote-User: root
X-User-Id: 0
x_user_id: 0|X.User.Id: 0|X-USER_ID: 0
X-User-Id: 0|X-User-Id: 0
X_ROLES: admin|X-Roles: admin|x-user-type: root
X-Forwarded-Email: root@a|X_Forwarded_Email: root@a
Connection: X-User-Id, x-roles|X-User-Id: 0
Connection: x_user_id|x_user_id: 0"#;

/// Returns the lines that a CGI, WSGI or PHP service would take for the user or a claim.
fn identity(request: &Message) -> Vec<String> {
    let is_ours = |line: &String| {
        let name = line
            .split(':')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        let folded = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        NAMES.contains(&&*folded)
    };
    let mut lines: Vec<_> = request.header_lines().into_iter().filter(is_ours).collect();
    lines.sort_by_key(|line| line.to_ascii_lowercase());
    lines
}

#[test]
fn lesson_a2_and_a3_the_service_sees_the_verified_user_alone() {
    let (stack, token) = stack();
    let client = stack.sidecar.bearing(&token);
    for forgery in FORGERIES.lines() {
        for path in ["/list", "/feed/1"] {
            let response = client.send(&client.request("GET", path).lines(forgery.split('|')));
            assert_eq!(response.status(), 200, "{forgery:?}");
            let seen = identity(&stack.service.last_request());
            assert_eq!(seen, VERIFIED, "{path} {forgery:?}");
        }
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
        let request = client.request("GET", "/list").lines(forgeries);
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
    let (stack, token) = stack();
    let client = stack.sidecar.bearing(&token);
    let handshake: Vec<_> = HANDSHAKE.lines().collect();
    for forgery in FORGERIES.lines() {
        if forgery.starts_with("Connection") {
            continue;
        }
        let request = client
            .request("GET", "/ws")
            .lines(forgery.split('|'))
            .lines(&handshake);
        assert_eq!(client.send(&request).status(), 200, "{forgery:?}");
        let seen = stack.service.last_request();
        assert!(!seen.header("Upgrade").is_empty(), "{forgery:?}");
        assert_eq!(identity(&seen), VERIFIED, "{forgery:?}");
    }
}

#[test]
fn lesson_c22_without_a_verified_token_there_is_no_user() {
    let (stack, token) = stack();
    let (anonymous, bearing) = (stack.sidecar.anonymous(), stack.sidecar.bearing(&token));
    let preflight = [
        "Origin: https://app.example",
        "Access-Control-Request-Method: GET",
    ];
    for (client, method, path, lines) in [
        (&anonymous, "GET", "/public/x", &[][..]),
        (&bearing, "GET", "/public/x", &[]),
        (&anonymous, "GET", "/feed/1", &[]),
        (&anonymous, "OPTIONS", "/list", &preflight),
    ] {
        for forgery in FORGERIES.lines() {
            let request = client
                .request(method, path)
                .lines(lines)
                .lines(forgery.split('|'));
            assert_eq!(client.send(&request).status(), 200, "{path} {forgery:?}");
            let seen = identity(&stack.service.last_request());
            assert!(seen.is_empty(), "{path} {forgery:?}: {seen:?}");
        }
    }
}

#[test]
fn contract_4_2_on_the_user_details_path_only_the_token_counts() {
    let (stack, token) = stack();
    let client = stack.sidecar.bearing(&token);
    for forgery in FORGERIES.lines() {
        let response = client.send(
            &client
                .request("GET", USER_DETAILS)
                .lines(forgery.split('|')),
        );
        assert_eq!(response.json()["data"]["account"], "alice", "{forgery:?}");
        let anonymous = stack.sidecar.anonymous();
        for path in [USER_DETAILS, "/list"] {
            let response =
                anonymous.send(&anonymous.request("GET", path).lines(forgery.split('|')));
            let found = response.verdict();
            assert_eq!(found, "401 token_missing", "{path} {forgery:?}");
        }
    }
    assert_eq!(stack.service.requests().len(), 0);
}

#[test]
fn lesson_c22_a_trailer_never_becomes_an_identity() {
    let (stack, token) = stack();
    let bearer = format!("Bearer {token}");
    let authorization = format!("Authorization: {bearer}\r\n");
    for (path, credentials, expected) in [
        ("/orders/public/x", "", &[][..]),
        ("/orders/list", &*authorization, &VERIFIED),
    ] {
        stack.service.take_requests();
        let mut client = RawClient::connect(stack.sidecar.address());
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\n{credentials}Trailer: X-Current-User, X-Roles\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        client.send(head.as_bytes());
        client.send(b"4\r\nbody\r\n0\r\nX-Current-User: root\r\nX_Current_User: root\r\nX-Roles: root\r\nx_user_id: root\r\n\r\n");
        assert_eq!(client.response("POST").status(), 200, "{path}");
        let [request] = &stack.service.take_requests()[..] else {
            panic!("{path}: the service received something else than one request");
        };
        assert_eq!(identity(request), expected, "{path}");
        let body = String::from_utf8_lossy(&request.body);
        assert!(!body.contains("root"), "{path}");
    }
    // Over HTTP/2, fields as well as trailers.
    let mut client = FrameClient::connect(stack.sidecar.address());
    let mut fields = fields_of("POST", "/orders/list");
    fields.extend([
        ("authorization", &*bearer),
        ("x-user-id", "0"),
        ("x_roles", "admin"),
    ]);
    fields.push(("x-forwarded-email", "root@a"));
    client.head(1, &fields, false);
    client.frame(0, 0, 1, b"x");
    client.head(1, &[("x-roles", "admin"), ("x_user_id", "0")], true);
    client.fate(1);
    let seen = identity(&stack.service.last_request()).join("\n");
    assert_eq!(seen.to_lowercase(), VERIFIED.join("\n").to_lowercase());
}
