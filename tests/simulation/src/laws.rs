//! The laws of every world, checked after each event, and again when it has calmed down.
//!
//! They hold for what was confirmed. A store that loses what it has confirmed (a fail-over without
//! `?wait=`, a backup, `FLUSHALL`) may lose an end too, unless a server that knows it lives on.

mod keys;
mod refreshes;
mod sidecars;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use auth_server::simulation::{FOREIGN_ISSUER, Keys, Reply, Server};
use http::StatusCode;
use tokio::time::Instant;

use self::keys::Known;
use self::sidecars::Fetches;
pub use self::sidecars::Served;
pub use self::tokens::Visited;
use crate::model::{End, Ended, Keeps, Session, Token, USER, foreign_token, token_of};
use crate::plan::Setting;
use crate::story::Story;
use crate::world::World;

/// A measured time is a whole second.
const SECOND: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Laws {
    pub tokens: Vec<Token>,
    /// The sessions of each client.
    pub sessions: Vec<Session>,
    /// The present session of each client, by its position.
    pub clients: Vec<usize>,
    pub ends: Vec<End>,
    sidecars: BTreeMap<usize, Fetches>,
    /// The key by which the server signed when a fetch of this sidecar began.
    signers: BTreeMap<usize, Option<String>>,
    /// The keys that the last fetch of each sidecar has brought.
    fetched_keys: BTreeMap<usize, BTreeSet<String>>,
    /// The moment when a key was first seen among those of a server.
    keys_seen: BTreeMap<String, Instant>,
    /// The moment when a server that signs by a key was last seen.
    signed: BTreeMap<String, Instant>,
    /// The moment when the store was first seen to have a key as the next one.
    announced: BTreeMap<String, Instant>,
    /// The keys of the store, and the moment when they were first seen there.
    stored_keys: Option<(Keys, Instant)>,
    /// The keys of each running server at the last check.
    keys: BTreeMap<usize, Known>,
    /// The moment when a server without keys was last seen.
    pub keyless: Option<Instant>,
    /// The moment when a sidecar has last rejected a token with 401, by its number and the key.
    rejected: BTreeMap<(usize, String), Instant>,
    /// The entries of the log at the last check.
    log: Vec<(i64, i64)>,
    /// The largest number of a list that each running server has published.
    numbers: BTreeMap<usize, i64>,
    /// The moment when the store has last lost something that it had confirmed.
    lost: Option<Instant>,
    /// A former primary has served a request since the last check, and has lost what it confirmed.
    pub former_has_served: bool,
    /// Commits wait until replicas have them (`?wait=`).
    waits: bool,
    /// Clocks are set, so that no time is certain.
    sets_clocks: bool,
    story: Story,
    broken: Option<String>,
}

impl Laws {
    #[must_use]
    pub fn new(setting: Setting, story: Story) -> Self {
        Self {
            story,
            waits: setting.waits,
            sets_clocks: setting.sets_clocks,
            clients: vec![usize::MAX; setting.clients],
            tokens: (0..setting.clients).map(foreign_token).collect(),
            ..Self::default()
        }
    }

    /// Returns the first law that was broken.
    #[must_use]
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    pub fn require(&mut self, holds: bool, law: impl FnOnce() -> String) {
        if !holds && self.broken.is_none() {
            let law = law();
            self.story.tell(|| format!("BROKEN: {law}"));
            self.broken = Some(law);
        }
    }

    pub fn sidecar_starts(&mut self, sidecar: usize) {
        self.sidecars.insert(sidecar, Fetches::default());
    }

    /// Notes a requested end, and returns its position.
    pub fn note(&mut self, ended: Ended, confirmed: Option<Instant>) -> usize {
        if let Ended::Everyone(time) | Ended::User(_, time) = &ended {
            self.tokens.push(token_of(USER, *time));
        }
        self.ends.push(End {
            ended,
            confirmed,
            confirmed_by: None,
            over: None,
            keeps: Keeps::Store,
            is_restored: false,
        });
        self.ends.len() - 1
    }

    /// Returns true where a requested end, confirmed or not, may end this token.
    #[must_use]
    pub fn may_be_ended(&self, token: &Token) -> bool {
        let of_session = |other: &&Token| other.claims.session == token.claims.session;
        let of_session = self.tokens.iter().filter(of_session);
        // A server whose clock was set may have issued it at any time.
        let began = of_session.filter_map(|token| token.claims.issued_at).min();
        let began = began.filter(|_| !self.sets_clocks).unwrap_or(i64::MIN);
        self.ends.iter().any(|end| end.may_end(token, began))
    }

