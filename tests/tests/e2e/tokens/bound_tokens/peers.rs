//! Others' issuers, which bind their tokens, and others' clients, which prove their keys.

use serde_json::{Value, json};
use tests::actors::sidecar::{Sidecar, SidecarPlan};
use tests::actors::token_forge::payload_of;
use tests::services::echo_service::EchoService;
use tests::services::node::Node;
use tests::services::peer_issuer::PeerIssuer;
use tests::services::python::Python;
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
