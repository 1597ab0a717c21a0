//! Bytes of a client and of a service through the sidecar: what the service sees, what the client
//! gets, what metrics and log say is as recorded in `tests/data/raw_responses.json`
//! (`POSTERN_UPDATE_DOCS=1` records it anew).

mod cases;
mod observation;
mod service;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use tests::actors::sidecar::Sidecar;
use tests::actors::stack::ForgedStack;
use tests::tables::{self, Verdicts};
use tests::wire::metrics;

use self::cases::{Case, cases};
use self::observation::observe;
use self::service::ScriptedService;

/// Sidecars at once; most of the time they wait for a timeout.
const SIDECARS: usize = 6;
/// Milliseconds between two segments, tried one after the other: the order of events may depend on the
/// machine's load.
const PAUSES: [u64; 4] = [10, 20, 50, 200];

/// One sidecar and its service.
struct Side {
    sidecar: Sidecar,
    service: ScriptedService,
}

impl Side {
    fn start(stack: &ForgedStack) -> Self {
        let flags = [
            "--public-path=/public/**",
            "--forwarded=off",
            "--log-format=json",
            "--access-log=all",
            "--upstream-reuse-after-body",
            "--request-header-timeout=1s",
            "--request-body-timeout=1s",
            "--upstream-read-timeout=2s",
        ];
        let service = ScriptedService::start();
        let sidecar = stack.in_front_of(&service.url(), &flags);
        Self { sidecar, service }
    }

    /// Returns true if a case has shown its service to send surplus, which ends the reuse of connections.
    fn is_marked(&self) -> bool {
        metrics::value(
            self.sidecar.admin(),
            "postern_sidecar_upstream_sent_surplus",
        ) == Some(1)
    }
}

/// The outcome of each case, by the case's name.
type Outcomes = BTreeMap<String, Value>;

/// Returns what a sidecar shows of each case: with the first pause as in `expected`, else with the
/// last.
fn outcomes(cases: Vec<Case>, stack: &ForgedStack, token: &str, expected: &Outcomes) -> Outcomes {
    let cases = Mutex::new(cases.into_iter());
    let outcomes = Mutex::new(Outcomes::new());
    std::thread::scope(|scope| {
        for _ in 0..SIDECARS {
            scope.spawn(|| {
                let mut side = Side::start(stack);
                let next = || cases.lock().unwrap().next();
                while let Some(case) = next() {
                    let is_expected = |outcome: &Value| expected.get(&case.name) == Some(outcome);
                    let mut outcome = Value::Null;
                    for pause in PAUSES.map(Duration::from_millis) {
                        if side.is_marked() {
                            side = Side::start(stack);
                        }
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
pub(super) fn client_bytes(token: &str) -> impl Iterator<Item = Vec<u8>> {
    cases(token).into_iter().flat_map(|case| case.client)
}

#[test]
fn raw_requests_have_their_recorded_outcome() {
    let stack = ForgedStack::start();
    let token = stack.token();
    let recorded: Outcomes = tables::load_json("raw_responses.json");
    let outcomes = outcomes(cases(&token), &stack, &token, &recorded);
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
