//! The starting field: the programs that take part, and their start.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bench::machine;
use bench::settings::Settings;
use tempfile::NamedTempFile;
use tests::actors::programs::Program;
use tests::actors::sidecar::SidecarPlan;
use tests::services::socket_server::SocketServer;
use tests::skip::skip;
use tests::wire::certificates::Certificate;

use crate::contestants::envoy::Cache;
use crate::contestants::{Running, Setup, envoy, haproxy, nginx};
use crate::results::Who;
use crate::tokens::{ISSUER, Issuer};
use crate::upstream;

/// A turn of the quickest contestant needs no more; with fewer tokens it would end early.
const FRESH_TOKENS: usize = 30_000;

/// The contestants and their shared parts.
pub(crate) struct Field {
    pub(crate) issuer: Issuer,
    pub(crate) auth_server: SocketServer,
    pub(crate) upstream: Running,
    pub(crate) running: BTreeMap<Who, Running>,
    /// Resident memory of each before its first request, in MiB.
    pub(crate) idle_mib: BTreeMap<Who, f64>,
    pub(crate) fresh_tokens: NamedTempFile,
    programs: Programs,
}

struct Programs {
    haproxy: Option<PathBuf>,
    nginx: Option<PathBuf>,
    envoy: Option<PathBuf>,
}

impl Programs {
    fn find() -> Self {
        let envoy = std::env::var_os("POSTERN_BENCH_ENVOY").map(PathBuf::from);
        let envoy = envoy.filter(|file| file.is_file());
        Self {
            haproxy: present("haproxy", machine::find("haproxy")),
            nginx: present("nginx", machine::find("nginx")),
            envoy: present("envoy", envoy.or_else(|| machine::find("envoy"))),
        }
    }
}

fn present(name: &str, found: Option<PathBuf>) -> Option<PathBuf> {
    if found.is_none() {
        skip(&format!("{name} in the race"), "make bench-peers");
    }
    found
}

impl Field {
    pub(crate) fn start(settings: &Settings) -> Self {
        let programs = Programs::find();
        let issuer = Issuer::new();
        println!("signing tokens …");
        let fresh_tokens = issuer.good_file(settings.amount(FRESH_TOKENS, 200));
        let mut field = Self {
            auth_server: issuer.auth_server(),
            upstream: upstream::start(),
            running: BTreeMap::new(),
            idle_mib: BTreeMap::new(),
            fresh_tokens,
            issuer,
            programs,
        };
        field.start_contestants();
        field
    }

    fn start_contestants(&mut self) {
        let (service, jwk_set) = (self.upstream.address, self.issuer.jwk_set());
        let mut running = BTreeMap::from([(Who::Sidecar, self.sidecar(&[]))]);
        if let Some(program) = &self.programs.haproxy {
            let pem = self.issuer.public_pem();
            running.insert(Who::Haproxy, haproxy::plain(program, service));
            let verifying = haproxy::verifying(program, service, &pem, Setup::PLAIN);
            running.insert(Who::HaproxyJwt, verifying);
        }
        if let Some(program) = &self.programs.nginx {
            running.insert(Who::Nginx, nginx::plain(program, service));
        }
        if let Some(program) = &self.programs.envoy {
            let verifying =
                |cache| envoy::verifying(program, service, jwk_set, cache, Setup::PLAIN);
            running.insert(Who::Envoy, envoy::plain(program, service));
            running.insert(Who::EnvoyJwt, verifying(Cache::Off));
            running.insert(Who::EnvoyJwtCached, verifying(Cache::On));
        }
        let idle = running.iter().map(|(who, one)| (*who, one.resident_mib()));
        self.idle_mib = idle.collect();
        self.running = running;
    }

    /// Starts every contestant that verifies tokens, set up in another way.
    pub(crate) fn verifying(&self, setup: Setup<'_>) -> BTreeMap<Who, Running> {
        let service = self.upstream.address;
        let threads = ["--threads".to_owned(), setup.threads.to_string()];
        let more = setup.flags.iter().map(|flag| (*flag).to_owned());
        let flags = setup.tls.map(Certificate::flags).into_iter().flatten();
        let flags: Vec<_> = flags.chain(threads).chain(more).collect();
        let mut running = BTreeMap::from([(Who::Sidecar, self.sidecar(&flags))]);
        if let Some(program) = &self.programs.haproxy {
            let verifying = haproxy::verifying(program, service, &self.issuer.public_pem(), setup);
            running.insert(Who::HaproxyJwt, verifying);
        }
        if let Some(program) = &self.programs.envoy {
            let jwk_set = self.issuer.jwk_set();
            let verifying = envoy::verifying(program, service, jwk_set, Cache::On, setup);
            running.insert(Who::EnvoyJwtCached, verifying);
        }
        running
    }

    /// Starts a sidecar with the defaults and these flags.
    pub(crate) fn sidecar(&self, flags: &[String]) -> Running {
        sidecar(&self.upstream, &self.auth_server, flags)
    }

    pub(crate) fn versions(&self) -> Vec<String> {
        let sidecar = machine::version(Program::Sidecar.path(), "--version");
        let of = |program: &Option<PathBuf>, flag| machine::version(program.as_ref()?, flag);
        let all = [
            sidecar.map(|version| format!("Postern {version}")),
            of(&self.programs.haproxy, "-v"),
            of(&self.programs.nginx, "-v"),
            of(&self.programs.envoy, "--version"),
            machine::version("wrk", "-v"),
        ];
        all.into_iter().flatten().map(|line| short(&line)).collect()
    }
}

/// Strips the program's path, home page and authors.
fn short(version: &str) -> String {
    let words = version
        .split(' ')
        .filter(|word| !word.is_empty() && !word.contains("://") && *word != "-");
    let words = words.take_while(|word| *word != "Copyright");
    let words = words.map(|word| {
        if word.starts_with('/') {
            word.rsplit('/').next().unwrap_or(word)
        } else {
            word
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Starts a sidecar in front of the service that trusts this auth server.
pub(crate) fn sidecar(upstream: &Running, auth_server: &SocketServer, flags: &[String]) -> Running {
    let auth_server = format!("http://{}/auth", auth_server.address());
    let says_threads = flags.iter().any(|flag| flag == "--threads");
    // Tables name their issuers themselves.
    let has_tables = flags.iter().any(|flag| flag == "--config");
    let issuer = (!has_tables).then_some(["--issuer", ISSUER]);
    let one_thread = (!says_threads).then_some(["--threads", "1"]);
    let sidecar = SidecarPlan::to(&format!("http://{}", upstream.address), &auth_server)
        .app_name("")
        .flags(issuer.into_iter().flatten())
        .flags(one_thread.into_iter().flatten())
        .flags(flags)
        .ready();
    let address = sidecar.address();
    Running::new("sidecar", address, sidecar.into_process(), None)
}
