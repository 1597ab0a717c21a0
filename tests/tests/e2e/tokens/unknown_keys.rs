//! Tokens that name unknown keys: any client can write them, and a 503 for the asking would make
//! gateways take the service out.

use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread;

use postern_token::keys::{VerificationKey, signing_type};
use serde_json::{Value, json};
use tests::actors::client::Request;
use tests::actors::sidecar::{NEVER, Sidecar, SidecarPlan};
use tests::actors::token_forge::{claims, encode, lay_over, signing_input};
use tests::keys::{SigningKey, SigningType};
use tests::services::echo_service::EchoService;
use tests::services::fake_auth_server::json_response;
use tests::services::socket_server::SocketServer;
use tests::wait;
use tests::wire::clock;

const UNKNOWN: &str = "401 token_key_unknown";
const COME_AGAIN: &str = "503 auth_keys_unavailable";

/// An issuer whose key set can change or fail.
struct Issuer {
    server: SocketServer,
    /// The published keys; `None` fails.
    set: Arc<Mutex<Option<Vec<SigningKey>>>>,
}

impl Issuer {
    fn start() -> Self {
        let set = Arc::new(Mutex::new(Some(vec![key()])));
        let published = Arc::clone(&set);
        let server = SocketServer::start(move |_| match published.lock().unwrap().as_deref() {
            Some(keys) => json_response("200 OK", &jwks(keys)),
            None => json_response("500 Internal Server Error", "{}"),
        });
        Self { server, set }
    }

    fn sidecar(&self, service: &EchoService) -> Sidecar {
        let jwks = format!("http://{}/keys", self.server.address());
        let flags = ["--jwks", &jwks, "--issuer", "auth", "--audience", "orders"];
        SidecarPlan::of_issuer(service, flags)
            .flags(["--trusted-proxy", "127.0.0.1"])
            .flags(NEVER)
            .ready()
    }

    fn fetches(&self) -> usize {
        self.server.requests().len()
    }

    /// Publishes a further key, and returns a token that it signed.
    fn token_of_a_new_key(&self) -> String {
        let key = key();
        let token = signed(&key, &kid(&key), &json!({}));
        self.set.lock().unwrap().as_mut().unwrap().push(key);
        token
    }
}

fn key() -> SigningKey {
    SigningKey::generate(SigningType::Ecdsa)
}

fn kid(key: &SigningKey) -> String {
    let key = VerificationKey::parse(signing_type::SigningType::Ecdsa, &key.served()).unwrap();
    key.id().to_string()
}

fn jwks(keys: &[SigningKey]) -> String {
    let keys = keys.iter().map(|key| {
        let key = VerificationKey::parse(signing_type::SigningType::Ecdsa, &key.served());
        key.unwrap().to_jwk()
    });
    json!({"keys": keys.collect::<Vec<_>>()}).to_string()
}

fn signed(key: &SigningKey, kid: &str, changes: &Value) -> String {
    let header = json!({"alg": "ES256", "typ": "JWT", "kid": kid}).to_string();
    let mut payload = claims(clock::now(), &json!({"aud": "orders"}));
    lay_over(&mut payload, changes);
    let input = signing_input(header.as_bytes(), payload.to_string().as_bytes());
    format!("{input}.{}", encode(&key.sign(input.as_bytes())))
}

/// Returns a token that names a key of no issuer.
fn invented(kid: impl std::fmt::Display) -> String {
    signed(&key(), &format!("nobody-{kid}"), &json!({}))
}

/// Sends a token as the client at this address, through a trusted proxy.
fn verdict_from(sidecar: &Sidecar, client: &str, token: &str) -> String {
    let request = Request::new("GET", "/orders/list")
        .line(format!("X-Forwarded-For: {client}"))
        .line(format!("Authorization: Bearer {token}"));
    sidecar.anonymous().send(&request).verdict()
}

#[test]
fn rfc_6750_3_1_invented_keys_are_401_and_fetch_thrice() {
    let (issuer, service) = (Issuer::start(), EchoService::start());
    let sidecar = issuer.sidecar(&service);
    for number in 0..40 {
        // A client has many addresses in its /64.
        let client = format!("2001:db8::{number:x}");
        let verdict = verdict_from(&sidecar, &client, &invented(number));
        assert_eq!(verdict, UNKNOWN, "{number}");
    }
    assert_eq!(issuer.fetches(), 1 + 3);
}

