//! A rotation of keys, and tokens of unknown ones, seen from behind the sidecar (ADR 0006,
//! lesson B18).

use std::sync::atomic::{AtomicBool, Ordering};

use postern_token::keys::{VerificationKey, signing_type};
use serde_json::json;
use tests::actors::abuse::STREAMS;
use tests::actors::auth_server::{AuthServerPlan, ECDSA};
use tests::actors::sidecar::{NEVER, SidecarPlan};
use tests::actors::token_forge::{Forge, Signature, claims, kid_of, signing_input};
use tests::keys::{SigningKey, SigningType};
use tests::services::echo_service::EchoService;
use tests::services::fake_auth_server::json_response;
use tests::services::socket_server::{Reply, SocketServer, response};
use tests::wait;
use tests::wire::clock;
use tests::wire::h2_frames::{FrameClient, get_fields};
use tests::wire::loopback::connect_as;
use tests::wire::message::Message;
use tests::wire::metrics::rejections;

/// A next key is published four seconds before it signs; server and sidecar poll every second.
#[test]
fn a_rotation_rejects_no_request() {
    let server = AuthServerPlan::polling()
        .flags(["--rotation-lead", "2"])
        .ready();
    let service = EchoService::start();
    let sidecar = SidecarPlan::polling(&service, &server.url()).ready();
    let first = server.login();
    let printed = server.keys(&["rotate", "--rotation-lead", "4"]);
    let next = printed.split(' ').next().unwrap();
    wait::until("a token of the next key", || {
        let token = server.login();
        for token in [&first, &token] {
            assert_eq!(sidecar.verdict_of(token), "200", "{}", kid_of(token));
            assert_eq!(server.verdict(token), "200", "{}", kid_of(token));
        }
        kid_of(&token) == next
    });
    assert_ne!(kid_of(&first), next);
}

/// A server whose key set holds one key, and which can hang.
struct KeySetServer {
    server: SocketServer,
}

impl KeySetServer {
    fn start(key: &SigningKey, hangs: &'static AtomicBool) -> Self {
        let key = key.served();
        let parsed = VerificationKey::parse(signing_type::SigningType::Ecdsa, &key).unwrap();
        let set = json!({"keys": [parsed.to_jwk()]}).to_string();
        let server = SocketServer::start(move |request| {
            if hangs.load(Ordering::SeqCst) {
                Reply::Silence
            } else if request.target().ends_with(b"/jwks.json") {
                json_response("200 OK", &set)
            } else {
                key_beside_a_set(&key)
            }
        });
        Self { server }
    }

    fn url(&self) -> String {
        format!("http://{}/auth", self.server.address())
    }

    /// Returns the number of requests for the contract's key: one for each fetch.
    fn fetches(&self) -> usize {
        let requests = self.server.requests();
        let of_the_key = |request: &&Message| !request.target().ends_with(b"/jwks.json");
        requests.iter().filter(of_the_key).count()
    }
}

/// Returns the contract's response that announces a key set.
fn key_beside_a_set(key: &str) -> Reply {
    let envelope = json!({"success": true, "status": 200, "msg": "m", "data": key});
    let link = "Link: </auth/.well-known/jwks.json>; rel=\"jwks\"";
    let fields = ["Content-Type: application/json", link];
    Reply::Bytes(response("200 OK", &fields, envelope.to_string().as_bytes()))
}

fn token_naming(forge: &Forge, kid: &str) -> String {
    let header = json!({"alg": "ES256", "typ": "JWT", "kid": kid}).to_string();
    let payload = claims(clock::now(), &json!({})).to_string();
    let input = signing_input(header.as_bytes(), payload.as_bytes());
    let signature = tests::actors::token_forge::encode(&forge.sign(Signature::Good, &input));
    format!("{input}.{signature}")
}

#[test]
fn lesson_b18_known_keys_do_not_wait_for_an_on_demand_fetch() {
    static HANGS: AtomicBool = AtomicBool::new(false);
    let (forge, service) = (Forge::new(SigningType::Ecdsa), EchoService::start());
    let auth_server = KeySetServer::start(forge.trusted(), &HANGS);
    let sidecar = SidecarPlan::new(&service, &auth_server.url())
        .flags(ECDSA)
        .flags(NEVER)
        .ready();
    let good = sidecar.bearing(&forge.token(clock::now(), &json!({})));
    let unknown = sidecar.bearing(&token_naming(&forge, "nobody"));
    HANGS.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| unknown.verdict("/list"));
        wait::until("the early fetch", || auth_server.fetches() == 2);
        assert_eq!(good.status("/list"), 200);
        assert!(!waiting.is_finished(), "the other one still waits");
        assert_eq!(waiting.join().unwrap(), "503 auth_keys_unavailable");
    });
    assert_eq!(good.status("/list"), 200, "good keys stay");
}

#[test]
fn unknown_kids_of_one_client_leave_permits_to_others() {
    static HANGS: AtomicBool = AtomicBool::new(false);
    let (forge, service) = (Forge::new(SigningType::Ecdsa), EchoService::start());
    let auth_server = KeySetServer::start(forge.trusted(), &HANGS);
    let sidecar = SidecarPlan::new(&service, &auth_server.url())
        .flags(ECDSA)
        .flags(NEVER)
        .flags(["--public-path", "/public/**", "--max-requests", "200"])
        .ready();
    HANGS.store(true, Ordering::SeqCst);
    let bearer = format!("Bearer {}", token_naming(&forge, "nobody"));
    let mut fields = get_fields("/orders/list");
    fields.push(("authorization", &bearer));
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let socket = connect_as(2, sidecar.address()).unwrap();
            let mut client = FrameClient::on(socket);
            for number in 0..STREAMS {
                client.head(2 * number + 1, &fields, true);
            }
            client
        })
        .collect();
    wait::until("more than a share of requests", || {
        rejections(sidecar.admin(), "server_busy") >= 100
    });
    let other = sidecar.anonymous().get("/public/list");
    assert_eq!(other.verdict(), "200");
    drop(waiting);
}
