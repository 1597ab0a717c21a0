//! The auth server as a test actor.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::actors::client::Client;
use crate::actors::process::{CommandLine, Finished, Process};
use crate::actors::programs::Program;
use crate::services::file_mounts::FileMounts;
use crate::services::small_disk::{SmallDisk, joined, started_by};
use crate::wait;
use crate::wire::certificates::{Authority, Certificate};
use crate::wire::message::Message;
use crate::wire::tls::Trust;

/// The login path, relative to the context path (contract §4.1).
pub const LOGIN: &str = "/oauth/jwt/token";
/// The current user (contract §4.2).
pub const USER_DETAILS: &str = "/current/user/details";
/// Verdict on a token that was revoked.
pub const TOKEN_REVOKED: &str = "401 token_revoked";
/// Flags of both programs for keys that are quick to generate.
pub const ECDSA: [&str; 2] = ["--signing-type", "ecdsa"];
/// The public key (contract §4.3), with the parameters it requires.
pub const SECRET_KEY: &str = "/client/user/secret/key?appId=orders&appSecret=not-registered";

/// Settings of an auth server before its start.
#[derive(Debug, Clone)]
pub struct AuthServerPlan {
    store: Option<String>,
    listen: String,
    context: String,
    flags: Vec<String>,
    environment: Vec<(String, String)>,
    trust: Option<Trust>,
    wrapper: Vec<String>,
}

impl AuthServerPlan {
    /// Returns the defaults: an own file store, context path `/auth`, free ports.
    pub fn new() -> Self {
        Self {
            store: None,
            listen: "127.0.0.1:0".to_owned(),
            context: "/auth".to_owned(),
            flags: Vec::new(),
            environment: Vec::new(),
            trust: None,
            wrapper: Vec::new(),
        }
    }

    /// Runs the server with these mounts.
    #[must_use]
    pub fn mounts(mut self, mounts: &FileMounts) -> Self {
        self.wrapper = mounts.wrapper();
        self
    }

    /// Runs the server with the disk of `holder`, and its store on it.
    #[must_use]
    pub fn on_disk(mut self, disk: &SmallDisk, holder: &Process) -> Self {
        self.wrapper = joined(holder);
        self.directory(&disk.path().join("data"))
    }

    /// Runs the server under another program, as its last argument.
    #[must_use]
    pub fn under(mut self, wrapper: Vec<String>) -> Self {
        self.wrapper = wrapper;
        self
    }

    /// Runs the server so that writing beyond the limit of a file's size fails, and does not end it.
    #[must_use]
    pub fn past_file_size_limits(self) -> Self {
        let wrapper = ["sh", "-c", r#"trap '' XFSZ; exec "$0" "$@""#];
        self.under(wrapper.map(str::to_owned).to_vec())
    }

    /// Returns a server with ECDSA keys, which are quick to generate, that reads its store every
    /// second.
    pub fn polling() -> Self {
        Self::new()
            .flags(ECDSA)
            .flags(["--store-poll-interval", "1"])
    }

    /// Sets the store, by default a fresh directory.
    #[must_use]
    pub fn store(mut self, url: impl Into<String>) -> Self {
        self.store = Some(url.into());
        self
    }

    /// Sets a file store in this directory.
    #[must_use]
    pub fn directory(self, directory: &Path) -> Self {
        self.store(file_store(directory))
    }

    /// Sets a listen address that another actor, or a flag, knows before the start.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address.to_string();
        self
    }

    /// Sets the context path.
    #[must_use]
    pub fn context(mut self, path: &str) -> Self {
        path.clone_into(&mut self.context);
        self
    }

    /// Adds flags.
    #[must_use]
    pub fn flags<F: AsRef<str>>(mut self, flags: impl IntoIterator<Item = F>) -> Self {
        let flags = flags.into_iter().map(|flag| flag.as_ref().to_owned());
        self.flags.extend(flags);
        self
    }

