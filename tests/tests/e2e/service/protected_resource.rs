//! The service as an OAuth protected resource (RFC 9728), as MCP clients find it: its documents, which
//! every page may read, and the scopes that challenges name.

use serde_json::{Value, json};
use tests::actors::client::Request;
use tests::actors::stack::ForgedStack;
use tests::wire::clock;
use tests::wire::message::Message;
use tests::wire::raw_client::exchange;

use crate::e2e::configuration::command_line::SIDECAR;

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
const RESOURCE: &str = "resource = 'http://localhost/orders'\n";
const RULES: &str = "
[[rule]]
name = 'use'
paths = ['/mcp/**']
scope = ['mcp:use']
[[rule]]
name = 'admin'
paths = ['/mcp/admin/**']
scope = ['mcp:admin', 'mcp:root']
[[rule]]
name = 'tenant'
paths = ['/mcp/admin/tenant']
claims = { tenant = ['t1'] }
[[rule]]
name = 'again'
paths = ['/mcp/**']
methods = ['DELETE']
scope = ['mcp:use', 'offline_access']
";

fn stack(config: &str) -> ForgedStack {
    ForgedStack::configured(config)
}

/// Sends a request whose target is outside of the context path.
fn send(stack: &ForgedStack, method: &str, target: &str, lines: &[&str]) -> Message {
    let request = Request::new(method, target).lines(lines);
    exchange(stack.sidecar.address(), method, &request.bytes("localhost"))
}

/// Returns the scopes of a challenge.
fn scope(response: &Message) -> Option<String> {
    let challenge = response.header("www-authenticate").concat();
    let (_, rest) = challenge.split_once("scope=\"")?;
    Some(rest.split_once('"')?.0.to_owned())
}

#[test]
fn a_challenge_names_one_alternative_of_each_rule_that_fails() {
    let stack = stack(&format!("{RESOURCE}{RULES}"));
    let expired = clock::now() - 100_000;
    let token = |claims: &Value| Some(stack.forge.token(clock::now(), claims));
    for (method, path, token, verdict, expected) in [
        ("GET", "/mcp", None, "401 token_missing", Some("mcp:use")),
        (
            "GET",
            "/mcp/admin/x",
            None,
            "401 token_missing",
            Some("mcp:use mcp:admin"),
        ),
        (
            "GET",
            "/mcp/admin/tenant",
            None,
            "401 token_missing",
            Some("mcp:use mcp:admin"),
        ),
        (
            "DELETE",
            "/mcp/x",
            None,
            "401 token_missing",
            Some("mcp:use"),
        ),
        ("GET", "/list", None, "401 token_missing", None),
        (
            "GET",
            "/mcp",
            Some("a.b".to_owned()),
            "401 token_malformed",
            Some("mcp:use"),
        ),
        (
            "GET",
            "/mcp",
            Some(stack.forge.token(expired, &json!({"scope": "mcp:use"}))),
            "401 token_expired",
            Some("mcp:use"),
        ),
        (
            "GET",
            "/mcp/admin/x",
            token(&json!({})),
            "403 insufficient_scope",
            Some("mcp:use mcp:admin"),
        ),
        (
            "GET",
            "/mcp/admin/x",
            token(&json!({"scope": "mcp:use"})),
            "403 insufficient_scope",
            Some("mcp:admin"),
        ),
        (
            "GET",
            "/mcp/admin/x",
            token(&json!({"scope": "mcp:root"})),
            "403 insufficient_scope",
            Some("mcp:use"),
        ),
        // No scope makes up for a claim.
        (
            "GET",
            "/mcp/admin/tenant",
            token(&json!({"scope": "mcp:use mcp:admin"})),
            "403 claim_not_allowed",
            None,
        ),
        (
            "GET",
            "/mcp/admin/x",
            token(&json!({"scope": "mcp:use mcp:root"})),
            "200",
            None,
        ),
    ] {
        let request = Request::new(method, format!("/orders{path}"));
        let lines = token.map(|token| format!("Authorization: Bearer {token}"));
        let response = stack.sidecar.anonymous().send(&request.lines(lines));
        assert_eq!(response.verdict(), verdict, "{method} {path}");
        let found = scope(&response);
        assert_eq!(found.as_deref(), expected, "{method} {path}: {verdict}");
    }
}

