//! Bytes of a client and of a service through the sidecar: what the service sees, what the client
//! gets, what metrics and log say is as recorded in `tests/data/raw_responses.json`
//! (`POSTERN_UPDATE_DOCS=1` records it anew).
//!
//! Changes of these cases are compared with a former program that carried HTTP/1.x with Pingora's
//! proxy: `POSTERN_TEST_FORMER` names it, `POSTERN_TEST_DIFFERENCES` is the time in seconds,
//! `POSTERN_TEST_SEED` the first seed. A difference is printed as a row for
//! `tests/data/raw_requests.toml`.

mod cases;
mod observation;
mod service;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::clock;
use tests::fake_auth_server::FakeAuthServer;
use tests::keys::SigningType;
use tests::sidecar::{Sidecar, SidecarPlan};
use tests::stack::signing_flags;
use tests::tables::{self, Verdicts};
use tests::token_forge::Forge;

use self::cases::{Case, Corpus};
use self::observation::{Observation, observe};
use self::service::ScriptedService;

/// Pairs of sidecars at once; most of the time they wait for a timeout.
const PAIRS: usize = 6;
/// Cases for one pair, because the log of a sidecar is read from its beginning each time.
const CASES_OF_A_PAIR: usize = 300;
/// Generated cases of a normal run.
const GENERATED: u64 = 150;
/// Milliseconds between two segments. A difference has to show with each: the order of events may depend
/// on the machine's load.
const PAUSES: [u64; 4] = [10, 20, 50, 200];
const REPORTED: usize = 25;

/// One sidecar and its service.
struct Side {
    sidecar: Sidecar,
    service: ScriptedService,
}

/// Both programs, for the same cases.
struct Pair {
    present: Side,
    former: Side,
}

struct Keys {
    forge: Forge,
    auth_server: FakeAuthServer,
}

impl Keys {
    fn new() -> Self {
        let forge = Forge::new(SigningType::Ecdsa);
        let auth_server = FakeAuthServer::serving(&forge.trusted().served());
        Self { forge, auth_server }
    }

    fn token(&self) -> String {
        self.forge.token(clock::now(), &Value::Null)
    }

    /// Starts the present program, or a `former` one that forwards with Pingora's proxy.
    fn side(&self, former: Option<&str>) -> Side {
        let service = ScriptedService::start();
        let plan = SidecarPlan::to(&service.url(), &self.auth_server.url())
            .flags(signing_flags(SigningType::Ecdsa).iter().copied())
            .public_paths(["/public/**"])
            .flags(["--forwarded", "off", "--log-format", "json"])
            .flags(["--access-log", "all", "--upstream-reuse-after-body"])
            .flags(["--request-header-timeout", "1s"])
            .flags(["--request-body-timeout", "1s"])
            .flags(["--upstream-read-timeout", "2s"]);
        let plan = match former {
            Some(program) => plan.under([program]).flags(["--fast-path=off"]),
            None => plan,
        };
        let sidecar = plan.ready();
        Side { sidecar, service }
    }

    fn pair(&self, former: &str) -> Pair {
        Pair {
            present: self.side(None),
            former: self.side(Some(former)),
        }
    }
}

impl Pair {
    /// Returns what differs, if it does so each time.
    fn difference(&self, case: &Case) -> Option<String> {
        let mut difference = None;
        for pause in PAUSES.map(Duration::from_millis) {
            let (present, former) = self.both(case, pause);
            let is_stricter = case.has_lenient_response() || present.breaks_off();
            if present.rejects_response() && is_stricter {
                return None;
            }
            difference = Some(present.difference(&former)?);
        }
        difference
    }

    fn both(&self, case: &Case, pause: Duration) -> (Observation, Observation) {
        std::thread::scope(|scope| {
            let present = scope.spawn(|| observe(&self.present, case, pause));
            let former = observe(&self.former, case, pause);
            (present.join().unwrap(), former)
        })
    }
}

/// Collector of the cases in which the programs differ.
#[derive(Default)]
struct Differences(Mutex<Vec<String>>);

impl Differences {
    fn add(&self, case: &Case, token: &str, difference: &str) {
        let row = case.as_row(token);
        let mut all = self.0.lock().unwrap();
        all.push(format!("{}\n{row}\n{difference}", case.name));
    }

    fn are_many(&self) -> bool {
        self.0.lock().unwrap().len() >= REPORTED
    }

