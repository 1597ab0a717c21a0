//! The laws of a sidecar: what it has fetched is in force, and no older than configured, when it decides.

use std::sync::Arc;
use std::time::Duration;

use auth_server::simulation::{Keys, Reply, Server};
use http::StatusCode;
use sidecar::simulation::{MAX_KEY_AGE, MAX_LIST_AGE, Verdict};
use tokio::time::Instant;

use super::{Laws, SECOND};
use crate::model::{Ended, Token};
use crate::world::World;

/// The time for which a sidecar takes a key as absent that a fetch has not brought, and some more.
const ABSENT: Duration = Duration::from_secs(10 + 2);

/// A server from which a sidecar has fetched something.
pub struct Served {
    /// The id of the key that the key endpoint gave.
    pub given: Option<String>,
    /// The ids of the keys by which the server signed before and after; none of a server that has died.
    pub signers: Vec<String>,
    /// The begin of its last poll when the request came.
    pub polled: Option<Instant>,
    pub keys: Option<Keys>,
    /// The sidecar has the key by which the server signs.
    pub knows_signer: bool,
    /// The number of its list.
    pub list: i64,
}

/// The fetches of one sidecar.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fetches {
    key: Option<Instant>,
    list: Option<Instant>,
    /// The moment of the last list that is no older than the one in force: of an older one the sidecar
    /// rightly takes nothing, not even its age.
    present_list: Option<Instant>,
    /// The largest number of a list.
    number: i64,
    /// That list came from a former primary.
    is_of_former: bool,
    /// The begin of the last poll whose keys a fetch has brought, which is not at its end.
    fetching: Option<Instant>,
    has_new_keys: bool,
    /// False where the key that came first is not among them: then the former ones stay.
    agree: bool,
    keys_in_force: Option<InForce>,
    list_in_force: Option<InForce>,
}

/// The last poll of a server whose result has reached a sidecar.
#[derive(Debug, Clone, Copy)]
pub(super) struct InForce {
    pub(super) begun: Instant,
    arrived: Instant,
}

/// Takes over a poll that began later.
fn later(in_force: &mut Option<InForce>, begun: Option<Instant>, arrived: Instant) {
    if let Some(begun) = begun
        && in_force.is_none_or(|before| before.begun < begun)
    {
        *in_force = Some(InForce { begun, arrived });
    }
}

impl Fetches {
    /// Returns the poll whose result is in force for such an end.
    pub(super) fn in_force(&self, ended: &Ended) -> Option<InForce> {
        let in_force = match ended {
            Ended::Key(_) => self.keys_in_force,
            _ => self.list_in_force,
        };
        // What arrived in this moment is not installed yet.
        in_force.filter(|it| it.arrived < Instant::now())
    }
}

impl Laws {
    /// A request of a sidecar has ended.
    pub fn fetched(&mut self, sidecar: usize, path: &str, reply: Option<&Reply>, served: Served) {
        let now = Instant::now();
        let is_good = |status| status == StatusCode::OK || status == StatusCode::NOT_MODIFIED;
        let is_good = reply.is_some_and(|reply| is_good(reply.status));
        let begun = served.polled.filter(|_| is_good);
        let has_lost = self.has_lost();
        if let Some(given) = &served.given {
            let signers = &served.signers;
            self.require(signers.is_empty() || signers.contains(given), || {
                format!("the key endpoint gave {given} when {signers:?} signed")
            });
        }
        let fetches = self.sidecars.entry(sidecar).or_default();
        if path.ends_with("/key") {
            fetches.fetching = None;
            fetches.has_new_keys = false;
            let signer = served.keys.map(|keys| keys.current);
            self.signers.insert(sidecar, signer);
        } else if path.ends_with("/jwks.json") {
            fetches.fetching = begun;
            fetches.has_new_keys = is_good;
            let signer = self.signers.get(&sidecar).and_then(Option::as_ref);
            let listed = served.keys.map(|keys| keys.listed).unwrap_or_default();
            fetches.agree = signer.is_some_and(|signer| listed.contains(signer));
            self.fetched_keys.insert(sidecar, listed);
        } else if path.ends_with("/revocations") {
            // The last request of a fetch: its keys are installed now, with the list or without.
            if fetches.has_new_keys {
                fetches.key = Some(now);
            }
            let are_installed = fetches.has_new_keys && fetches.agree;
            if are_installed {
                // The keys of a server that is cut off may have been revoked.
                let begun = fetches.fetching;
                fetches.keys_in_force = begun.map(|begun| InForce {
                    begun,
                    arrived: now,
                });
            }
            // The list is signed by the present key: the server may have replaced it since it sent its keys.
            let fetched = self.fetched_keys.get(&sidecar);
            let signer = served.keys.map(|keys| keys.current);
            let brings_signer = fetched
                .zip(signer)
                .is_some_and(|(keys, it)| keys.contains(&it));
            if is_good && (are_installed && brings_signer || served.knows_signer) {
                let in_force = fetches.list_in_force;
                let is_later = in_force.is_none_or(|it| Some(it.begun) <= begun);
                // A server that has just revoked something has a later list than its last poll.
                if is_later && served.list >= fetches.number {
                    fetches.present_list = Some(now);
                }
                if has_lost && served.list > fetches.number {
                    fetches.is_of_former = begun.is_none();
                    if fetches.is_of_former {
                        // It has gone on without what the present primary knows.
                        fetches.list_in_force = None;
                    }
                }
                // The sidecar keeps the list with the larger number.
                if served.list >= fetches.number || !fetches.is_of_former {
                    later(&mut fetches.list_in_force, begun, now);
                }
                fetches.number = fetches.number.max(served.list);
                fetches.list = Some(now);
            }
        }
    }

