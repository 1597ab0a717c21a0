//! Others' issuers, which bind their tokens, and others' clients, which prove their keys.

use serde_json::{Value, json};
use tests::actors::client::Request;
use tests::actors::sidecar::{Sidecar, SidecarPlan};
use tests::actors::token_forge::payload_of;
use tests::services::echo_service::EchoService;
use tests::services::node::Node;
use tests::services::peer_issuer::{PeerIssuer, token_of};
use tests::services::python::Python;
use tests::services::tls_gateway::{GatewayPlan, TlsGateway};
use tests::wire::certificates::{Authority, Certificate};
use tests::wire::free_address::free_address;

use super::nonces::{key_file, path_in};

/// A sidecar that trusts `oidc-provider` and requires nonces.
struct Stack {
    issuer: PeerIssuer,
    service: EchoService,
    sidecar: Sidecar,
    _secret: tempfile::TempDir,
}

impl Stack {
    fn start() -> Option<Self> {
        let issuer = PeerIssuer::oidc_provider("orders")?;
        let (service, secret, address) = (
            EchoService::start(),
            key_file(&"k".repeat(32)),
            free_address(),
        );
        let config = format!(
            "resource = 'http://{address}/orders'\ndpop-nonce-key-file = '{}'\n\
             [[issuer]]\nname = 'idp'\nissuer = '{}'\ndiscovery = true\naudience = ['orders']\ndpop = 'required'\n",
            path_in(&secret).display(),
            issuer.issuer()
        );
        let plan = SidecarPlan::of_upstream(&service.url(), [""; 0])
            .config(&config)
            .listen(address);
        Some(Self {
            sidecar: plan.ready(),
            issuer,
            service,
            _secret: secret,
        })
    }

    fn given(&self) -> Value {
        json!({
            "issuer": self.issuer.issuer(), "id": "jobs", "scope": "orders:read",
            "secret": "a secret of the test, and of nothing else",
            "resource": format!("http://{}/orders/1", self.sidecar.address()),
        })
    }

    fn check(&self, name: &str, result: &Value) {
        let statuses = (&result["statuses"], &result["posted"]);
        assert_eq!(
            statuses,
            (&json!([200, 200]), &json!(200)),
            "{name}: {result}"
        );
        let kind = result["type"].as_str().unwrap();
        assert!(kind.eq_ignore_ascii_case("dpop"), "{name}: {kind}");
        let token = result["token"].as_str().unwrap();
        assert!(payload_of(token)["cnf"]["jkt"].is_string());
        // A thief has the token without the key.
        assert_eq!(self.sidecar.verdict_of(token), "401 token_bound", "{name}");
    }
}

#[test]
fn libraries_for_node_prove_their_keys_to_the_sidecar() {
    let (Some(node), Some(stack)) = (Node::with("oauth4webapi"), Stack::start()) else {
        return;
    };
    let results = node.run("bound_clients.mjs", &stack.given());
    let results = results.as_object().unwrap();
    assert_eq!(results.len(), 5);
    for (name, result) in results {
        stack.check(name, result);
    }
    assert_eq!(stack.service.requests().len(), 15);
}

#[test]
fn a_library_for_python_proves_its_key_to_the_sidecar() {
    let (Some(python), Some(stack)) = (Python::with_dpop(), Stack::start()) else {
        return;
    };
    let result = python.run("bound_clients.py", &stack.given());
    stack.check("requests-oauth2client", &result);
}

#[test]
fn the_certificate_of_a_token_request_opens_the_sidecar() {
    let (authority, service) = (Authority::new(), EchoService::start());
    let server = authority.issue_server(&["127.0.0.1"]);
    let Some(issuer) = PeerIssuer::oidc_provider("orders") else {
        return;
    };
    // It reads certificates in the field of a gateway.
    let plan = GatewayPlan {
        upstream: issuer.address(),
        server: &server,
        clients: &authority,
    };
    let Some(gateway) = TlsGateway::nginx(plan) else {
        return;
    };
    let config = format!(
        "client-cert = 'optional'\n\
         [[issuer]]\nname = 'idp'\nissuer = '{}'\ndiscovery = true\naudience = ['orders']\n",
        issuer.issuer()
    );
    let plan = SidecarPlan::of_upstream(&service.url(), server.flags());
    let sidecar = plan.config(&config).ready();
    let [ada, bob] = ["ada", "bob"].map(|name| authority.issue(name));
    let connect = |certificate: Option<&Certificate>, address| {
        let trust = authority.client();
        let trust = certificate.map_or(trust.clone(), |it| trust.with_identity(it));
        trust.connect(address).unwrap()
    };
    let mut client = connect(Some(&ada), gateway.address());
    client.send(&issuer.token_request("mutual"));
    let token = token_of(&client.response("POST"));
    assert_eq!(payload_of(&token)["cnf"], ada.cnf());
    for (certificate, verdict) in [
        (Some(&ada), "200"),
        (Some(&bob), "401 certificate_other"),
        (None, "401 certificate_missing"),
    ] {
        let mut client = connect(certificate, sidecar.address());
        let request = Request::new("GET", "/orders/1");
        let request = request.line(format!("Authorization: Bearer {token}"));
        client.send(&request.bytes("127.0.0.1"));
        assert_eq!(client.response("GET").verdict(), verdict);
    }
}
