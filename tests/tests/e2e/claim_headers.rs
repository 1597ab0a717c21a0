//! Single claims as header fields (`--claim-header`), and the user header in base64url. The service
//! receives them from the sidecar alone, never from a client.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tests::auth_server::USER_DETAILS;
use tests::client::{Client, verdict};
use tests::clock;
use tests::echo_service::EchoService;
use tests::h2_client::{FrameClient, H2Client, fields_of};
use tests::message::Message;
use tests::raw_client::RawClient;
use tests::sidecar::SidecarPlan;
use tests::stack::ForgedStack;

const FLAGS: [&str; 6] = [
    "--claim-header=X-User-Id=userId",
    "--claim-header=X-User-Type=/extraInfo/userType",
    // Beside Connection, a field for the next hop alone.
    "--claim-header=x-roles=/realm_access/roles,X-Forwarded-Email=email",
    "--optional-auth-path=/feed/**",
    "--public-path=/public/**",
    "--cors-origin=https://app.example",
];
const NAMES: [&str; 4] = ["X-User-Id", "X-User-Type", "x-roles", "X-Forwarded-Email"];

/// Header lines with which a client may try to pass for another user.
const FORGERIES: [&[&str]; 7] = [
    &["X-User-Id: 0"],
    &["x_user_id: 0", "X.User.Id: 0", "X-USER_ID: 0"],
    &["X-User-Id: 0", "X-User-Id: 0"],
    &["X_ROLES: admin", "X-Roles: admin", "x-user-type: root"],
    &["X-Forwarded-Email: root@a", "X_Forwarded_Email: root@a"],
    &["Connection: X-User-Id, x-roles", "X-User-Id: 0"],
    &["Connection: x_user_id", "x_user_id: 0"],
];

fn stack() -> ForgedStack {
    ForgedStack::with_flags(FLAGS)
}

fn with(client: &Client, path: &str, lines: &[&str]) -> Message {
    let request = lines
        .iter()
        .fold(client.request("GET", path), |request, line| {
            request.line(*line)
        });
    client.send(&request)
}

/// Returns the lines that a CGI, WSGI or PHP service would take for one of the headers.
fn received(request: &Message) -> Vec<String> {
    let folded = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
    };
    let is_ours = |line: &String| {
        let name = folded(line.split(':').next().unwrap_or_default());
        NAMES.iter().any(|ours| folded(ours) == name)
    };
    let mut lines: Vec<_> = request.header_lines().into_iter().filter(is_ours).collect();
    lines.sort_by_key(|line| line.to_ascii_lowercase());
    lines
}

#[test]
fn each_claim_stands_in_its_header_whatever_a_client_sends() {
    let stack = stack();
    let claims = json!({"realm_access": {"roles": ["user", "a,b"]}});
    let token = stack.forge.token(clock::now(), &claims);
    let client = stack.sidecar.bearing(&token);
    // Without email, the forged field is stripped as well.
    let expected = [
        "x-roles: user,a%2Cb",
        "X-User-Id: 10001",
        "X-User-Type: member",
    ];
    for forgery in FORGERIES {
        for path in ["/list", "/feed/1"] {
            assert_eq!(with(&client, path, forgery).status(), 200, "{forgery:?}");
            let seen = stack.service.last_request();
            assert_eq!(received(&seen), expected, "{path} {forgery:?}");
            assert!(seen.header("X-Current-User")[0].contains("alice"));
        }
    }
}

#[test]
fn without_a_verified_token_there_is_no_claim() {
    let stack = stack();
    let preflight = [
        "Origin: https://app.example",
        "Access-Control-Request-Method: GET",
    ];
    for forgery in FORGERIES {
        let anonymous = stack.sidecar.anonymous();
        for path in ["/public/x", "/feed/1"] {
            assert_eq!(with(&anonymous, path, forgery).status(), 200);
            let seen = stack.service.last_request();
            assert_eq!(received(&seen), Vec::<String>::new(), "{path} {forgery:?}");
        }
        let bearing = stack.sidecar.bearing(&stack.token());
        assert_eq!(with(&bearing, "/public/x", forgery).status(), 200);
        assert_eq!(
            received(&stack.service.last_request()),
            Vec::<String>::new()
        );
        let options = anonymous.request("OPTIONS", "/list");
        let lines = preflight.iter().chain(forgery);
        let request = lines.fold(options, |request, line| request.line(*line));
        assert_eq!(anonymous.send(&request).status(), 200, "{forgery:?}");
        assert_eq!(
            received(&stack.service.last_request()),
            Vec::<String>::new()
        );
        stack.service.take_requests();
        let rejected = with(&anonymous, "/list", forgery);
        assert_eq!(verdict(&rejected), "401 token_missing");
        assert_eq!(stack.service.requests().len(), 0);
    }
}

