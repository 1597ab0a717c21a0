//! The sidecar as a test actor.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::actors::auth_server::{ECDSA, TOKEN_REVOKED, admin_get, announced_address};
use crate::actors::client::Client;
use crate::actors::process::{CommandLine, Finished, Process};
use crate::actors::programs::Program;
use crate::services::echo_service::EchoService;
use crate::services::small_disk::started_by;
use crate::wait;
use crate::wire::metrics;

/// A refresh every second: the contract's minute, scaled down.
pub const EVERY_SECOND: [&str; 2] = ["--refresh-cron", "* * * * * *"];
/// The metric that counts fetches of keys, by issuer.
const KEY_REFRESHES: &str = "postern_sidecar_key_refreshes_total";
/// A schedule that never comes round within a test.
pub const NEVER: [&str; 2] = ["--refresh-cron", "0 0 0 29 2 *"];

/// Settings of a sidecar before its start.
#[derive(Debug)]
pub struct SidecarPlan {
    upstream: String,
    /// Auth server; `None` where the flags name another source of keys.
    auth_server: Option<String>,
    listen: String,
    admin_listen: String,
    app_name: String,
    application: (String, String),
    flags: Vec<String>,
    environment: Vec<(String, String)>,
    /// Command that runs the sidecar; empty for the sidecar alone.
    wrapper: Vec<String>,
    /// Directory of its configuration file, if it has one.
    home: Option<TempDir>,
}

impl SidecarPlan {
    /// Returns a sidecar in front of `service` that trusts the key at this URL; its application is
    /// `orders`.
    pub fn new(service: &EchoService, auth_server: &str) -> Self {
        Self::to(&service.url(), auth_server)
    }

    /// Returns a sidecar in front of any upstream.
    pub fn to(upstream: &str, auth_server: &str) -> Self {
        Self {
            upstream: upstream.to_owned(),
            auth_server: Some(auth_server.to_owned()),
            listen: "127.0.0.1:0".to_owned(),
            admin_listen: "127.0.0.1:0".to_owned(),
            app_name: "orders".to_owned(),
            application: ("orders".to_owned(), "not-registered".to_owned()),
            flags: Vec::new(),
            environment: Vec::new(),
            wrapper: Vec::new(),
            home: None,
        }
    }

    /// Sets another upstream.
    #[must_use]
    pub fn upstream(mut self, url: &str) -> Self {
        url.clone_into(&mut self.upstream);
        self
    }

    /// Returns a sidecar for ECDSA keys that fetches them every second.
    pub fn polling(service: &EchoService, auth_server: &str) -> Self {
        Self::new(service, auth_server)
            .flags(ECDSA)
            .flags(EVERY_SECOND)
    }

    /// Runs the sidecar under another program, as its last argument.
    #[must_use]
    pub fn under(mut self, wrapper: Vec<String>) -> Self {
        self.wrapper = wrapper;
        self
    }

    /// Returns a sidecar in front of `service`, with the key source of the flags.
    pub fn of_issuer<F: AsRef<str>>(
        service: &EchoService,
        flags: impl IntoIterator<Item = F>,
    ) -> Self {
        Self::of_upstream(&service.url(), flags)
    }

    /// Returns a sidecar in front of any upstream, with the key source of the flags.
    pub fn of_upstream<F: AsRef<str>>(upstream: &str, flags: impl IntoIterator<Item = F>) -> Self {
        let mut plan = Self::to(upstream, "");
        plan.auth_server = None;
        plan.flags(flags)
    }

