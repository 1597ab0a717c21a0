//! The simulation: everything that Postern promises, in worlds where everything fails at every moment.
//!
//! A world has servers, sidecars and a store. They run the code of the programs; clock, randomness,
//! network and the store's driver are the world's, so that one seed makes one story. See
//! `docs/reliability.md`.

mod actions;
mod calm;
mod laws;
mod model;
mod plan;
mod story;
mod weather;
mod world;

use std::cell::Cell;
use std::panic;
use std::sync::{Arc, Once};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{sleep, sleep_until};

pub use plan::{Plan, Step};
use story::Story;
use world::World;

/// The time between checks beside those after each event.
pub(crate) const BETWEEN_CHECKS: Duration = Duration::from_secs(7);

/// How a world ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// The law that was broken.
    pub broken: Option<String>,
    /// Each event on a line; empty unless it was kept.
    pub story: Vec<String>,
    /// The number of commits to the store.
    pub commits: usize,
}

thread_local! {
    static HAS_PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// Has each panic noted: in a task it would look like the end of a machine.
fn note_panics() {
    static NOTED: Once = Once::new();
    NOTED.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            HAS_PANICKED.set(true);
            report(panic);
        }));
    });
}

/// Lets a plan happen. `with_story`: with its story.
#[must_use]
pub fn play(plan: &Plan, with_story: bool) -> Ending {
    note_panics();
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O");
    let mut ending = runtime.block_on(live(plan, with_story));
    // What waits for nothing any more is dropped with the world.
    drop(runtime);
    if HAS_PANICKED.take() {
        ending.broken = Some("a process panics".to_owned());
    }
    ending
}

async fn live(plan: &Plan, with_story: bool) -> Ending {
    postern_process::simulation::seed(plan.seed);
    let story = match with_story {
        true => Story::kept(),
        false => Story::default(),
    };
    let world = World::new(plan.seed, plan.setting, story.clone());
    (0..plan.setting.servers).for_each(|server| world.start_server(server));
    (0..plan.setting.sidecars).for_each(|sidecar| world.start_sidecar(sidecar));
    storm(&world, plan).await;
    if world.laws.lock().broken().is_none() {
        calm::calm_down(&world).await;
    }
    world.stop();
    let broken = world.laws.lock().broken().map(str::to_owned);
    if broken.is_none() {
        story.tell(|| "every law holds".to_owned());
    }
    Ending {
        broken,
        story: story.lines(),
        commits: world.store.commits(),
    }
}

/// Everything happens that the plan has, each event beside the others.
async fn storm(world: &Arc<World>, plan: &Plan) {
    let machine = world.machine();
    machine.run(check_again(Arc::clone(world)));
    for step in &plan.steps {
        sleep_until(world.sky.began + step.at).await;
        let (acting, action) = (Arc::clone(world), step.action.clone());
        machine.run(async move {
            actions::act(Arc::clone(&acting), action).await;
            let mut laws = acting.laws.lock();
            laws.check(&acting);
        });
        if world.laws.lock().broken().is_some() {
            break;
        }
    }
    sleep_until(world.sky.began + plan.setting.stormy()).await;
    machine.kill();
}

/// Checks the laws between the events too.
async fn check_again(world: Arc<World>) {
    loop {
        sleep(BETWEEN_CHECKS).await;
        world.laws.lock().check(&world);
    }
}

/// Leaves out the events without which the same law is broken too.
#[must_use]
pub fn shortened(plan: &Plan) -> Plan {
    let Some(law) = play(plan, false).broken else {
        return plan.clone();
    };
    let mut shortest = plan.clone();
    let mut size = (shortest.steps.len() / 2).max(1);
    loop {
        let mut begin = 0;
        while begin < shortest.steps.len() {
            let mut shorter = shortest.clone();
            let end = (begin + size).min(shorter.steps.len());
            shorter.steps.drain(begin..end);
            match play(&shorter, false).broken {
                Some(broken) if kind(&broken) == kind(&law) => shortest = shorter,
                _ => begin += size,
            }
        }
        if size == 1 {
            return shortest;
        }
        size /= 2;
    }
}

/// Returns the words of a law without its names and numbers.
fn kind(law: &str) -> Vec<&str> {
    let words = law.split(|c: char| !c.is_ascii_lowercase());
    words.filter(|word| word.len() > 3).collect()
}