/// Scopes are published with the metadata of a resource alone.
#[test]
fn without_a_resource_only_verified_tokens_learn_scopes() {
    let stack = stack(RULES);
    let missing = stack.sidecar.anonymous().get("/mcp");
    assert_eq!((missing.status(), scope(&missing)), (401, None));
    let lacking = stack.sidecar.bearing(&stack.token()).get("/mcp/admin/x");
    let expected = Some("mcp:use mcp:admin".to_owned());
    assert_eq!((lacking.status(), scope(&lacking)), (403, expected));
    let found = send(
        &stack,
        "GET",
        "/.well-known/oauth-authorization-server",
        &[],
    );
    assert_eq!(found.verdict(), "401 token_missing");
}

/// A gateway would reject a head that holds the scopes of hundreds of rules.
#[test]
fn a_challenge_stays_short_however_many_rules_are_for_a_request() {
    let rule = |n: usize| format!("[[rule]]\npaths = ['/r{n}']\nscope = ['scope-of-rule-{n}']\n");
    let rules: String = (0..200).map(rule).collect();
    let stack = stack(&format!("{RESOURCE}{rules}"));
    let of_one = stack.sidecar.anonymous().get("/r7");
    assert_eq!(scope(&of_one).as_deref(), Some("scope-of-rule-7"));
    // Such a path could be any.
    let of_all = stack.sidecar.anonymous().get("//r7");
    assert_eq!((of_all.status(), scope(&of_all)), (401, None));
}

#[test]
fn the_metadata_lists_scopes_of_rules_below_it() {
    let rules = "
[[rule]]
paths = ['/mcp/**']
scope = ['mcp:use', 'offline_access']
[[rule]]
paths = ['/MCP/tools/*', '/other']
scope = ['tools', 'mcp:use']
[[rule]]
paths = ['/mc*/x']
scope = ['glob']
[[rule]]
paths = ['/**/logs']
scope = ['anywhere']
[[rule]]
paths = ['/mcp']
scope = ['itself']
[[rule]]
paths = ['/mcpx/**', '/admin/**', '/']
scope = ['beside']
[[rule]]
paths = ['/mcp/tenant']
claims = { tenant = ['t1'] }
";
    let of_mcp = json!(["mcp:use", "tools", "glob", "anywhere", "itself"]);
    let all = json!(["mcp:use", "tools", "glob", "anywhere", "itself", "beside"]);
    for (resource, expected) in [
        ("/orders/mcp", of_mcp.clone()),
        ("/orders/mcp/", of_mcp),
        ("/orders/mcp/tools", json!(["mcp:use", "tools", "anywhere"])),
        ("/orders", all.clone()),
        ("/orders/", all.clone()),
        ("/", all),
        ("/orders/list", json!(["anywhere"])),
        ("/orde", Value::Null),
        ("/elsewhere/mcp", Value::Null),
    ] {
        let stack = stack(&format!("resource = 'http://localhost{resource}'\n{rules}"));
        let document = send(&stack, "GET", WELL_KNOWN, &[]).json();
        assert_eq!(document["scopes_supported"], expected, "{resource}");
    }
}

#[test]
fn rfc_9728_3_1_only_a_slash_behind_the_host_is_left_out() {
    for (path, its_own, others) in [
        ("", "", &["/"][..]),
        ("/", "", &["/"]),
        ("/mcp", "/mcp", &["", "/mcp/ is 404", "/MCP is 404"]),
        ("/mcp/", "/mcp/", &["", "/mcp is 404"]),
        ("/a/b", "/a/b", &["", "/a is 404"]),
    ] {
        let resource = format!("http://localhost{path}");
        let stack = stack(&format!("resource = '{resource}'\n"));
        let missing = stack.sidecar.anonymous().get("/x");
        let challenge = missing.header("www-authenticate").concat();
        let metadata = format!("resource_metadata=\"http://localhost{WELL_KNOWN}{its_own}\"");
        assert!(challenge.ends_with(&metadata), "{challenge}");
        let found = send(&stack, "GET", &format!("{WELL_KNOWN}{its_own}"), &[]);
        assert_eq!(found.json()["resource"], resource);
        for other in others {
            let (suffix, verdict) = match other.strip_suffix(" is 404") {
                Some(suffix) => (suffix, "404 not_found"),
                // There is no document for a bare slash.
                None if *other == "/" => ("/", "404 not_found"),
                None => (*other, "200"),
            };
            let found = send(&stack, "GET", &format!("{WELL_KNOWN}{suffix}"), &[]);
            assert_eq!(found.verdict(), verdict, "{resource}: {suffix}");
        }
    }
}