    /// Turns on TLS with this certificate of `authority`.
    #[must_use]
    pub fn tls(mut self, authority: &Authority, certificate: &Certificate) -> Self {
        self.flags.extend(certificate.flags());
        self.trust = Some(authority.client());
        self
    }

    /// Speaks TLS to the server, whose certificate the flags name.
    #[must_use]
    pub fn trusting(mut self, authority: &Authority) -> Self {
        self.trust = Some(authority.client());
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

    /// Starts the server and waits for its two addresses.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(self) -> AuthServer {
        let home = tempfile::tempdir().expect("a temporary directory");
        let store = self.store_in(home.path());
        let mut process = self.command_line(&store).start();
        let address = announced_address(&mut process, "listening on ");
        let admin = announced_address(&mut process, "admin listening on ");
        AuthServer {
            process,
            address,
            admin,
            context: self.context,
            trust: self.trust,
            home,
            store,
        }
    }

    /// Starts the server and waits until it has keys.
    ///
    /// # Panics
    /// When it does not start.
    pub fn ready(self) -> AuthServer {
        self.start().ready()
    }

    /// Runs a server that has to fail at startup.
    pub fn fails(self) -> Finished {
        let home = tempfile::tempdir().expect("a temporary directory");
        self.command_line(&self.store_in(home.path())).run()
    }

    fn store_in(&self, home: &Path) -> String {
        let store = self.store.clone();
        store.unwrap_or_else(|| file_store(&home.join("data")))
    }

    fn command_line(&self, store: &str) -> CommandLine {
        let program = Program::AuthServer.path();
        let command = match self.wrapper.is_empty() {
            true => CommandLine::new(program),
            false => started_by(&self.wrapper).arguments([program]),
        };
        let command = command
            .arguments(["serve", "--listen", &self.listen])
            .arguments(["--admin-listen", "127.0.0.1:0"])
            .arguments(["--store", store, "--context-path", &self.context])
            .arguments(&self.flags);
        command.environments(&self.environment)
    }
}

impl Default for AuthServerPlan {
    fn default() -> Self {
        Self::new()
    }
}

/// A running auth server.
#[derive(Debug)]
pub struct AuthServer {
    process: Process,
    address: SocketAddr,
    admin: SocketAddr,
    context: String,
    trust: Option<Trust>,
    home: TempDir,
    store: String,
}

impl AuthServer {
    /// Starts a server with the defaults and waits until it is ready.
    pub fn start() -> Self {
        AuthServerPlan::new().ready()
    }

    /// Waits until `/readyz` reports ready.
    #[must_use]
    pub fn ready(self) -> Self {
        wait::until("the auth server to be ready", || self.readiness() == 200);
        self
    }

    /// Returns the whole value of one series of `/metrics`, named with its labels.
    pub fn metric(&self, series: &str) -> Option<u64> {
        crate::wire::metrics::value(self.admin, series)
    }

    /// Returns the status of `/readyz`.
    pub fn readiness(&self) -> u16 {
        admin_get(self.admin, "/readyz").status()
    }

    /// Returns the note of `/readyz` about the store while the server is ready.
    pub fn store_note(&self) -> Option<String> {
        let response = admin_get(self.admin, "/readyz");
        let report = (response.status() == 200).then(|| response.json())?;
        let conditions = report.as_array()?;
        let store = conditions.iter().find(|one| one["name"] == "store")?;
        store["note"].as_str().map(str::to_owned)
    }

    /// Returns the address of the probes and metrics.
    pub const fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Returns the value for the sidecar's `--auth-server`.
    pub fn url(&self) -> String {
        let secure = if self.trust.is_some() { "s" } else { "" };
        format!("http{secure}://{}{}", self.address, self.context)
    }

    /// Returns the listen address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the directory with the server's files.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Returns a client without a token.
    pub fn anonymous(&self) -> Client {
        let client = Client::anonymous(Program::AuthServer, self.address, &self.context);
        match &self.trust {
            Some(trust) => client.over_tls(trust),
            None => client,
        }
    }

