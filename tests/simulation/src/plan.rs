//! The events of one world, each with its time: drawn from the seed before the world begins, so that an event can
//! be left out and the others stay. A plan can be kept in a file, where no change of the drawing loses it.

use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// The size of a world, and what may go wrong in it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Setting {
    pub servers: usize,
    pub sidecars: usize,
    pub clients: usize,
    /// Commits wait until replicas have them (`?wait=`).
    pub waits: bool,
    /// Servers encrypt what they store.
    pub sealed: bool,
    /// Of a thousand calls of the store, those that are lost or find it busy.
    pub losses: u32,
    pub fails_over: bool,
    /// Backups from long ago, and stores that lose everything.
    pub has_disasters: bool,
    pub sets_clocks: bool,
    /// The storm goes on until tokens, sessions and former keys have expired.
    #[serde(default)]
    pub is_long: bool,
}

impl Setting {
    /// Returns the time in which things happen; afterwards the world calms down.
    #[must_use]
    pub const fn stormy(&self) -> Duration {
        match self.is_long {
            true => Duration::from_secs(5400),
            false => Duration::from_secs(300),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// Its author, if no seed has drawn it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    pub seed: u64,
    /// The law that it breaks with its planted fault, if it has one.
    pub law: Option<String>,
    pub setting: Setting,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Step {
    /// Since the world began.
    #[serde(with = "milliseconds")]
    pub at: Duration,
    pub action: Action,
}

/// Servers, sidecars and clients by their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    Login {
        client: usize,
        server: usize,
    },
    Refresh {
        client: usize,
        server: usize,
        token: Presented,
    },
    Logout {
        client: usize,
        server: usize,
        by: Credential,
    },
    /// A request with the client's last token, or one of its former ones.
    Use {
        client: usize,
        sidecar: usize,
        former: bool,
    },
    RotateKeys,
    RevokeKey,
    /// One that signs no more, or not yet.
    RevokeOtherKey,
    RevokeUser,
    RevokeEveryone,
    /// Another issuer says to a server that a session there has ended.
    ForeignLogout {
        session: usize,
        server: usize,
        /// The first response does not reach it.
        is_lost: bool,
    },
    RemoveApplication,
    RegisterApplication,
    StartServer(usize),
    KillServer(usize),
    StartSidecar(usize),
    KillSidecar(usize),
    /// No server reaches the store.
    StoreAway(#[serde(with = "milliseconds")] Duration),
    /// One server does not reach the store.
    CutOff {
        server: usize,
        #[serde(with = "milliseconds")]
        lasts: Duration,
    },
    /// One sidecar reaches no server.
    Isolate {
        sidecar: usize,
        #[serde(with = "milliseconds")]
        lasts: Duration,
    },
    FailOver {
        lost: usize,
    },
    /// After a fail-over one server goes on with the former primary.
    SplitBrain {
        server: usize,
        lost: usize,
        #[serde(with = "milliseconds")]
        lasts: Duration,
    },
    Restore {
        lost: usize,
    },
    Flush,
    /// The clock of a server is ahead by so much from now on.
    SetServerClock {
        server: usize,
        seconds: i64,
    },
    SetStoreClock {
        seconds: i64,
    },
}

/// The refresh token that a client presents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Presented {
    Latest,
    /// The one before: its response may have been lost.
    Former,
    /// One from long ago, as a thief has it.
    First,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Credential {
    AccessToken,
    RefreshToken,
}

impl Plan {
    /// Draws a plan.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let setting = Setting {
            servers: random.usize(1..=3),
            sidecars: random.usize(1..=3),
            clients: random.usize(1..=4),
            waits: random.u8(..10) < 7,
            sealed: random.u8(..10) < 3,
            losses: [0, 5, 30, 100][random.usize(..4)],
            fails_over: random.bool(),
            has_disasters: random.u8(..10) < 2,
            sets_clocks: random.u8(..10) < 2,
            is_long: random.u8(..25) == 0,
        };
        let events = random.usize(20..=80);
        let mut steps = Vec::new();
        let mut at = Duration::ZERO;
        for _ in 0..events {
            // Every fourth comes while the one before is under way.
            at = match random.u8(..4) {
                0 => at + Duration::from_micros(random.u64(..12_000)),
                _ => Duration::from_millis(random.u64(..setting.stormy().as_secs() * 1000)),
            };
            let action = action(&setting, &mut random);
            if matches!(action, Action::Use { .. }) {
                // No two wait for one fetch of a sidecar: no seed decides in which order they are woken.
                at += Duration::from_secs(1);
            }
            steps.push(Step { at, action });
        }
        if setting.has_disasters {
            add_disaster(&setting, &mut random, &mut steps);
        }
        steps.sort_by_key(|step| step.at);
        Self {
            by: None,
            seed,
            law: None,
            setting,
            steps,
        }
    }

