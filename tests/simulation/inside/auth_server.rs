//! An auth server of the simulation: everything above [`Store`](crate::store::Store) as it is, in one task
//! that can be killed, and the commands of its administrators.

#![allow(missing_docs, reason = "only tests/simulation uses it")]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aws_lc_rs::signature::Ed25519KeyPair;
use axum::Router;
use axum::body::Body;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use clap::Parser;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use postern_process::clock::unix_now;
use postern_process::exit::ExitError;
use postern_process::simulation::Machine;
use postern_token::claims::Claims;
use postern_token::keys::KeyId;
use postern_transport::admin::health::Health;
use serde_json::json;
use tokio::time::Instant;
use tower::ServiceExt;

pub use crate::store::simulated::{Call, Event, Fate, Keys, SimulatedStore, Weather};

use crate::accounts::applications::command::Change;
use crate::cli::{Cli, Command, ServeArgs};
use crate::commands::store::CommandStore;
use crate::commands::{application, keys, revoke};
use crate::config::{Config, store_location};
use crate::http::app::App;
use crate::http::router;
use crate::revocations::Revocation;
use crate::server::synchronization::Synchronization;
use crate::store::Store;
use crate::store::open_store::OpenStore;

/// The settings of every server: sessions, keys that are made quickly, and no limit by address.
const SETTINGS: [&str; 11] = [
    "auth-server",
    "serve",
    "--store=memory:",
    "--users=builtin",
    "--signing-type=ecdsa",
    "--refresh-tokens=true",
    "--token-lifetime=10m",
    "--refresh-token-lifetime=1h",
    "--store-poll-interval=10s",
    "--rotation-lead=150s",
    "--access-log=off",
];
const POLL_INTERVAL: Duration = Duration::from_secs(10);

fn settings() -> &'static ServeArgs {
    static SETTINGS_READ: OnceLock<ServeArgs> = OnceLock::new();
    SETTINGS_READ.get_or_init(|| {
        let Command::Serve(mut args) = Cli::parse_from(SETTINGS).command else {
            unreachable!("serve")
        };
        let table = json!({"issuer": FOREIGN_ISSUER, "client": "postern", "jwks": FOREIGN_KEYS});
        args.logouts = vec![serde_json::from_value(table).expect("a table")];
        *args
    })
}

/// A running server.
pub struct Server {
    machine: Arc<Machine>,
    app: Arc<App>,
    router: Router,
    polls: Arc<Mutex<Polls>>,
}

/// The polls of a server.
#[derive(Debug, Clone, Copy, Default)]
pub struct Polls {
    /// The begin of the last poll that succeeded.
    pub succeeded: Option<Instant>,
}

/// A response, whole.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Server {
    /// Starts a server on a machine, which may end at any moment.
    #[must_use]
    pub fn start(machine: Arc<Machine>, store: &SimulatedStore, weather: Arc<dyn Weather>) -> Self {
        let config = Config::from_args(settings()).expect("the settings are good");
        let store = opened(store, weather);
        let app = Arc::new(App::new(config, store));
        let polls = Arc::<Mutex<Polls>>::default();
        machine.run(synchronize(Arc::clone(&app), Arc::clone(&polls)));
        Self {
            router: router(Arc::clone(&app)),
            machine,
            app,
            polls,
        }
    }

    /// Responds; `None` where the machine ends meanwhile.
    pub async fn respond(&self, request: Request<Body>) -> Option<Reply> {
        let router = self.router.clone();
        let responding = self.machine.run(async move {
            let response = router.oneshot(request).await.expect("infallible");
            let (parts, body) = response.into_parts();
            let body = body.collect().await.expect("a body in memory").to_bytes();
            Reply {
                status: parts.status,
                headers: parts.headers,
                body,
            }
        });
        responding.await.ok()
    }

    #[must_use]
    pub fn polls(&self) -> Polls {
        *self.polls.lock()
    }

    /// Returns true if this server rejects the token as revoked.
    #[must_use]
    pub fn revokes(&self, claims: &Claims) -> bool {
        self.app.revocations.revokes(claims)
    }

    /// Returns the keys; `None` before they were read.
    #[must_use]
    pub fn keys(&self) -> Option<Keys> {
        let keys = self.app.live_keys.load_full()?;
        Some(Keys::from(&keys.ring))
    }

    /// Returns the number of sessions whose begin was unclear, and which are not removed yet.
    #[must_use]
    pub fn unclear_sessions(&self) -> usize {
        self.app.sessions.unclear.lock().len()
    }

    /// Returns the number of the published list.
    #[must_use]
    pub fn list_number(&self) -> i64 {
        self.app.revocations.published().seq
    }
}

