//! The world of `tests/simulation` in place of the machine: clock, randomness and tasks of one simulated
//! process. Built for the simulation alone; no program has it.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use parking_lot::Mutex;
use tokio::task::{AbortHandle, JoinHandle};

tokio::task_local! {
    static MACHINE: Arc<Machine>;
}

thread_local! {
    /// The random numbers of a world, which has one thread.
    static RANDOM: RefCell<Rng> = RefCell::new(Rng::with_seed(0));
}

/// The machine of one process: its clock, and the tasks that end with it.
#[derive(Debug)]
pub struct Machine {
    began: tokio::time::Instant,
    /// Seconds since the epoch at which the world began.
    epoch: u64,
    /// Seconds by which the machine's clock is ahead of the world's.
    ahead: AtomicI64,
    tasks: Mutex<Vec<AbortHandle>>,
    is_dead: AtomicBool,
}

impl Machine {
    /// Makes a machine of a world that began at the instant `began`, `epoch` seconds after the epoch.
    #[must_use]
    pub fn new(began: tokio::time::Instant, epoch: u64) -> Arc<Self> {
        Arc::new(Self {
            began,
            epoch,
            ahead: AtomicI64::new(0),
            tasks: Mutex::default(),
            is_dead: AtomicBool::new(false),
        })
    }

    /// Sets the clock.
    pub fn set_ahead(&self, seconds: i64) {
        self.ahead.store(seconds, Ordering::Relaxed);
    }

    /// Runs work as a task of this machine; none where that has ended.
    pub fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let task = tokio::spawn(MACHINE.scope(Arc::clone(self), work));
        if self.is_dead.load(Ordering::Relaxed) {
            task.abort();
        }
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task.abort_handle());
        task
    }

    /// Ends every task, wherever it waits.
    pub fn kill(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
        self.tasks.lock().drain(..).for_each(|task| task.abort());
    }

    fn now(&self) -> SystemTime {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let epoch = self.epoch.saturating_add_signed(ahead);
        UNIX_EPOCH + Duration::from_secs(epoch) + self.began.elapsed()
    }
}

/// Returns the time of the clock of the machine that runs this task.
pub(crate) fn now() -> Option<SystemTime> {
    MACHINE.try_with(|machine| machine.now()).ok()
}

/// Starts work on the machine that runs this task.
pub(crate) fn spawn<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    match MACHINE.try_with(Arc::clone) {
        Ok(machine) => machine.run(work),
        Err(_) => tokio::spawn(work),
    }
}

/// Begins the random numbers of a world anew.
pub fn seed(seed: u64) {
    RANDOM.with_borrow_mut(|random| random.seed(seed));
}

/// Fills `bytes` with the next random numbers of the world.
pub fn fill(bytes: &mut [u8]) {
    RANDOM.with_borrow_mut(|random| random.fill(bytes));
}
