//! One installation: a store, servers, sidecars, clients, and the network between them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use auth_server::simulation::{Reply, Server, SimulatedStore};
use axum::body::Body;
use bytes::Bytes;
use fastrand::Rng;
use http::{HeaderValue, Request, header};
use parking_lot::Mutex;
use postern_process::simulation::Machine;
use postern_token::keys::VerificationKey;
use postern_token::keys::signing_type::SigningType;
use postern_transport::http_client::simulated::{Network, Responding};
use sidecar::simulation::Sidecar;
use tokio::time::Instant;

use crate::laws::{Laws, Served};
use crate::model::{End, Ended, Token};
use crate::plan::Setting;
use crate::story::Story;
use crate::weather::{EPOCH, Sky, Way};

/// The time after which a client gives a server up.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

pub struct World {
    pub setting: Setting,
    pub sky: Arc<Sky>,
    pub store: SimulatedStore,
    pub laws: Mutex<Laws>,
    pub story: Story,
    servers: Vec<Mutex<Option<Running<Server>>>>,
    sidecars: Vec<Mutex<Option<Running<Sidecar>>>>,
    pub ways: Vec<Arc<Way>>,
    /// The time until which a sidecar reaches no server.
    isolated_until: Vec<Mutex<Instant>>,
    clocks: Vec<Mutex<i64>>,
    random: Mutex<Rng>,
    /// Decides which commands die.
    deaths: Mutex<Rng>,
}

struct Running<T> {
    machine: Arc<Machine>,
    program: Arc<T>,
}

impl World {
    #[must_use]
    pub fn new(seed: u64, setting: Setting, story: Story) -> Arc<Self> {
        let sky = Sky::new(setting.losses);
        let way = |server| Way::new(&sky, seed.wrapping_mul(31).wrapping_add(server));
        let servers = setting.servers as u64;
        Arc::new(Self {
            store: SimulatedStore::new(setting.waits, setting.sealed),
            laws: Mutex::new(Laws::new(setting, story.clone())),
            servers: (0..servers).map(|_| Mutex::default()).collect(),
            sidecars: (0..setting.sidecars).map(|_| Mutex::default()).collect(),
            // The last one is the administrators'.
            ways: (0..=servers).map(way).collect(),
            isolated_until: (0..setting.sidecars)
                .map(|_| Mutex::new(sky.began))
                .collect(),
            clocks: (0..servers).map(|_| Mutex::default()).collect(),
            random: Mutex::new(Rng::with_seed(!seed)),
            deaths: Mutex::new(Rng::with_seed(seed.wrapping_mul(37))),
            sky,
            setting,
            story,
        })
    }

    #[must_use]
    pub fn server(&self, number: usize) -> Option<Arc<Server>> {
        let running = self.servers[number].lock();
        running.as_ref().map(|running| Arc::clone(&running.program))
    }

    #[must_use]
    pub fn sidecar(&self, number: usize) -> Option<Arc<Sidecar>> {
        let running = self.sidecars[number].lock();
        running.as_ref().map(|running| Arc::clone(&running.program))
    }

    /// Returns the servers that run, by their numbers.
    #[must_use]
    pub fn running_servers(&self) -> BTreeMap<usize, Arc<Server>> {
        let all = 0..self.servers.len();
        all.filter_map(|number| Some((number, self.server(number)?)))
            .collect()
    }

    /// Returns true where every running server lists a key.
    #[must_use]
    pub fn all_list(&self, key: &str) -> bool {
        let servers = self.running_servers();
        let mut keys = servers.values().map(|server| server.keys());
        keys.all(|keys| keys.is_some_and(|keys| keys.listed.contains(key)))
    }

    /// Returns the begin of a server's last poll that succeeded. One at a former primary that confirms what is
    /// lost with it (without `?wait=`) does not count.
    #[must_use]
    pub fn polled(&self, server: usize) -> Option<Instant> {
        let begun = self.server(server)?.polls().succeeded?;
        let is_of_former = !self.setting.waits && self.ways[server].is_with_former(begun);
        (!is_of_former).then_some(begun)
    }

    /// Returns the sidecars that run, by their numbers.
    #[must_use]
    pub fn running_sidecars(&self) -> BTreeMap<usize, Arc<Sidecar>> {
        let all = 0..self.sidecars.len();
        all.filter_map(|number| Some((number, self.sidecar(number)?)))
            .collect()
    }

