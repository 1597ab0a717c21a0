//! The Nacos-compatible registry `rnacos` on free ports; stopped on drop.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::actors::client::Request;
use crate::actors::process::{CommandLine, Process};
use crate::wire::free_address::free_address;
use crate::wire::message::Message;
use crate::wire::raw_client::exchange;
use crate::{skip, wait};

/// Service name of the auth server (contract §1).
pub const SERVICE: &str = "auth";
/// Account of a registry with login.
pub const USER: &str = "postern";
/// Password of [`USER`]; a URL has to escape it.
pub const PASSWORD: &str = "hu/sh@registry";

/// Max starts until the first user exists; far more than needed.
const STARTS: usize = 3;
const KNOWS_ITS_USER: Duration = Duration::from_secs(10);

/// A registry, running or stopped.
#[derive(Debug)]
pub struct Rnacos {
    http: SocketAddr,
    grpc: SocketAddr,
    requires_login: bool,
    /// Seconds after which an instance without renewals is gone; renewals come every 5 seconds.
    expiry: u8,
    /// Login token of the harness.
    token: Option<String>,
    process: Option<Process>,
    directory: TempDir,
}

impl Rnacos {
    /// Starts a registry; returns `None`, with a SKIP line, where rnacos is not installed.
    pub fn start() -> Option<Self> {
        Some(Self::not_running()?.started())
    }

    /// Starts a registry that accepts only [`USER`] with [`PASSWORD`].
    pub fn start_with_login() -> Option<Self> {
        let mut registry = Self::not_running()?;
        registry.requires_login = true;
        Some(registry.started())
    }

    /// Starts a registry that soon drops instances without renewals.
    pub fn start_with_short_expiry() -> Option<Self> {
        let mut registry = Self::not_running()?;
        registry.expiry = 12;
        Some(registry.started())
    }

    /// Creates a registry with known ports, not yet running.
    ///
    /// # Panics
    /// When there is no temporary directory.
    pub fn not_running() -> Option<Self> {
        if program().is_none() {
            skip::skip(
                "the tests with a Nacos registry",
                "cargo install --locked rnacos",
            );
            return None;
        }
        let [http, grpc] = [(); 2].map(|()| free_address());
        Some(Self {
            http,
            grpc,
            requires_login: false,
            expiry: 60,
            token: None,
            process: None,
            directory: tempfile::tempdir().expect("a temporary directory"),
        })
    }

    fn started(mut self) -> Self {
        self.run();
        self
    }

    /// Starts the registry, also after a stop.
    ///
    /// # Panics
    /// When it does not respond.
    pub fn run(&mut self) {
        self.start_process();
        if self.requires_login {
            self.token = Some(self.token_of_the_first_user());
        }
        wait::until("rnacos to list services", || {
            self.list(SERVICE).status() == 200
        });
    }

    /// Returns a token of the first user. rnacos creates that user only once, shortly after its
    /// first start; a busy machine can miss it, and only a start with an empty directory helps.
    fn token_of_the_first_user(&mut self) -> String {
        for _ in 0..STARTS {
            if let Some(token) = wait::within(KNOWS_ITS_USER, || self.log_in()) {
                return token;
            }
            self.process = None;
            self.directory = tempfile::tempdir().expect("a temporary directory");
            self.start_process();
        }
        wait::until("rnacos to know its user", || self.log_in())
    }

    fn start_process(&mut self) {
        let program = program().expect("looked for before");
        let port = |port: u16| port.to_string();
        let process = CommandLine::new(program)
            .environment("HOME", self.directory.path())
            .environment("RNACOS_DATA_DIR", self.directory.path())
            .environment("RNACOS_SDK_HOST", "127.0.0.1")
            .environment("RNACOS_HTTP_PORT", port(self.http.port()))
            .environment("RNACOS_GRPC_PORT", port(self.grpc.port()))
            .environment(
                "RNACOS_NAMING_HEALTH_TIMEOUT_SECOND",
                (self.expiry - 1).to_string(),
            )
            .environment(
                "RNACOS_NAMING_INSTANCE_TIMEOUT_SECOND",
                self.expiry.to_string(),
            )
            // No console.
            .environment("RNACOS_HTTP_CONSOLE_PORT", "0")
            .environment("RNACOS_HTTP_WORKERS", "1")
            .environment(
                "RNACOS_ENABLE_OPEN_API_AUTH",
                self.requires_login.to_string(),
            )
            .environment("RNACOS_INIT_ADMIN_USERNAME", USER)
            .environment("RNACOS_INIT_ADMIN_PASSWORD", PASSWORD)
            .environment("RNACOS_API_LOGIN_ONE_MINUTE_LIMIT", "1000000")
            .environment("RUST_LOG", "warn")
            .start();
        self.process = Some(process);
        wait::until("rnacos to listen", || {
            TcpStream::connect(self.grpc).ok()?;
            TcpStream::connect(self.http).ok()
        });
    }

