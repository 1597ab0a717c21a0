//! Logins, refreshes, logouts, revocations and rotations at two servers whose Redis fails over again and
//! again: nothing that was ended is alive, and nothing that got 200 is missing but what an older copy
//! lacks. With `?wait=1` not even that. `POSTERN_TEST_SOAK_SECONDS=600` for a long run.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tests::actors::auth_server::{AuthServer, AuthServerPlan};
use tests::actors::programs::Program;
use tests::actors::setting;
use tests::services::redis_server::Redis;
use tests::services::redis_topologies::{SENTINEL_PASSWORD, Watched};
use tests::wait;
use tests::wire::certificates;

const CLIENTS: usize = 3;

/// A request, from before it was sent until its response was read.
type Moment = (Instant, Instant);

struct Session {
    access: String,
    refresh: String,
    /// The last login or refresh that got 200.
    renewed: Moment,
}

/// Everything that got 200, and what was found of it later.
#[derive(Default)]
struct Ledger {
    /// From before each older copy was taken until it was in force.
    older_copies: Mutex<Vec<Moment>>,
    /// Both tokens of each session that was logged out.
    ended: Mutex<Vec<(String, String)>>,
    /// Access tokens that the command revoked.
    revoked: Mutex<Vec<String>>,
    /// Sessions that an older copy lacked: their users log in again.
    missing: Mutex<usize>,
    renewed: Mutex<usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    /// Returns true if an older copy, from before its last renewal, was in force later.
    fn may_be_missing(&self, session: &Session) -> bool {
        let (sent, received) = session.renewed;
        let copies = lock(&self.older_copies);
        copies
            .iter()
            .any(|(taken, in_force)| *taken < received && sent < *in_force)
    }
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
                    self.sessions.extend(self.renewed(server, session));
                }
            }
        }
        for (number, session) in std::mem::take(&mut self.sessions).into_iter().enumerate() {
            self.renewed(&self.servers[number % 2], session);
        }
    }

    fn log_in(&mut self, server: &AuthServer, step: usize) {
        let sent = Instant::now();
        let user = format!("user-{}-{step}", self.name);
        let response = server.login_as(&user, "enchantress");
        match response.status() {
            200 => {
                let tokens = &response.json()["data"];
                // While the store is away, a login gives no refresh token.
                if tokens["refresh_token"].is_string() {
                    let session = session(tokens, (sent, Instant::now()));
                    self.sessions.push(session);
                }
            }
            503 => {}
            other => panic!("a login got {other}: {}", response.text()),
        }
    }

    /// Refreshes until the outcome is clear; `None` for a session that an older copy lacks.
    fn renewed(&self, server: &AuthServer, session: Session) -> Option<Session> {
        let (sent, response) = until_clear(|| refreshed(server, &session.refresh));
        if response.status() == 200 {
            *lock(&self.ledger.renewed) += 1;
            return Some(self::session(&response.json(), (sent, Instant::now())));
        }
        let text = response.text();
        assert!(self.ledger.may_be_missing(&session), "it is gone: {text}");
        *lock(&self.ledger.missing) += 1;
        None
    }

    fn log_out(&mut self, server: &AuthServer, step: usize) {
        let session = self.sessions.remove(0);
        // A refresh token says nothing of a session that the store lacks (docs/sessions.md).
        let may_be_missing = self.ledger.may_be_missing(&session);
        let token = match step % 2 {
            1 if !may_be_missing => &session.refresh,
            _ => &session.access,
        };
        let (_, response) = until_clear(|| server.log_out(token));
        assert_eq!(response.status(), 200, "{}", response.text());
        let again = refreshed(server, &session.refresh);
        assert_ne!(again.status(), 200, "an ended session goes on");
        lock(&self.ledger.ended).push((session.access, session.refresh));
    }
}

fn session(tokens: &serde_json::Value, renewed: Moment) -> Session {
    let text = |name: &str| tokens[name].as_str().unwrap().to_owned();
    Session {
        access: text("access_token"),
        refresh: text("refresh_token"),
        renewed,
    }
}

fn refreshed(server: &AuthServer, token: &str) -> tests::wire::message::Message {
    let form = format!("grant_type=refresh_token&refresh_token={token}");
    server.anonymous().post_form("/oauth/token", &form)
}

