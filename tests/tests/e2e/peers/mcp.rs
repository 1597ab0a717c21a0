//! The official SDKs of MCP before an MCP server that knows of no token: the sidecar is its protected
//! resource, and the login is at our auth server or at an issuer of others.

use serde_json::{Value, json};
use tests::actors::auth_server::{AuthServer, AuthServerPlan};
use tests::actors::process::Process;
use tests::actors::sidecar::{Sidecar, SidecarPlan};
use tests::services::node::Node;
use tests::services::peer_issuer::PeerIssuer;
use tests::services::python::Python;
use tests::wait;
use tests::wire::free_address::free_address;

const SDK: &str = "@modelcontextprotocol/sdk";

/// An unmodified server, and the URL under which clients know it through a sidecar.
struct McpServer {
    _process: Process,
    upstream: String,
    address: std::net::SocketAddr,
}

impl McpServer {
    fn start(python: &Python) -> Self {
        let mut process = python.start("mcp_service.py", &[]);
        let upstream = format!("http://{}", process.announced("listening on "));
        Self {
            _process: process,
            upstream,
            address: free_address(),
        }
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Starts the sidecar in front of it, with a rule for this scope.
    fn behind(&self, scope: &str, flags: &[&str]) -> Sidecar {
        let rules = format!("[[rule]]\npaths = ['/mcp/**']\nscope = ['{scope}']\n");
        SidecarPlan::of_upstream(&self.upstream, flags)
            .config(&rules)
            .app_name("")
            .flags(["--resource", &self.url(), "--audience", &self.url()])
            .flags(["--forward-authorization", "off"])
            .listen(self.address)
            .ready()
    }
}

/// Starts an auth server whose issuer is its URL, with the application `agent` for a resource; returns
/// its issuer and the secret, too.
fn with_agent(resource: &str) -> (AuthServer, String, String) {
    let address = free_address();
    let issuer = format!("http://{address}/auth");
    let plan = AuthServerPlan::new().listen(address);
    let server = plan
        .flags(["--issuer", &issuer, "--store-poll-interval", "1"])
        .ready();
    let add = [
        "application",
        "add",
        "--app-id=agent",
        "--scope=mcp:use mcp:other",
    ];
    let audience = ["--audience", resource, "--audience=elsewhere"];
    let secret = server.done(&[&add[..], &audience].concat());
    wait::until("the server to know the application", || {
        server.grant("agent", &secret, "").status() == 200
    });
    (server, issuer, secret)
}

#[test]
fn programs_log_in_at_our_auth_server_by_the_official_sdks() {
    let (Some(python), Some(node)) = (Python::with_mcp(), Node::with(SDK)) else {
        return;
    };
    let service = McpServer::start(&python);
    let (_server, issuer, secret) = with_agent(&service.url());
    let keys = format!("{issuer}/.well-known/jwks.json");
    let flags = ["--issuer", &issuer, "--jwks", &keys];
    let _sidecar = service.behind("mcp:use", &flags);
    let given = json!({
        "server": service.url(), "issuer": issuer, "id": "agent", "secret": secret, "scope": "mcp:use",
    });
    let expected = json!({"scope": "mcp:use", "tools": ["add"], "sum": 42});
    assert_eq!(python.run("mcp_client.py", &given), expected);
    let found = node.run("mcp_client.mjs", &given);
    let metadata = service
        .url()
        .replace("/mcp", "/.well-known/oauth-protected-resource/mcp");
    let mut expected = expected;
    expected["metadata"] = json!(metadata);
    expected["resource"] = json!(service.url());
    expected["issuer"] = json!(issuer);
    assert_eq!(found, expected);
}

#[test]
fn programs_and_people_log_in_at_an_issuer_with_pages() {
    let (Some(python), Some(node)) = (Python::with_mcp(), Node::with(SDK)) else {
        return;
    };
    let service = McpServer::start(&python);
    let Some(peer) = PeerIssuer::with_pages(&service.url()) else {
        return;
    };
    let _sidecar = service.behind("orders:read", &["--issuer-url", &peer.issuer()]);
    let given = json!({
        "server": service.url(), "issuer": peer.issuer(), "id": "agent",
        "secret": "a secret of the test, and of nothing else", "scope": "orders:read",
    });
    let of_all = |mut found: Value| {
        let found = ["issuer", "scope", "tools", "sum"].map(|name| found[name].take());
        Value::from(found.to_vec())
    };
    let expected = json!([peer.issuer(), "orders:read", ["add"], 42]);
    assert_eq!(of_all(node.run("mcp_client.mjs", &given)), expected);
    assert_eq!(of_all(node.run("mcp_person.mjs", &given)), expected);
}
