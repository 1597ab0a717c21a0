//! Rotation and revocation of keys under load, seen from behind the sidecar (ADR 0006,
//! lesson B18).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use postern_token::keys::{VerificationKey, signing_type};
use serde_json::json;
use tests::actors::abuse::STREAMS;
use tests::actors::auth_server::{AuthServer, AuthServerPlan, ECDSA, USER_DETAILS};
use tests::actors::sidecar::{EVERY_SECOND, NEVER, Sidecar, SidecarPlan};
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

/// Starts a server that applies the changes of `keys …` within a second.
fn sidecar(service: &EchoService, auth_server: &str, refresh: [&str; 2]) -> Sidecar {
    SidecarPlan::new(service, auth_server)
        .flags(ECDSA)
        .flags(refresh)
        .ready()
}

/// Publishes a next key and waits until the server signs with it.
fn rotate(server: &AuthServer) -> String {
    let printed = server.keys(&["rotate", "--rotation-lead", "4"]);
    let kid = printed.split(' ').next().unwrap().to_owned();
    wait::until("a token of the next key", || {
        let token = server.login();
        (kid_of(&token) == kid).then_some(token)
    })
}

/// The requests of the users of a running system.
#[derive(Default)]
struct Traffic {
    over: AtomicBool,
    requests: AtomicUsize,
    rejections: Mutex<Vec<String>>,
}

impl Traffic {
    /// Logs in and uses each token until shortly before its end, in a loop.
    fn of_one_person(&self, server: &AuthServer, sidecar: &Sidecar, session: Duration) {
        while !self.over.load(Ordering::Relaxed) {
            let token = server.login();
            let (behind_sidecar, at_auth_server) =
                (sidecar.bearing(&token), server.anonymous().bearing(&token));
            let begun = Instant::now();
            while begun.elapsed() < session && !self.over.load(Ordering::Relaxed) {
                self.see(&token, &behind_sidecar.get("/list"));
                self.see(&token, &behind_sidecar.get(USER_DETAILS));
                self.see(&token, &at_auth_server.get(USER_DETAILS));
            }
        }
    }

    fn see(&self, token: &str, response: &Message) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if response.status() != 200 {
            let rejection = format!("{} ({})", response.verdict(), kid_of(token));
            self.rejections.lock().unwrap().push(rejection);
        }
    }
}

/// A next key is published four seconds before it signs; server and sidecar poll every second.
#[test]
fn five_rotations_under_load_reject_no_request() {
    let server = AuthServerPlan::polling()
        .flags(["--rotation-lead", "2", "--token-lifetime", "8"])
        .ready();
    let service = EchoService::start();
    let sidecar = sidecar(&service, &server.url(), EVERY_SECOND);
    let traffic = Traffic::default();
    let mut kids = vec![kid_of(&server.login())];
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| traffic.of_one_person(&server, &sidecar, Duration::from_secs(5)));
        }
        for _ in 0..5 {
            kids.push(kid_of(&rotate(&server)));
        }
        traffic.over.store(true, Ordering::Relaxed);
    });
    let requests = traffic.requests.into_inner();
    let found = traffic.rejections.into_inner().unwrap();
    assert_eq!(found, [""; 0], "of {requests}");
    assert!(requests > 100, "only {requests} requests");
    kids.sort_unstable();
    kids.dedup();
    assert_eq!(kids.len(), 6, "five rotations make six keys");
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
    let sidecar = sidecar(&service, &auth_server.url(), NEVER);
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
