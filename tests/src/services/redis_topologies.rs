//! Several `redis-server` processes as one store: a master with Sentinels, and a cluster.

use std::net::SocketAddr;

use tempfile::TempDir;

use crate::actors::process::{CommandLine, Process};
use crate::services::redis_server::{PRIVATE_KEY, Redis, TlsPort, transport};
use crate::wait;
use crate::wire::certificates::Authority;
use crate::wire::free_address::free_address;

/// Name of the master at the Sentinels.
pub const MASTER: &str = "main";
/// Password of the Sentinels themselves.
pub const SENTINEL_PASSWORD: &str = "hush-sentinel-77";

/// A master, a replica and three Sentinels, which detect a dead master within a second.
#[derive(Debug)]
pub struct Watched {
    servers: Vec<Redis>,
    sentinels: Vec<Sentinel>,
}

#[derive(Debug)]
struct Sentinel {
    /// Address for the harness.
    address: SocketAddr,
    tls: Option<SocketAddr>,
    _process: Process,
    _directory: TempDir,
}

impl Watched {
    /// Starts all five; returns `None`, with a SKIP line, where Redis is not installed.
    ///
    /// # Panics
    /// When they do not find each other.
    pub fn start() -> Option<Self> {
        Self::start_for(None)
    }

    /// Starts all five as `start`, with TLS between them and for clients with a certificate of
    /// `authority`.
    pub fn start_with_tls(authority: &Authority) -> Option<Self> {
        Self::start_for(Some(authority))
    }

    fn start_for(authority: Option<&Authority>) -> Option<Self> {
        let master = Redis::start_for(authority, &[])?;
        let port = master.served_at().port().to_string();
        let replica = Redis::start_for(authority, &["--replicaof", "127.0.0.1", &port])?;
        replica.until_following();
        let sentinels = (0..3).map(|_| Sentinel::start(master.served_at(), authority));
        let sentinels = sentinels.collect();
        let watched = Self {
            servers: vec![master, replica],
            sentinels,
        };
        wait::until("the Sentinels to know each other and the replica", || {
            let known = |sentinel: &Sentinel| {
                sentinel.knows("num-other-sentinels", "2") && sentinel.knows("num-slaves", "1")
            };
            watched.sentinels.iter().all(known)
        });
        Some(watched)
    }

    /// Returns the value for `--store`.
    pub fn url(&self) -> String {
        let hosts = hosts(self.sentinels.iter().map(Sentinel::served_at));
        let transport = transport(self.sentinels[0].tls.is_some());
        format!("{transport}+sentinel://{hosts}/{MASTER}")
    }

    /// Returns the server that takes writes; `None` while there is no master.
    pub fn master(&self) -> Option<&Redis> {
        self.servers.iter().find(|server| is_master(server))
    }

    /// Kills the master and waits for another one.
    ///
    /// # Panics
    /// When no replica takes over.
    pub fn fail_over(&mut self) {
        let master = self.master().expect("a master").address();
        self.servers.retain(|server| server.address() != master);
        wait::until("another master", || self.master().map(drop));
    }

    /// Kills both servers; returns the address of the master, which the Sentinels still name.
    ///
    /// # Panics
    /// Without a master.
    pub fn lose_servers(&mut self) -> SocketAddr {
        let master = self.master().expect("a master").served_at();
        self.servers.clear();
        master
    }

    /// Switches to the replica through the Sentinels, with both servers alive.
    ///
    /// # Panics
    /// When they do not switch.
    pub fn switch(&self) {
        let before = self.master().expect("a master").address();
        let has_switched = || {
            let masters = self.servers.iter().filter(|server| is_master(server));
            let masters: Vec<_> = masters.map(Redis::address).collect();
            masters.len() == 1 && masters != [before]
        };
        // On a busy machine the Sentinels may give up: once more then, but not while they switch.
        let is_switched = (0..3).any(|_| {
            wait::until("the Sentinels to begin", || {
                let begun = self.sentinels[0].command(&["SENTINEL", "FAILOVER", MASTER]);
                begun.ok()
            });
            wait::within(wait::TIMEOUT, has_switched).is_some()
        });
        assert!(is_switched, "another master");
    }
}

impl Sentinel {
    fn start(master: SocketAddr, authority: Option<&Authority>) -> Self {
        let (address, tls) = (free_address(), authority.map(TlsPort::new));
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("sentinel.conf");
        let settings = format!(
            "port {}\nbind 127.0.0.1\nrequirepass {SENTINEL_PASSWORD}\nsentinel sentinel-pass {SENTINEL_PASSWORD}\n\
             sentinel monitor {MASTER} {} {} 2\nsentinel down-after-milliseconds {MASTER} 500\n\
             sentinel failover-timeout {MASTER} 3000\n",
            address.port(),
            master.ip(),
            master.port()
        );
        std::fs::write(&file, settings).expect("a written file");
        let process = CommandLine::new("redis-server")
            .arguments([&file])
            .arguments(tls.iter().flat_map(|tls| &tls.options))
            .arguments(["--sentinel"])
            .start();
        let sentinel = Self {
            address,
            tls: tls.map(|tls| tls.address),
            _process: process,
            _directory: directory,
        };
        wait::until("a Sentinel to respond", || sentinel.command(&["PING"]).ok());
        sentinel
    }

    fn served_at(&self) -> SocketAddr {
        self.tls.unwrap_or(self.address)
    }

    fn command(&self, words: &[&str]) -> std::io::Result<Option<String>> {
        crate::services::redis_server::session(self.address, &[&["AUTH", SENTINEL_PASSWORD], words])
    }