    /// A sidecar has decided about a token. `keys`: those that it had before.
    pub fn decided(
        &mut self,
        world: &World,
        sidecar: usize,
        token: &Token,
        keys: &[String],
        verdict: Verdict,
    ) {
        let now = Instant::now();
        let fetches = self.sidecars.get(&sidecar).copied().unwrap_or_default();
        let age = |at: Option<Instant>| at.map(|at| now.duration_since(at));
        let is_fresh = |at, max| age(at).is_some_and(|age| age <= max + SECOND);
        let is_served = verdict == Verdict::Forwarded;
        if is_served {
            let is_fresh =
                is_fresh(fetches.key, MAX_KEY_AGE) && is_fresh(fetches.list, MAX_LIST_AGE);
            self.require(is_fresh, || {
                format!("sidecar {sidecar} serves by keys or a list that are too old")
            });
        }
        let is_ended = self.ends.iter().any(|end| {
            let poll = fetches.in_force(&end.ended).map(|it| it.begun);
            end.is_read_by(poll) && end.ends(token)
        });
        self.require(!(is_ended && is_served), || {
            format!("sidecar {sidecar} serves a token that was ended")
        });
        self.require(!is_served || self.may_live(world, token), || {
            format!("sidecar {sidecar} serves a token that has expired")
        });
        let is_401 = matches!(verdict, Verdict::Rejected(_, 401));
        let former = match is_401 {
            true => self.rejected.insert((sidecar, token.key.clone()), now),
            false => None,
        };
        if self.may_be_ended(token) || !token.is_of_this_time(world.sky.world_now()) {
            return;
        }
        // Below its bound by some seconds: the decision took a while.
        let has_long = |at, max| age(at).is_some_and(|age| age + 5 * SECOND < max);
        let is_up_to_date =
            has_long(fetches.present_list, MAX_LIST_AGE) && has_long(fetches.key, MAX_KEY_AGE);
        if is_up_to_date && keys.contains(&token.key) {
            self.require(is_served || self.has_lost() && !is_401, || {
                format!(
                    "sidecar {sidecar} knows the key {} and says {verdict:?}",
                    token.key
                )
            });
        }
        // A server may have lacked the key then that is dead now.
        let fetched = self.fetched_keys.get(&sidecar);
        let lacked = fetched.is_some_and(|keys| !keys.contains(&token.key));
        let absent = [former, fetches.key.filter(|_| lacked)];
        let was_absent = absent
            .into_iter()
            .flatten()
            .any(|at| now.duration_since(at) < ABSENT);
        let seen = self.keys_seen.get(&token.key).copied();
        let servers = world.running_servers();
        let has_polled = |server: &Arc<Server>| seen.is_some() && server.polls().succeeded >= seen;
        if is_up_to_date
            && !was_absent
            && !self.may_be_revoked(&token.key)
            && !self.is_lost(world, &token.key)
            && servers.values().all(has_polled)
        {
            self.require(!is_401, || {
                format!(
                    "every server knows the key {}, and sidecar {sidecar} says {verdict:?}",
                    token.key
                )
            });
        }
    }
}