#[test]
fn upgrades_streams_and_trailers_bring_no_client_s_claim() {
    let stack = stack();
    let token = stack.token();
    let expected = ["X-User-Id: 10001", "X-User-Type: member"];
    let handshake = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    for forgery in &FORGERIES[..5] {
        let lines = [&handshake[..], forgery].concat();
        let response = with(&stack.sidecar.bearing(&token), "/ws", &lines);
        assert_eq!(response.status(), 200);
        let seen = stack.service.last_request();
        assert!(!seen.header("Upgrade").is_empty());
        assert_eq!(received(&seen), expected, "{forgery:?}");
    }

    let bearer = format!("Bearer {token}");
    let client = H2Client::connect(stack.sidecar.address());
    let fields = [
        ("authorization", bearer.as_str()),
        ("x-user-id", "0"),
        ("x_roles", "admin"),
        ("x-forwarded-email", "root@a"),
    ];
    let request = client.request("GET", "/orders/list", &fields);
    assert_eq!(client.send(request, b"").unwrap().verdict(), "200");
    let seen = stack.service.last_request();
    let lower = expected.map(str::to_ascii_lowercase);
    let seen: Vec<_> = received(&seen)
        .iter()
        .map(|line| line.to_ascii_lowercase())
        .collect();
    assert_eq!(seen, lower);

    let mut client = FrameClient::connect(stack.sidecar.address());
    let mut fields = fields_of("POST", "/orders/list");
    fields.push(("authorization", &bearer));
    client.head(1, &fields, false);
    client.frame(0, 0, 1, b"x");
    client.head(1, &[("x-roles", "admin"), ("x_user_id", "0")], true);
    client.fate(1);
    let seen = stack.service.last_request();
    assert_eq!(received(&seen).len(), 2, "{:?}", received(&seen));

    stack.service.take_requests();
    let mut client = RawClient::connect(stack.sidecar.address());
    let head = format!(
        "POST /orders/list HTTP/1.1\r\nHost: a\r\nAuthorization: {bearer}\r\nTrailer: X-Roles\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    client.send(head.as_bytes());
    client.send(b"4\r\nbody\r\n0\r\nX-Roles: admin\r\nx_user_id: 0\r\n\r\n");
    assert_eq!(client.response("POST").status(), 200);
    let seen = stack.service.last_request();
    assert_eq!(received(&seen), expected);
    assert!(!String::from_utf8_lossy(&seen.body).contains("admin"));
}

#[test]
fn a_claim_of_any_kind_is_ascii_and_never_breaks_its_field() {
    let stack = stack();
    for (claim, expected) in [
        (json!("ada@example.com"), Some("ada@example.com")),
        (json!("Ada Lovelace"), Some("Ada Lovelace")),
        (json!("Žofie"), Some("%C5%BDofie")),
        (json!("50%, or so"), Some("50%25%2C or so")),
        (
            json!("a\r\nX-Admin: 1\u{0}\u{7f}"),
            Some("a%0D%0AX-Admin: 1%00%7F"),
        ),
        (json!(" a "), Some("%20a%20")),
        (json!(42), Some("42")),
        (json!(true), Some("true")),
        (json!(["a", 1, "ü"]), Some("a,1,%C3%BC")),
        (json!({"a": ["ü"]}), Some(r#"{"a":["\u00fc"]}"#)),
        (json!(""), None),
        (json!([]), None),
        (json!(null), None),
    ] {
        let token = stack.forge.token(clock::now(), &json!({"email": claim}));
        // The second token is the remembered one.
        for _ in 0..2 {
            let response = stack.sidecar.bearing(&token).get("/list");
            assert_eq!(response.status(), 200, "{claim}");
            let seen = stack.service.last_request();
            assert!(seen.head.is_ascii(), "{claim}");
            assert_eq!(seen.header("X-Admin"), Vec::<String>::new(), "{claim}");
            let expected: Vec<_> = expected.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(seen.header("X-Forwarded-Email"), expected, "{claim}");
        }
    }
}

#[test]
fn another_issuer_s_claims_are_named_as_in_its_token() {
    let stack = ForgedStack::start();
    let home = tempfile::tempdir().unwrap();
    let key = home.path().join("key.pem");
    std::fs::write(&key, stack.forge.trusted().served()).unwrap();
    let service = EchoService::start();
    let sidecar = SidecarPlan::of_issuer(
        &service,
        [
            "--jwks",
            key.to_str().unwrap(),
            "--issuer=auth",
            "--audience=orders",
            "--claim=account=username",
            "--claim-header=X-Subject=sub,X-Tenant=/https:~1~1idp~1claims/tenant",
        ],
    )
    .ready();
    let claims = json!({"aud": ["orders"], "sub": "s-7", "https://idp/claims": {"tenant": "t-7"}});
    let token = stack.forge.token(clock::now(), &claims);
    let response = sidecar.bearing(&token).get("/list");
    assert_eq!(verdict(&response), "200");
    let seen = service.last_request();
    assert_eq!(seen.header("X-Subject"), ["s-7"]);
    assert_eq!(seen.header("X-Tenant"), ["t-7"]);
}

#[test]
fn the_user_may_come_in_base64url() {
    let stack = ForgedStack::with_flags(["--user-header-encoding", "base64url"]);
    let token = stack
        .forge
        .token(clock::now(), &json!({"nickName": "Žofie 😀"}));
    let client = stack.sidecar.bearing(&token);
    for _ in 0..2 {
        let details = client.get(USER_DETAILS).json();
        assert_eq!(details["data"]["nickName"], "Žofie 😀");
        assert_eq!(
            with(&client, "/list", &["x_current_user: e30"]).status(),
            200
        );
        let seen = stack.service.last_request();
        let value = seen.header("X-Current-User").concat();
        let user: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(value).unwrap()).unwrap();
        assert_eq!(user["nickName"], "Žofie 😀");
        assert_eq!(seen.header("x_current_user"), Vec::<String>::new());
    }
}
