//! The published issuers of `several_issuers.toml`, and a sidecar for them.

use tempfile::TempDir;
use tests::actors::issuer::{Issuer, IssuerRow, IssuerTable, IssuerToken};
use tests::actors::process::Finished;
use tests::actors::sidecar::{self, NEVER, Sidecar, SidecarPlan};
use tests::services::echo_service::EchoService;
use tests::services::fake_auth_server::{FakeAuthServer, json_response};
use tests::services::socket_server::Reply;
use tests::tables::load;
use tests::wire::clock;

/// Keys that no issuer has.
pub(crate) const AWAY: &str = "503 Service Unavailable";

/// One issuer and the server of its key set.
pub(crate) struct Published {
    pub(crate) row: IssuerRow,
    pub(crate) issuer: Issuer,
    pub(crate) server: FakeAuthServer,
}

impl Published {
    pub(crate) fn new(row: IssuerRow) -> Self {
        let issuer = Issuer::new(&row);
        let server = FakeAuthServer::replying(json_response("200 OK", &issuer.jwks(&row)));
        Self {
            row,
            issuer,
            server,
        }
    }

    pub(crate) fn replies(&self, reply: Reply) {
        self.server.set_reply(reply);
    }

    pub(crate) fn jwks(&self) -> String {
        self.issuer.jwks(&self.row)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/keys", self.server.address())
    }

    pub(crate) fn table(&self) -> String {
        let members = self.row.config.replace("{{keys}}", &self.url());
        format!("[[issuer]]\nname = \"{}\"\n{members}\n", self.row.name)
    }

    pub(crate) fn token(&self, name: &str) -> &IssuerToken {
        let mut tokens = self.row.token.iter();
        tokens.find(|token| token.name == name).expect("a token")
    }

    pub(crate) fn own(&self) -> String {
        let mut tokens = self.row.token.iter();
        let accepted = tokens.find(|token| token.expect == "accepted");
        self.signed(accepted.unwrap())
    }

    pub(crate) fn signed(&self, token: &IssuerToken) -> String {
        self.issuer.token(token, clock::now())
    }
}

/// The issuers of the table, a service, and a directory for files.
pub(crate) struct Issuers {
    pub(crate) published: Vec<Published>,
    pub(crate) service: EchoService,
    pub(crate) home: TempDir,
}

impl Issuers {
    /// Publishes the issuers of these names, or all without one.
    pub(crate) fn publish(names: &[&str]) -> Self {
        Self::publish_of("several_issuers.toml", names)
    }

    /// Publishes issuers of another table.
    pub(crate) fn publish_of(file: &str, names: &[&str]) -> Self {
        let table: IssuerTable = load(file);
        let is_one = |row: &IssuerRow| names.is_empty() || names.contains(&row.name.as_str());
        Self::of_rows(table.issuer.into_iter().filter(is_one))
    }

    pub(crate) fn of_rows(rows: impl IntoIterator<Item = IssuerRow>) -> Self {
        Self {
            published: rows.into_iter().map(Published::new).collect(),
            service: EchoService::start(),
            home: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn of(&self, name: &str) -> &Published {
        let mut published = self.published.iter();
        published
            .find(|one| one.row.name == name)
            .expect("an issuer")
    }

    pub(crate) fn tables(&self) -> String {
        self.published.iter().map(Published::table).collect()
    }

    /// Returns a sidecar with the tables of all issuers.
    pub(crate) fn plan(&self) -> SidecarPlan {
        self.plan_with(&self.tables())
    }

    pub(crate) fn plan_with(&self, config: &str) -> SidecarPlan {
        SidecarPlan::of_issuer(&self.service, [""; 0]).config(config)
    }

    /// Starts a sidecar that has the keys of all issuers.
    pub(crate) fn start(&self) -> Sidecar {
        self.plan().flags(NEVER).with_all_keys()
    }
}

/// Checks a file of settings.
pub(crate) fn check(config: &str, more: &[&str]) -> Finished {
    sidecar::check(config, &[&["--app-name=orders"], more].concat())
}
