//! The sidecar as an actor.

use std::net::SocketAddr;

use crate::auth_server::{AuthServer, admin_get, announced_address};
use crate::client::Client;
use crate::echo_service::EchoService;
use crate::fake_auth_server::FakeAuthServer;
use crate::process::{CommandLine, Finished, Process};
use crate::programs::Program;
use crate::wait;

/// A tick every second: the contract's minute, scaled down.
pub const EVERY_SECOND: [&str; 2] = ["--refresh-cron", "* * * * * *"];

/// `on` or `off`: every sidecar of the tests gets it as `--fast-path`.
const FAST_PATH: &str = "POSTERN_TEST_FAST_PATH";

fn fast_path_flag() -> Vec<String> {
    let setting = std::env::var(FAST_PATH).ok();
    setting
        .map(|setting| format!("--fast-path={setting}"))
        .into_iter()
        .collect()
}

/// What kind of sidecar is to be started.
#[derive(Debug)]
pub struct SidecarPlan {
    upstream: String,
    /// `None` where the flags name another source of keys.
    auth_server: Option<String>,
    listen: String,
    app_name: String,
    application: (String, String),
    flags: Vec<String>,
    environment: Vec<(String, String)>,
    /// What is run instead of the sidecar alone.
    command: Vec<String>,
}

impl SidecarPlan {
    /// In front of `service`, trusting whatever key this URL serves; its application is `orders`.
    pub fn new(service: &EchoService, auth_server: &str) -> Self {
        Self::to(&service.url(), auth_server)
    }

    /// In front of any upstream.
    pub fn to(upstream: &str, auth_server: &str) -> Self {
        Self {
            upstream: upstream.to_owned(),
            auth_server: Some(auth_server.to_owned()),
            listen: "127.0.0.1:0".to_owned(),
            app_name: "orders".to_owned(),
            application: ("orders".to_owned(), "not-registered".to_owned()),
            flags: Vec::new(),
            environment: Vec::new(),
            command: Vec::new(),
        }
    }

    /// A command that runs a sidecar under another program's eyes; the sidecar stands last in it.
    #[must_use]
    pub fn under<'c>(mut self, command: impl IntoIterator<Item = &'c str>) -> Self {
        self.command = command.into_iter().map(str::to_owned).collect();
        self
    }

    /// In front of `service`, with keys from where the flags say.
    pub fn of_issuer<F: AsRef<str>>(
        service: &EchoService,
        flags: impl IntoIterator<Item = F>,
    ) -> Self {
        let mut plan = Self::to(&service.url(), "");
        plan.auth_server = None;
        plan.flags = flags
            .into_iter()
            .map(|flag| flag.as_ref().to_owned())
            .collect();
        plan
    }

    /// An address that somebody has to know before it is up.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address.to_string();
        self
    }

    /// Another application name, and so another context path; empty for none.
    #[must_use]
    pub fn app_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.app_name);
        self
    }

    /// The application that it shows itself as to the auth server.
    #[must_use]
    pub fn application(mut self, id: &str, secret: &str) -> Self {
        self.application = (id.to_owned(), secret.to_owned());
        self
    }

    /// More flags.
    #[must_use]
    pub fn flags<'f>(mut self, flags: impl IntoIterator<Item = &'f str>) -> Self {
        self.flags.extend(flags.into_iter().map(str::to_owned));
        self
    }

    /// A pass list.
    #[must_use]
    pub fn pass<P: AsRef<str>>(mut self, patterns: impl IntoIterator<Item = P>) -> Self {
        for pattern in patterns {
            self.flags
                .extend(["--pass".to_owned(), pattern.as_ref().to_owned()]);
        }
        self
    }

    /// An environment variable.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it and waits for its two addresses; it may have no key yet.
    ///
    /// # Panics
    /// When it does not come up.
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
        }
    }

    /// Runs it where it must not come up.
    pub fn fails(self) -> Finished {
        self.command_line().run()
    }

    fn command_line(&self) -> CommandLine {
        let command = match self.command.split_first() {
            Some((program, arguments)) => CommandLine::new(program).arguments(arguments),
            None => CommandLine::new(Program::Sidecar.path()),
        };
        let command = command
            .arguments([
                "serve",
                "--listen",
                &self.listen,
                "--admin-listen",
                "127.0.0.1:0",
            ])
            .arguments(["--upstream", &self.upstream])
            .arguments(["--app-name", &self.app_name])
            .arguments(fast_path_flag())
            .arguments(&self.flags);
        let command = match &self.auth_server {
            None => command,
            Some(auth_server) => command
                .arguments(["--auth-server", auth_server])
                .arguments(["--app-id", &self.application.0])
                .environment("POSTERN_APP_SECRET", &self.application.1),
        };
        self.environment
            .iter()
            .fold(command, |command, (name, value)| {
                command.environment(name, value)
            })
    }
}

/// A running sidecar.
#[derive(Debug)]
pub struct Sidecar {
    process: Process,
    address: SocketAddr,
    admin: SocketAddr,
    context: String,
}

impl Sidecar {
    /// In front of `service`, fed by `auth_server`, ready.
    pub fn start(service: &EchoService, auth_server: &AuthServer) -> Self {
        SidecarPlan::new(service, &auth_server.url())
            .start()
            .ready()
    }

    /// In front of `service`, fed by `auth_server`, ready.
    pub fn trusting(service: &EchoService, auth_server: &FakeAuthServer) -> Self {
        SidecarPlan::new(service, &auth_server.url())
            .start()
            .ready()
    }

    /// Waits until it says that it is ready: it has a key.
    #[must_use]
    pub fn ready(self) -> Self {
        wait::until("the sidecar to be ready", || {
            (self.readiness() == 200).then_some(())
        });
        self
    }

    /// What `/readyz` answers.
    pub fn readiness(&self) -> u16 {
        admin_get(self.admin, "/readyz").status()
    }

    /// Where its probes and metrics are.
    pub const fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Somebody without a token.
    pub fn anonymous(&self) -> Client {
        Client::anonymous(Program::Sidecar, self.address, &self.context)
    }

    /// Somebody with a token.
    pub fn bearing(&self, token: &str) -> Client {
        self.anonymous().bearing(token)
    }

    /// The process.
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// The process, to be stopped and looked at.
    pub fn into_process(self) -> Process {
        self.process
    }
}
