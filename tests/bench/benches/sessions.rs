//! Sessions: the time until a fleet rejects the tokens of a session that has ended at another issuer, the CPU
//! of its polls, and the CPU of a refresh beside those of a login and of a token for an application.
//! `make bench-sessions`.
//!
//! A poll is a new connection with three requests, as a sidecar makes it: the key, the key set and
//! the end of the revocation list, of which the second is normally a 304.
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a program at a terminal; a measurement that cannot be taken ends with a message"
)]

use std::fmt::Write;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bench::cpu::{self, microseconds_each};
use bench::document;
use bench::keep_alive::{KeepAlive, get, get_with_token, post, post_json};
use bench::settings::Settings;
use bench::statistics::Summary;
use postern_token::revocations::Chain;
use serde_json::json;
use tempfile::TempDir;
use tests::actors::applications::register_in;
use tests::actors::auth_server::{AuthServer, AuthServerPlan, LOGIN, SECRET_KEY, credentials};
use tests::actors::programs::{Program, repository};
use tests::actors::sidecar::{Sidecar, SidecarPlan};
use tests::actors::token_forge::{encode, signing_input};
use tests::keys::{Algorithm, SigningKey};
use tests::services::redis_server::Redis;
use tests::services::socket_server::{Reply, SocketServer, response};
use tests::wire::clock;
use tests::wire::raw_client::exchange;

const FLEETS: [usize; 2] = [100, 1_000];
const CONNECTIONS: usize = 8;
/// Sidecars for tokens of another issuer, and their schedules.
const FOREIGN_FLEET: usize = 50;
const CRONS: [(&str, &str); 2] = [
    ("a poll of each minute", "0 * * * * *"),
    ("a poll every five seconds", "*/5 * * * * *"),
];
const ENDED_SESSIONS: usize = 40_000;
/// Refreshes of one session.
const REFRESHES: usize = 31;
const JWKS: &str = "/auth/.well-known/jwks.json";
const LIST: &str = "/auth/.well-known/revocations";
const TOKEN: &str = "/auth/oauth/token";
const PATH: &str = "/orders/list";

fn main() {
    let settings = Settings::from_environment(5, 0.0);
    let report = format!(
        "{}\n{}\n{}",
        foreign_sessions(&settings),
        polls(&settings),
        grants(&settings)
    );
    println!("{report}");
    if settings.write {
        let file = repository().join("docs/performance.md");
        document::write_part(&file, "sessions", &report);
    }
}

fn plan() -> AuthServerPlan {
    AuthServerPlan::new()
        .flags(["--signing-type", "ecdsa", "--refresh-tokens"])
        .flags(["--token-lifetime", "300"])
}

fn of(values: &[f64]) -> Summary {
    Summary::of(values).expect("at least one value")
}

/// Another issuer, and the server of its key set.
struct Foreign {
    key: SigningKey,
    keys: SocketServer,
    home: TempDir,
}

impl Foreign {
    const ISSUER: &str = "https://idp.example";

    fn start() -> Self {
        let key = SigningKey::generate(Algorithm::ES256);
        let der = key.public_der();
        let (x, y) = der[der.len() - 64..].split_at(32);
        let jwk = json!({"kty": "EC", "crv": "P-256", "kid": "k", "x": encode(x), "y": encode(y)});
        let jwks = json!({"keys": [jwk]}).to_string();
        let keys = move |_: &_| Reply::Bytes(response("200 OK", &[], jwks.as_bytes()));
        Self {
            key,
            keys: SocketServer::start(keys),
            home: tempfile::tempdir().expect("a directory"),
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.keys.address())
    }

    /// Starts an auth server that takes its logout tokens.
    fn server(&self) -> AuthServer {
        let (file, url) = (self.home.path().join("auth-server.toml"), self.url());
        let table = format!(
            "[[logout]]\nissuer = '{}'\nclient = 'c'\njwks = '{url}'\n",
            Self::ISSUER
        );
        std::fs::write(&file, table).expect("a written file");
        plan()
            .flags(["--config", &file.display().to_string()])
            .ready()
    }