    /// Reads a plan from its file.
    ///
    /// # Errors
    /// The reason why it is no plan.
    pub fn from_text(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// Returns the text of its file, a line for each step.
    #[must_use]
    pub fn to_text(&self) -> String {
        let json = serde_json::to_string(self).expect("numbers and names");
        json.replace("\"steps\":[", "\"steps\":[\n")
            .replace(",{\"at\"", ",\n{\"at\"")
            + "\n"
    }
}

mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::cast_possible_truncation, reason = "the time of a world")]
    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(time.as_millis() as u64)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// Adds the loss of a store as keys change, while a server is cut off and another one starts.
fn add_disaster(setting: &Setting, random: &mut Rng, steps: &mut Vec<Step>) {
    let stormy = setting.stormy().as_secs().cast_signed() * 1000;
    let at = random.i64(30_000..stormy - 20_000);
    let (server, other) = (
        random.usize(..setting.servers),
        random.usize(..setting.servers),
    );
    let disaster = match random.bool() {
        true => Action::Flush,
        false => Action::Restore {
            lost: random.usize(1..=10),
        },
    };
    let lasts = Duration::from_millis(random.u64(1_000..60_000));
    steps.push(Step {
        at: Duration::from_millis(at.unsigned_abs()),
        action: disaster,
    });
    let around = [
        (-200_000..0, Action::RotateKeys),
        (-20_000..0, Action::CutOff { server, lasts }),
        (-10_000..0, Action::RevokeKey),
        (0..2_000, Action::KillServer(other)),
        (2_000..5_000, Action::StartServer(other)),
        (0..15_000, Action::RotateKeys),
        (0..15_000, Action::RevokeOtherKey),
        (0..15_000, Action::RevokeKey),
    ];
    for (times, action) in around {
        let at = (at + random.i64(times)).max(0).unsigned_abs();
        if random.bool() {
            steps.push(Step {
                at: Duration::from_millis(at),
                action,
            });
        }
    }
}

fn action(setting: &Setting, random: &mut Rng) -> Action {
    let server = random.usize(..setting.servers);
    let sidecar = random.usize(..setting.sidecars);
    let client = random.usize(..setting.clients);
    let lasts = Duration::from_millis(random.u64(100..90_000));
    let lost = random.usize(1..=6);
    match random.u8(..106) {
        0..14 => Action::Login { client, server },
        14..32 => Action::Refresh {
            client,
            server,
            token: match random.u8(..10) {
                0..7 => Presented::Latest,
                7..9 => Presented::Former,
                _ => Presented::First,
            },
        },
        32..42 => Action::Logout {
            client,
            server,
            by: match random.bool() {
                true => Credential::AccessToken,
                false => Credential::RefreshToken,
            },
        },
        42..62 => Action::Use {
            client,
            sidecar,
            former: random.u8(..3) == 0,
        },
        62..65 => Action::RotateKeys,
        65..67 => Action::RevokeKey,
        67..69 => Action::RevokeUser,
        69 => Action::RevokeEveryone,
        70 => Action::RemoveApplication,
        71 => Action::RegisterApplication,
        72..76 => Action::KillServer(server),
        76..80 => Action::StartServer(server),
        80..82 => Action::KillSidecar(sidecar),
        82..84 => Action::StartSidecar(sidecar),
        84..87 => Action::StoreAway(lasts),
        87..90 => Action::CutOff { server, lasts },
        90..92 => Action::Isolate {
            sidecar,
            lasts: 2 * lasts,
        },
        92..95 if setting.fails_over => Action::FailOver { lost },
        95 if setting.fails_over => Action::SplitBrain {
            server,
            lost,
            lasts,
        },
        96 if setting.has_disasters => Action::Restore {
            lost: random.usize(1..=40),
        },
        97 if setting.has_disasters => Action::Flush,
        98 if setting.sets_clocks => Action::SetServerClock {
            server,
            seconds: random.i64(-90..=90),
        },
        99 if setting.sets_clocks => Action::SetStoreClock {
            seconds: random.i64(-30..=30),
        },
        104..106 => Action::RevokeOtherKey,
        100..104 => Action::ForeignLogout {
            session: client,
            server,
            is_lost: random.bool(),
        },
        _ => Action::Use {
            client,
            sidecar,
            former: false,
        },
    }
}
