//! Clients of the incidents: users who log in and work at a steady pace, and clients gone wild.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bench::keep_alive::{KeepAlive, ReopenedConnection, get, get_with_token, post_json};
use tests::auth_server::{LOGIN, credentials};

/// Time between two requests of a user.
const PACE: Duration = Duration::from_millis(250);
/// Time between two logins of a user.
const SESSION: Duration = Duration::from_secs(3);
/// Of four requests, one is for the second path.
const PATHS: [&str; 4] = [
    "/orders/list",
    "/orders/list",
    "/orders/list",
    "/orders/reports/7",
];

/// State that all clients share.
#[derive(Default)]
pub(crate) struct World {
    /// Addresses of the auth servers; users take turns.
    pub(crate) auth_servers: Mutex<Vec<SocketAddr>>,
    /// Set at the end.
    over: AtomicBool,
    /// Clients gone wild work while it is set.
    pub(crate) wild: AtomicBool,
}

impl World {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Logs in; returns `None` where the auth server is away.
    fn log_in(&self, number: usize) -> Option<String> {
        let servers = self.auth_servers.lock().ok()?.clone();
        let server = servers.get(number.checked_rem(servers.len())?)?;
        let request = post_json(&format!("/auth{LOGIN}"), &credentials().to_string());
        let mut connection = KeepAlive::connect(*server).ok()?;
        connection.exchange(&request).ok()?;
        let envelope: serde_json::Value = serde_json::from_slice(connection.body()).ok()?;
        Some(envelope["data"]["access_token"].as_str()?.to_owned())
    }
}

/// Sends all clients home on drop, also where a step has failed.
pub(crate) struct End<'w>(pub(crate) &'w World);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// Works until the end: a login every three seconds, four requests a second.
pub(crate) fn work(world: &World, number: usize, sidecar: SocketAddr) {
    let mut connection = ReopenedConnection::to(sidecar);
    // Users do not move in step.
    thread::sleep(PACE / 16 * u32::try_from(number % 16).unwrap_or(0));
    while !world.is_over() {
        let (token, login) = (world.log_in(number), Instant::now());
        let Some(token) = token else {
            thread::sleep(PACE);
            continue;
        };
        for path in PATHS.iter().cycle() {
            let begun = Instant::now();
            let _ = connection.exchange(&get_with_token(path, &token));
            thread::sleep(PACE.saturating_sub(begun.elapsed()));
            if login.elapsed() >= SESSION || world.is_over() {
                break;
            }
        }
    }
}

/// Repeats a request, whatever the response, while the world is wild.
pub(crate) fn go_wild(world: &World, sidecar: SocketAddr, token: Option<&str>, pause: Duration) {
    let request = match token {
        Some(token) => get_with_token(PATHS[0], token),
        None => get(PATHS[0], &[]),
    };
    let mut connection = ReopenedConnection::to(sidecar);
    while world.wild.load(Ordering::Relaxed) && !world.is_over() {
        // Whatever the response is.
        let _ = connection.exchange(&request);
        thread::sleep(pause);
    }
}
