//! The parts that requests use, built in one place and shared.

mod client_ip;

use std::net::IpAddr;
use std::sync::Arc;

use postern_process::clock::instant;
use postern_token::possession::seen_proofs::SeenProofs;
use postern_transport::net::connection_slots::{ConnectionSlots, Slot};
use postern_transport::net::shares::{Holder, Shares};
use postern_transport::net::{fd_limit, unfinished};
use tracing::warn;

pub(in crate::http) use self::client_ip::ClientIp;
use crate::accounts::applications::registry::ApplicationRegistry;
use crate::accounts::sessions::Sessions;
use crate::accounts::users::UserStore;
use crate::accounts::users::authenticate::Authenticator;
use crate::accounts::users::recorded::RecordedUsers;
use crate::config::Config;
use crate::keys::published::LiveKeys;
use crate::rate_limit::{AddressLimit, RetryAfter};
use crate::revocations::log::RevocationLog;
use crate::store::open_store::OpenStore;
use crate::telemetry::metrics::Metrics;
use crate::tokens::revocation_list::RevocationListSigner;

pub(crate) struct App {
    pub(crate) config: Config,
    /// For background work: outside of the bound of requests.
    pub(crate) store: OpenStore,
    /// For requests, which share one bound.
    requests: OpenStore,
    /// Keys, applications and revocations follow the store.
    pub(crate) live_keys: Arc<LiveKeys>,
    pub(crate) registrations: Arc<ApplicationRegistry>,
    pub(crate) revocations: Arc<RevocationLog>,
    pub(crate) metrics: Metrics,
    pub(crate) users: Arc<dyn UserStore>,
    pub(crate) authenticator: Authenticator,
    /// The users of a file, in the store.
    pub(crate) recorded_users: Option<Arc<RecordedUsers>>,
    pub(crate) sessions: Arc<Sessions>,
    /// The limit of guesses: logins, and tokens and secrets that are unknown. `None` without a limit.
    pub(crate) guesses: Option<AddressLimit>,
    /// The limit of requests with a token or a secret that is right: guesses of other clients at the same
    /// address take none.
    pub(crate) proven: Option<AddressLimit>,
    /// The proofs of possession that were used.
    pub(crate) seen_proofs: SeenProofs<Holder>,
    pub(crate) list_signer: RevocationListSigner,
    /// Budget for incomplete heads and bodies.
    pub(crate) unfinished: Shares,
    pub(crate) connections: ConnectionSlots,
    /// Permits of requests in flight.
    pub(crate) in_flight: Shares,
}

impl App {
    pub(crate) fn new(config: Config, store: OpenStore) -> Self {
        let metrics = Metrics::default();
        let revocations = Arc::new(RevocationLog::new(
            store.clone(),
            metrics.clone(),
            config.rotation.keep,
        ));
        let users = config.user_store();
        let registrations = Arc::new(config.registrations());
        let max = max_connections(config.max_connections);
        Self {
            requests: store.for_requests(),
            live_keys: Arc::default(),
            authenticator: Authenticator::new(Arc::clone(&users)),
            recorded_users: config.users.as_ref().map(|file| {
                Arc::new(RecordedUsers::new(
                    store.clone(),
                    Arc::clone(file),
                    Arc::clone(&registrations),
                    Arc::clone(&revocations),
                ))
            }),
            sessions: Arc::new(Sessions::new(
                config.session_settings(),
                store.clone(),
                Arc::clone(&users),
                Arc::clone(&revocations),
                metrics.clone(),
            )),
            guesses: AddressLimit::per_minute(config.login_rate_limit),
            proven: AddressLimit::per_minute(config.login_rate_limit),
            seen_proofs: SeenProofs::default(),
            list_signer: RevocationListSigner::new(config.issuer.issuer.clone()),
            unfinished: unfinished::budget(),
            connections: ConnectionSlots::counting(
                "public port",
                max,
                metrics.connections_evicted.clone(),
            ),
            in_flight: Shares::new(max),
            registrations,
            revocations,
            metrics,
            users,
            store,
            config,
        }
    }

    /// Returns the present time in seconds since the epoch, by the store's clock.
    pub(crate) fn now(&self) -> i64 {
        self.store.clock.now()
    }

    /// Returns the store for a request of this client.
    pub(crate) fn store_for(&self, client: IpAddr) -> OpenStore {
        self.requests.for_client(client)
    }

    /// Takes the slot of a connection; `None` where it is to be closed.
    pub(crate) async fn slot(&self, peer: IpAddr) -> Option<Slot> {
        let is_proxy = self.config.trusted_proxies.trusts(peer);
        let slot = self.connections.take(peer, is_proxy).await;
        if slot.is_none() {
            self.metrics.connections_rejected.inc();
        }
        slot
    }

    /// Checks the limit that [`count_guess`](Self::count_guess) counts in.
    ///
    /// # Errors
    /// [`RetryAfter`] over the limit.
    pub(crate) fn check_guess(&self, client: IpAddr) -> Result<(), RetryAfter> {
        match &self.guesses {
            Some(limit) => limit.check(client, instant()),
            None => Ok(()),
        }
    }

    /// Counts a login of a client, or an unknown token or secret that it has sent.
    ///
    /// # Errors
    /// [`RetryAfter`] over the limit.
    pub(crate) fn count_guess(&self, client: IpAddr) -> Result<(), RetryAfter> {
        take(self.guesses.as_ref(), client)
    }

    /// Counts a request of a client whose token or secret is right.
    ///
    /// # Errors
    /// [`RetryAfter`] over the limit.
    pub(crate) fn count_proven(&self, client: IpAddr) -> Result<(), RetryAfter> {
        take(self.proven.as_ref(), client)
    }
}

fn take(limit: Option<&AddressLimit>, client: IpAddr) -> Result<(), RetryAfter> {
    match limit {
        Some(limit) => limit.take(client, instant()),
        None => Ok(()),
    }
}

/// Returns the configured number, or as many as there are descriptors.
fn max_connections(configured: u32) -> usize {
    let configured = configured as usize;
    let max = configured.min(fd_limit::for_clients());
    if max < configured {
        warn!(
            configured,
            max, "fewer connections than --max-connections: the limit of open files is low"
        );
    }
    max
}

#[cfg(test)]
mod tests;