    /// The store has lost states; if it is lossy also confirmed ones, of which those ends are left that a server has
    /// in memory.
    pub fn store_has_lost(&mut self, world: &World, is_lossy: bool) {
        self.log.clear();
        self.stored_keys = None;
        if !is_lossy {
            for position in 0..self.ends.len() {
                if self.ends[position].is_restored {
                    self.note_holders(world, position);
                }
            }
            return;
        }
        self.lost = Some(Instant::now());
        self.sessions
            .iter_mut()
            .for_each(|session| session.is_safe = false);
        (0..self.ends.len()).for_each(|position| self.note_holders(world, position));
    }

    /// Returns true once the store has lost something that it had confirmed. Sidecars may take its list for older
    /// than the one that they have, and serve no client until the next revocation.
    #[must_use]
    pub const fn has_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Returns true if the store has lost something since: also what was confirmed in a response that came later.
    #[must_use]
    pub fn has_lost_since(&self, moment: Instant) -> bool {
        self.lost >= Some(moment)
    }

    /// Notes that an end was confirmed, which was requested at `sent`.
    pub fn confirm(&mut self, world: &World, position: usize, by: Option<usize>, sent: Instant) {
        let end = &mut self.ends[position];
        (end.confirmed, end.confirmed_by) = (Some(Instant::now()), by);
        if self.has_lost_since(sent) {
            return self.note_holders(world, position);
        }
        // This commit has confirmed what was there before.
        for end in &mut self.ends {
            end.is_restored = false;
        }
    }

    /// Notes the servers that have a confirmed end in memory, where the store lacks it.
    fn note_holders(&mut self, world: &World, position: usize) {
        let (end, tokens) = (&mut self.ends[position], &self.tokens);
        if end.confirmed.is_none() || world.store_has(end, tokens) {
            return;
        }
        let holds = |server: &Arc<Server>| end.is_in_force(server, tokens);
        let holders: BTreeSet<_> = world
            .running_servers()
            .iter()
            .filter(|(number, server)| end.confirmed_by == Some(**number) || holds(server))
            .map(|(number, _)| *number)
            .collect();
        end.keeps = match holders.is_empty() {
            true => Keeps::Lost,
            false => Keeps::Servers(holders),
        };
    }

    pub fn server_dies(&mut self, server: usize) {
        self.numbers.remove(&server);
        self.keys.remove(&server);
        for end in &mut self.ends {
            end.confirmed_by = end.confirmed_by.filter(|by| *by != server);
            if let Keeps::Servers(holders) = &mut end.keeps {
                holders.remove(&server);
                if holders.is_empty() {
                    end.keeps = Keeps::Lost;
                }
            }
        }
    }

    /// Checks what holds at every moment.
    pub fn check(&mut self, world: &World) {
        // Without `?wait=` the former primary confirms what is lost with it.
        let now = Instant::now();
        let is_split = world.ways.iter().any(|way| way.is_with_former(now));
        let has_served = mem::take(&mut self.former_has_served);
        if has_served || is_split && !world.setting.waits {
            self.store_has_lost(world, true);
        }
        let in_clear = world.store.in_clear();
        self.require(in_clear.is_none(), || {
            format!("a sealed store holds in clear: {in_clear:?}")
        });
        self.check_log(world);
        self.check_keys(world);
        self.note_restored(world);
        self.check_ends(world);
    }

    /// The log only grows.
    fn check_log(&mut self, world: &World) {
        let (now, log) = (world.sky.store_now(), world.store.log_ends());
        let there: BTreeSet<_> = log.iter().collect();
        let lacking = self
            .log
            .iter()
            .find(|entry| entry.1 > now && !there.contains(entry));
        let lacking = lacking.copied();
        self.require(lacking.is_none(), || {
            format!("the log has lost the entry {lacking:?}")
        });
        self.log = log;
        for (number, server) in world.running_servers() {
            let list = server.list_number();
            let former = self.numbers.insert(number, list).unwrap_or_default();
            self.require(former <= list, || {
                format!("the list of server {number} goes back from {former} to {list}")
            });
        }
    }

    /// An end that servers have written back is in the store again.
    fn note_restored(&mut self, world: &World) {
        let tokens = &self.tokens;
        for end in &mut self.ends {
            if matches!(end.keeps, Keeps::Servers(_)) && world.store_has(end, tokens) {
                end.keeps = Keeps::Store;
                end.is_restored = true;
                end.confirmed = Some(Instant::now());
            }
        }
    }

