//! The documents: contents, places, readers.

use super::*;

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
    let listed = stack(&format!(
        "cors-origin = ['https://app.example']\nissuer = 'https://login.example'\n{RESOURCE}"
    ));
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
    for target in [WELL_KNOWN, "/.well-known/oauth-protected-resource/orders"] {
        let bad = ["Authorization: Bearer a.b.c"];
        let mut document = send(&listed, "GET", target, &bad).json();
        let algorithms = document["dpop_signing_alg_values_supported"].take();
        assert!(algorithms.is_array(), "{algorithms}");
        let expected = json!({
            "resource": "http://localhost/orders", "authorization_servers": ["https://login.example"],
            "bearer_methods_supported": ["header"], "dpop_signing_alg_values_supported": null
        });
        assert_eq!(document, expected);
        assert_eq!(send(&listed, "HEAD", target, &[]).status(), 200);
        for method in ["POST", "DELETE", "OPTIONS"] {
            let found = send(&listed, method, target, &[]).verdict();
            assert_eq!(found, "405 method_not_allowed", "{method}");
        }
    }
    for stack in [&plain, &listed] {
        assert_eq!(stack.service.requests().len(), 0);
    }
}
