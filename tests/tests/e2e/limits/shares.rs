//! Clients that hold as many requests as they can: one of them never takes all permits.

use serde_json::json;
use tests::actors::abuse::STREAMS;
use tests::actors::auth_server::{AuthServerPlan, LOGIN, credentials};
use tests::actors::client::Request;
use tests::actors::expect::has;
use tests::actors::stack::ForgedStack;
use tests::services::streaming_service::StreamingService;
use tests::wait;
use tests::wire::clock;
use tests::wire::h2_frames::FrameClient;
use tests::wire::loopback::connect_as;
use tests::wire::metrics::{rejections, sum};
use tests::wire::raw_client::RawClient;

/// Permits, and the part of them that one client gets.
const PERMITS: &str = "200";
const FOUR_FIFTHS: u64 = 160;
/// Requests that the attacker leaves open, on as many connections of HTTP/1.1 or a few of HTTP/2.
const OPEN: u32 = 230;

/// Credentials of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Absent,
    Expired,
    Valid,
}

/// The attacker's request and its credentials, the version of HTTP, and the path of the others with their
/// credentials, each with its own user or none.
type Attack = (&'static str, Token, u8, &'static str, &'static [Token]);

/// The last one in report-only mode, in which an expired token is no reason to reject.
const ATTACKS: [Attack; 9] = {
    use Token::{Absent, Expired, Valid};
    const ANY: &[Token] = &[Absent, Valid];
    const ALL: &[Token] = &[Absent, Expired, Valid];
    [
        ("POST /upload", Valid, 2, "/list", &[Valid]),
        ("POST /upload", Valid, 1, "/list", &[Valid]),
        ("GET /events", Valid, 2, "/list", &[Valid]),
        ("GET /events", Valid, 1, "/list", &[Valid]),
        // A download that is not read.
        ("GET /endless", Valid, 2, "/list", &[Valid]),
        ("POST /public/upload", Absent, 2, "/public/list", ANY),
        ("POST /public/upload", Absent, 1, "/public/list", ANY),
        ("POST /feed/upload", Absent, 2, "/feed/list", ANY),
        ("POST /upload", Absent, 2, "/list", ALL),
    ]
};

/// A sidecar with `PERMITS`, and the holder of its key.
struct Stack(ForgedStack);

impl Stack {
    fn start(permits: &str, reports: bool) -> Self {
        let until = format!("--report-until={}", clock::now() + 3600);
        let usual = [
            "--public-path=/public/**",
            "--optional-auth-path=/feed/**",
            "--max-connections=300",
            "--max-requests",
            permits,
        ];
        let reporting = ["--enforce=report", &until];
        let mode = if reports { &reporting[..] } else { &[] };
        let service = StreamingService::start();
        Self(ForgedStack::before(
            &service.url(),
            &[&usual, mode].concat(),
        ))
    }

    fn authorization(&self, token: Token, user: u8) -> Option<String> {
        let expires = match token {
            Token::Absent => return None,
            Token::Expired => clock::now() - 3600,
            Token::Valid => clock::now() + 3600,
        };
        let claims = json!({"sub": user.to_string(), "userId": user.to_string(), "exp": expires});
        Some(format!(
            "Bearer {}",
            self.0.forge.token(clock::now(), &claims)
        ))
    }

    /// Begins the requests, and returns the connections of HTTP/2 or of HTTP/1.1.
    fn begin(&self, attack: &Attack) -> (Vec<FrameClient>, Vec<RawClient>) {
        let (request, token, version, ..) = attack;
        let authorization = self.authorization(*token, 1);
        let address = self.0.sidecar.address();
        let (method, path) = request.split_once(' ').unwrap();
        let path = format!("/orders{path}");
        let connect = || connect_as(1, address).unwrap();
        if *version == 2 {
            let mut fields = vec![(":method", method), (":scheme", "http")];
            fields.extend([
                (":path", &*path),
                (":authority", "a"),
                ("accept", "text/event-stream"),
            ]);
            fields.extend(
                authorization
                    .iter()
                    .map(|value| ("authorization", value.as_str())),
            );
            let streams: Vec<_> = (0..OPEN).collect();
            let clients = streams.chunks(STREAMS as usize).map(|streams| {
                let mut client = FrameClient::on(connect());
                // No body arrives, of a rejection neither.
                client.initial_window(0);
                for (number, _) in (0..).zip(streams) {
                    client.head(2 * number + 1, &fields, method == "GET");
                }
                client
            });
            return (clients.collect(), Vec::new());
        }
        let mut request = Request::new(method, path).line("Accept: text/event-stream");
        if method == "POST" {
            request = request.line("Content-Length: 9");
        }
        if let Some(value) = authorization {
            request = request.line(format!("Authorization: {value}"));
        }
        let clients = (0..OPEN).map(|_| {
            let mut client = RawClient::on(connect());
            client.send(&request.bytes("a"));
            client
        });
        (Vec::new(), clients.collect())
    }

    /// Sends a request on a connection of its own, of a user with a valid token.
    fn send(&self, user: u8, path: &str) -> RawClient {
        let authorization = self.authorization(Token::Valid, user).unwrap();
        let request = Request::new("GET", format!("/orders{path}"));
        let request = request
            .line("Accept: text/event-stream")
            .line(format!("Authorization: {authorization}"));
        let mut client = RawClient::on(connect_as(user, self.0.sidecar.address()).unwrap());
        client.send(&request.bytes("a"));
        client
    }

    /// Sends requests as another client, on one kept connection and on new ones.
    fn verdicts(&self, client: u8, path: &str, token: Token) -> Vec<String> {
        let mut request = Request::new("GET", format!("/orders{path}"));
        if let Some(value) = self.authorization(token, client) {
            request = request.line(format!("Authorization: {value}"));
        }
        let connect = || RawClient::on(connect_as(client, self.0.sidecar.address()).unwrap());
        let mut kept = connect();
        let exchange = |connection: &mut RawClient| {
            connection.send(&request.bytes("a"));
            let response = connection.try_response("GET");
            response.map_or_else(|error| error.to_string(), |response| response.verdict())
        };
        (0..3)
            .flat_map(|_| [exchange(&mut kept), exchange(&mut connect())])
            .collect()
    }
}

#[test]
fn one_client_s_requests_keep_no_other_client_out() {
    for attack in &ATTACKS {
        let (request, _, version, path, tokens) = attack;
        let stack = Stack::start(PERMITS, tokens.contains(&Token::Expired));
        let admin = stack.0.sidecar.admin();
        let in_flight = || sum(admin, "postern_sidecar_requests_in_flight", &[]);
        let held = stack.begin(attack);
        wait::until(request, || {
            let begun = in_flight() + rejections(admin, "server_busy");
            begun >= u64::from(OPEN)
        });
        // Before they come too slowly.
        wait::until("one client's share", || in_flight() == FOUR_FIFTHS);
        for client in 2..=5 {
            for token in *tokens {
                let verdicts = stack.verdicts(client, path, *token);
                assert_eq!(verdicts, ["200"; 6], "{request} {version}: {token:?}");
            }
        }
        drop(held);
        wait::until("all permits to be free", || in_flight() == 0);
    }
}

#[test]
fn a_client_that_holds_nothing_alone_waits_for_a_permit() {
    let stack = Stack::start("5", false);
    let admin = stack.0.sidecar.admin();
    let until_in_flight = |count: u64| {
        let in_flight = || sum(admin, "postern_sidecar_requests_in_flight", &[]);
        wait::until("requests in flight", || in_flight() == count);
    };
    let _held: Vec<_> = (0..4).map(|_| stack.send(1, "/events")).collect();
    until_in_flight(4);
    // It waits for a second: a test that is stopped for as long tries again.
    let is_served = (0..10).any(|_| {
        let last = stack.send(2, "/events");
        until_in_flight(5);
        let mut good = stack.send(3, "/list");
        let mut greedy = stack.send(1, "/list");
        assert_eq!(greedy.response("GET").verdict(), "503 server_busy");
        drop(last);
        let verdict = good.response("GET").verdict();
        until_in_flight(4);
        verdict == "200"
    });
    assert!(is_served);
}

#[test]
fn the_log_names_the_client_that_has_its_share() {
    for (named, user) in [("off", ""), ("id", " user=1")] {
        let service = StreamingService::start();
        let flags = ["--max-requests", "2", "--access-log-user", named];
        let stack = Stack(ForgedStack::before(&service.url(), &flags));
        let _held = stack.send(1, "/events");
        wait::until("the first one", || {
            sum(
                stack.0.sidecar.admin(),
                "postern_sidecar_requests_in_flight",
                &[],
            ) == 1
        });
        let verdict = stack.send(1, "/list").response("GET").verdict();
        assert_eq!(verdict, "503 server_busy");
        let process = stack.0.sidecar.process();
        for part in ["a client was turned away", "server_busy"] {
            let line = process.line_with(part);
            has(&line, " client=127.0.0.1");
            assert_eq!(line.contains(" user="), !user.is_empty(), "{line}");
            has(&line, user);
        }
    }
}

#[test]
fn one_client_s_slow_logins_keep_no_other_client_out() {
    let flags = ["--max-connections", "50", "--request-timeout", "60"];
    let server = AuthServerPlan::new().flags(flags).ready();
    let login = Request::new("POST", format!("/auth{LOGIN}")).json(&credentials());
    let whole = login.bytes("a");
    let slow: Vec<_> = (0..50)
        .map(|_| {
            let mut client = RawClient::on(connect_as(1, server.address()).unwrap());
            client.send(&whole[..whole.len() - 1]);
            client
        })
        .collect();
    for client in 2..=5 {
        let mut other = RawClient::on(connect_as(client, server.address()).unwrap());
        other.send(&login.clone().line("Connection: close").bytes("a"));
        let response = other.response("POST");
        assert_eq!(response.verdict(), "200", "{client}");
        assert_eq!(response.header("content-length").len(), 1);
    }
    let served = slow.into_iter().filter_map(|mut client| {
        client.send(&whole[whole.len() - 1..]);
        // Those beyond the share have no response, or a 503.
        let response = client.try_response("POST").ok()?;
        (response.status() == 200).then_some(())
    });
    assert_eq!(served.count(), 40);
}