    #[must_use]
    pub fn machine(&self) -> Arc<Machine> {
        Machine::new(self.sky.began, EPOCH)
    }

    /// Returns the machine of a command, which may die within some calls of the store.
    #[must_use]
    pub fn machine_of_command(&self) -> Arc<Machine> {
        let (machine, mut random) = (self.machine(), self.deaths.lock());
        if self.sky.losses() > 0 && random.u8(..8) == 0 {
            let (dying, lives) = (Arc::clone(&machine), random.u64(..20_000));
            machine.run(async move {
                tokio::time::sleep(Duration::from_micros(lives)).await;
                dying.kill();
            });
        }
        machine
    }

    /// Starts a server, unless it runs.
    pub fn start_server(&self, number: usize) {
        let mut slot = self.servers[number].lock();
        if slot.is_some() {
            return;
        }
        let machine = self.machine();
        machine.set_ahead(*self.clocks[number].lock());
        let server = Server::start(
            Arc::clone(&machine),
            &self.store,
            Arc::clone(&self.ways[number]) as _,
        );
        self.story.tell(|| format!("server {number} starts"));
        self.laws.lock().keyless = Some(Instant::now());
        *slot = Some(Running {
            machine,
            program: Arc::new(server),
        });
    }

    /// Returns true for a server that has compared its clock with the store's since one was set.
    #[must_use]
    pub fn has_compared_clocks(&self, server: usize) -> bool {
        let polled = self.server(server).and_then(|it| it.polls().succeeded);
        polled.is_some_and(|begun| begun > self.sky.clock_set())
    }

    /// Ends a server wherever it stands.
    pub fn kill_server(&self, number: usize) {
        if let Some(running) = self.servers[number].lock().take() {
            self.story.tell(|| format!("server {number} dies"));
            running.machine.kill();
            self.laws.lock().server_dies(number);
        }
    }

    /// Sets the clock of a server, now and after each start.
    pub fn set_clock(&self, server: usize, seconds: i64) {
        *self.clocks[server].lock() = seconds;
        self.sky.note_clock_set();
        if let Some(running) = &*self.servers[server].lock() {
            running.machine.set_ahead(seconds);
        }
    }

    pub fn start_sidecar(self: &Arc<Self>, number: usize) {
        let mut slot = self.sidecars[number].lock();
        if slot.is_some() {
            return;
        }
        let machine = self.machine();
        let wire = Wire {
            world: Arc::clone(self),
            sidecar: number,
            server: Mutex::default(),
        };
        let sidecar = Sidecar::start(Arc::clone(&machine), Arc::new(wire));
        self.story.tell(|| format!("sidecar {number} starts"));
        self.laws.lock().sidecar_starts(number);
        *slot = Some(Running {
            machine,
            program: Arc::new(sidecar),
        });
    }

    pub fn kill_sidecar(&self, number: usize) {
        if let Some(running) = self.sidecars[number].lock().take() {
            self.story.tell(|| format!("sidecar {number} dies"));
            running.machine.kill();
        }
    }

    pub fn isolate(&self, sidecar: usize, lasts: Duration) {
        *self.isolated_until[sidecar].lock() = Instant::now() + lasts;
    }

    /// Returns the id of the key by which a server signs.
    fn signer(&self, server: usize) -> Option<String> {
        Some(self.server(server)?.keys()?.current)
    }

    /// Returns the state of a server from which a sidecar has fetched something. `polled` and `signer`: as the
    /// request came.
    fn served(
        &self,
        sidecar: usize,
        server: usize,
        polled: Option<Instant>,
        signer: Option<String>,
    ) -> Served {
        let server = self.server(server);
        let keys = server.as_ref().and_then(|server| server.keys());
        let known = self.sidecar(sidecar).map(|sidecar| sidecar.keys());
        let knows_signer = keys
            .as_ref()
            .zip(known)
            .is_some_and(|(keys, known)| known.contains(&keys.current));
        let signers = [signer, keys.as_ref().map(|keys| keys.current.clone())];
        Served {
            given: None,
            signers: signers.into_iter().flatten().collect(),
            polled,
            keys,
            knows_signer,
            list: server.map_or(0, |server| server.list_number()),
        }
    }