    fn log_in(&self) -> Option<String> {
        let response = self.request(
            "POST",
            "/nacos/v1/auth/login?username=postern&password=hu%2Fsh%40registry",
        );
        let response = (response.status() == 200).then(|| response.json())?;
        response["accessToken"].as_str().map(str::to_owned)
    }

    /// Kills the registry, which forgets ephemeral instances.
    ///
    /// # Panics
    /// When it does not end.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.signal("KILL");
            process.finished();
        }
    }

    /// Returns `host:port`, for the programs' settings.
    pub const fn address(&self) -> SocketAddr {
        self.http
    }

    /// Returns the value for the auth server's `--registry`.
    pub fn url(&self) -> String {
        format!("nacos://{}", self.http)
    }

    /// Returns the value for the sidecar's `--auth-server`.
    pub fn auth_server_url(&self) -> String {
        format!("{}/auth", self.url())
    }

    /// Returns `host:port` of each instance listed under [`SERVICE`], in order.
    ///
    /// # Panics
    /// When the registry does not respond.
    pub fn listed(&self) -> Vec<String> {
        let hosts = self.hosts(SERVICE);
        let mut listed: Vec<_> = hosts
            .iter()
            .map(|host| {
                format!(
                    "{}:{}",
                    host["ip"].as_str().unwrap_or_default(),
                    host["port"]
                )
            })
            .collect();
        listed.sort();
        listed
    }

    /// Returns the entries of a service.
    ///
    /// # Panics
    /// When the registry does not respond.
    pub fn hosts(&self, service: &str) -> Vec<Value> {
        let list = self.list(service).json();
        list["hosts"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until exactly these instances are listed under [`SERVICE`].
    pub fn lists(&self, addresses: &[SocketAddr]) {
        let mut expected: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
        expected.sort();
        wait::until(&format!("the registry to list {expected:?}"), || {
            self.listed() == expected
        });
    }

    /// Adds an instance that stays until it is removed.
    ///
    /// # Panics
    /// When the registry reports an error.
    pub fn add(&self, instance: SocketAddr, settings: &str) {
        self.change("POST", instance, settings);
    }

    /// Removes an instance.
    ///
    /// # Panics
    /// When the registry reports an error.
    pub fn remove(&self, instance: SocketAddr) {
        self.change("DELETE", instance, "");
    }

    fn change(&self, method: &str, instance: SocketAddr, settings: &str) {
        let (ip, port) = (instance.ip(), instance.port());
        let target = format!(
            "/nacos/v1/ns/instance?serviceName={SERVICE}&ip={ip}&port={port}&ephemeral=false{settings}"
        );
        let response = self.request(method, &target);
        assert_eq!(response.text(), "ok", "{method} {instance}");
    }

    fn list(&self, service: &str) -> Message {
        let token = self.token.as_deref().unwrap_or_default();
        self.request(
            "GET",
            &format!("/nacos/v1/ns/instance/list?serviceName={service}&accessToken={token}"),
        )
    }

    fn request(&self, method: &str, target: &str) -> Message {
        let request = Request::new(method, target).line("Connection: close");
        exchange(self.http, method, &request.bytes(&self.http.to_string()))
    }
}

/// Searches `cargo install`'s directory too: an IDE's `PATH` may lack it.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let cargo = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".cargo")))
        .map(|home| home.join("bin"));
    std::env::split_paths(&path)
        .chain(cargo)
        .map(|directory| directory.join("rnacos"))
        .find(|program| program.is_file())
}