    /// Writes a configuration file with this text.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn config(mut self, text: &str) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        fs::write(config_in(&home), text).expect("a file that can be written");
        self.home = Some(home);
        self
    }

    /// Sets a listen address that another actor knows before the start.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address.to_string();
        self
    }

    /// Sets the listen address of the admin port.
    #[must_use]
    pub fn admin_listen(mut self, address: SocketAddr) -> Self {
        self.admin_listen = address.to_string();
        self
    }

    /// Sets the application name, and so the context path; empty for none.
    #[must_use]
    pub fn app_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.app_name);
        self
    }

    /// Sets the application with which it authenticates to the auth server.
    #[must_use]
    pub fn application(mut self, id: &str, secret: &str) -> Self {
        self.application = (id.to_owned(), secret.to_owned());
        self
    }

    /// Adds flags.
    #[must_use]
    pub fn flags<F: AsRef<str>>(mut self, flags: impl IntoIterator<Item = F>) -> Self {
        let flags = flags.into_iter().map(|flag| flag.as_ref().to_owned());
        self.flags.extend(flags);
        self
    }

    /// Adds public paths.
    #[must_use]
    pub fn public_paths<P: AsRef<str>>(mut self, patterns: impl IntoIterator<Item = P>) -> Self {
        for pattern in patterns {
            self.flags
                .extend(["--public-path".to_owned(), pattern.as_ref().to_owned()]);
        }
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn environment(self, name: &str, value: &str) -> Self {
        self.environments(&[(name, value)])
    }

    /// Sets several environment variables.
    #[must_use]
    pub fn environments<V: ToString>(mut self, variables: &[(&str, V)]) -> Self {
        let variables = variables.iter();
        let variables = variables.map(|(name, value)| ((*name).to_owned(), value.to_string()));
        self.environment.extend(variables);
        self
    }

    /// Starts the sidecar and waits for its two addresses; it may have no key yet.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(self) -> Sidecar {
        let mut process = self.command_line().start();
        let address = announced_address(&mut process, "listening on ");
        let admin = announced_address(&mut process, "admin listening on ");
        let context = if self.app_name.is_empty() {
            String::new()
        } else {
            format!("/{}", self.app_name)
        };
        Sidecar {
            process,
            address,
            admin,
            context,
            home: self.home,
        }
    }

    /// Starts the sidecar and waits until it has keys.
    ///
    /// # Panics
    /// When it does not start.
    pub fn ready(self) -> Sidecar {
        self.start().ready()
    }

    /// Starts the sidecar and waits until it has the keys of each issuer; readiness needs those of
    /// one.
    ///
    /// # Panics
    /// When it does not start.
    pub fn with_all_keys(self) -> Sidecar {
        let sidecar = self.start().ready();
        wait::until("the keys of each issuer", || {
            let fetched = |issuer: &String| {
                let labels = [("issuer", &**issuer), ("outcome", "replaced")];
                metrics::sum(sidecar.admin, KEY_REFRESHES, &labels) > 0
            };
            let issuers = metrics::values_of(sidecar.admin, KEY_REFRESHES, "issuer");
            issuers.iter().all(fetched)
        });
        sidecar
    }

    /// Runs a sidecar that has to fail at startup.
    pub fn fails(self) -> Finished {
        self.command_line().run()
    }

    fn command_line(&self) -> CommandLine {
        let command = match self.wrapper.is_empty() {
            true => Program::Sidecar.command(),
            false => started_by(&self.wrapper).arguments([Program::Sidecar.path()]),
        };
        let command = command
            .arguments([
                "serve",
                "--listen",
                &self.listen,
                "--admin-listen",
                &self.admin_listen,
            ])
            .arguments(["--upstream", &self.upstream])
            .arguments(["--app-name", &self.app_name])
            .arguments(&self.flags);
        let config = self.home.iter();
        let config = config.flat_map(|home| ["--config".into(), config_in(home)]);
        let command = command.arguments(config);
        let command = match &self.auth_server {
            None => command,
            Some(auth_server) => command
                .arguments(["--auth-server", auth_server])
                .arguments(["--app-id", &self.application.0])
                .environment("POSTERN_APP_SECRET", &self.application.1),
        };
        command.environments(&self.environment)
    }
}

/// A running sidecar.
#[derive(Debug)]
pub struct Sidecar {
    process: Process,
    address: SocketAddr,
    admin: SocketAddr,
    context: String,
    home: Option<TempDir>,
}

impl Sidecar {
    /// Waits until `/readyz` reports ready: the sidecar has a key.
    #[must_use]
    pub fn ready(self) -> Self {
        wait::until("the sidecar to be ready", || self.readiness() == 200);
        self
    }

