//! The setup of an incident: the programs, the service, the users and Prometheus.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, SystemTime};

use bench::panels::Mark;
use tempfile::TempDir;
use tests::auth_server::{AuthServer, AuthServerPlan};
use tests::prometheus::{Prometheus, Target};
use tests::sidecar::{EVERY_SECOND, Sidecar, SidecarPlan};

use crate::scenes::Scene;
use crate::service::Service;
use crate::users::{End, World, go_wild, work};

const SIDECARS: usize = 3;
const USERS: usize = 36;
/// Time until rates have their window.
const WARM_UP: Duration = Duration::from_secs(10);

/// The whole setup.
pub(crate) struct Fleet {
    pub(crate) prometheus: Prometheus,
    pub(crate) service: Service,
    pub(crate) auth_servers: Vec<AuthServer>,
    pub(crate) sidecars: Vec<Sidecar>,
    pub(crate) world: World,
    home: TempDir,
}

/// The time that an incident took, in Unix seconds.
pub(crate) struct Took {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) marks: Vec<Mark>,
}

impl Fleet {
    /// Starts everything; `None` where there is no Prometheus. The second auth server knows nothing of
    /// the first, and has no users yet.
    pub(crate) fn start(scene: &Scene) -> Option<Self> {
        let home = tempfile::tempdir().expect("a temporary directory");
        let service = Service::start();
        let auth_servers: Vec<_> = (0..scene.auth_servers)
            .map(|_| AuthServerPlan::new().start().ready())
            .collect();
        let sidecar = |number| {
            let file = file(&home, number);
            fs::write(&file, "").expect("a writable file");
            SidecarPlan::to(&service.url(), &auth_servers[0].url())
                .flags(EVERY_SECOND)
                .flags(["--config", &file.display().to_string()])
                .flags(scene.flags.iter().copied())
                .start()
                .ready()
        };
        let sidecars: Vec<_> = (1..=SIDECARS).map(sidecar).collect();
        let prometheus = Prometheus::scraping_as(&targets(&sidecars, &auth_servers))?;
        let world = World::default();
        let first = auth_servers[0].address();
        *world.auth_servers.lock().expect("no thread panicked") = vec![first];
        Some(Self {
            prometheus,
            service,
            auth_servers,
            sidecars,
            world,
            home,
        })
    }

    /// Runs the steps of a scene, each for `turn`, under the users' load.
    pub(crate) fn play(&self, scene: &Scene, turn: Duration) -> Took {
        thread::scope(|scope| {
            let _end = End(&self.world);
            for number in 0..USERS {
                let sidecar = self.sidecars[number % SIDECARS].address();
                scope.spawn(move || work(&self.world, number, sidecar));
            }
            thread::sleep(WARM_UP);
            let from = now();
            let mut marks = Vec::new();
            thread::sleep(turn);
            for step in scene.steps {
                (step.act)(self, scope);
                println!("  {}", step.what);
                marks.push(Mark {
                    at: now() - from,
                    what: step.what.to_owned(),
                });
                thread::sleep(turn);
            }
            let to = now();
            Took { from, to, marks }
        })
    }

    /// Gives these sidecars a configuration, which they read at once.
    pub(crate) fn configure(&self, numbers: &[usize], config: &str) {
        for number in numbers {
            fs::write(file(&self.home, *number), config).expect("a writable file");
            self.sidecars[number - 1].process().signal("HUP");
        }
    }

    /// Starts clients that repeat requests to the second sidecar.
    pub(crate) fn let_loose<'s>(
        &'s self,
        scope: &'s thread::Scope<'s, '_>,
        count: usize,
        token: Option<String>,
        pause: Duration,
    ) {
        self.world.wild.store(true, Ordering::Relaxed);
        let sidecar = self.sidecars[1].address();
        for _ in 0..count {
            let token = token.clone();
            scope.spawn(move || go_wild(&self.world, sidecar, token.as_deref(), pause));
        }
    }
}

fn file(home: &TempDir, number: usize) -> PathBuf {
    home.path().join(format!("orders-{number}.toml"))
}

fn targets(sidecars: &[Sidecar], auth_servers: &[AuthServer]) -> Vec<Target> {
    let target = |job, number: usize, address| Target {
        job,
        instance: format!("{job}-{}", number + 1),
        address,
    };
    let sidecars = sidecars.iter().map(Sidecar::admin).enumerate();
    let sidecars = sidecars.map(|(number, address)| target("orders", number, address));
    let auth_servers = auth_servers.iter().map(AuthServer::admin).enumerate();
    let auth_servers = auth_servers.map(|(number, address)| target("auth", number, address));
    sidecars.chain(auth_servers).collect()
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("a time after 1970").as_secs_f64()
}