    fn knows(&self, name: &str, value: &str) -> bool {
        let state = self.command(&["SENTINEL", "MASTER", MASTER]);
        state.is_ok_and(|text| {
            text.unwrap_or_default()
                .contains(&format!("{name}\n{value}\n"))
        })
    }
}

/// Three masters that share the slots, and a replica of the master with the keys.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts the cluster; returns `None`, with a SKIP line, where Redis is not installed.
    ///
    /// # Panics
    /// When the nodes do not form a cluster.
    pub fn start() -> Option<Self> {
        Self::start_for(None)
    }

    /// Starts the cluster as `start`, with TLS between the nodes and for clients with a certificate
    /// of `authority`.
    pub fn start_with_tls(authority: &Authority) -> Option<Self> {
        Self::start_for(Some(authority))
    }

    fn start_for(authority: Option<&Authority>) -> Option<Self> {
        let nodes: Option<Vec<_>> = (0..4).map(|_| node(authority)).collect();
        let (nodes, buses): (Vec<_>, Vec<_>) = nodes?.into_iter().unzip();
        let slots = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];
        for (node, (from, to)) in nodes.iter().zip(slots) {
            node.command(&["CLUSTER", "ADDSLOTSRANGE", from, to]);
        }
        for (node, bus) in nodes.iter().zip(&buses).skip(1) {
            let port = node.served_at().port().to_string();
            nodes[0].command(&["CLUSTER", "MEET", "127.0.0.1", &port, bus]);
        }
        let cluster = Self { nodes };
        cluster.settled();
        let owner = cluster.owner().command(&["CLUSTER", "MYID"])?;
        command_until_done(&cluster.nodes[3], &["CLUSTER", "REPLICATE", &owner]);
        cluster.nodes[3].until_following();
        cluster.settled();
        Some(cluster)
    }

    fn settled(&self) {
        wait::until("the cluster to agree", || {
            let agrees = |node: &Redis| {
                let info = node.command(&["CLUSTER", "INFO"]).unwrap_or_default();
                info.contains("cluster_state:ok")
                    && info.contains(&format!("cluster_known_nodes:{}", self.nodes.len()))
            };
            self.nodes.iter().all(agrees)
        });
    }

    /// Returns the value for `--store`, which need not name all nodes.
    pub fn url(&self) -> String {
        let hosts = hosts(self.nodes.iter().take(3).map(Redis::served_at));
        let transport = transport(self.nodes[0].is_secured());
        format!("{transport}+cluster://{hosts}")
    }

    /// Returns the node that holds the keys.
    ///
    /// # Panics
    /// While no node holds them.
    pub fn owner(&self) -> &Redis {
        wait::until("an owner of the slot", || {
            // Every other node redirects, replicas too.
            self.nodes
                .iter()
                .find(|node| node.try_command(&["GET", PRIVATE_KEY]).is_ok())
        })
    }

    /// Switches master and replica of the keys.
    ///
    /// # Panics
    /// When they do not switch.
    pub fn switch(&self) {
        let before = self.owner().address();
        let replica = self.replica();
        replica.command(&["CLUSTER", "FAILOVER"]);
        wait::until("another owner", || self.owner().address() != before);
        self.settled();
    }

    /// Kills the owner and waits for its replica to take over.
    ///
    /// # Panics
    /// When it does not.
    pub fn fail_over(&mut self) {
        let before = self.owner().address();
        self.nodes.retain(|node| node.address() != before);
        let _ = self.owner();
    }

    /// Moves the slot of the keys to another master.
    ///
    /// # Panics
    /// When it cannot be moved.
    pub fn move_slot(&self) {
        let from = self.owner();
        let id = |node: &Redis| node.command(&["CLUSTER", "MYID"]).unwrap_or_default();
        let slot = from
            .command(&["CLUSTER", "KEYSLOT", PRIVATE_KEY])
            .unwrap_or_default();
        let masters = self.nodes.iter().filter(|node| is_master(node));
        let masters: Vec<_> = masters.collect();
        let to = *masters
            .iter()
            .find(|node| node.address() != from.address())
            .expect("another master");
        command_until_done(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        command_until_done(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
        let keys = from
            .command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"])
            .unwrap_or_default();
        let port = to.served_at().port().to_string();
        for key in keys.lines() {
            from.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        }
        for node in [to, from].into_iter().chain(masters.iter().copied()) {
            command_until_done(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &id(to)]);
        }
        self.settled();
    }

    fn replica(&self) -> &Redis {
        let mut nodes = self.nodes.iter();
        let replica = nodes.find(|node| replicates(node, "role:slave"));
        replica.expect("a replica")
    }
}

fn hosts(addresses: impl Iterator<Item = SocketAddr>) -> String {
    let hosts: Vec<_> = addresses.map(|address| address.to_string()).collect();
    hosts.join(",")
}

fn is_master(server: &Redis) -> bool {
    replicates(server, "role:master")
}

/// Returns true if the server reports this state; one whose role changes drops its clients.
fn replicates(server: &Redis, state: &str) -> bool {
    let replication = server.try_command(&["INFO", "replication"]);
    replication.is_ok_and(|lines| lines.unwrap_or_default().contains(state))
}

/// Repeats a command until the node has learned the state that it needs.
fn command_until_done(node: &Redis, words: &[&str]) {
    wait::until(&format!("{words:?} to be accepted"), || {
        node.try_command(words).ok().map(drop)
    });
}

/// Starts a node; returns it with its port for the other nodes.
fn node(authority: Option<&Authority>) -> Option<(Redis, String)> {
    let bus = free_address().port().to_string();
    let enabled = ["--cluster-enabled", "yes", "--cluster-port", &bus];
    let options = [&enabled[..], &["--cluster-node-timeout", "1000"]].concat();
    Redis::start_for(authority, &options).map(|node| (node, bus))
}