    /// Starts a sidecar for its access tokens.
    fn sidecar(&self, upstream: &str, server: &AuthServer, cron: &str) -> Sidecar {
        let flags = [
            "--issuer",
            Self::ISSUER,
            "--audience",
            "orders",
            "--jwks",
            &self.url(),
        ];
        let plan = SidecarPlan::of_upstream(upstream, flags).app_name("");
        let polls = ["--revocations-from", &server.url(), "--refresh-cron", cron];
        plan.flags(polls).ready()
    }

    fn signed(&self, typ: &str, claims: &serde_json::Value) -> String {
        let header = json!({"alg": "ES256", "kid": "k", "typ": typ}).to_string();
        let input = signing_input(header.as_bytes(), claims.to_string().as_bytes());
        format!("{input}.{}", encode(&self.key.sign(input.as_bytes())))
    }

    fn access_token(&self, session: usize) -> String {
        let (now, sid) = (clock::now(), session.to_string());
        self.signed("at+jwt", &json!({
            "iss": Self::ISSUER, "aud": "orders", "sub": sid, "sid": sid, "iat": now, "exp": now + 3600,
        }))
    }

    /// Returns the request by which it says that a session has ended.
    fn logout(&self, session: usize) -> Vec<u8> {
        let (now, sid) = (clock::now(), session.to_string());
        let token = self.signed("logout+jwt", &json!({
            "iss": Self::ISSUER, "aud": "c", "sub": sid, "sid": sid, "jti": sid, "iat": now, "exp": now + 120,
            "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
        }));
        form(
            "/auth/oidc/backchannel-logout",
            &[],
            &format!("logout_token={token}"),
        )
    }
}

/// Measures the time from a logout token until the last sidecar of a fleet rejects the session, and what many
/// ended sessions cost.
fn foreign_sessions(settings: &Settings) -> String {
    let foreign = Foreign::start();
    let (fleet, rounds) = (settings.amount(FOREIGN_FLEET, 2), settings.rounds);
    let mut text = format!(
        "| after a logout token, {fleet} sidecars | seconds until the last 401, of {rounds} logouts |\n|---|---|\n"
    );
    for (name, cron) in CRONS.into_iter().skip(usize::from(settings.smoke)) {
        let seconds = of(&last_rejections(&foreign, fleet, rounds, cron));
        let _ = writeln!(text, "| {name} | {seconds:.2} |");
    }
    text += "\n| ended sessions | bytes of the list | of a poll | auth server's CPU µs a poll |\n|---|---|---|---|\n";
    let server = foreign.server();
    for ended in [0, settings.amount(ENDED_SESSIONS, 10)] {
        let sessions: Vec<_> = (0..ended).collect();
        thread::scope(|scope| {
            for part in sessions.chunks(ended / CONNECTIONS + 1) {
                let (foreign, server) = (&foreign, &server);
                scope.spawn(move || {
                    let mut line = KeepAlive::connect(server.address()).expect("a connection");
                    for &session in part {
                        let status = line.exchange(&foreign.logout(session));
                        assert_eq!(status.expect("a response"), 200, "a logout");
                    }
                });
            }
        });
        let version = fetched(server.address(), JWKS);
        let version = version.header("etag").expect("a version");
        let jwks = get(JWKS, &[&format!("If-None-Match: {version}")]);
        let whole = exchange(server.address(), "GET", &get(LIST, &[]))
            .body
            .len();
        let list = get(&format!("{LIST}?after={}", cursor(server.address())), &[]);
        let rest = exchange(server.address(), "GET", &list).body.len();
        let polls = settings.amount(200, 1);
        let cost = poll_cost(&server, &[(&jwks, 304), (&list, 200)], fleet, polls);
        let _ = writeln!(text, "| {ended} | {whole} | {rest} | {cost:.0} |");
    }
    text
}

