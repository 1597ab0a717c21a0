//! Browsers on other origins (design: `--cors-origin`; lesson C23).

use tests::actors::auth_server::{AuthServerPlan, LOGIN, USER_DETAILS, credentials};
use tests::actors::client::{Client, Request};
use tests::actors::expect::has;
use tests::actors::stack::ForgedStack;
use tests::wire::h2_client::H2Client;
use tests::wire::message::Message;
use tests::wire::raw_client::exchange;

const ORIGIN: &str = "https://app.example";
/// Fields of a page, with one that a library for traces adds.
const REQUESTED: &str = "authorization,content-type,sentry-trace";

fn stack() -> ForgedStack {
    ForgedStack::with_flags(["--cors-origin", ORIGIN])
}

fn preflight(client: &Client, path: &str, origin: &str) -> Request {
    client
        .request("OPTIONS", path)
        .line(format!("Origin: {origin}"))
        .line("Access-Control-Request-Method: GET")
        .line(format!("Access-Control-Request-Headers: {REQUESTED}"))
}

/// Returns the methods and the fields of a preflight response.
fn offered(response: &Message) -> [String; 2] {
    [
        "Access-Control-Allow-Methods",
        "Access-Control-Allow-Headers",
    ]
    .map(|name| response.header(name).concat())
}

fn allows(response: &Message) -> Vec<String> {
    response.header("Access-Control-Allow-Origin")
}

#[test]
fn a_preflight_with_a_body_is_a_usual_request_in_both_versions() {
    let stack =
        ForgedStack::with_flags(["--cors-origin", ORIGIN, "--optional-auth-path", "/feed/**"]);
    let client = stack.sidecar.anonymous();
    let http_2 = H2Client::connect(stack.sidecar.address());
    for (path, expected) in [("/feed/1", "200"), ("/list", "401 token_missing")] {
        let request = preflight(&client, path, ORIGIN).body("x");
        assert_eq!(client.send(&request).verdict(), expected, "{path}");
        let fields = [("origin", ORIGIN), ("access-control-request-method", "GET")];
        let request = http_2.request("OPTIONS", &format!("/orders{path}"), &fields);
        let response = http_2.send(request, b"x").unwrap();
        assert_eq!(response.verdict(), expected, "{path}");
    }
}

#[test]
fn our_own_responses_name_the_origins_that_may_read_them() {
    let stack = stack();
    let token = stack.token();
    let server = AuthServerPlan::new()
        .flags(["--cors-origin", ORIGIN])
        .ready();
    let clients = [
        (
            stack.sidecar.anonymous(),
            stack.sidecar.bearing(&token),
            stack.sidecar.address(),
        ),
        (server.anonymous(), server.logged_in(), server.address()),
    ];
    for (anonymous, known, address) in clients {
        let response = exchange(
            address,
            "OPTIONS",
            &preflight(&anonymous, USER_DETAILS, ORIGIN).bytes("a"),
        );
        assert_eq!(response.status(), 204, "{}", response.text());
        assert_eq!(allows(&response), [ORIGIN]);
        assert_eq!(offered(&response), ["GET, HEAD", REQUESTED]);

        let from = |client: &Client, origin: &str| {
            let request = client.request("GET", USER_DETAILS);
            client.send(&request.line(format!("Origin: {origin}")))
        };
        let details = from(&known, ORIGIN);
        let found = (details.status(), allows(&details));
        assert_eq!(found, (200, vec![ORIGIN.to_owned()]));
        let rejected = from(&anonymous, ORIGIN);
        let expected = (401, vec![ORIGIN.to_owned()]);
        assert_eq!((rejected.status(), allows(&rejected)), expected);
        let exposed = rejected.header("Access-Control-Expose-Headers").concat();
        has(&exposed, "WWW-Authenticate");
        assert_eq!(rejected.header("Vary"), ["origin"]);
        for foreign in ["https://evil.example", "null", "https://app.example.evil"] {
            assert_eq!(
                allows(&from(&known, foreign)),
                Vec::<String>::new(),
                "{foreign}"
            );
        }
    }
}

