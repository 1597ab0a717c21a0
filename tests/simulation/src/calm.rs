//! The calm after the storm: nothing fails any more, every process runs. Then all servers and sidecars
//! agree, every token counts that was not ended, and a whole life of a session succeeds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sidecar::simulation::Verdict;

use crate::actions::{log_out, login, refresh, register, use_token};
use crate::check_again;
use crate::laws::Laws;
use crate::plan::{Credential, Presented};
use crate::world::World;

/// A poll of each server, and a tick of each sidecar behind it.
const UNTIL_ALL_KNOW: Duration = Duration::from_secs(75);
/// Longer than anything is kept.
const AGES: Duration = Duration::from_secs(400 * 86_400);

pub async fn calm_down(world: &Arc<World>) {
    world.story.tell(|| "it becomes calm".to_owned());
    world.sky.calm();
    let checks = world.machine();
    checks.run(check_again(Arc::clone(world)));
    world.sky.set_store_ahead(0);
    world.ways.iter().for_each(|way| way.heal());
    (0..world.setting.sidecars).for_each(|sidecar| world.isolate(sidecar, Duration::ZERO));
    for server in 0..world.setting.servers {
        world.set_clock(server, 0);
        world.start_server(server);
    }
    (0..world.setting.sidecars).for_each(|sidecar| world.start_sidecar(sidecar));
    tokio::time::sleep(Duration::from_secs(15)).await;
    let is_registered = register(world).await;
    world.laws.lock().require(is_registered, || {
        "no application can be registered".to_owned()
    });
    until_all_know(world).await;
    agree(world);
    tokens_count(world).await;
    for server in 0..world.setting.servers {
        live(world, server).await;
    }
    until_all_know(world).await;
    {
        let mut laws = world.laws.lock();
        laws.check(world);
        laws.require_restored(world);
        laws.require_ended(world);
        // The logouts of these lives have ended what was left of a loss.
        require_same_lists(world, &mut laws);
    }
    checks.kill();
    end(world).await;
}

async fn until_all_know(world: &Arc<World>) {
    tokio::time::sleep(UNTIL_ALL_KNOW).await;
    if is_changing(world) {
        // At the moment of a rotation, or of the end of a revocation; the next one is minutes away.
        tokio::time::sleep(UNTIL_ALL_KNOW).await;
    }
}

/// Returns true while servers or sidecars differ in their keys, or sidecars in their lists.
fn is_changing(world: &Arc<World>) -> bool {
    let servers = world.running_servers();
    let keys: Vec<_> = servers.values().map(|server| server.keys()).collect();
    let listed = keys[0].as_ref().map_or(0, |keys| keys.listed.len());
    let sidecars = world.running_sidecars();
    let is_behind = sidecars
        .values()
        .any(|sidecar| sidecar.keys().len() != listed);
    is_behind || keys.iter().any(|other| *other != keys[0]) || !have_same_lists(world)
}

fn have_same_lists(world: &Arc<World>) -> bool {
    let sidecars = world.running_sidecars();
    let lists: Vec<_> = sidecars.values().map(|sidecar| sidecar.list()).collect();
    lists.iter().all(|list| list.is_some() && *list == lists[0])
}

/// All servers have the same keys and the same list, and so have all sidecars.
fn agree(world: &Arc<World>) {
    let mut laws = world.laws.lock();
    laws.check(world);
    let servers = world.running_servers();
    let mut keys = servers.values().map(|server| server.keys());
    let first = keys.next().flatten();
    laws.require(first.is_some(), || "a server has no keys".to_owned());
    laws.require(keys.all(|keys| keys == first), || {
        "servers have different keys".to_owned()
    });
    for (number, server) in &servers {
        let unclear = server.unclear_sessions();
        laws.require(unclear == 0, || {
            format!("server {number} has {unclear} unclear sessions")
        });
    }
    if !laws.has_lost() {
        require_same_lists(world, &mut laws);
    }
    let listed = first.map(|keys| keys.listed).unwrap_or_default();
    for (number, sidecar) in world.running_sidecars() {
        let keys = sidecar.keys();
        let is_same = keys.len() == listed.len() && keys.iter().all(|key| listed.contains(key));
        laws.require(is_same, || {
            format!("sidecar {number} has the keys {keys:?}, servers {listed:?}")
        });
    }
}