fn last_rejections(foreign: &Foreign, fleet: usize, rounds: usize, cron: &str) -> Vec<f64> {
    let server = foreign.server();
    let service = SocketServer::start(|_| Reply::Bytes(response("200 OK", &[], b"echo")));
    let upstream = format!("http://{}", service.address());
    let start = |_| foreign.sidecar(&upstream, &server, cron);
    let sidecars: Vec<_> = (0..fleet).map(start).collect();
    let round = |session: usize| {
        let request = get_with_token(PATH, &foreign.access_token(session));
        let connect =
            |sidecar: &Sidecar| KeepAlive::connect(sidecar.address()).expect("a connection");
        let mut lines: Vec<_> = sidecars.iter().map(connect).collect();
        for line in &mut lines {
            assert_eq!(
                line.exchange(&request).expect("a response"),
                200,
                "before the logout"
            );
        }
        let mut line = KeepAlive::connect(server.address()).expect("a connection");
        let from = Instant::now();
        let status = line.exchange(&foreign.logout(session));
        assert_eq!(status.expect("a response"), 200, "a logout");
        while !lines.is_empty() {
            lines.retain_mut(|line| line.exchange(&request).expect("a response") == 200);
            thread::sleep(Duration::from_millis(20));
        }
        from.elapsed().as_secs_f64()
    };
    (0..rounds).map(round).collect()
}

/// Fetches the list on a connection of its own; returns the name of its lines.
fn cursor(address: SocketAddr) -> String {
    let list = exchange(address, "GET", &get(LIST, &[])).text();
    let lines = list.lines().skip(1);
    let chain = lines.fold(Chain::default(), |chain, line| chain.next(line));
    chain.cursor()
}

fn fetched(address: SocketAddr, path: &str) -> KeepAlive {
    let mut line = KeepAlive::connect(address).expect("a connection");
    assert_eq!(line.exchange(&get(path, &[])).expect("a response"), 200);
    line
}

/// Measures the CPU of the auth server for each poll of a fleet.
fn polls(settings: &Settings) -> String {
    let server = plan().ready();
    let mut list = KeepAlive::connect(server.address()).expect("a connection");
    let logout = format!("token={}", server.login());
    let status = list.exchange(&form("/auth/oauth/revoke", &[], &logout));
    assert_eq!(status.expect("a response"), 200, "a logout");
    let key = get(&format!("/auth{SECRET_KEY}"), &[]);
    let version = fetched(server.address(), JWKS);
    let version = version.header("etag").expect("a version");
    let jwks = get(JWKS, &[&format!("If-None-Match: {version}")]);
    let list = get(&format!("{LIST}?after={}", cursor(server.address())), &[]);
    let full = [(&key, 200), (&jwks, 304), (&list, 200)];
    let mut text = "| auth server's CPU for | µs a poll | ms a minute, 100 sidecars | 1,000 sidecars |\n|---|---|---|---|\n".to_owned();
    let (mut cells, mut each) = (Vec::new(), Vec::new());
    for fleet in FLEETS {
        let fleet = settings.amount(fleet, 10);
        let rounds = settings.amount(20_000 / fleet, 1);
        let cost = poll_cost(&server, &full, fleet, rounds);
        each.push(cost);
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        cells.push(format!("{:.0}", cost * fleet as f64 / 1e3));
    }
    let (each, cells) = (of(&each), cells.join(" | "));
    let _ = writeln!(text, "| the poll of each minute | {each:.0} | {cells} |");
    text
}

fn poll_cost(
    server: &AuthServer,
    requests: &[(&Vec<u8>, u16)],
    fleet: usize,
    rounds: usize,
) -> f64 {
    let process = server.process().id();
    let before = cpu::time_of(process);
    for _ in 0..rounds {
        // All connections of a round are open at once.
        let open = (0..fleet).map(|_| KeepAlive::connect(server.address()));
        let mut open: Vec<_> = open.map(|it| it.expect("a connection")).collect();
        for line in &mut open {
            for (request, expected) in requests {
                assert_eq!(line.exchange(request).expect("a response"), *expected);
            }
        }
    }
    microseconds_each(cpu::time_of(process) - before, (fleet * rounds) as u64)
}