    /// Returns the value of its `--store`.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Runs a command of the program on the server's store.
    pub fn command(&self, words: &[&str]) -> Finished {
        Program::AuthServer.run(&[words, &["--store", &self.store]].concat())
    }

    /// Runs a command on the server's store that has to succeed, and returns its output.
    ///
    /// # Panics
    /// When the command fails.
    pub fn done(&self, words: &[&str]) -> String {
        let end = self.command(words);
        assert_eq!(end.code, Some(0), "{words:?}: {}", end.stderr);
        end.stdout.trim().to_owned()
    }

    /// Runs `keys …`, which has to succeed.
    ///
    /// # Panics
    /// When the command fails.
    pub fn keys(&self, words: &[&str]) -> String {
        self.done(&[&["keys"], words].concat())
    }

    /// Returns a client that has logged in.
    pub fn logged_in(&self) -> Client {
        self.anonymous().bearing(&self.login())
    }

    /// Logs in and returns the access token.
    ///
    /// # Panics
    /// When the login fails.
    pub fn login(&self) -> String {
        self.anonymous().post(LOGIN, &credentials()).access_token()
    }

    /// Logs in as a user of the file.
    pub fn login_as(&self, account: &str, password: &str) -> Message {
        let credentials = json!({"username": account, "password": password});
        self.anonymous().post(LOGIN, &credentials)
    }

    /// Logs in as a user of the file and returns the access token.
    ///
    /// # Panics
    /// When the login fails.
    pub fn token_of(&self, account: &str, password: &str) -> String {
        self.login_as(account, password).access_token()
    }

    /// Revokes a token as its bearer does (RFC 7009).
    pub fn log_out(&self, token: &str) -> Message {
        let body = format!("token={token}");
        self.anonymous().post_form("/oauth/revoke", &body)
    }

    /// Returns the server's verdict on a token.
    pub fn verdict(&self, token: &str) -> String {
        self.anonymous().bearing(token).verdict(USER_DETAILS)
    }

    /// Returns true if the server accepts a token.
    pub fn accepts(&self, token: &str) -> bool {
        self.verdict(token) == "200"
    }

    /// Waits until the server rejects a token as revoked: it has read the store.
    pub fn until_revoked(&self, token: &str) {
        wait::until("the server to reject the token", || {
            self.verdict(token) == TOKEN_REVOKED
        });
    }

    /// Waits for a text in the output, and returns how often it stands there.
    pub fn until_logged(&self, text: &str) -> usize {
        self.process.until_logged(text)
    }

    /// Returns the key that the server serves.
    ///
    /// # Panics
    /// When the server serves no key.
    pub fn served_key(&self) -> String {
        let response = self.anonymous().get(SECRET_KEY);
        let key = response.json()["data"].as_str().map(str::to_owned);
        key.unwrap_or_else(|| panic!("no key: {}", response.text()))
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

/// Returns credentials that log in: neither value is empty (contract §4.1 rule 2).
pub fn credentials() -> Value {
    json!({"username": "alice", "password": "correct horse battery staple"})
}

/// Returns the value for `--store`.
pub fn file_store(directory: &Path) -> String {
    format!("file:{}", directory.display())
}

/// Reads an address from a line on stdout.
pub(crate) fn announced_address(process: &mut Process, prefix: &str) -> SocketAddr {
    let text = process.announced(prefix);
    text.trim()
        .parse()
        .unwrap_or_else(|error| panic!("`{prefix}{text}` holds no address: {error}"))
}

/// Sends GET to an admin port, which is not in the OpenAPI document.
pub fn admin_get(admin: SocketAddr, path: &str) -> Message {
    let request = crate::actors::client::Request::new("GET", path);
    crate::wire::raw_client::exchange(admin, "GET", &request.bytes(&admin.to_string()))
}
