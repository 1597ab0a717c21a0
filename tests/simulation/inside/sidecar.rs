//! A sidecar of the simulation: its issuer's task, keys, list, caches and decision as they are. The fetch
//! goes through the world's network, the request is a head.

#![allow(missing_docs, reason = "only tests/simulation uses it")]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::BytesMut;
use clap::Parser;
use postern_contract::rejection::Rejection;
use postern_http::request::received::{self, ReceivedHead};
use postern_process::clock::{instant, unix_now, until};
use postern_process::simulation::Machine;
use postern_token::claims::Claims;
use postern_token::keys::{KeySetIndex, VerificationKey};
use postern_token::revocations::TokenDigests;
use postern_transport::http_client::simulated::{Network, within};
use postern_transport::issuer::Purpose;
use postern_transport::net::client_address::TrustedProxies;
use postern_transport::net::shares::Holder;

use crate::cli::{Cli, Command};
use crate::config::Config;
use crate::decision::after_fetch::decide_after_fetch;
use crate::decision::decided::{Decision, Rejected};
use crate::exchange::app::App;
use crate::identity::client::Client;
use crate::issuers::task::IssuerTask;
use crate::issuers::task::schedule::{Schedule, Tick};

/// The settings of every sidecar.
const SETTINGS: [&str; 10] = [
    "sidecar",
    "serve",
    "--upstream=http://127.0.0.1:3000",
    "--auth-server=http://auth:9000/auth",
    "--app-id=orders",
    "--app-secret=a-secret-of-the-simulated-application",
    "--signing-type=ecdsa",
    "--max-key-age=3m",
    "--max-revocation-age=2m",
    "--revocations=required",
];
/// Of the settings above.
pub const MAX_KEY_AGE: Duration = Duration::from_secs(180);
pub const MAX_LIST_AGE: Duration = Duration::from_secs(120);
/// A cache of some tokens, in place of one of thousands: worlds are made often.
const TOKEN_CACHE_BYTES: usize = 64 * 1024;
const MINUTE: i64 = 60;

fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| {
        let Command::Serve(args) = Cli::parse_from(SETTINGS).command else {
            unreachable!("serve")
        };
        let mut config = Config::new(&args).expect("the settings are good");
        config.token_cache.bytes = TOKEN_CACHE_BYTES;
        config
    })
}

fn schedule() -> Schedule {
    static SCHEDULE: OnceLock<Schedule> = OnceLock::new();
    let schedule = SCHEDULE.get_or_init(|| "0 * * * * *".parse().expect("a schedule"));
    schedule.clone()
}

/// A running sidecar.
pub struct Sidecar {
    machine: Arc<Machine>,
    app: Arc<App>,
}

/// The decision about a request with a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The service gets the request.
    Forwarded,
    /// The reason of the rejection, and its status.
    Rejected(&'static str, u16),
}

impl Sidecar {
    /// Starts a sidecar on a machine, which may end at any moment.
    #[must_use]
    pub fn start(machine: Arc<Machine>, network: Arc<dyn Network>) -> Self {
        let app = Arc::new(App::new(config()).expect("an address of the service"));
        let keys = Arc::clone(app.keys.get(KeySetIndex(0)).expect("an issuer"));
        let [issuer] = config().issuers.as_slice() else {
            unreachable!("one issuer")
        };
        let task = IssuerTask::new(issuer.clone(), keys, schedule(), app.metrics.clone());
        let (task, changes) = task.expect("no files");
        machine.run(within(network, async move {
            // Dropped it would look like the end of the program.
            let _changes = changes;
            refresh(task).await;
        }));
        Self { machine, app }
    }

    /// Decides about a request with this token; `None` where the machine ends meanwhile.
    pub async fn decide(&self, token: &str) -> Option<Verdict> {
        let (app, head) = (Arc::clone(&self.app), head(token));
        let deciding = self.machine.run(async move { decide(&app, &head).await });
        deciding.await.ok().map(|decision| match decision {
            Ok(_) => Verdict::Forwarded,
            Err(Rejected { rejection, .. }) => {
                Verdict::Rejected(rejection.reason(), rejection.status().as_u16())
            }
        })
    }

    /// Returns the ids of the keys in force.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let state = self
            .app
            .keys
            .get(KeySetIndex(0))
            .and_then(|keys| keys.load().clone());
        let keys = state
            .as_deref()
            .map(|state| state.keys().keys())
            .unwrap_or_default();
        keys.iter()
            .map(VerificationKey::id)
            .map(ToString::to_string)
            .collect()
    }

    /// Returns true if the list in force ends this token.
    #[must_use]
    pub fn revokes(&self, claims: &Claims) -> bool {
        let state = self
            .app
            .keys
            .get(KeySetIndex(0))
            .and_then(|keys| keys.load().clone());
        let digests = TokenDigests::from_claims(claims);
        state.is_some_and(|state| state.check_revoked(&digests).is_err())
    }

    /// Returns the cursor of the list in force.
    #[must_use]
    pub fn list(&self) -> Option<String> {
        let list = self.app.keys.get(KeySetIndex(0))?.list.load();
        Some(list.as_ref()?.list().cursor())
    }
}

/// Does what `run` of the task does, by the clock of the machine in place of the scheduler's.
async fn refresh(mut task: IssuerTask) {
    loop {
        task.fetch(Purpose::Tick).await;
        task.until_tick(async {
            let now = unix_now();
            tokio::time::sleep(until(now - now.rem_euclid(MINUTE) + MINUTE)).await;
            Tick::OnTime
        })
        .await;
    }
}

fn head(token: &str) -> ReceivedHead {
    let text =
        format!("GET /orders/1 HTTP/1.1\r\nHost: orders\r\nAuthorization: Bearer {token}\r\n\r\n");
    let mut bytes = BytesMut::from(text.as_str());
    received::take(&mut bytes)
        .expect("a good head")
        .expect("a whole head")
}

async fn decide(app: &App, head: &ReceivedHead) -> Result<Decision, Rejected> {
    let rules = app.rules.load();
    let policy = &rules.auth_policy;
    let client = Client::new(None, false, &TrustedProxies::default());
    let decide = || policy.authorize(head, &client, app.keys.as_of(instant()), unix_now());
    let decision = decide();
    let (Some(token), Some(keys)) = (policy.token(head), app.keys.get(KeySetIndex(0))) else {
        return decision;
    };
    if decision != Err(Rejection::TokenKeyUnknown.into()) {
        return decision;
    }
    let holder = Holder::for_address(Some([192, 0, 2, 1].into()));
    let wait = || async { Some(keys.on_demand().wait(token, holder, instant()).await) };
    decide_after_fetch(wait, decide).await
}