    /// Returns true where the store has an end.
    #[must_use]
    pub fn store_has(&self, end: &End, tokens: &[Token]) -> bool {
        if let Ended::Key(id) = &end.ended {
            return self.store.has_revoked_key(id);
        }
        let ended = tokens.iter().filter(|token| end.ends(token));
        let claims: Vec<_> = ended.map(|token| &token.claims).collect();
        self.store.revokes(&claims)
    }

    /// Ends every process: the world has an end.
    pub fn stop(&self) {
        (0..self.servers.len()).for_each(|server| self.kill_server(server));
        (0..self.sidecars.len()).for_each(|sidecar| self.kill_sidecar(sidecar));
    }

    /// Returns a random number of the network, below `end`.
    fn draw(&self, end: usize) -> usize {
        self.random.lock().usize(..end)
    }

    /// Returns true for a request, or a response, that is lost on its way.
    fn is_lost(&self) -> bool {
        self.draw(1000) < self.sky.losses() as usize
    }

    /// Sends a request of a client to a server; `None` without a response. What a former primary confirms without
    /// `?wait=` is lost with it, also where the response comes when the server has left it.
    pub async fn request(&self, server: usize, request: Request<Body>) -> Option<Reply> {
        let sent = Instant::now();
        let reply = self.send(server, request).await;
        if !self.setting.waits && self.ways[server].former_served_since(sent) {
            self.laws.lock().former_has_served = true;
        }
        reply
    }

    async fn send(&self, server: usize, mut request: Request<Body>) -> Option<Reply> {
        let host = HeaderValue::from_static("auth:9000");
        request.headers_mut().insert(header::HOST, host);
        let running = self.server(server)?;
        tokio::time::sleep(Duration::from_micros(200)).await;
        if self.is_lost() {
            return None;
        }
        let path = request.uri().path().to_owned();
        let responding = tokio::time::timeout(REQUEST_TIMEOUT, running.respond(request));
        let reply = responding.await.ok()??;
        let is_expected = [200, 304, 400, 401, 503].contains(&reply.status.as_u16());
        self.laws.lock().require(is_expected, || {
            format!("server {server} responds to {path} with {}", reply.status)
        });
        (!self.is_lost()).then_some(reply)
    }
}

/// The network of one sidecar. It keeps the world alive that it is a part of, until that stops.
struct Wire {
    world: Arc<World>,
    sidecar: usize,
    /// The server of the present fetch.
    server: Mutex<usize>,
}

impl Wire {
    /// Each fetch begins with the key, and stays with its server.
    fn server_for(&self, path: &str) -> usize {
        let mut server = self.server.lock();
        if path.ends_with("/key") {
            *server = self.world.draw(self.world.setting.servers);
        }
        *server
    }
}

impl Network for Wire {
    fn carry(&self, request: reqwest::Request) -> Responding {
        let (world, sidecar) = (Arc::clone(&self.world), self.sidecar);
        let number = self.server_for(request.url().path());
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if Instant::now() < *world.isolated_until[sidecar].lock() {
                return None;
            }
            let path = request.url().path().to_owned();
            let (polled, signer) = (world.polled(number), world.signer(number));
            let reply = world.send(number, converted(&request)).await;
            let mut served = world.served(sidecar, number, polled, signer);
            if path.ends_with("/key") {
                served.given = reply.as_ref().and_then(given_key);
            }
            let mut laws = world.laws.lock();
            laws.fetched(sidecar, &path, reply.as_ref(), served);
            drop(laws);
            let reply = reply?;
            let mut response = http::Response::new(reply.body);
            *response.status_mut() = reply.status;
            *response.headers_mut() = reply.headers;
            Some(response)
        })
    }
}

/// Returns the id of the key in a response of the key endpoint.
fn given_key(reply: &Reply) -> Option<String> {
    let said: serde_json::Value = serde_json::from_slice(&reply.body).ok()?;
    let key = VerificationKey::parse(SigningType::Ecdsa, said["data"].as_str()?).ok()?;
    Some(key.id().to_string())
}

fn converted(request: &reqwest::Request) -> Request<Body> {
    let body = request.body().and_then(|body| body.as_bytes());
    let body = Bytes::copy_from_slice(body.unwrap_or_default());
    let mut converted = Request::new(Body::from(body));
    *converted.method_mut() = request.method().clone();
    *converted.uri_mut() = request.url().as_str().parse().expect("a URI");
    *converted.headers_mut() = request.headers().clone();
    converted
}