fn require_same_lists(world: &Arc<World>, laws: &mut Laws) {
    laws.require(have_same_lists(world), || {
        let sidecars = world.running_sidecars();
        let lists: Vec<_> = sidecars.values().map(|sidecar| sidecar.list()).collect();
        format!("sidecars have different lists: {lists:?}")
    });
}

/// A token counts everywhere that has not expired, and that was not ended.
async fn tokens_count(world: &Arc<World>) {
    let (live, has_lost): (Vec<_>, _) = {
        let laws = world.laws.lock();
        let tokens = laws.tokens.iter();
        let counts = tokens.filter(|token| laws.must_count(world, token));
        (counts.cloned().collect(), laws.has_lost())
    };
    for token in live {
        for (number, sidecar) in world.running_sidecars() {
            let verdict = sidecar.decide(&token.text).await;
            let counts = match verdict {
                Some(Verdict::Rejected(_, status)) => has_lost && status == 503,
                verdict => verdict.is_some(),
            };
            world
                .laws
                .lock()
                .require(counts, || {
                    format!(
                        "a token of the key {} and the session {:?}, issued at {:?}, does not count at sidecar {number}: {verdict:?}",
                        token.key, token.claims.session, token.claims.issued_at
                    )
                });
        }
    }
}

/// A login, a refresh, requests and a logout succeed.
async fn live(world: &Arc<World>, server: usize) {
    let client = 0;
    let has_begun = login(world, client, server).await;
    let renews = refresh(world, client, server, Presented::Latest).await;
    let mut is_served = true;
    for sidecar in 0..world.setting.sidecars {
        is_served &= use_token(world, client, sidecar, false).await;
    }
    let has_ended = log_out(world, client, server, Credential::RefreshToken).await;
    let mut laws = world.laws.lock();
    let is_served = is_served || laws.has_lost();
    let lives = [has_begun, renews, is_served, has_ended];
    laws.require(lives == [true; 4], || {
        format!("no life at server {server}: {lives:?}")
    });
}

/// After ages nothing is left of sessions and revocations: not in the store, nor in a server that lives on.
async fn end(world: &Arc<World>) {
    (0..world.setting.sidecars).for_each(|sidecar| world.kill_sidecar(sidecar));
    (1..world.setting.servers).for_each(|server| world.kill_server(server));
    tokio::time::advance(AGES).await;
    let last = world.setting.servers - 1;
    world.start_server(last);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let servers = BTreeSet::from([0, last]);
    servers.iter().for_each(|server| forgets(world, *server));
    for server in servers.iter().copied() {
        let lives = [
            login(world, 0, server).await,
            log_out(world, 0, server, Credential::RefreshToken).await,
        ];
        world.laws.lock().require(lives == [true; 2], || {
            format!("no life at server {server} after ages: {lives:?}")
        });
    }
    let statements = world.store.records("statement");
    world.laws.lock().require(statements == 0, || {
        format!("after ages there are {statements} ids of statements")
    });
    let (sessions, log) = (world.store.records("session"), world.store.log_ends().len());
    let is_left = sessions > 0 || log != servers.len();
    world.laws.lock().require(!is_left, || {
        format!("after ages there are {sessions} sessions, and {log} entries of the log")
    });
}

fn forgets(world: &Arc<World>, server: usize) {
    let Some(running) = world.server(server) else {
        return;
    };
    let mut laws = world.laws.lock();
    let mut tokens = laws.tokens.iter();
    let known = tokens.find(|token| running.revokes(&token.claims));
    let known = known.map(|token| token.claims.session.clone());
    laws.require(known.is_none(), || {
        format!("server {server} knows the end of {known:?} after ages")
    });
}
