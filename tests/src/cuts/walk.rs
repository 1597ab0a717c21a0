//! The walk over all cuts, in batches: each has a sidecar of its own, at whose end nothing is left.

use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::batch::{Group, Plan, Site, batch};
use super::cut::{self, Lengths};
use super::exchange::{self, Exchange, Side, Version};
use super::script::{Need, Step, opening, script};
use super::tracking;
use super::world::World;

/// The part of the cuts that is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// All of them.
    All,
    /// One of so many, by the seed.
    One(u64),
}

/// A walk.
#[derive(Debug)]
pub struct Walk {
    /// The part of the cuts.
    pub share: Share,
    /// Which part that is, and which cuts come in pairs.
    pub seed: u64,
    /// A part of the names of the exchanges; empty for all.
    pub only: String,
}

/// The findings of a walk.
#[derive(Debug, Default)]
pub struct Findings {
    /// Number of exchanges.
    pub exchanges: usize,
    /// Number of cuts that were made; after some red ones the rest are not.
    pub cuts: usize,
    /// Number of cuts to make.
    pub planned: usize,
    /// Each broken law, with its exchange and cut.
    pub red: Vec<String>,
    /// Number of cuts that were repeated, because the harness had stood still meanwhile.
    pub repeated: usize,
    /// Number of packets that the kernel dropped meanwhile, for want of room in a table of its own.
    pub dropped: u64,
}

impl Walk {
    /// Walks; prints its progress to standard error if `shows`.
    ///
    /// # Panics
    /// When the parts of the harness do not start.
    pub fn run(&self, shows: bool) -> Findings {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(self.walk(shows))
    }

    async fn walk(&self, shows: bool) -> Findings {
        let all = exchange::load();
        let mut named = all.iter().filter(|exchange| exchange.name == "a probe");
        let world = Arc::new(World::new(named.next().expect("an exchange for probes")));
        let exchanges: Vec<_> = all
            .into_iter()
            .filter(|exchange| exchange.name.contains(&self.only))
            .map(Arc::new)
            .collect();
        let site = Arc::new(Site::new(world));
        let watched = Arc::clone(&site);
        let watch = tokio::spawn(async move { watched.pace.watch().await });
        let dropped = tracking::dropped();
        let plans = self.plans(&site, &exchanges).await;
        let planned = plans.values().map(Vec::len).sum();
        // Up to here they had no cut.
        site.done.store(0, Ordering::Relaxed);
        let began = Instant::now();
        let counted = exchanges.len();
        let progress = shows.then(|| {
            let site = Arc::clone(&site);
            tokio::spawn(async move { show(&site, planned, began).await })
        });
        run_batches(&site, plans).await;
        if let Some(progress) = progress {
            progress.abort();
        }
        watch.abort();
        let mut red = std::mem::take(&mut *site.red());
        // First those that name their cut.
        red.sort_by_key(|law| !law.contains(" at byte "));
        Findings {
            exchanges: counted,
            cuts: site.done.load(Ordering::Relaxed),
            planned,
            red,
            repeated: site.repeated.load(Ordering::Relaxed),
            dropped: tracking::dropped() - dropped,
        }
    }

    /// Plays each exchange without a cut, and returns the cuts of those that are walked.
    async fn plans(
        &self,
        site: &Arc<Site>,
        exchanges: &[Arc<Exchange>],
    ) -> HashMap<(Group, Version), Vec<Plan>> {
        let mut lengths = HashMap::new();
        for version in [Version::Http11, Version::Http2] {
            let of_version = exchanges
                .iter()
                .filter(|exchange| exchange.service == version);
            let plans: Vec<Plan> = of_version
                .map(|exchange| (Arc::clone(exchange), Vec::new()))
                .collect();
            // One after the other where they would share connections that end.
            let ended = batch(Arc::clone(site), Group::Breaks, version, plans).await;
            for played in ended {
                let forwarded = played
                    .case
                    .arrivals()
                    .first()
                    .map_or(0, |arrival| arrival.received);
                let returned = played.seen.received;
                lengths.insert(
                    Arc::as_ptr(&played.case.exchange),
                    Lengths {
                        forwarded,
                        returned,
                    },
                );
            }
        }
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut plans: HashMap<_, Vec<Plan>> = HashMap::new();
        for exchange in exchanges {
            let Some(lengths) = lengths.get(&Arc::as_ptr(exchange)) else {
                continue;
            };
            let case = site.world.begin(exchange, &[]);
            let names = site.world.names(&case);
            let mut client = script(exchange, Side::Client, names, 1);
            if exchange.client == Version::Http2 {
                let bytes = opening(Side::Client);
                let need = Need::default();
                let shifted = |at: &Range<usize>| at.start + bytes.len()..at.end + bytes.len();
                client.alike = client.alike.iter().map(shifted).collect();
                client.steps.insert(0, Step { bytes, need });
            }
            let service = script(exchange, Side::Service, names, 1);
            let all = cut::all(exchange, [&client, &service], *lengths);
            for cut in &all {
                if let Share::One(of) = self.share
                    && random.u64(..of) > 0
                {
                    continue;
                }
                let mut cuts = vec![*cut];
                // Now and then the other side cuts as well.
                let other = all[random.usize(..all.len())];
                if random.u8(..8) == 0 && other.direction.side() != cut.direction.side() {
                    cuts.push(other);
                }
                let key = (Group::new(exchange, &cuts), exchange.service);
                plans
                    .entry(key)
                    .or_default()
                    .push((Arc::clone(exchange), cuts));
            }
        }
        plans.values_mut().for_each(|plans| random.shuffle(plans));
        plans
    }
}

async fn show(site: &Site, cuts: usize, began: Instant) {
    let mut printed = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let done = site.done.load(Ordering::Relaxed);
        let rate = done as f64 / began.elapsed().as_secs_f64();
        let red = site.red().clone();
        let count = red.len();
        let line = format!("{done} of {cuts} cuts, {rate:.0} a second, {count} red");
        let _ = writeln!(std::io::stderr(), "{line}");
        for red in &red[printed..] {
            let _ = writeln!(std::io::stderr(), "  {red}");
        }
        printed = count;
    }
}

/// Runs all batches, those that wait beside those that work.
async fn run_batches(site: &Arc<Site>, plans: HashMap<(Group, Version), Vec<Plan>>) {
    let mut groups = JoinSet::new();
    for ((group, version), mut plans) in plans {
        let site = Arc::clone(site);
        groups.spawn(async move {
            let at_a_time = match (group, version) {
                (Group::Breaks | Group::Stalls, Version::Http2) => 4,
                (Group::Surplus, _) => 3,
                _ => 1,
            };
            let permits = Arc::new(Semaphore::new(at_a_time));
            let mut batches = JoinSet::new();
            while !plans.is_empty() && !site.is_enough() {
                let (size, _) = group.size(version);
                let rest = plans.split_off(size.min(plans.len()));
                let part = std::mem::replace(&mut plans, rest);
                let permit = Arc::clone(&permits).acquire_owned().await;
                let site = Arc::clone(&site);
                batches.spawn(async move {
                    batch(site, group, version, part).await;
                    drop(permit);
                });
            }
            while batches.join_next().await.is_some() {}
        });
    }
    while groups.join_next().await.is_some() {}
}
