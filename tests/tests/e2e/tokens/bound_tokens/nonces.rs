//! Nonces (RFC 9449 §8, §9): required, renewed, and shared by replicas.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::actors::expect::has;
use tests::actors::sidecar::Sidecar;
use tests::actors::stack::ForgedStack;
use tests::keys::Algorithm;
use tests::services::socket_server::response;
use tests::wire::certificates::write_private;
use tests::wire::h2_client::{H2Client, H2Response};
use tests::wire::message::Message;

use super::{PATH, Proving, URL, get};

const ONE: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "another key of thirty-two signs!";

/// Writes a key file.
pub(super) fn key_file(text: &str) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    write_private(&path_in(&home), text);
    home
}

pub(super) fn path_in(home: &TempDir) -> std::path::PathBuf {
    home.path().join("nonce.key")
}

fn config(file: &Path) -> String {
    format!(
        "resource = 'https://api.example/orders'\ndpop-nonce-key-file = '{}'\n",
        file.display()
    )
}

fn start(home: &TempDir) -> Proving {
    let stack = ForgedStack::configured(&config(&path_in(home)));
    Proving::of(stack, Algorithm::ES256)
}

fn nonce_of(response: &Message) -> Value {
    match &response.header("dpop-nonce")[..] {
        [] => Value::Null,
        [one] => json!(one),
        more => panic!("{more:?}"),
    }
}

/// Sends a request whose proof has a nonce.
fn get_with(proving: &Proving, sidecar: &Sidecar, nonce: &Value) -> Message {
    let nonce = json!({ "nonce": nonce });
    let lines = proving
        .client
        .lines_with("GET", URL, &proving.token, &nonce);
    get(sidecar, PATH, &lines)
}

#[test]
fn rfc_9449_9_a_client_gets_a_nonce_and_then_the_next_ones() {
    let secret = key_file(ONE);
    let proving = start(&secret);
    let sidecar = &proving.stack.sidecar;
    let fields = ["X-Echo-Service: 1", "DPoP-Nonce: of the service"];
    proving
        .stack
        .service
        .responds(response("200 OK", &fields, b"echo"));
    for bad in [Value::Null, json!(""), json!(7), json!("of the service")] {
        let rejected = get_with(&proving, sidecar, &bad);
        assert_eq!(rejected.verdict(), "401 proof_nonce", "{bad}");
        let challenges = rejected.header("www-authenticate");
        // Libraries read the first challenge alone.
        let schemes: Vec<_> = challenges.iter().map(|it| &it[..6]).collect();
        assert_eq!(schemes, ["DPoP a", "Bearer"]);
        for challenge in challenges {
            has(challenge, "error=\"use_dpop_nonce\"");
        }
        let nonce = nonce_of(&rejected);
        for _ in 0..2 {
            let accepted = get_with(&proving, sidecar, &nonce);
            assert_eq!(accepted.verdict(), "200");
            let next = nonce_of(&accepted);
            assert_eq!(get_with(&proving, sidecar, &next).verdict(), "200");
        }
    }
    // Who sends no proof gets no nonce, not even the service's.
    let plain = [format!("Authorization: Bearer {}", proving.stack.token())];
    let response = proving.get(&plain);
    assert_eq!(response.verdict(), "200");
    assert_eq!(nonce_of(&response), Value::Null);
    assert_eq!(nonce_of(&proving.get(&[])), Value::Null);
}

#[test]
fn a_service_s_nonces_are_removed_where_proofs_are_verified() {
    for (flags, is_removed) in [(&super::RESOURCE[..], true), (&[], false)] {
        let stack = ForgedStack::with_flags(flags);
        let fields = ["X-Echo-Service: 1", "dpop-nonce: of the service"];
        stack.service.responds(response("200 OK", &fields, b"echo"));
        let response = stack.sidecar.bearing(&stack.token()).get("/1");
        assert_eq!(nonce_of(&response).is_null(), is_removed);
    }
}

