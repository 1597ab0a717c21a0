//! A batch of cuts: it has a sidecar of its own, at whose end nothing is left.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};

use super::client::{Clients, Seen};
use super::cut::{Cut, Direction, Kind};
use super::exchange::{Exchange, Piece, Side, Version};
use super::laws::{Record, Story};
use super::part::Ending;
use super::service;
use super::world::{Case, World};
use crate::actors::auth_server::ECDSA;
use crate::actors::sidecar::{NEVER, Sidecar, SidecarPlan};
use crate::services::fake_auth_server::FakeAuthServer;
use crate::wait;

/// The cuts that run beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Group {
    /// Connections end. Where requests share one, they would end with it: one at a time.
    Breaks,
    /// Pauses below each timeout.
    Pauses,
    /// Silence beyond a timeout of a second.
    Stalls,
    /// Bytes behind a response, by which the service is marked: one sidecar each.
    Surplus,
}

impl Group {
    pub(super) fn of(exchange: &Exchange, cuts: &[Cut]) -> Self {
        let any = |is: fn(&Cut) -> bool| cuts.iter().any(is);
        let goes_away = |piece: &Piece| matches!(piece, Piece::GoAway);
        if any(|cut| cut.kind == Kind::Stall) {
            Self::Stalls
        } else if any(|cut| {
            cut.direction == Direction::Response && matches!(cut.kind, Kind::Surplus(..))
        }) {
            Self::Surplus
        } else if any(|cut| !cut.kind.is_harmless())
            || exchange.pieces(Side::Service).any(goes_away)
        {
            Self::Breaks
        } else {
            Self::Pauses
        }
    }

    const fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Stalls => &[
                // A silent client then leaves half a request on a connection that could stay.
                "--upstream-reuse-after-body",
                "on",
                "--upstream-read-timeout",
                "2",
                "--request-header-timeout",
                "2",
                "--request-body-timeout",
                "2",
                "--downstream-write-timeout",
                "2",
            ],
            _ => &[],
        }
    }

    /// The number of cuts in a batch, and of those at a time.
    pub(super) const fn size(self, service: Version) -> (usize, usize) {
        match (self, service) {
            (Self::Breaks, Version::Http2) => (400, 1),
            (Self::Breaks, _) => (2000, 12),
            (Self::Pauses, _) => (1000, 48),
            // Many at once would meet on connections before the service has said that it takes one each.
            (Self::Stalls, Version::Http2) => (250, 50),
            (Self::Stalls, _) => (1000, 200),
            (Self::Surplus, _) => (1, 1),
        }
    }
}

/// One exchange with the cuts that are tried on it.
pub(super) type Plan = (Arc<Exchange>, Vec<Cut>);

const ENOUGH: usize = 10;

/// Parts that batches share.
pub(super) struct Site {
    pub(super) world: Arc<World>,
    auth_server: FakeAuthServer,
    red: Mutex<Vec<String>>,
    /// Number of cuts after which something was wrong at once.
    broken: AtomicUsize,
    /// Number of cuts that were made.
    pub(super) done: AtomicUsize,
}

impl Site {
    pub(super) fn new(world: Arc<World>) -> Self {
        Self {
            auth_server: FakeAuthServer::serving(&world.forge.trusted().served()),
            world,
            red: Mutex::default(),
            broken: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
        }
    }

    /// Returns true once so much is broken that the rest would only take time: many a wait has no end.
    pub(super) fn is_enough(&self) -> bool {
        self.broken.load(Ordering::Relaxed).max(self.red().len()) >= ENOUGH
    }