    /// Returns the status of `/readyz`.
    pub fn readiness(&self) -> u16 {
        admin_get(self.admin, "/readyz").status()
    }

    /// Returns the whole value of one series of `/metrics`, named with its labels.
    pub fn metric(&self, series: &str) -> Option<u64> {
        metrics::value(self.admin, series)
    }

    /// Runs `sidecar explain` about a request with these header lines, which standard input carries.
    pub fn explain<L: AsRef<str>>(&self, arguments: &[&str], lines: &[L]) -> Finished {
        let input: String = lines
            .iter()
            .map(|line| line.as_ref().to_owned() + "\n")
            .collect();
        Program::Sidecar
            .command()
            .arguments(["explain", "-H", "@-", "--admin-listen"])
            .arguments([self.admin.to_string()])
            .arguments(arguments.iter().copied())
            .input(input.as_bytes())
            .run()
    }

    /// Returns the address of the probes and metrics.
    pub const fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Returns the listen address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a client without a token.
    pub fn anonymous(&self) -> Client {
        Client::anonymous(Program::Sidecar, self.address, &self.context)
    }

    /// Returns a client with a token.
    pub fn bearing(&self, token: &str) -> Client {
        self.anonymous().bearing(token)
    }

    /// Returns the verdict on GET with a token.
    pub fn verdict_of(&self, token: &str) -> String {
        self.bearing(token).verdict("/list")
    }

    /// Waits until so many requests are in flight.
    pub fn until_in_flight(&self, count: u64) {
        wait::until("the requests in flight", || {
            self.metric("postern_sidecar_requests_in_flight") == Some(count)
        });
    }

    /// Waits until no request is in flight.
    pub fn until_idle(&self) {
        self.until_in_flight(0);
    }

    /// Waits for a text in the output, and returns how often it stands there.
    pub fn until_logged(&self, text: &str) -> usize {
        self.process.until_logged(text)
    }

    /// Waits until a token is rejected as revoked.
    pub fn until_revoked(&self, token: &str) {
        wait::until("the sidecar to reject the token", || {
            self.verdict_of(token) == TOKEN_REVOKED
        });
    }

    /// Returns the path of the configuration file.
    ///
    /// # Panics
    /// When the sidecar was started without one.
    pub fn config(&self) -> PathBuf {
        config_in(self.home.as_ref().expect("a configuration file"))
    }

    /// Replaces the whole configuration file, as operators and orchestrators do.
    ///
    /// # Panics
    /// When it cannot be replaced.
    pub fn replace_config(&self, text: &str) {
        let new = self.config().with_extension("new");
        fs::write(&new, text).expect("a file that can be written");
        fs::rename(new, self.config()).expect("a replaced file");
    }

    /// Returns the number of reloads with this outcome.
    pub fn reloads(&self, outcome: &str) -> u64 {
        let name = format!("postern_sidecar_config_reloads_total{{outcome=\"{outcome}\"}}");
        self.metric(&name).unwrap_or_default()
    }

    /// Replaces the configuration file and waits for the outcome of the reload.
    pub fn reload(&self, text: &str, outcome: &str) {
        let before = self.reloads(outcome);
        self.replace_config(text);
        self.process.signal("HUP");
        wait::until("the reload", || self.reloads(outcome) > before);
    }

    /// Returns the process.
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// Returns the process, for tests that stop it and check its end.
    pub fn into_process(self) -> Process {
        self.process
    }
}

fn config_in(home: &TempDir) -> PathBuf {
    home.path().join("sidecar.toml")
}

/// Runs `sidecar check` with a configuration file of this text.
///
/// # Panics
/// When it cannot be written.
pub fn check(config: &str, flags: &[&str]) -> Finished {
    let home = tempfile::tempdir().expect("a temporary directory");
    fs::write(config_in(&home), config).expect("a file that can be written");
    let path = config_in(&home).display().to_string();
    Program::Sidecar.run(&[&["check", "--config", &path], flags].concat())
}