/// Compares the CPU of the three ways to a token, in both stores.
fn grants(settings: &Settings) -> String {
    let mut text = "| CPU µs of the auth server (a second of one core) | file store | Redis |\n|---|---|---|\n".to_owned();
    let redis = Redis::start();
    let home = tempfile::tempdir().expect("a directory");
    let stores = [
        Some(tests::actors::auth_server::file_store(home.path())),
        redis.as_ref().map(Redis::url),
    ];
    let costs: Vec<_> = stores
        .iter()
        .map(|store| Some(costs(store.as_deref()?, settings)))
        .collect();
    for (row, name) in NAMES.iter().enumerate() {
        let cells: Vec<_> = costs
            .iter()
            .map(|costs| match costs {
                Some(costs) => format!("{:.0} ({:.0})", costs[row], 1e6 / costs[row]),
                None => "–".to_owned(),
            })
            .collect();
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
    text
}

const NAMES: [&str; 4] = [
    "a login without a refresh token",
    "a login with one",
    "a refresh",
    "a token for an application",
];

fn costs(store: &str, settings: &Settings) -> [f64; 4] {
    let secret = register_in(store, "jobs");
    let words = ["application", "grant", "--app-id=jobs", "--audience=x"];
    let granted = Program::AuthServer.run(&[&words[..], &["--store", store]].concat());
    assert_eq!(granted.code, Some(0), "{}", granted.stderr);
    let basic = STANDARD.encode(format!("jobs:{secret}"));
    let login = post_json(&format!("/auth{LOGIN}"), &credentials().to_string());
    let application = form(
        TOKEN,
        &[&format!("Authorization: Basic {basic}")],
        "grant_type=client_credentials",
    );
    let bare = {
        let server = AuthServerPlan::new().store(store);
        let server = server.flags(["--signing-type", "ecdsa"]).ready();
        cost(&server, settings, |line| {
            assert_eq!(line.exchange(&login).expect("a response"), 200);
        })
    };
    let server = plan().store(store).ready();
    let with = cost(&server, settings, |line| {
        assert_eq!(line.exchange(&login).expect("a response"), 200);
    });
    let refreshes = refresh_cost(&server, settings, &login);
    let applications = cost(&server, settings, |line| {
        assert_eq!(line.exchange(&application).expect("a response"), 200);
    });
    [bare, with, refreshes, applications]
}

/// Returns the CPU for each call, of several connections at once.
fn cost(server: &AuthServer, settings: &Settings, call: impl Fn(&mut KeepAlive) + Sync) -> f64 {
    let (process, count) = (server.process().id(), settings.amount(500, 5));
    let before = cpu::time_of(process);
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut line = KeepAlive::connect(server.address()).expect("a connection");
                (0..count).for_each(|_| call(&mut line));
            });
        }
    });
    microseconds_each(cpu::time_of(process) - before, (CONNECTIONS * count) as u64)
}

/// Refreshes sessions again and again. None gets more access tokens than its record has places for:
/// each further one would be a revocation as well.
fn refresh_cost(server: &AuthServer, settings: &Settings, login: &[u8]) -> f64 {
    let (process, sessions) = (server.process().id(), settings.amount(16, 1));
    let begin = |line: &mut KeepAlive| {
        assert_eq!(line.exchange(login).expect("a response"), 200);
        refresh_token(line)
    };
    let lines = (0..CONNECTIONS).map(|_| {
        let mut line = KeepAlive::connect(server.address()).expect("a connection");
        let tokens: Vec<_> = (0..sessions).map(|_| begin(&mut line)).collect();
        (line, tokens)
    });
    let lines: Vec<_> = lines.collect();
    let before = cpu::time_of(process);
    thread::scope(|scope| {
        for (mut line, tokens) in lines {
            scope.spawn(move || {
                for token in tokens {
                    refresh_often(&mut line, token);
                }
            });
        }
    });
    let count = CONNECTIONS * sessions * REFRESHES;
    microseconds_each(cpu::time_of(process) - before, count as u64)
}

fn refresh_often(line: &mut KeepAlive, mut token: String) {
    for _ in 0..REFRESHES {
        let body = format!("grant_type=refresh_token&refresh_token={token}");
        let status = line.exchange(&form(TOKEN, &[], &body));
        assert_eq!(status.expect("a response"), 200, "a refresh");
        token = refresh_token(line);
    }
}

fn refresh_token(line: &KeepAlive) -> String {
    let body: serde_json::Value = serde_json::from_slice(line.body()).expect("JSON");
    let token = [&body, &body["data"]]
        .into_iter()
        .find_map(|it| it["refresh_token"].as_str());
    token.expect("a refresh token").to_owned()
}

fn form(path: &str, lines: &[&str], body: &str) -> Vec<u8> {
    let lines = [&["Content-Type: application/x-www-form-urlencoded"], lines].concat();
    post(path, &lines, body)
}