    /// A confirmed end is in force in every server after its next poll, and in every sidecar after its
    /// next fetch.
    fn check_ends(&mut self, world: &World) {
        let store_now = world.sky.store_now();
        let live: Vec<_> = self
            .tokens
            .iter()
            .filter(|it| it.expires > store_now)
            .collect();
        let mut broken = None;
        for end in &self.ends {
            let (Some(confirmed), Keeps::Store) = (end.confirmed, &end.keeps) else {
                continue;
            };
            let ended = live.iter().copied().filter(|it| end.ends(it));
            let ended: Vec<&Token> = ended.collect();
            for (number, server) in world.running_servers() {
                if world.polled(number).is_none_or(|begun| begun < confirmed) {
                    continue;
                }
                let is_in_force = match &end.ended {
                    Ended::Key(id) => server.keys().is_none_or(|it| !it.listed.contains(id)),
                    _ => ended.iter().all(|token| server.revokes(&token.claims)),
                };
                if !is_in_force {
                    broken = Some(format!(
                        "{:?} is not in force at server {number}",
                        end.ended
                    ));
                }
            }
            for (number, sidecar) in world.running_sidecars() {
                let fetches = self.sidecars.get(&number).copied().unwrap_or_default();
                let known = fetches.in_force(&end.ended);
                if known.is_none_or(|it| it.begun < confirmed) {
                    continue;
                }
                if !end.is_known_to(&sidecar, &ended) {
                    broken = Some(format!(
                        "{:?} is not in force at sidecar {number}",
                        end.ended
                    ));
                }
            }
        }
        self.require(broken.is_none(), || broken.unwrap_or_default());
    }

    /// In the calm the store has every end that a server knew.
    pub fn require_restored(&mut self, world: &World) {
        let now = world.sky.store_now();
        let is_live = |end: &End| {
            let mut live = self.tokens.iter().filter(|token| token.expires > now);
            live.any(|token| end.ends(token))
        };
        let mut ends = self.ends.iter();
        let missing = ends.find(|end| matches!(end.keeps, Keeps::Servers(_)) && is_live(end));
        let missing = missing.map(|end| end.ended.clone());
        self.require(missing.is_none(), || {
            format!("{missing:?} is not in the store again, which servers knew")
        });
    }

    /// In the calm every sidecar has heard of every end.
    pub fn require_ended(&mut self, world: &World) {
        let mut unheard = None;
        for end in &self.ends {
            if end.confirmed.is_none() || end.keeps != Keeps::Store {
                continue;
            }
            let ended = self.tokens.iter().filter(|token| end.ends(token));
            let live: Vec<_> = ended
                .filter(|it| it.expires > world.sky.world_now())
                .collect();
            for (number, sidecar) in world.running_sidecars() {
                if !end.is_known_to(&sidecar, &live) {
                    unheard = Some(format!("sidecar {number} has not heard of {:?}", end.ended));
                }
            }
        }
        self.require(unheard.is_none(), || unheard.unwrap_or_default());
    }

    /// Returns true where the response to a logout with this token is a promise: an access token that no
    /// server can verify ends nothing, and neither does a refresh token whose session the store has lost.
    #[must_use]
    pub fn promises_end(&self, world: &World, session: usize, text: &str) -> bool {
        match self.tokens.iter().find(|token| token.text == text) {
            Some(token) => {
                token.expires > world.sky.world_now()
                    && !self.has_lost()
                    && !self.may_be_revoked(&token.key)
            }
            None => self.sessions.get(session).is_some_and(|it| it.is_safe),
        }
    }

    /// Servers respond to statements of another issuer with one id, which are right: a single one counts, once, or they
    /// are to be sent again.
    pub fn stated(&mut self, world: &World, id: &str, replies: &[Option<Reply>]) {
        let entries = world.store.statements(FOREIGN_ISSUER, id);
        // Beside a former primary two commits may be unclear, and servers write both back.
        let may_lose = world.setting.fails_over || world.setting.has_disasters;
        let mut ended = 0;
        for reply in replies.iter().flatten() {
            let has_ended = reply.status == StatusCode::OK;
            ended += usize::from(has_ended);
            // The other one was first.
            let is_second = replies.len() > 1 && reply.status == StatusCode::BAD_REQUEST;
            let is_second = is_second && (may_lose || entries == 1);
            // A server whose clock was set may take it for one of another time.
            let is_good =
                has_ended || reply.status.is_server_error() || is_second || self.sets_clocks;
            self.require(is_good, || {
                format!("a statement of another issuer gets {reply:?}")
            });
        }
        self.require(ended == 0 || may_lose || (ended, entries) == (1, 1), || {
            format!("{ended} statements of another issuer count, with {entries} entries in the log")
        });
    }
}
