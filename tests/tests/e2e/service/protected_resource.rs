//! The service as an OAuth protected resource (RFC 9728), as MCP clients find it: its documents, which
//! every page may read, and the scopes that challenges name.

mod documents;

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
