//! Key sets found by the discovery document of their issuer.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tests::actors::issuer::{IssuerTable, IssuerToken};
use tests::actors::sidecar::{EVERY_SECOND, NEVER, SidecarPlan};
use tests::services::echo_service::EchoService;
use tests::services::fake_auth_server::{FakeAuthServer, json_response};
use tests::services::socket_server::{Reply, SocketServer, response};
use tests::tables::load;
use tests::wait;

use super::published::{Issuers, Published};

/// An issuer with a discovery document at its own address.
struct Discoverable {
    one: Published,
    documents: SocketServer,
    document: Arc<Mutex<Value>>,
}

impl Discoverable {
    fn new() -> Self {
        let absent = response("404 Not Found", &[], b"");
        Self::with_document_at("/realm/.well-known/openid-configuration", absent)
    }

    /// `absent`: the response at every other path.
    fn with_document_at(path: &'static str, absent: Vec<u8>) -> Self {
        let table: IssuerTable = load("several_issuers.toml");
        let row = table.issuer.into_iter().find(|row| row.name == "cluster");
        let one = Published::new(row.unwrap());
        let document = Arc::new(Mutex::new(Value::Null));
        let current = Arc::clone(&document);
        let documents = SocketServer::start(move |request| {
            if request.target() == path.as_bytes() {
                // As an editor of Windows saves it.
                let document = format!("\u{feff}{}", current.lock().unwrap());
                json_response("200 OK", &document)
            } else {
                Reply::Bytes(absent.clone())
            }
        });
        let this = Self {
            one,
            documents,
            document,
        };
        this.names(json!({"issuer": this.issuer(), "jwks_uri": this.one.url()}));
        this
    }

    fn names(&self, document: Value) {
        *self.document.lock().unwrap() = document;
    }

    fn issuer(&self) -> String {
        format!("http://{}/realm", self.documents.address())
    }

    fn table(&self) -> String {
        let issuer = self.issuer();
        format!(
            "[[issuer]]\nname = 'realm'\nissuer = '{issuer}'\ndiscovery = true\naudience = ['orders']\nuser-prefix = ''\n"
        )
    }

    /// Returns a token in the name of this issuer.
    fn token(&self) -> String {
        let token = self.one.token("a projected token of a ServiceAccount");
        let renamed = IssuerToken::with_payload(token, |payload| {
            payload.replace(
                "https://kubernetes.default.svc.cluster.local",
                &self.issuer(),
            )
        });
        self.one.signed(&renamed)
    }
}

#[test]
fn discovery_finds_the_key_set_by_the_issuer_alone() {
    let realm = Discoverable::new();
    let issuers = Issuers::publish(&["shop"]);
    let by_table = issuers.plan_with(&(realm.table() + &issuers.tables()));
    let issuer = realm.issuer();
    let flags = ["--issuer-url", &issuer, "--audience", "orders"];
    let by_flags = SidecarPlan::of_issuer(&issuers.service, flags);
    for plan in [by_table, by_flags] {
        let sidecar = plan.flags(EVERY_SECOND).ready();
        let of_realm = wait::until("the keys of the realm", || {
            let response = sidecar.bearing(&realm.token()).get("/list");
            (response.status() == 200).then_some(response)
        });
        assert_eq!(of_realm.status(), 200);
        let read = realm.documents.requests().len();
        realm.one.server.until_fetched(2);
        let found = realm.documents.requests().len();
        assert_eq!(found, read, "the document is read hourly");
        let token = realm.one.own();
        let other = sidecar.verdict_of(&token);
        assert_eq!(other, "401 token_issuer");
    }
}

#[test]
fn rfc_8414_an_oauth_server_has_its_document_at_another_path() {
    let path = "/.well-known/oauth-authorization-server/realm";
    let service = EchoService::start();
    for absent in [
        response("404 Not Found", &[], b""),
        response("401 Unauthorized", &[], b""),
        response("302 Found", &["Location: /login"], b""),
        response("200 OK", &["Content-Type: text/html"], b"<!doctype html>"),
    ] {
        let realm = Discoverable::with_document_at(path, absent);
        let issuer = realm.issuer();
        let flags = ["--issuer-url", &issuer, "--audience", "orders"];
        let sidecar = SidecarPlan::of_issuer(&service, flags).flags(NEVER).ready();
        let response = sidecar.bearing(&realm.token()).get("/list");
        assert_eq!(response.verdict(), "200");
        let requests = [realm.documents.requests(), realm.one.server.retrievals()].concat();
        assert_eq!(requests.len(), 3);
        for request in requests {
            // Some servers would compress what the sidecar does not decompress.
            assert_eq!(request.header("accept-encoding"), ["identity"]);
        }
    }
}

#[test]
fn a_document_of_another_issuer_or_host_is_not_followed() {
    let realm = Discoverable::new();
    let service = EchoService::start();
    let (issuer, keys) = (realm.issuer(), realm.one.url());
    let elsewhere = keys.replace("127.0.0.1", "localhost");
    for (document, said) in [
        (
            json!({"issuer": format!("{issuer}/"), "jwks_uri": keys}),
            "both have to be equal byte for byte",
        ),
        (
            json!({"issuer": issuer, "jwks_uri": elsewhere}),
            "leads to localhost",
        ),
        (
            json!({"issuer": issuer, "jwks_uri": "http://127.0.0.1.nip.io/keys"}),
            "leads to",
        ),
        (
            json!({"issuer": issuer}),
            "the jwks_uri of the discovery document is missing",
        ),
        (
            json!("<html>"),
            "a discovery document, and holds something else",
        ),
    ] {
        realm.names(document.clone());
        let flags = ["--issuer-url", &issuer, "--audience", "orders"];
        let sidecar = SidecarPlan::of_issuer(&service, flags).flags(NEVER).start();
        sidecar.until_logged(said);
        let response = sidecar.bearing(&realm.token()).get("/list");
        let found = response.verdict();
        assert_eq!(found, "503 auth_keys_unavailable", "{document}");
    }
    assert_eq!(realm.one.server.retrievals().len(), 0);
    // Another host only where the table names it.
    realm.names(json!({"issuer": issuer, "jwks_uri": elsewhere}));
    let plan = SidecarPlan::of_issuer(&service, NEVER);
    let plan = plan.config(&(realm.table() + "jwks-hosts = ['localhost']\n"));
    let sidecar = plan.ready();
    assert_eq!(sidecar.verdict_of(&realm.token()), "200");
}

#[test]
fn a_key_set_that_moves_is_found_again() {
    let realm = Discoverable::new();
    let service = EchoService::start();
    let issuer = realm.issuer();
    let flags = ["--issuer-url", &issuer, "--audience", "orders"];
    let plan = SidecarPlan::of_issuer(&service, flags).flags(EVERY_SECOND);
    let sidecar = plan.ready();
    let moved = FakeAuthServer::replying(json_response("200 OK", &realm.one.jwks()));
    let uri = format!("http://{}/moved", moved.address());
    realm.names(json!({"issuer": issuer, "jwks_uri": uri}));
    realm
        .one
        .replies(Reply::Bytes(response("404 Not Found", &[], b"")));
    wait::until("a fetch at the new address", || {
        !moved.retrievals().is_empty()
    });
    assert_eq!(sidecar.verdict_of(&realm.token()), "200");
}