    fn conclude(self, tried: u64) {
        let all = self.0.into_inner().unwrap();
        assert!(
            all.is_empty(),
            "{} of {tried} cases differ:\n{}",
            all.len(),
            all.join("\n")
        );
    }
}

/// Runs the cases of `next` through both programs until it has none.
fn compare(next: &(impl Fn() -> Option<Case> + Sync), keys: &Keys, token: &str) {
    let former = std::env::var("POSTERN_TEST_FORMER").expect("POSTERN_TEST_FORMER names a program");
    let (differences, tried) = (Differences::default(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..PAIRS {
            scope.spawn(|| {
                let mut pair = keys.pair(&former);
                let mut cases = 0;
                while let Some(case) = next().filter(|_| !differences.are_many()) {
                    if let Some(difference) = pair.difference(&case) {
                        differences.add(&case, token, &difference);
                    }
                    tried.fetch_add(1, Ordering::Relaxed);
                    cases += 1;
                    if cases % CASES_OF_A_PAIR == 0 {
                        pair = keys.pair(&former);
                    }
                }
            });
        }
    });
    differences.conclude(tried.into_inner());
}

/// The outcome of each kept case, by the case's name.
type Outcomes = BTreeMap<String, Value>;

/// Returns what a sidecar shows of each case: with the first pause as in `expected`, else with the
/// last.
fn outcomes(cases: Vec<Case>, keys: &Keys, token: &str, expected: &Outcomes) -> Outcomes {
    let cases = Mutex::new(cases.into_iter());
    let outcomes = Mutex::new(Outcomes::new());
    std::thread::scope(|scope| {
        for _ in 0..PAIRS {
            scope.spawn(|| {
                let side = keys.side(None);
                let next = || cases.lock().unwrap().next();
                while let Some(case) = next() {
                    let is_expected = |outcome: &Value| expected.get(&case.name) == Some(outcome);
                    let mut outcome = Value::Null;
                    for pause in PAUSES.map(Duration::from_millis) {
                        outcome = observe(&side, &case, pause).record(token);
                        if is_expected(&outcome) {
                            break;
                        }
                    }
                    outcomes.lock().unwrap().insert(case.name, outcome);
                }
            });
        }
    });
    outcomes.into_inner().unwrap()
}

/// Returns the bytes of all clients, for other tests.
pub(super) fn client_bytes() -> impl Iterator<Item = Vec<u8>> {
    let cases = Corpus::load("a.b.c").cases;
    cases.into_iter().flat_map(|case| case.client)
}

#[test]
fn raw_requests_have_their_recorded_outcome() {
    let keys = Keys::new();
    let token = keys.token();
    let cases = Corpus::load(&token).cases;
    let recorded: Outcomes = tables::load_json("raw_responses.json");
    let outcomes = outcomes(cases, &keys, &token, &recorded);
    if std::env::var_os("POSTERN_UPDATE_DOCS").is_some() {
        return tables::record_json("raw_responses.json", &outcomes);
    }
    let mut verdicts = Verdicts::default();
    for (name, outcome) in &outcomes {
        let expected = recorded.get(name).unwrap_or(&Value::Null);
        let differs = || format!("\n  recorded: {expected}\n  now:      {outcome}");
        verdicts.row(name, (outcome != expected).then(differs));
    }
    assert_eq!(recorded.len(), outcomes.len(), "rows of raw_responses.json");
    verdicts.conclude();
}

#[test]
#[ignore = "compares with a former program: POSTERN_TEST_FORMER"]
fn generated_cases_have_the_outcome_of_a_former_program() {
    let number = |name: &str| -> Option<u64> { std::env::var(name).ok()?.parse().ok() };
    let seconds = number("POSTERN_TEST_DIFFERENCES");
    let first = number("POSTERN_TEST_SEED").unwrap_or_default();
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let keys = Keys::new();
    let token = keys.token();
    let corpus = Corpus::load(&token);
    let seed = AtomicU64::new(first);
    let generate = || {
        let seed = seed.fetch_add(1, Ordering::Relaxed);
        let goes_on = match end {
            Some(end) => Instant::now() < end,
            None => seed < first + GENERATED,
        };
        goes_on.then(|| corpus.generated(seed))
    };
    let next = || {
        let mut cases = std::iter::from_fn(generate);
        cases.find(|case| !case.depends_on_kept_connections())
    };
    compare(&next, &keys, &token);
}