#[test]
fn rfc_9449_8_replicas_with_one_file_accept_each_others_nonces() {
    let secret = key_file(ONE);
    let proving = start(&secret);
    let replica = proving.stack.plan(&proving.stack.service.url());
    let replica = replica.config(&config(&path_in(&secret))).ready();
    let nonce_at = |sidecar: &Sidecar| nonce_of(&get_with(&proving, sidecar, &Value::Null));
    let sidecar = &proving.stack.sidecar;
    let accepts = |sidecar: &Sidecar, nonce: &Value| {
        let verdict = get_with(&proving, sidecar, nonce).verdict();
        assert!(["200", "401 proof_nonce"].contains(&&*verdict), "{verdict}");
        verdict == "200"
    };
    let (first, of_replica) = (nonce_at(sidecar), nonce_at(&replica));
    assert!(accepts(&replica, &first) && accepts(sidecar, &of_replica));
    // A new key stands in the first line, the former one in the second.
    let reload = |text: &str| {
        write_private(&path_in(&secret), text);
        let changed = format!(
            "{}leeway = {}\n",
            config(&path_in(&secret)),
            text.len() % 300
        );
        sidecar.reload(&changed, "applied");
    };
    reload(&format!("{OTHER}\n{ONE}"));
    assert!(accepts(sidecar, &first) && accepts(sidecar, &of_replica));
    let second = nonce_at(sidecar);
    assert!(accepts(sidecar, &second) && !accepts(&replica, &second));
    reload(OTHER);
    assert!(accepts(sidecar, &second) && !accepts(sidecar, &first));
    // A file that is no key keeps what is there.
    write_private(&path_in(&secret), "short");
    sidecar.reload(&config(&path_in(&secret)), "rejected");
    assert!(accepts(sidecar, &second));
}

#[test]
fn a_changed_key_file_counts_by_itself() {
    let secret = key_file(ONE);
    let proving = start(&secret);
    let sidecar = &proving.stack.sidecar;
    let nonce = nonce_of(&get_with(&proving, sidecar, &Value::Null));
    write_private(&path_in(&secret), OTHER);
    tests::wait::until("the new key", || {
        get_with(&proving, sidecar, &nonce).verdict() == "401 proof_nonce"
    });
}

#[test]
fn over_http_2_and_grpc_a_client_gets_its_nonce_as_well() {
    let secret = key_file(ONE);
    let proving = start(&secret);
    let fields = ["X-Echo-Service: 1", "DPoP-Nonce: of the service"];
    proving
        .stack
        .service
        .responds(response("200 OK", &fields, b"echo"));
    let client = H2Client::connect(proving.stack.sidecar.address());
    let send = |method: &str, nonce: &Value| {
        let nonce = json!({ "nonce": nonce });
        let lines = proving
            .client
            .lines_with(method, URL, &proving.token, &nonce);
        let [token, proof] = lines
            .each_ref()
            .map(|line| line.split_once(": ").unwrap().1);
        let fields = [
            ("authorization", token),
            ("dpop", proof),
            ("content-type", "application/grpc"),
        ];
        client
            .send(client.request(method, PATH, &fields), b"")
            .unwrap()
    };
    let nonce_of = |response: &H2Response| {
        let mut nonces = response.head.headers().get_all("dpop-nonce").iter();
        let nonce = nonces.next().unwrap().to_str().unwrap().to_owned();
        assert!(nonces.next().is_none());
        json!(nonce)
    };
    let rejected = send("GET", &Value::Null);
    assert_eq!(rejected.verdict(), "401 proof_nonce");
    let accepted = send("GET", &nonce_of(&rejected));
    assert_eq!(accepted.verdict(), "200");
    assert_eq!(send("GET", &nonce_of(&accepted)).verdict(), "200");
    let call = send("POST", &Value::Null);
    assert_eq!(call.verdict(), "grpc 16 proof_nonce");
    nonce_of(&call);
}