/// Fetch standard §3.2.5, for a page that sends the cookie with `credentials: "include"`.
#[test]
fn a_page_that_may_send_the_cookie_may_read_our_responses() {
    const READS: &str = "https://reads.example";
    const SENDS: &str = "https://sends.example";
    let stack = ForgedStack::with_flags([
        "--token-cookie=session",
        "--cors-origin=https://app.example,https://reads.example",
        "--cookie-origin=https://app.example,https://sends.example",
    ]);
    let (client, cookie) = (
        stack.sidecar.anonymous(),
        format!("Cookie: session={}", stack.token()),
    );
    stack.service.responds(b"no HTTP\r\n\r\n".to_vec());
    for (origin, may_read, may_send) in [
        (ORIGIN, true, true),
        (READS, true, false),
        (SENDS, false, false),
        ("https://evil.example", false, false),
        ("null", false, false),
    ] {
        let with = |method: &str, path: &str, cookie: &str| {
            let request = client.request(method, path);
            client.send(&request.line(format!("Origin: {origin}")).line(cookie))
        };
        let of_preflight = preflight(&client, USER_DETAILS, origin).bytes("a");
        let responses = [
            with("GET", USER_DETAILS, &cookie),
            with("GET", "/list", "X-Other: 1"),
            with("GET", "/list", "Cookie: session=x"),
            with("GET", "/list", &cookie),
            exchange(stack.sidecar.address(), "OPTIONS", &of_preflight),
        ];
        let of_preflight = if may_read { 204 } else { 405 };
        let statuses: Vec<_> = responses.iter().map(Message::status).collect();
        assert_eq!(statuses, [200, 401, 401, 502, of_preflight], "{origin}");
        for response in responses {
            let found = (
                allows(&response).concat(),
                response.header("Access-Control-Allow-Credentials").concat(),
                response.header("Vary").concat(),
            );
            let allowed = if may_read { origin } else { "" };
            let credentials = if may_send { "true" } else { "" };
            let expected = (
                allowed.to_owned(),
                credentials.to_owned(),
                "origin".to_owned(),
            );
            assert_eq!(found, expected, "{origin}: {}", response.text());
        }
    }
}

#[test]
fn an_allowed_origin_may_log_in_and_others_may_not() {
    let server = AuthServerPlan::new()
        .flags(["--cors-origin", ORIGIN])
        .ready();
    let client = server.anonymous();
    let login = |origin: &str| {
        let request = client.request("POST", LOGIN).json(&credentials());
        client.send(&request.line(format!("Origin: {origin}")))
    };
    assert_eq!(allows(&login(ORIGIN)), [ORIGIN]);
    assert_eq!(allows(&login("https://evil.example")), Vec::<String>::new());
    for (path, methods) in [
        (LOGIN, "POST"),
        ("/client/user/secret/key", "GET"),
        ("/static/index.html", "GET, HEAD"),
        ("/nowhere", "GET, HEAD"),
    ] {
        let response = exchange(
            server.address(),
            "OPTIONS",
            &preflight(&client, path, ORIGIN).bytes("a"),
        );
        let found = (response.status(), allows(&response));
        assert_eq!(found, (204, vec![ORIGIN.to_owned()]), "{path}");
        assert_eq!(offered(&response), [methods, REQUESTED], "{path}");
    }
}

#[test]
fn every_page_may_read_the_public_documents_of_an_issuer() {
    let issuer = ["--issuer", "https://login.example/auth"];
    let listed = [&issuer[..], &["--cors-origin", ORIGIN]].concat();
    for flags in [&issuer[..], &listed] {
        let server = AuthServerPlan::new().flags(flags).ready();
        let client = server.anonymous();
        let is_listed = flags.contains(&ORIGIN);
        for path in [
            "/.well-known/oauth-authorization-server",
            "/.well-known/openid-configuration",
            "/.well-known/jwks.json",
        ] {
            for origin in [ORIGIN, "http://localhost:6274", "null"] {
                let line = format!("Origin: {origin}");
                let response = client.send(&client.request("GET", path).line(line));
                assert_eq!(
                    (response.status(), allows(&response)),
                    (200, vec!["*".to_owned()])
                );
                let request = preflight(&client, path, origin);
                let response = client.send(&request);
                assert_eq!(
                    (response.status(), allows(&response)),
                    (204, vec!["*".to_owned()])
                );
                assert_eq!(offered(&response), ["GET, HEAD", REQUESTED], "{path}");
                let credentials = response.header("Access-Control-Allow-Credentials");
                assert!(credentials.is_empty(), "{path}");
            }
        }
        // Credentials of an application are nothing for a page, unless the operator names it.
        for (path, origin, is_allowed) in [
            ("/oauth/token", ORIGIN, is_listed),
            ("/oauth/token", "http://localhost:6274", false),
            ("/.well-known/revocations", "http://localhost:6274", false),
            (LOGIN, "http://localhost:6274", false),
        ] {
            let line = format!("Origin: {origin}");
            let response = client.send(&client.request("POST", path).line(line));
            let expected: &[&str] = if is_allowed { &[ORIGIN] } else { &[] };
            assert_eq!(allows(&response), expected, "{path} {origin}");
        }
    }
}

#[test]
fn without_the_setting_there_is_no_cors() {
    let stack = ForgedStack::start();
    let client = stack.sidecar.anonymous();
    let response = client.send(&preflight(&client, "/list", ORIGIN));
    assert_eq!(response.reason(), "token_missing");
    let found = (allows(&response), response.header("Vary"));
    assert_eq!(found, (vec![], vec![]));
}
