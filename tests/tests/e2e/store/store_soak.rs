//! Logins, refreshes and logouts at two servers whose Redis fails over again and again, with `?wait=1`:
//! nothing that was ended is alive, and nothing that got 200 is missing. `POSTERN_TEST_SOAK_SECONDS=600` for a
//! long run; what a store may lose without it is tried in simulated worlds (docs/reliability.md).

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tests::actors::auth_server::{AuthServer, AuthServerPlan};
use tests::actors::setting;
use tests::services::redis_topologies::{SENTINEL_PASSWORD, Watched};
use tests::wait;
use tests::wire::certificates;
use tests::wire::message::Message;

const CLIENTS: usize = 3;

struct Session {
    access: String,
    refresh: String,
}

/// Everything that got 200.
#[derive(Default)]
struct Ledger {
    ended: Mutex<Vec<Session>>,
    renewed: AtomicUsize,
}

/// A client that uses both servers in turn.
struct Client<'a> {
    servers: &'a [AuthServer; 2],
    ledger: &'a Ledger,
    name: usize,
    sessions: Vec<Session>,
}

impl Client<'_> {
    fn work_until(mut self, over: &AtomicBool) {
        for step in 0.. {
            if over.load(Ordering::SeqCst) {
                break;
            }
            let server = &self.servers[step % 2];
            match step % 7 {
                0 | 3 => self.log_in(server, step),
                6 if self.sessions.len() > 10 => self.log_out(server, step),
                _ if self.sessions.is_empty() => {}
                _ => {
                    let session = self.sessions.remove(0);
                    self.sessions.push(self.renewed(server, &session));
                }
            }
        }
        for (number, session) in self.sessions.iter().enumerate() {
            self.renewed(&self.servers[number % 2], session);
        }
    }

    fn log_in(&mut self, server: &AuthServer, step: usize) {
        let user = format!("user-{}-{step}", self.name);
        let response = server.login_as(&user, "enchantress");
        match response.status() {
            200 => {
                let tokens = &response.json()["data"];
                // While the store is away, a login gives no refresh token.
                if tokens["refresh_token"].is_string() {
                    self.sessions.push(session(tokens));
                }
            }
            503 => {}
            other => panic!("a login got {other}: {}", response.text()),
        }
    }

    fn renewed(&self, server: &AuthServer, session: &Session) -> Session {
        let response = until_clear(|| server.refresh(&session.refresh));
        let text = response.text();
        assert_eq!(response.status(), 200, "a session is gone: {text}");
        self.ledger.renewed.fetch_add(1, Ordering::SeqCst);
        self::session(&response.json())
    }

    fn log_out(&mut self, server: &AuthServer, step: usize) {
        let session = self.sessions.remove(0);
        let token = match step % 2 {
            1 => &session.refresh,
            _ => &session.access,
        };
        let response = until_clear(|| server.log_out(token));
        assert_eq!(response.status(), 200, "{}", response.text());
        let again = server.refresh(&session.refresh);
        assert_ne!(again.status(), 200, "an ended session goes on");
        self.ledger.ended.lock().unwrap().push(session);
    }
}

fn session(tokens: &serde_json::Value) -> Session {
    let text = |name: &str| tokens[name].as_str().unwrap().to_owned();
    Session {
        access: text("access_token"),
        refresh: text("refresh_token"),
    }
}

/// Sends the same request again while it gets 503.
fn until_clear(send: impl Fn() -> Message) -> Message {
    let mut last = None;
    wait::within(wait::TIMEOUT, || last.insert(send()).status() != 503);
    last.expect("a response")
}

#[test]
fn with_a_replica_that_acknowledges_a_fail_over_loses_nothing() {
    let Some(redis) = Watched::start() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let password = directory.path().join("sentinel");
    certificates::write_private(&password, SENTINEL_PASSWORD);
    let password = password.display().to_string();
    let flags = ["--store-sentinel-password-file", password.as_str()];
    let plan = AuthServerPlan::polling()
        .store(format!("{}?wait=1", redis.url()))
        .flags(["--refresh-tokens", "on"]);
    let plan = plan.flags(flags);
    let servers = [plan.clone().ready(), plan.ready()];
    let (ledger, over) = (Ledger::default(), AtomicBool::new(false));
    let mut switches = 0;
    std::thread::scope(|scope| {
        for name in 0..CLIENTS {
            let client = Client {
                servers: &servers,
                ledger: &ledger,
                name,
                sessions: Vec::new(),
            };
            scope.spawn(|| client.work_until(&over));
        }
        let over = crate::e2e::service::upstreams::SetOnDrop(&over);
        let seconds = setting::number("POSTERN_TEST_SOAK_SECONDS", 15) as u64;
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            let before = ledger.renewed.load(Ordering::SeqCst);
            redis.switch();
            switches += 1;
            wait::until("sessions that go on", || {
                ledger.renewed.load(Ordering::SeqCst) > before + 100
            });
        }
        drop(over);
    });
    let (renewed, ended) = (ledger.renewed.into_inner(), ledger.ended.into_inner());
    let ended = ended.unwrap();
    let mut summary = std::io::stdout().lock();
    writeln!(
        summary,
        "renewed {renewed}, ended {} in {switches} fail-overs",
        ended.len()
    )
    .unwrap();
    assert!(!ended.is_empty());
    for server in &servers {
        for session in &ended {
            server.until_revoked(&session.access);
            assert_eq!(server.refresh(&session.refresh).status(), 400);
        }
    }
}