    /// The broken laws so far.
    pub(super) fn red(&self) -> MutexGuard<'_, Vec<String>> {
        self.red.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Plays cases against a sidecar of their own, and checks the laws.
pub(super) async fn batch(
    site: Arc<Site>,
    group: Group,
    version: Version,
    plans: Vec<Plan>,
) -> Vec<(Arc<Case>, Seen)> {
    let service = service::start(&site.world, version).await;
    let scheme = if version == Version::Http2 {
        "h2c"
    } else {
        "http"
    };
    let upstream = format!("{scheme}://{service}");
    let auth_server = site.auth_server.url();
    let started = spawn_blocking(move || {
        SidecarPlan::to(&upstream, &auth_server)
            .app_name("")
            .flags(ECDSA)
            .flags(NEVER)
            .flags(["--access-log", "all", "--log-format", "json"])
            .flags(["--forward-authorization", "off", "--forwarded", "off"])
            .flags(group.settings())
            .ready()
    });
    let sidecar = started.await.expect("a sidecar");
    let clients = Clients {
        world: Arc::clone(&site.world),
        sidecar: sidecar.address(),
        service: version,
    };
    let (_, at_a_time) = group.size(version);
    let permits = Arc::new(Semaphore::new(at_a_time));
    let mut running = JoinSet::new();
    for (exchange, cuts) in plans {
        let permit = Arc::clone(&permits).acquire_owned().await;
        if site.is_enough() {
            break;
        }
        let (site, clients) = (Arc::clone(&site), clients.clone());
        // Otherwise all of them would be silent, and done, at the same time.
        let pause = match group {
            Group::Stalls => Duration::from_millis(fastrand::u64(..2000)),
            _ => Duration::ZERO,
        };
        running.spawn(async move {
            tokio::time::sleep(pause).await;
            let case = site.world.begin(&exchange, &cuts);
            let seen = clients.run(&case).await;
            site.done.fetch_add(1, Ordering::Relaxed);
            let is_broken = seen.ending == Ending::Late || !case.broken().is_empty();
            site.broken.fetch_add(is_broken.into(), Ordering::Relaxed);
            drop(permit);
            (case, seen)
        });
    }
    let ended = running.join_all().await;
    let (sidecar, left) = spawn_blocking(move || {
        let left = left_behind(&sidecar);
        (sidecar, left)
    })
    .await
    .expect("the end of a batch");
    let mut red: Vec<_> = site.world.take_broken();
    red.extend(left.map(|left| format!("{group:?} in {version:?}: {left}")));
    let mut records = records(&sidecar);
    let is_missing = |records: &HashMap<String, Vec<Record>>| {
        let mut cases = ended.iter();
        cases.any(|(case, seen)| seen.sent >= seen.head && !records.contains_key(&case.mark))
    };
    // The log is written behind the requests.
    for _ in 0..20 {
        if !is_missing(&records) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
        records = self::records(&sidecar);
    }
    for (case, seen) in &ended {
        let story = Story {
            world: &site.world,
            case,
            seen,
            arrivals: case.arrivals(),
            records: records
                .get(&case.mark)
                .map(Vec::as_slice)
                .unwrap_or_default(),
        };
        let cuts: Vec<_> = case.cuts.iter().map(ToString::to_string).collect();
        let exchange = &case.exchange;
        red.extend(story.broken().into_iter().map(|law| {
            let cuts = cuts.join(", ");
            let (client, service) = (exchange.client, exchange.service);
            format!("{} ({client} to {service}), {cuts}: {law}", exchange.name)
        }));
    }
    site.red().extend(red);
    spawn_blocking(move || drop(sidecar))
        .await
        .expect("the end of a sidecar");
    ended
}

/// Returns what a sidecar still holds once all clients have left.
fn left_behind(sidecar: &Sidecar) -> Option<String> {
    let gauges = [
        "postern_sidecar_requests_in_flight",
        "postern_sidecar_connections",
    ];
    let values = || gauges.map(|gauge| sidecar.metric(gauge));
    let is_empty = wait::within(wait::TIMEOUT, || values() == [Some(0), Some(0)]);
    is_empty
        .is_none()
        .then(|| format!("requests and connections are left: {:?}", values()))
}

/// Returns the access lines by their marks.
fn records(sidecar: &Sidecar) -> HashMap<String, Vec<Record>> {
    let mut records: HashMap<_, Vec<Record>> = HashMap::new();
    for line in sidecar.process().json_lines() {
        let is_access = line["target"] == "access";
        let path = line["path"]
            .as_str()
            .filter(|_| is_access)
            .unwrap_or_default();
        let Some(mark) = path.strip_prefix("/c/") else {
            continue;
        };
        let text = |name: &str| line[name].as_str().map(str::to_owned);
        records.entry(mark.to_owned()).or_default().push(Record {
            outcome: text("outcome").unwrap_or_default(),
            status: line["status"].as_u64(),
        });
    }
    records
}
