//! The actions of administrators, and of another issuer.

use std::sync::Arc;
use std::time::Duration;

use auth_server::simulation::{Administration, Reply, administer, foreign_logout as statement};
use http::StatusCode;
use tokio::time::Instant;

use super::{described, form};
use crate::model::{Ended, foreign_session};
use crate::world::World;

/// Another issuer that gets no 200 sends its statement again this often, each time after twice the pause.
const STATEMENTS: usize = 6;
/// An administrator whose command failed gives it again this often.
const COMMANDS: usize = 3;
/// An application that comes and goes.
pub(super) const OTHER: &str = "reports";

/// Registers the application of the sidecars. Returns false where that failed.
pub async fn register(world: &Arc<World>) -> bool {
    let ensure = Administration::EnsureApplication {
        id: "orders".to_owned(),
        secret: "a-secret-of-the-simulated-application".to_owned(),
    };
    command(world, ensure).await
}

/// Registers another one: from then on the sidecars' application has to be registered too. A secret that
/// was dropped never counts again, so it is a new one each time.
pub(super) async fn register_other(world: &Arc<World>) {
    let ensure = Administration::EnsureApplication {
        id: OTHER.to_owned(),
        secret: format!(
            "another-secret-of-{:?}-after-the-beginning",
            world.sky.began.elapsed()
        ),
    };
    command(world, ensure).await;
    register(world).await;
}

pub(super) async fn command(world: &Arc<World>, command: Administration) -> bool {
    let machine = world.machine_of_command();
    let way = Arc::clone(&world.ways[world.setting.servers]);
    let done = administer(&machine, &world.store, way, command.clone()).await;
    world
        .story
        .tell(|| format!("{command:?}: {}", if done { "done" } else { "failed" }));
    done
}

/// Asks for an end, again where that fails, and notes its confirmation.
pub(super) async fn end(world: &Arc<World>, ended: Ended, request: Administration) {
    let position = world.laws.lock().note(ended, None);
    let (began, store_now) = (Instant::now(), world.sky.store_now());
    let (mut sent, mut is_done) = (began, false);
    for attempt in 0..COMMANDS {
        if attempt > 0 {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        sent = Instant::now();
        is_done = command(world, request.clone()).await;
        if is_done {
            break;
        }
    }
    let mut laws = world.laws.lock();
    // The store's clock may have been set back meanwhile.
    laws.ends[position].over = Some(store_now.max(world.sky.store_now()));
    // Where the clock was set meanwhile, the time of the end is not known.
    if is_done && world.sky.clock_set() < began {
        laws.confirm(world, position, None, sent);
    }
}

/// Another issuer sends a statement that a session has ended until it gets 200, each time to the next server.
/// `is_lost`: the first response does not reach it. Of every other session it sends two statements with one id at
/// once, of which a single one counts.
pub(super) async fn foreign_logout(
    world: &Arc<World>,
    session: usize,
    first: usize,
    mut is_lost: bool,
) {
    let name = foreign_session(session);
    let id = format!("{name} at {:?}", world.sky.began.elapsed());
    let now = world.sky.store_now();
    let statements = [now, now - 1].map(|issued| statement(&name, &id, issued));
    let statements = &statements[..=session % 2];
    let position = world.laws.lock().note(Ended::Session(name), None);
    for attempt in 0..STATEMENTS {
        let server = |number| (first + attempt + number) % world.setting.servers;
        let send = async |number: usize| {
            let statement = statements.get(number)?.clone();
            let request = form("/oidc/backchannel-logout", statement);
            world.request(server(number), request).await
        };
        let sent = Instant::now();
        let (reply, other) = tokio::join!(send(0), send(1));
        let (replies, first) = ([reply, other], server(0));
        world.story.tell(|| {
            let replies = replies.each_ref().map(|it| described(it.as_ref()));
            let replies = replies[..statements.len()].join(", ");
            format!(
                "server {first} hears that session {session} has ended at another issuer: {replies}"
            )
        });
        world
            .laws
            .lock()
            .stated(world, &id, &replies[..statements.len()]);
        let ended =
            |reply: &Option<Reply>| reply.as_ref().is_some_and(|it| it.status == StatusCode::OK);
        let ended = replies.iter().position(ended);
        if let Some(number) = ended.filter(|_| !is_lost) {
            let by = Some(server(number));
            world.laws.lock().confirm(world, position, by, sent);
            return;
        }
        is_lost &= ended.is_none();
        tokio::time::sleep(Duration::from_secs(3 << attempt)).await;
    }
}

/// Revokes the first key of a server that is to be.
pub(super) async fn revoke_key(world: &Arc<World>, is_to_be: impl Fn(&str, &str) -> bool) {
    let servers = world.running_servers();
    let Some(keys) = servers.values().find_map(|server| server.keys()) else {
        return;
    };
    let mut listed = keys.listed.into_iter();
    if let Some(id) = listed.find(|id| is_to_be(id, &keys.current)) {
        end(world, Ended::Key(id.clone()), Administration::RevokeKey(id)).await;
    }
}
