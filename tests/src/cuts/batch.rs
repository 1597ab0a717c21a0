//! A batch of cuts: it has a sidecar of its own, at whose end nothing is left.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};

use super::client::{Clients, Seen};
use super::cut::{Cut, Direction, Kind};
use super::exchange::{Exchange, Piece, Side, Version};
use super::laws::{Record, Story};
use super::pace::Pace;
use super::part::Ending;
use super::service;
use super::tracking;
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
    pub(super) fn new(exchange: &Exchange, cuts: &[Cut]) -> Self {
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
/// Times that a case is repeated until the harness has not stood still.
const ROUNDS: usize = 4;
/// Time in which a record is written.
const RECORDS: Duration = Duration::from_secs(5);
/// The part of a log line that makes it an access line.
const ACCESS: &str = "\"target\":\"access\"";

/// Parts that batches share.
pub(super) struct Site {
    pub(super) world: Arc<World>,
    auth_server: FakeAuthServer,
    red: Mutex<Vec<String>>,
    /// Number of cuts after which something was wrong at once.
    broken: AtomicUsize,
    /// Number of cases that were played.
    pub(super) done: AtomicUsize,
    /// Number of those that were repeated, because the harness had stood still.
    pub(super) repeated: AtomicUsize,
    pub(super) pace: Pace,
}

impl Site {
    pub(super) fn new(world: Arc<World>) -> Self {
        Self {
            auth_server: FakeAuthServer::serving(&world.forge.trusted().served()),
            world,
            red: Mutex::default(),
            broken: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            repeated: AtomicUsize::new(0),
            pace: Pace::default(),
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
) -> Vec<Played> {
    let batch = Arc::new(Batch::start(site, group, version).await);
    let played = Arc::new(batch.play(plans).await);
    let mut again = Batch::check(&batch, &played).await;
    for _ in 0..ROUNDS {
        if again.is_empty() || batch.site.is_enough() {
            break;
        }
        let count = again.len();
        batch.site.done.fetch_sub(count, Ordering::Relaxed);
        batch.site.repeated.fetch_add(count, Ordering::Relaxed);
        let repeated = Arc::new(batch.play(again).await);
        again = Batch::check(&batch, &repeated).await;
    }
    let disturbed = again
        .iter()
        .map(|case| format!("{}: the harness stood still", named(case)));
    batch.site.red().extend(disturbed);
    let ended = spawn_blocking(move || {
        let left = left_behind(&batch.sidecar);
        let left = left.map(|left| format!("{group:?} in {version:?}: {left}"));
        batch.site.red().extend(left);
    });
    ended.await.expect("the end of a batch");
    Arc::into_inner(played).unwrap_or_default()
}

/// A sidecar and its service.
struct Batch {
    site: Arc<Site>,
    group: Group,
    version: Version,
    sidecar: Sidecar,
}

/// A case that was played.
pub(super) struct Played {
    pub(super) case: Arc<Case>,
    pub(super) seen: Seen,
    began: Instant,
    ended: Instant,
}

impl Batch {
    async fn start(site: Arc<Site>, group: Group, version: Version) -> Self {
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
        Self {
            site,
            group,
            version,
            sidecar: started.await.expect("a sidecar"),
        }
    }

    async fn play(&self, plans: Vec<Plan>) -> Vec<Played> {
        let clients = Clients {
            world: Arc::clone(&self.site.world),
            sidecar: self.sidecar.address(),
            service: self.version,
        };
        let (_, at_a_time) = self.group.size(self.version);
        let permits = Arc::new(Semaphore::new(at_a_time));
        let mut running = JoinSet::new();
        for (exchange, cuts) in plans {
            let permit = Arc::clone(&permits).acquire_owned().await;
            if self.site.is_enough() {
                break;
            }
            tracking::room().await;
            let (site, clients) = (Arc::clone(&self.site), clients.clone());
            // Otherwise all of them would be silent, and done, at the same time.
            let pause = match self.group {
                Group::Stalls => Duration::from_millis(fastrand::u64(..2000)),
                _ => Duration::ZERO,
            };
            running.spawn(async move {
                tokio::time::sleep(pause).await;
                let began = Instant::now();
                let case = site.world.begin(&exchange, &cuts);
                let seen = clients.run(&case).await;
                site.done.fetch_add(1, Ordering::Relaxed);
                let ended = Instant::now();
                let is_broken = seen.ending == Ending::Late || !case.broken().is_empty();
                if is_broken && !site.pace.has_gap(began, ended) {
                    site.broken.fetch_add(1, Ordering::Relaxed);
                }
                drop(permit);
                Played {
                    case,
                    seen,
                    began,
                    ended,
                }
            });
        }
        running.join_all().await
    }

    /// Notes the broken laws, beside the network, which has to go on. Returns the cases with broken laws in
    /// whose time the harness stood still.
    async fn check(this: &Arc<Self>, played: &Arc<Vec<Played>>) -> Vec<Plan> {
        let (this, played) = (Arc::clone(this), Arc::clone(played));
        let checked = spawn_blocking(move || this.broken(&played));
        checked.await.expect("the check of a batch")
    }

    fn broken(&self, played: &[Played]) -> Vec<Plan> {
        let mut again = Vec::new();
        let mut red = self.site.world.take_broken();
        let records = self.all_records(played);
        for case in played {
            let broken = self.story(case, &records).broken();
            let plan = (Arc::clone(&case.case.exchange), case.case.cuts.clone());
            let is_disturbed = || self.site.pace.has_gap(case.began, case.ended);
            if !broken.is_empty() && !self.site.is_enough() && is_disturbed() {
                again.push(plan);
                continue;
            }
            for law in broken {
                let cause = cause_of(&law, &records);
                red.push(format!("{}: {law}{cause}", named(&plan)));
            }
        }
        self.site.red().extend(red);
        again
    }

    /// Returns the access lines, which are written behind the requests.
    fn all_records(&self, played: &[Played]) -> HashMap<String, Vec<Record>> {
        let is_missing = |records: &HashMap<String, Vec<Record>>| {
            let mut stories = played.iter().map(|case| self.story(case, records));
            stories.any(|story| story.lacks_record())
        };
        let complete = wait::within(RECORDS, || {
            let records = records(&self.sidecar);
            (!is_missing(&records)).then_some(records)
        });
        complete.unwrap_or_else(|| records(&self.sidecar))
    }

    fn story<'a>(
        &'a self,
        played: &'a Played,
        records: &'a HashMap<String, Vec<Record>>,
    ) -> Story<'a> {
        let of_case = records.get(&played.case.mark);
        Story {
            world: &self.site.world,
            case: &played.case,
            seen: &played.seen,
            arrivals: played.case.arrivals(),
            records: of_case.map(Vec::as_slice).unwrap_or_default(),
        }
    }
}

/// Returns the failure of the service in a request whose mark ends this text.
fn cause_of(law: &str, records: &HashMap<String, Vec<Record>>) -> String {
    let mark = law.rsplit(' ').next().unwrap_or_default();
    let mut records = records.get(mark).into_iter().flatten();
    let cause = records.find_map(|record| record.cause.as_ref());
    cause.map(|cause| format!(": {cause}")).unwrap_or_default()
}

/// Returns the name of an exchange, with its cuts.
fn named((exchange, cuts): &Plan) -> String {
    let (name, client, service) = (&exchange.name, exchange.client, exchange.service);
    let cuts: Vec<_> = cuts.iter().map(ToString::to_string).collect();
    format!("{name} ({client} to {service}), {}", cuts.join(", "))
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
    for line in sidecar.process().stderr().lines() {
        if !line.contains(ACCESS) {
            continue;
        }
        let Ok(record) = serde_json::from_str::<Record>(line) else {
            continue;
        };
        if let Some(mark) = record.path.strip_prefix("/c/") {
            records.entry(mark.to_owned()).or_default().push(record);
        }
    }
    records
}