#[test]
fn each_resource_has_its_document_and_its_challenge() {
    let (inside, outside) = ("http://localhost:9/orders", "https://api.example/orders");
    let (tools, host) = ("https://api.example/orders/tools", "https://api.example");
    let list = format!("resource = ['{inside}', '{outside}', '{tools}']\n");
    let several = stack(&list);
    let get = |stack: &ForgedStack, authority: &str, target: &str| {
        let request = Request::new("GET", target);
        exchange(stack.sidecar.address(), "GET", &request.bytes(authority))
    };
    for (authority, suffix, resource) in [
        ("localhost:9", "/orders", inside),
        ("api.example", "/orders", outside),
        ("API.example", "/orders", outside),
        ("api.example", "/orders/tools", tools),
        // A gateway may have another name for the service.
        ("10.0.0.1", "/orders", inside),
        ("10.0.0.1", "/orders/tools", tools),
        ("api.example", "", outside),
        ("10.0.0.1", "", inside),
    ] {
        let found = get(&several, authority, &format!("{WELL_KNOWN}{suffix}"));
        assert_eq!(found.json()["resource"], resource, "{authority} {suffix}");
    }
    for (authority, path, resource) in [
        ("localhost:9", "/orders/x", inside),
        ("api.example", "/orders/x", outside),
        ("api.example", "/orders/tools", tools),
        ("api.example", "/orders/tools/x", tools),
        ("api.example", "/orders/toolsx", outside),
        ("10.0.0.1", "/orders/x", inside),
        ("api.example", "/elsewhere", outside),
    ] {
        let challenge = get(&several, authority, path).header("www-authenticate");
        let challenge = challenge.concat();
        let start = resource.find("/orders").expect("its path");
        let (origin, path) = resource.split_at(start);
        let metadata = format!("{origin}{WELL_KNOWN}{path}\"");
        assert!(challenge.ends_with(&metadata), "{resource}: {challenge}");
    }
    // Two that differ in a slash are two (RFC 9728 §3.3).
    for list in ["'{}/mcp', '{}/mcp/'", "'{}/mcp/', '{}/mcp'"] {
        let list = list.replace("{}", "https://api.example/orders");
        let both = stack(&format!("resource = [{list}]\n"));
        for (path, its_own) in [
            ("/orders/mcp", "/orders/mcp"),
            ("/orders/mcp/", "/orders/mcp/"),
            ("/orders/mcp/x", "/orders/mcp/"),
            ("/orders/mcp?session=1", "/orders/mcp"),
        ] {
            let challenge = get(&both, "api.example", path).header("www-authenticate");
            let metadata = format!("{WELL_KNOWN}{its_own}\"");
            assert!(challenge.concat().ends_with(&metadata), "{list} {path}");
        }
    }
    // The resource that is the whole host has the document without a path.
    let with_host = stack(&format!("resource = ['{outside}', '{host}']\n"));
    let found = get(&with_host, "api.example", WELL_KNOWN);
    assert_eq!(found.json()["resource"], host);
}

#[test]
fn documents_of_authorization_servers_are_absent() {
    let stack = stack(&format!(
        "public-path = ['/.well-known/mcp.json']\n{RESOURCE}"
    ));
    let bearing = format!("Authorization: Bearer {}", stack.token());
    for (target, expected) in [
        ("/.well-known/oauth-authorization-server", "404 not_found"),
        (
            "/.well-known/oauth-authorization-server/orders",
            "404 not_found",
        ),
        ("/.well-known/openid-configuration", "404 not_found"),
        ("/.well-known/openid-configuration/orders", "404 not_found"),
        (
            "/.well-known/oauth-protected-resource/orders/x",
            "404 not_found",
        ),
        ("/orders/.well-known/openid-configuration", "404 not_found"),
        (
            "/orders/.well-known/oauth-authorization-server",
            "404 not_found",
        ),
        ("/.well-known/security.txt", "404 not_found"),
        ("/orders/.well-known", "401 token_missing"),
        (
            "/orders/x/.well-known/openid-configuration",
            "401 token_missing",
        ),
        ("/.well-knownx/y", "401 token_missing"),
        ("/.well-known/../orders", "400 path_not_canonical"),
    ] {
        let found = send(&stack, "GET", target, &[]);
        assert_eq!(found.verdict(), expected, "{target}");
        let post = send(&stack, "POST", target, &["Content-Length: 0"]);
        assert_eq!(post.verdict(), expected, "POST {target}");
    }
    assert_eq!(stack.service.requests().len(), 0);
    // What was open stays so, and a token is verified and carried on as before.
    let open = send(&stack, "GET", "/orders/.well-known/mcp.json", &[]);
    assert_eq!(open.verdict(), "200");
    let target = "/.well-known/oauth-authorization-server";
    let bad = send(&stack, "GET", target, &["Authorization: Bearer a.b"]);
    assert_eq!(bad.verdict(), "401 token_malformed");
    assert_eq!(send(&stack, "GET", target, &[&bearing]).verdict(), "200");
    assert_eq!(stack.service.take_requests().len(), 2);
}

