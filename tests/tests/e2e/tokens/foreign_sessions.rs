//! Sessions of other issuers (`docs/sessions.md`): their logout tokens and events reach the auth server, and their
//! access tokens end at every sidecar.

mod peers;
mod receiver;
mod sidecars;
mod statements;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use tests::actors::auth_server::{AuthServer, AuthServerPlan};
use tests::actors::client::FORM;
use tests::actors::issuer::{IssuerRow, IssuerToken};
use tests::actors::sidecar::{EVERY_SECOND, SidecarPlan};
use tests::tables::load;
use tests::wire::clock;
use tests::wire::message::Message;

use super::several_issuers::published::{Issuers, Published};

const RECEIVER: &str = "/oidc/backchannel-logout";
const LOGOUT: &str = "http://schemas.openid.net/event/backchannel-logout";
const SESSION_REVOKED: &str = "https://schemas.openid.net/secevent/caep/event-type/session-revoked";
/// A key of each issuer, and its algorithm.
const USUAL_KEY: &str = "ec ES256";

/// `logout_tokens.toml`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    issuer: Vec<IssuerRow>,
    group: Vec<Group>,
}

/// Statements that have something in common; the table describes the members.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    /// For readers.
    #[serde(rename = "source")]
    _source: String,
    #[serde(default)]
    form: Form,
    issuer: Option<String>,
    sign: Option<String>,
    header: Option<String>,
    expect: String,
    #[serde(default)]
    says: String,
    #[serde(default)]
    payloads: BTreeMap<String, String>,
    #[serde(default)]
    changes: BTreeMap<String, String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// Form of a statement and of the request that carries it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Form {
    /// OpenID Connect Back-Channel Logout 1.0.
    #[default]
    Logout,
    /// RFC 8935.
    Event,
}

impl Form {
    const fn header(self) -> &'static str {
        match self {
            Self::Logout => r#"{"alg":"ES256","typ":"logout+jwt","kid":"ec"}"#,
            Self::Event => r#"{"alg":"ES256","typ":"secevent+jwt","kid":"ec"}"#,
        }
    }

    fn send(self, server: &AuthServer, token: &str) -> Message {
        let client = server.anonymous();
        let request = client.request("POST", RECEIVER);
        client.send(&match self {
            Self::Logout => request.line(FORM).body(format!("logout_token={token}")),
            Self::Event => request
                .line("Content-Type: application/secevent+jwt")
                .body(token),
        })
    }
}

/// The issuers of the table.
struct Foreign {
    issuers: Issuers,
    groups: Vec<Group>,
}

impl Foreign {
    fn publish() -> Self {
        let table: Table = load("logout_tokens.toml");
        Self {
            issuers: Issuers::of_rows(table.issuer),
            groups: table.group,
        }
    }

    fn session(&self, issuer: &str, sid: &str, sub: &str) -> Session<'_> {
        Session {
            at: self.issuers.of(issuer),
            sid: sid.to_owned(),
            sub: sub.to_owned(),
        }
    }

    /// Returns an auth server that takes the statements of both issuers.
    fn server(&self) -> AuthServerPlan {
        let table = |(name, ends)| {
            let jwks = self.issuers.of(name).url();
            format!(
                "[[logout]]\nissuer = 'https://{name}.example'\nclient = 'postern'\n\
                 jwks = '{jwks}'\nends = '{ends}'\n"
            )
        };
        let tables = [("idp", "session"), ("twin", "user")].map(table);
        let file = self.issuers.home.path().join("auth-server.toml");
        std::fs::write(&file, tables.concat()).unwrap();
        AuthServerPlan::polling().flags(["--config", file.to_str().unwrap()])
    }

    /// Returns a sidecar that accepts tokens of both issuers alone.
    fn sidecar(&self, server: &AuthServer) -> SidecarPlan {
        let from = ["--revocations-from", &server.url()];
        self.issuers.plan().flags(EVERY_SECOND).flags(from)
    }
}

/// A session, by the names that tokens of its issuer carry.
struct Session<'f> {
    at: &'f Published,
    sid: String,
    sub: String,
}

impl Session<'_> {
    /// Returns an access token.
    fn access(&self) -> String {
        let now = clock::now();
        let claims = json!({
            "iss": self.issuer(), "aud": "orders", "sub": self.sub, "sid": self.sid, "iat": now,
            "exp": now + 300,
        });
        let header = r#"{"alg":"ES256","kid":"ec"}"#;
        self.signed(USUAL_KEY, header, &claims.to_string())
    }

    /// Returns a good statement that the session has ended.
    fn ended(&self, form: Form, jti: &str) -> String {
        let claims = self.claims(form, jti).to_string();
        self.signed(USUAL_KEY, form.header(), &claims)
    }

    fn claims(&self, form: Form, jti: &str) -> Value {
        let (issuer, now) = (self.issuer(), clock::now());
        match form {
            Form::Logout => json!({
                "iss": issuer, "aud": "postern", "iat": now, "exp": now + 120, "jti": jti,
                "sub": self.sub, "sid": self.sid, "events": {LOGOUT: {}},
            }),
            Form::Event => json!({
                "iss": issuer, "aud": "postern", "iat": now, "jti": jti,
                "sub_id": {"format": "opaque", "id": self.sid},
                "events": {SESSION_REVOKED: {"event_timestamp": now}},
            }),
        }
    }

    fn issuer(&self) -> String {
        format!("https://{}.example", self.at.row.name)
    }

    fn signed(&self, sign: &str, header: &str, payload: &str) -> String {
        let (key, algorithm) = sign.split_once(' ').unwrap();
        let token = json!({
            "name": "", "key": key, "sign": algorithm, "header": header, "payload": payload,
            "expect": "",
        });
        let token: IssuerToken = serde_json::from_value(token).unwrap();
        self.at.signed(&token)
    }
}

fn log_out(server: &AuthServer, session: &Session<'_>, jti: &str) -> u16 {
    let statement = session.ended(Form::Logout, jti);
    Form::Logout.send(server, &statement).status()
}

/// Returns the published list, without its head.
fn lines(server: &AuthServer) -> Vec<String> {
    let list = server.anonymous().get("/.well-known/revocations").text();
    list.lines().skip(1).map(str::to_owned).collect()
}
