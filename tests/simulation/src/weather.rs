//! The weather between one server and the store: delays, losses, outages; and the clocks of the world.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use auth_server::simulation::{Call, Event, Fate, Weather};
use fastrand::Rng;
use parking_lot::Mutex;
use tokio::time::Instant;

/// 2027-01-15, in seconds since the epoch.
pub const EPOCH: u64 = 1_800_000_000;

/// The part that all share: the beginning, the clock of the store, its outages.
pub struct Sky {
    pub began: Instant,
    state: Mutex<SkyState>,
}

struct SkyState {
    /// Seconds by which the store's clock is ahead.
    store_ahead: i64,
    /// The moment when a clock was last set, the store's or a server's.
    clock_set: Instant,
    away_until: Instant,
    losses: u32,
}

impl Sky {
    #[must_use]
    pub fn new(losses: u32) -> Arc<Self> {
        let began = Instant::now();
        Arc::new(Self {
            began,
            state: Mutex::new(SkyState {
                store_ahead: 0,
                clock_set: began,
                away_until: began,
                losses,
            }),
        })
    }

    pub fn set_store_ahead(&self, seconds: i64) {
        self.state.lock().store_ahead = seconds;
        self.note_clock_set();
    }

    pub fn note_clock_set(&self) {
        self.state.lock().clock_set = Instant::now();
    }

    /// Returns the moment when a clock was last set.
    #[must_use]
    pub fn clock_set(&self) -> Instant {
        self.state.lock().clock_set
    }

    pub fn take_store_away(&self, lasts: Duration) {
        self.state.lock().away_until = Instant::now() + lasts;
    }

    /// Returns how many of a thousand messages are lost.
    #[must_use]
    pub fn losses(&self) -> u32 {
        self.state.lock().losses
    }

    /// From now on nothing is lost.
    pub fn calm(&self) {
        let mut state = self.state.lock();
        state.losses = 0;
        state.away_until = self.began;
    }

    /// Returns the time of the store's clock, in seconds since the epoch.
    #[must_use]
    pub fn store_now(&self) -> i64 {
        self.world_now() + self.state.lock().store_ahead
    }

    /// Returns the time of a clock that is never set.
    #[must_use]
    pub fn world_now(&self) -> i64 {
        (EPOCH + self.began.elapsed().as_secs()).cast_signed()
    }
}

/// The way of one server to the store.
pub struct Way {
    sky: Arc<Sky>,
    random: Mutex<Rng>,
    cut_off_until: Mutex<Instant>,
    /// The times at which the former primary responds, or did.
    with_former: Mutex<Vec<Range<Instant>>>,
    /// The moment of the last call that it served.
    former_served: Mutex<Instant>,
}

impl Way {
    #[must_use]
    pub fn new(sky: &Arc<Sky>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            random: Mutex::new(Rng::with_seed(seed)),
            cut_off_until: Mutex::new(sky.began),
            with_former: Mutex::default(),
            former_served: Mutex::new(sky.began),
            sky: Arc::clone(sky),
        })
    }

    pub fn cut_off(&self, lasts: Duration) {
        *self.cut_off_until.lock() = Instant::now() + lasts;
    }

    /// For so long the former primary responds.
    pub fn stay_with_former(&self, lasts: Duration) {
        let now = Instant::now();
        self.with_former.lock().push(now..now + lasts);
    }

    /// Returns true for a moment at which the former primary responded.
    #[must_use]
    pub fn is_with_former(&self, moment: Instant) -> bool {
        let with_former = self.with_former.lock();
        with_former.iter().any(|times| times.contains(&moment))
    }

    /// Returns true if it served a call after this moment.
    #[must_use]
    pub fn former_served_since(&self, moment: Instant) -> bool {
        *self.former_served.lock() > moment
    }

    pub fn heal(&self) {
        *self.cut_off_until.lock() = self.sky.began;
        for times in self.with_former.lock().iter_mut() {
            times.end = times.end.min(Instant::now());
        }
    }
}

impl Weather for Way {
    fn fate(&self, _: Call) -> Fate {
        let mut random = self.random.lock();
        let (now, state) = (Instant::now(), self.sky.state.lock());
        // Some take so long that a poll, a fail-over or a death comes meanwhile.
        let is_slow = state.losses > 0 && random.u8(..200) == 0;
        let longest = if is_slow { 1_500_000 } else { 3_000 };
        let mut delay = || Duration::from_micros(random.u64(100..longest));
        let (there, back) = (delay(), delay());
        let is_away = now < state.away_until || now < *self.cut_off_until.lock();
        let is_lost = random.u32(..1000) < state.losses;
        let event = match (is_away, is_lost) {
            (true, _) => Event::Away,
            (false, false) if self.is_with_former(now) => Event::FormerServes,
            (false, false) => Event::Served,
            (false, true) => match random.u8(..4) {
                0 => Event::Away,
                1 => Event::Busy,
                2 => Event::RequestLost,
                // What the former primary has done is lost with it, its response or not.
                _ if self.is_with_former(now) => Event::FormerServes,
                _ => Event::ResponseLost,
            },
        };
        if event == Event::FormerServes {
            *self.former_served.lock() = now;
        }
        Fate { there, back, event }
    }

    fn now(&self) -> i64 {
        self.sky.store_now()
    }
}