#[test]
fn only_a_first_comer_gets_503_while_the_issuer_is_away() {
    let (issuer, service) = (Issuer::start(), EchoService::start());
    let sidecar = issuer.sidecar(&service);
    *issuer.set.lock().unwrap() = None;
    for client in ["192.0.2.1", "192.0.2.2"] {
        for number in 0..10 {
            let expected = if number < 3 { COME_AGAIN } else { UNKNOWN };
            let verdict = verdict_from(&sidecar, client, &invented(number));
            assert_eq!(verdict, expected, "{client} {number}");
        }
        let verdict = verdict_from(&sidecar, client, &invented(9));
        assert_eq!(verdict, UNKNOWN, "again");
    }
}

#[test]
fn an_explanation_has_the_reason_of_the_request() {
    let (issuer, service) = (Issuer::start(), EchoService::start());
    let sidecar = issuer.sidecar(&service);
    let mut published = issuer.set.lock().unwrap().take();
    let away = invented("away");
    for (token, reason) in [(&away, COME_AGAIN), (&invented("there"), UNKNOWN)] {
        assert_eq!(verdict_from(&sidecar, "192.0.2.1", token), reason);
        let bearer = format!("Authorization: Bearer {token}");
        let explained = sidecar.explain(&["/orders/list"], &[bearer]).stdout;
        let verdict = explained.lines().find(|line| line.starts_with("verdict"));
        let word = reason.split(' ').nth(1).unwrap();
        assert!(verdict.unwrap().contains(word), "{explained}");
        *issuer.set.lock().unwrap() = published.take();
    }
    assert_eq!(issuer.fetches(), 1 + 2, "an explanation fetches nothing");
}

#[test]
fn what_no_key_changes_is_401_without_a_fetch() {
    let (issuer, service) = (Issuer::start(), EchoService::start());
    let sidecar = issuer.sidecar(&service);
    // Also while the issuer is away.
    *issuer.set.lock().unwrap() = None;
    for (changes, expected) in [
        (json!({"iss": "https://evil"}), "401 token_issuer"),
        (json!({"aud": "billing"}), "401 token_audience"),
        (json!({"exp": 5}), "401 token_expired"),
    ] {
        for number in 0..5 {
            let token = signed(&key(), &format!("nobody-{number}"), &changes);
            assert_eq!(sidecar.verdict_of(&token), expected, "{changes}");
        }
        let explained = sidecar.explain(
            &["/orders/list"],
            &[format!(
                "Authorization: Bearer {}",
                signed(&key(), "nobody", &changes)
            )],
        );
        assert!(!explained.stdout.contains("signature"), "{explained:?}");
    }
    assert_eq!(issuer.fetches(), 1, "at the start");
}

#[test]
fn a_new_key_s_first_token_is_200_beside_a_flood() {
    const FLOOD: &str = "192.0.2.66";
    let (issuer, service) = (Issuer::start(), EchoService::start());
    let sidecar = issuer.sidecar(&service);
    thread::scope(|scope| {
        // Dropped also where an assertion fails, which ends the flood.
        let (running, ended) = mpsc::channel::<()>();
        let sidecar = &sidecar;
        let flooding = scope.spawn(move || {
            let mut verdicts = Vec::new();
            while ended.try_recv() == Err(TryRecvError::Empty) || verdicts.len() < 40 {
                let token = invented(format!("flood-{}", verdicts.len()));
                verdicts.push(verdict_from(sidecar, FLOOD, &token));
            }
            verdicts
        });
        wait::until("the flood to have had its fetches", || {
            issuer.fetches() == 4
        });
        let new = issuer.token_of_a_new_key();
        assert_eq!(verdict_from(sidecar, "192.0.2.7", &new), "200");
        // It has come for the client behind the address of the flood too.
        assert_eq!(verdict_from(sidecar, FLOOD, &new), "200");
        drop(running);
        let verdicts = flooding.join().unwrap();
        assert!(verdicts.iter().all(|found| found == UNKNOWN));
    });
}