fn opened(store: &SimulatedStore, weather: Arc<dyn Weather>) -> OpenStore {
    let encryption = Arc::new(store.encryption());
    let store: Arc<dyn Store> = store.reached_through(weather);
    OpenStore::new(store, encryption, &"the simulated store")
}

/// Does what `serve` does in the background.
async fn synchronize(app: Arc<App>, polls: Arc<Mutex<Polls>>) {
    let mut synchronization = Synchronization::new(app, &Health::new());
    let began = Instant::now();
    // An unusable store ends the program, which is started again.
    if synchronization.start().await.is_ok() {
        note(&polls, began, &synchronization);
    }
    loop {
        tokio::time::sleep(synchronization.pause(POLL_INTERVAL)).await;
        let began = Instant::now();
        synchronization.poll(unix_now()).await;
        note(&polls, began, &synchronization);
    }
}

fn note(polls: &Mutex<Polls>, began: Instant, synchronization: &Synchronization) {
    if !synchronization.has_failed() {
        polls.lock().succeeded = Some(began);
    }
}

/// A command of an administrator.
#[derive(Debug, Clone)]
pub enum Administration {
    RotateKeys,
    /// Revokes the key of this id.
    RevokeKey(String),
    RevokeUser(String),
    RevokeEveryone,
    /// Registers an application with this secret, or adds it.
    EnsureApplication {
        id: String,
        secret: String,
    },
    RemoveApplication(String),
}

async fn append(
    store: &CommandStore,
    revocation: impl FnOnce(i64) -> Revocation,
) -> Result<(), ExitError> {
    let now = store.now().await?;
    store.append(&revocation(now), None).await.map(drop)
}

/// Another issuer, whose sessions end by its statements.
pub const FOREIGN_ISSUER: &str = "https://idp.example";
/// Its key set.
const FOREIGN_KEYS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/simulation/foreign-issuer.jwks"
);

/// Returns the form with a statement of that issuer that one of its sessions has ended.
#[must_use]
pub fn foreign_logout(session: &str, id: &str, now: i64) -> String {
    let claims = json!({
        "iss": FOREIGN_ISSUER, "aud": "postern", "iat": now, "jti": id, "sid": session,
        "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
    });
    let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let header = encoded(r#"{"typ":"logout+jwt","alg":"EdDSA","kid":"foreign"}"#);
    let signed = format!("{header}.{}", encoded(&claims.to_string()));
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a key");
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
    format!("logout_token={signed}.{signature}")
}

/// Runs a command on a machine of its own. Returns false where it failed, or its machine ended.
pub async fn administer(
    machine: &Arc<Machine>,
    store: &SimulatedStore,
    weather: Arc<dyn Weather>,
    command: Administration,
) -> bool {
    let opened = opened(store, weather);
    let running = machine.run(async move { run(opened, command).await.is_ok() });
    running.await.unwrap_or_default()
}

async fn run(opened: OpenStore, command: Administration) -> Result<(), ExitError> {
    let args = settings();
    let store = CommandStore {
        pair: opened.read_keys().await?.keys.pair,
        location: store_location(&args.keys.store)?,
        opened,
    };
    if store.pair.is_none() {
        return Err(store.no_pair().into());
    }
    let keys_in = |store| keys::KeysInStore {
        store,
        signing_type: args.keys.signing.signing_type,
    };
    match command {
        Administration::RotateKeys => {
            let lead = args.keys.lead.rotation_lead.get().into();
            keys::rotate_in(&keys_in(store), lead).await
        }
        Administration::RevokeKey(id) => {
            let id = KeyId::new(&id).expect("the id of a key");
            keys::revoke_in(&keys_in(store), &id).await
        }
        Administration::RevokeUser(id) => append(&store, |now| Revocation::for_user(id, now)).await,
        Administration::RevokeEveryone => append(&store, Revocation::for_everyone).await,
        Administration::EnsureApplication { id, secret } => {
            let id = id.parse().expect("an id of an application");
            application::change_in(&store, &id, Change::Ensure { secret: &secret }).await
        }
        Administration::RemoveApplication(id) => {
            let id = id.parse().expect("an id of an application");
            application::change_in(&store, &id, Change::Remove).await?;
            revoke::end_application(&store, &id).await
        }
    }
}
