//! The parts that client, service and laws share: users with their tokens, and the cases by their marks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;
use token_corpus::token_forge::Forge;

use super::cut::Cut;
use super::exchange::{Exchange, Version};
use super::part::Ending;
use super::reading::Reading;
use super::script::Names;
use crate::keys::SigningType;
use crate::wire::clock;

/// More than run at a time: no two cases of one moment have the same user.
const USERS: usize = 2048;

/// One exchange with its cuts.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) mark: String,
    pub(super) user: usize,
    pub(super) exchange: Arc<Exchange>,
    pub(super) cuts: Vec<Cut>,
    /// Number of times that the service has begun to read the request.
    tries: AtomicUsize,
    arrivals: Mutex<Vec<Arrival>>,
    broken: Mutex<Vec<String>>,
}

/// A request as it arrived at the service.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    /// Number of the try: a first one may end behind the second.
    pub(super) number: usize,
    pub(super) reading: Reading,
    /// Bytes of the response that were sent.
    pub(super) sent: usize,
    pub(super) has_sent_all: bool,
    pub(super) ending: Ending,
    /// The length of what arrived.
    pub(super) received: usize,
}

impl Case {
    /// Returns the number of the try that begins, from 0.
    pub(super) fn begin_try(&self) -> usize {
        self.tries.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn arrived(&self, arrival: Arrival) {
        lock(&self.arrivals).push(arrival);
    }

    /// Returns all arrivals in the order of their begin.
    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        let mut arrivals = lock(&self.arrivals).clone();
        arrivals.sort_by_key(|arrival| arrival.number);
        arrivals
    }

    /// Notes a broken law.
    pub(super) fn breaks(&self, what: impl Into<String>) {
        lock(&self.broken).push(what.into());
    }

    pub(super) fn broken(&self) -> Vec<String> {
        lock(&self.broken).clone()
    }
}

/// A user.
#[derive(Debug)]
struct User {
    id: String,
    token: String,
}

/// The shared parts.
#[derive(Debug)]
pub(super) struct World {
    pub(super) forge: Forge,
    users: Vec<User>,
    cases: Mutex<HashMap<String, Arc<Case>>>,
    broken: Mutex<Vec<String>>,
    number: AtomicUsize,
    probe: Exchange,
}

impl World {
    /// Creates the users; `probe` is the exchange behind each cut.
    pub(super) fn new(probe: &Exchange) -> Self {
        let forge = Forge::new(SigningType::Ecdsa);
        let user = |number: usize| {
            let id = format!("u{number:05}");
            let claims = json!({
                "userId": id, "username": id, "sub": null, "nickName": null, "iss": null, "nbf": null,
                "iat": null, "jti": null, "extraInfo": null,
            });
            let token = forge.token(clock::now(), &claims);
            User { id, token }
        };
        let users = (0..USERS).map(user).collect();
        Self {
            forge,
            users,
            cases: Mutex::default(),
            broken: Mutex::default(),
            number: AtomicUsize::new(0),
            probe: probe.clone(),
        }
    }

    /// Returns the exchange of a probe to a service of this version.
    pub(super) fn probe(&self, client: Version, service: Version) -> Arc<Exchange> {
        let probe = Exchange {
            client,
            service,
            ..self.probe.clone()
        };
        Arc::new(probe)
    }

    /// Begins a case of a user of its own.
    pub(super) fn begin(&self, exchange: &Arc<Exchange>, cuts: &[Cut]) -> Arc<Case> {
        let number = self.number.fetch_add(2, Ordering::Relaxed);
        self.begin_for(number % USERS, exchange, cuts)
    }

    /// Begins a case of this user.
    pub(super) fn begin_for(
        &self,
        user: usize,
        exchange: &Arc<Exchange>,
        cuts: &[Cut],
    ) -> Arc<Case> {
        let number = self.number.fetch_add(2, Ordering::Relaxed);
        let case = Arc::new(Case {
            mark: format!("{number:08}"),
            user: user % USERS,
            exchange: Arc::clone(exchange),
            cuts: cuts.to_vec(),
            tries: AtomicUsize::new(0),
            arrivals: Mutex::default(),
            broken: Mutex::default(),
        });
        lock(&self.cases).insert(case.mark.clone(), Arc::clone(&case));
        case
    }

    pub(super) fn case(&self, mark: &str) -> Option<Arc<Case>> {
        lock(&self.cases).get(mark).cloned()
    }

    pub(super) fn names<'a>(&'a self, case: &'a Case) -> Names<'a> {
        Names {
            mark: &case.mark,
            token: &self.users[case.user].token,
        }
    }

    pub(super) fn user(&self, case: &Case) -> &str {
        &self.users[case.user].id
    }

    /// Notes a broken law that belongs to no case.
    pub(super) fn breaks(&self, what: impl Into<String>) {
        lock(&self.broken).push(what.into());
    }

    pub(super) fn take_broken(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.broken))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