#[test]
fn every_page_may_read_the_documents_without_a_setting() {
    let plain = stack(RESOURCE);
    let listed = format!("cors-origin = ['https://app.example']\n{RESOURCE}");
    let listed = stack(&listed);
    let origin = "Origin: http://localhost:6274";
    let preflight = [
        origin,
        "Access-Control-Request-Method: GET",
        "Access-Control-Request-Headers: authorization,mcp-protocol-version",
    ];
    let absent = "/.well-known/oauth-authorization-server";
    for stack in [&plain, &listed] {
        for own in [
            origin,
            "Origin: https://app.example",
            "Origin: null",
            "X: y",
        ] {
            for target in [
                WELL_KNOWN,
                "/.well-known/oauth-protected-resource/orders",
                absent,
            ] {
                let found = send(stack, "GET", target, &[own]);
                assert_eq!(found.header("access-control-allow-origin"), ["*"], "{own}");
                let credentials = found.header("access-control-allow-credentials");
                assert!(credentials.is_empty(), "{own}");
            }
        }
        for target in [WELL_KNOWN, "/.well-known/oauth-protected-resource/orders"] {
            let found = send(stack, "OPTIONS", target, &preflight);
            assert_eq!(found.status(), 204, "{target}");
            for (name, value) in [
                ("access-control-allow-origin", "*"),
                ("access-control-allow-methods", "GET, HEAD"),
                (
                    "access-control-allow-headers",
                    "authorization,mcp-protocol-version",
                ),
            ] {
                assert_eq!(found.header(name), [value], "{target}");
            }
        }
        // Pages read nothing else.
        let other = send(stack, "GET", "/orders/x", &[origin]);
        assert!(other.header("access-control-allow-origin").is_empty());
        let other = send(stack, "OPTIONS", "/orders/x", &preflight);
        assert_eq!(other.verdict(), "401 token_missing");
    }
    assert_eq!(plain.service.requests().len(), 0);
}

#[test]
fn a_start_warns_of_a_resource_that_tokens_are_not_for() {
    let issuer = [
        "--issuer=https://login.example",
        "--jwks=https://login.example/keys",
    ];
    let unfit = "--resource https://api.example/orders: no audience is this URL";
    let passed_on = "--forward-authorization";
    for (flags, expected) in [
        (
            &[
                "--audience=https://api.example/orders",
                "--forward-authorization=off",
            ][..],
            &[][..],
        ),
        (
            &["--audience=orders", "--forward-authorization=off"],
            &[unfit],
        ),
        (
            &[
                "--audience=https://api.example/orders/",
                "--forward-authorization=off",
            ],
            &[unfit],
        ),
        (
            &["--audience=orders,https://api.example/orders"],
            &[passed_on],
        ),
        (&["--audience=orders"], &[unfit, passed_on]),
    ] {
        let common = [
            "--upstream=http://127.0.0.1:3000",
            "--resource=https://api.example/orders",
        ];
        let flags = [&SIDECAR[..1], &issuer, &common, flags].concat();
        let end = tests::actors::sidecar::check("", &flags[1..]);
        let mut warnings: Vec<&str> = end
            .stdout
            .lines()
            .filter(|line| line.starts_with("# warning: --resource"))
            .collect();
        warnings.sort_unstable();
        assert_eq!(
            warnings.len(),
            expected.len(),
            "{flags:?}: {}{}",
            end.stdout,
            end.stderr
        );
        for (warning, expected) in warnings.iter().zip(expected) {
            assert!(warning.contains(expected), "{warning}");
        }
    }
}