/// Sends the same request again while it gets 503.
fn until_clear(
    send: impl Fn() -> tests::wire::message::Message,
) -> (Instant, tests::wire::message::Message) {
    let sent = Instant::now();
    let mut last = None;
    wait::within(wait::TIMEOUT, || {
        let response = last.insert(send());
        response.status() != 503
    });
    (sent, last.expect("a response"))
}

/// Rotates the keys and revokes tokens by the commands, which a store that is away may reject.
fn operate(servers: &[AuthServer; 2], flags: &[&str], ledger: &Ledger, over: &AtomicBool) {
    let run = |words: &[&str]| {
        let store = ["--store", servers[0].store()];
        Program::AuthServer.run(&[words, &store, flags].concat())
    };
    while !over.load(Ordering::SeqCst) {
        run(&["keys", "rotate", "--signing-type", "ecdsa"]);
        let response = servers[0].login_as("someone", "enchantress");
        if response.status() == 200 {
            let token = response.json()["data"]["access_token"].clone();
            let token = token.as_str().unwrap();
            let jti = tests::actors::token_forge::jti_of(token);
            if run(&["revoke", "--jti", &jti]).code == Some(0) {
                lock(&ledger.revoked).push(token.to_owned());
            }
        }
        over_within(Duration::from_millis(200), over);
    }
}

fn over_within(limit: Duration, over: &AtomicBool) {
    wait::within(limit, || over.load(Ordering::SeqCst));
}

/// Runs everything while `fail_over` is called again and again, and checks what is left.
fn soak(store: &str, flags: &[&str], fail_over: impl Fn(&Ledger)) {
    let seconds = setting::number("POSTERN_TEST_SOAK_SECONDS", 15) as u64;
    let plan = AuthServerPlan::polling()
        .store(store)
        .flags(["--refresh-tokens", "on"]);
    let plan = plan.flags(flags.iter().copied());
    let servers = [plan.clone().ready(), plan.ready()];
    let (ledger, over) = (Ledger::default(), AtomicBool::new(false));
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
        scope.spawn(|| operate(&servers, flags, &ledger, &over));
        let end = Instant::now() + Duration::from_secs(seconds);
        let over = crate::e2e::service::upstreams::SetOnDrop(&over);
        // The commands are rejected in some moments, on a slow machine in all of a short run.
        let is_empty = || lock(&ledger.ended).is_empty() || lock(&ledger.revoked).is_empty();
        let limit = end + wait::TIMEOUT;
        while Instant::now() < end || (is_empty() && Instant::now() < limit) {
            fail_over(&ledger);
        }
        drop(over);
    });
    let (ended, revoked) = (lock(&ledger.ended), lock(&ledger.revoked));
    let mut summary = std::io::stdout().lock();
    writeln!(
        summary,
        "renewed {}, ended {}, revoked {}, missing {} after {} older copies",
        lock(&ledger.renewed),
        ended.len(),
        revoked.len(),
        lock(&ledger.missing),
        lock(&ledger.older_copies).len(),
    )
    .unwrap();
    assert!(!ended.is_empty() && !revoked.is_empty());
    for server in &servers {
        for (access, refresh) in &*ended {
            server.until_revoked(access);
            assert_eq!(refreshed(server, refresh).status(), 400);
        }
        for access in &*revoked {
            server.until_revoked(access);
        }
    }
}

#[test]
fn an_older_copy_takes_nothing_back_but_what_it_lacks() {
    let (Some(redis), Some(copy)) = (Redis::start(), Redis::start()) else {
        return;
    };
    soak(&redis.url(), &[], |ledger| {
        let taken = Instant::now();
        copy.follow(&redis);
        copy.command(&["REPLICAOF", "NO", "ONE"]);
        let renewed = || *lock(&ledger.renewed);
        let before = renewed();
        wait::until("sessions that the copy lacks", || renewed() > before + 50);
        // Held: no client counts what is missing before the copy is known.
        let mut copies = lock(&ledger.older_copies);
        redis.follow(&copy);
        redis.command(&["REPLICAOF", "NO", "ONE"]);
        copies.push((taken, Instant::now()));
        drop(copies);
        wait::until("sessions that go on", || renewed() > before + 100);
    });
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
    soak(&format!("{}?wait=1", redis.url()), &flags, |ledger| {
        let before = *lock(&ledger.renewed);
        let revoked = lock(&ledger.revoked).len();
        redis.switch();
        wait::until("sessions and commands that go on", || {
            *lock(&ledger.renewed) > before + 100 && lock(&ledger.revoked).len() > revoked
        });
    });
}
