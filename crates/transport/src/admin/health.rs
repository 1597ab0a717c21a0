//! State of the probes: named conditions that all have to hold for the program to be ready, and the
//! end of its start.
//!
//! A condition begins as not ready, so that forgetting to report it fails closed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde::Serialize;

use crate::tls::expiry;
use postern_process::clock::unix_now;
use postern_process::files::replaced_file;
use postern_token::times::moment;

/// The health of one program. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Health {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    started: AtomicBool,
    conditions: Mutex<Vec<Reported>>,
}

/// The source of a condition at the moment of a report.
struct Reported(Box<dyn Fn() -> ConditionState + Send + Sync>);

impl fmt::Debug for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)().fmt(f)
    }
}

/// One line of the readiness report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ConditionState {
    /// The condition in one stable word: `signing_key`, `store`.
    pub name: &'static str,
    /// True if it holds.
    pub ok: bool,
    /// The reason if it does not hold.
    pub reason: Option<String>,
    /// Further information, in both cases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// True where a person should act on the note.
    #[serde(skip)]
    pub warns: bool,
}

impl ConditionState {
    /// Returns a line that has no say in readiness.
    #[must_use]
    pub fn noted(name: &'static str, note: String, warns: bool) -> Self {
        Self {
            name,
            ok: true,
            note: Some(note),
            warns,
            ..Self::default()
        }
    }
}

/// The handle by which a part of the program reports its condition.
#[derive(Debug, Clone)]
pub struct Condition(Arc<Mutex<ConditionState>>);

impl Health {
    /// Starts without conditions, as not started.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition that is not ready, for `reason`, until its handle reports otherwise.
    #[must_use]
    pub fn condition(&self, name: &'static str, reason: &str) -> Condition {
        let condition = Condition(Arc::new(Mutex::new(ConditionState {
            name,
            reason: Some(reason.to_owned()),
            ..ConditionState::default()
        })));
        let reported = condition.clone();
        self.computed(move || reported.0.lock().clone());
        condition
    }

    /// Adds a condition that holds, for files whose handle notes their last reload.
    #[must_use]
    pub fn files(&self, name: &'static str) -> Condition {
        let condition = self.condition(name, "");
        condition.set_ready();
        condition
    }

    /// Adds a condition that `state` computes for each report, and must not wait. The operator reads
    /// its texts, which must hold no secret.
    pub fn computed(&self, state: impl Fn() -> ConditionState + Send + Sync + 'static) {
        let mut conditions = self.shared.conditions.lock();
        conditions.push(Reported(Box::new(state)));
    }

    /// Reports that start-up is over: sockets are open, background work runs.
    pub fn set_started(&self) {
        self.shared.started.store(true, Ordering::Release);
    }

    /// Returns true once [`Health::set_started`] was called.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.shared.started.load(Ordering::Acquire)
    }

    /// Returns true if every condition of the report holds.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.conditions().iter().all(|condition| condition.ok)
    }

    /// Returns the readiness report: `started` first, then the conditions as they were added.
    #[must_use]
    pub fn conditions(&self) -> Vec<ConditionState> {
        let ok = self.is_started();
        let mut report = vec![ConditionState {
            name: "started",
            ok,
            reason: if ok {
                None
            } else {
                Some("starting".to_owned())
            },
            ..ConditionState::default()
        }];
        let conditions = self.shared.conditions.lock();
        report.extend(conditions.iter().map(|Reported(state)| state()));
        let mut notes = expiry::warnings(unix_now());
        if let Some(replaced) = replaced_file::readiness_note() {
            notes.insert(0, replaced);
        }
        if !notes.is_empty() {
            report.push(ConditionState::noted("files", notes.join("; "), true));
        }
        report
    }
}

impl Condition {
    /// Reports that the condition holds.
    pub fn set_ready(&self) {
        self.set(true, None);
    }

    /// Reports that the condition does not hold; the operator reads `reason`, which must hold no
    /// secret.
    pub fn set_not_ready(&self, reason: impl Into<String>) {
        self.set(false, Some(reason.into()));
    }

    /// Replaces the note by one on which a person should act, or removes it.
    pub fn warn(&self, note: Option<String>) {
        self.set_note(note, true);
    }

    fn set_note(&self, note: Option<String>, warns: bool) {
        let mut state = self.0.lock();
        state.warns = warns && note.is_some();
        state.note = note;
    }

    /// Adds to the note what a person should act on.
    pub fn add_note(&self, more: &str) {
        // One lock: a report in between would lack the note.
        let mut state = self.0.lock();
        state.note = Some(match state.note.take() {
            Some(note) => format!("{note}; {more}"),
            None => more.to_owned(),
        });
        state.warns = true;
    }

    /// Notes the end of a reload: the cause, if the previous content stays in use.
    pub fn reloaded(&self, rejected: Option<&str>) {
        let at = moment(unix_now());
        let note = match rejected {
            None => format!("reloaded at {at}"),
            Some(cause) => format!("reload rejected at {at}, the former stays in use: {cause}"),
        };
        self.set_note(Some(note), rejected.is_some());
    }

    /// Returns [`Condition::reloaded`] for a task that does not know this room.
    pub fn reloads(self) -> impl Fn(Option<&str>) + Send + Sync + 'static {
        move |rejected| self.reloaded(rejected)
    }

    fn set(&self, ok: bool, reason: Option<String>) {
        let mut state = self.0.lock();
        state.ok = ok;
        state.reason = reason;
    }
}
