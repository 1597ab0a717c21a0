//! Others' OAuth clients, from the discovery documents to an accepted request.

use std::path::Path;

use serde_json::{Value, json};
use tests::actors::auth_server::AuthServerPlan;
use tests::actors::client::Request;
use tests::actors::process::CommandLine;
use tests::actors::programs::interop;
use tests::actors::sidecar::{Sidecar, SidecarPlan};
use tests::actors::token_forge::payload_of;
use tests::services::echo_service::EchoService;
use tests::services::go::GoProgram;
use tests::services::node::Node;
use tests::services::python::Python;
use tests::skip;
use tests::wire::free_address::free_address;

use super::grants::Installation;

/// An auth server whose issuer is its URL, and a sidecar that trusts it.
struct Stack {
    installation: Installation,
    issuer: String,
    sidecar: Sidecar,
    _service: EchoService,
}

impl Stack {
    fn start(flags: &[&str]) -> Self {
        let address = free_address();
        let issuer = format!("http://{address}/auth");
        let plan = AuthServerPlan::new().listen(address);
        let plan = plan.flags(["--issuer", &issuer]);
        let installation = Installation::of(plan.flags(flags));
        let service = EchoService::start();
        let sidecar = SidecarPlan::new(&service, &issuer)
            .application("sidecar", &installation.sidecar)
            .flags(["--issuer", &issuer, "--audience", "orders"])
            .ready();
        Self {
            installation,
            issuer,
            sidecar,
            _service: service,
        }
    }

    /// Returns the input of a client's script.
    fn given(&self) -> Value {
        let secret = &self.installation.jobs;
        json!({"issuer": self.issuer, "id": "jobs", "secret": secret, "scope": "orders:read"})
    }

    fn assert_accepted(&self, token: &Value) {
        let token = token.as_str().expect("a token");
        assert_eq!(self.sidecar.verdict_of(token), "200");
    }
}

#[test]
fn two_oauth_libraries_find_and_use_the_token_endpoint() {
    let Some(python) = Python::with_oauth() else {
        return;
    };
    let stack = Stack::start(&[]);
    let result = python.run("oauth_clients.py", &stack.given());
    for client in [
        "authlib client_secret_basic",
        "authlib client_secret_post",
        "requests-oauthlib",
    ] {
        stack.assert_accepted(&result[client]);
    }
    assert_eq!(result["same"], true);
    assert_eq!(result["issuer"], stack.issuer);
    let found = (&result["keys"], &result["expires_in"]);
    assert_eq!(found, (&json!(1), &json!(18_000)));
    assert_eq!(result["scope"], json!(["orders:read"]));
    let rejections = json!({"secret": "invalid_client", "scope": "invalid_scope"});
    assert_eq!(result["rejections"], rejections);
}

#[test]
fn openid_client_finds_and_uses_the_token_endpoint() {
    let Some(node) = Node::with("openid-client") else {
        return;
    };
    let stack = Stack::start(&["--refresh-tokens", "on"]);
    let session = stack.installation.server.session_of("ada");
    let mut given = stack.given();
    given["refresh"] = json!(session.refresh);
    let result = node.run("oauth_clients.mjs", &given);
    let tokens = result["tokens"].as_array().expect("tokens");
    // The grant is for the service; the tokens of a login name no audience.
    let (granted, refreshed) = tokens.split_at(4);
    granted
        .iter()
        .for_each(|token| stack.assert_accepted(token));
    assert_eq!(refreshed.len(), 2);
    assert_eq!(result["expires_in"], 18_000);
    assert_eq!(result["scope"], "orders:read");
    assert_eq!(result["rejection"], "401 basic");
    assert_eq!(result["reused"], "400 invalid_grant");
}

#[test]
fn go_s_client_credentials_are_accepted() {
    let package = "golang.org/x/oauth2";
    let debian = "golang-golang-x-oauth2-dev";
    let Some(client) = GoProgram::built("client_credentials.go", package, debian) else {
        return;
    };
    let stack = Stack::start(&[]);
    let mut given = stack.given();
    given["endpoint"] = json!(format!("{}/oauth/token", stack.issuer));
    let result = client.run(&given);
    let tokens = result["tokens"].as_array().expect("tokens");
    assert_eq!(tokens.len(), 3);
    tokens.iter().for_each(|token| stack.assert_accepted(token));
    assert_eq!(result["rejection"], "401 Unauthorized");
}

#[test]
fn google_s_client_for_java_gets_tokens_and_refreshes() {
    if !Path::new("/usr/share/java/google-oauth-client.jar").is_file() {
        let how = "apt-get install default-jdk-headless libgoogle-oauth-client-java";
        return skip::skip("the test with Google's OAuth client for Java", how);
    }
    let stack = Stack::start(&["--refresh-tokens"]);
    let session = stack.installation.server.session_of("ada");
    let mut given = stack.given();
    given["endpoint"] = json!(format!("{}/oauth/token", stack.issuer));
    given["refresh"] = json!(session.refresh);
    let result = CommandLine::new("java")
        .arguments(["-cp", "/usr/share/java/*"])
        .arguments([interop("OAuthClient.java")])
        .run_json(&given);
    let tokens = result["tokens"].as_array().expect("tokens");
    assert_eq!(tokens.len(), 2);
    tokens.iter().for_each(|token| stack.assert_accepted(token));
    let rest = (&result["scope"], &result["expires_in"]);
    assert_eq!(rest, (&json!("orders:read"), &json!(18_000)));
    let claims = payload_of(result["refreshed"].as_str().expect("a token"));
    assert_eq!(claims["username"], "admin");
    assert_eq!(result["reused"], "400 invalid_grant");
    assert_eq!(result["rejection"], "401");
}

#[test]
fn the_metadata_names_the_issuers_that_clients_have() {
    let service = EchoService::start();
    let table = |name: &str, more: &str| {
        format!(
            "[[issuer]]\nname = '{name}'\nissuer = 'https://{name}.example'\naudience = ['orders']\n\
             jwks = 'https://{name}.example/keys'\nuser-prefix = '{name}:'\n{more}\n"
        )
    };
    // A proxy gets the tokens of its own header.
    let tables = [
        ("one", ""),
        ("proxy", "token-header = 'X-Assertion'"),
        ("two", ""),
    ];
    let tables = tables.map(|(name, more)| table(name, more)).concat();
    let flags = ["--resource", "https://api.example/orders"];
    let sidecar = SidecarPlan::of_issuer(&service, flags)
        .config(&tables)
        .start();
    let path = "/.well-known/oauth-protected-resource";
    let document = sidecar.anonymous().send(&Request::new("GET", path)).json();
    assert_eq!(
        document["authorization_servers"],
        json!(["https://one.example", "https://two.example"])
    );
}
