//! The four incidents, in the order of `docs/incidents.md`: what happens, step by step.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use tests::sidecar::Sidecar;
use tests::wait;

use crate::fleet::Fleet;

/// An incident.
pub(crate) struct Scene {
    /// Auth servers; the sidecars know the first one alone.
    pub(crate) auth_servers: usize,
    /// Flags of the sidecars.
    pub(crate) flags: &'static [&'static str],
    /// Steps, each as long as the time before the first.
    pub(crate) steps: &'static [Step],
}

/// A step of an incident.
pub(crate) struct Step {
    /// Text of its mark in the picture.
    pub(crate) what: &'static str,
    /// Brings it about.
    pub(crate) act: Act,
}

type Act = for<'s, 'e> fn(&'s Fleet, &'s thread::Scope<'s, 'e>);

/// All incidents.
pub(crate) const SCENES: [Scene; 4] = [SLOW, KEYS, WILD, ROLLOUT];

const ALL: [usize; 3] = [1, 2, 3];

const SLOW: Scene = Scene {
    auth_servers: 1,
    flags: &["--upstream-read-timeout", "2s"],
    steps: &[
        Step {
            what: "the service waits 400 ms for its database",
            act: |fleet, _| fleet.service.wait(400),
        },
        Step {
            what: "it is quick again, and fails one request in four",
            act: |fleet, _| {
                fleet.service.wait(0);
                fleet.service.fail_one_in(4);
            },
        },
        Step {
            what: "it sends no response to one request in ten (--upstream-read-timeout 2s)",
            act: |fleet, _| {
                fleet.service.fail_one_in(0);
                fleet.service.ignore_one_in(10);
            },
        },
    ],
};

const KEYS: Scene = Scene {
    auth_servers: 2,
    flags: &["--max-key-age", "15"],
    steps: &[
        Step {
            what: "half of the users log in at a second auth server, which has a store of its own",
            act: |fleet, _| login_at(fleet, &[0, 1]),
        },
        Step {
            what: "the first auth server stops; all users log in at the second",
            act: |fleet, _| {
                login_at(fleet, &[1]);
                fleet.auth_servers[0].process().terminate();
            },
        },
        Step {
            what: "the sidecars' key is older than --max-key-age (15 s here, a day by default)",
            act: |fleet, _| {
                wait::until("keys that are too old", || {
                    let ready = |sidecar: &Sidecar| sidecar.readiness() == 200;
                    (!fleet.sidecars.iter().any(ready)).then_some(())
                });
            },
        },
    ],
};

fn login_at(fleet: &Fleet, numbers: &[usize]) {
    let addresses = numbers
        .iter()
        .map(|number| fleet.auth_servers[*number].address());
    let mut servers = fleet.world.auth_servers.lock().expect("no thread panicked");
    *servers = addresses.collect();
}

const WILD: Scene = Scene {
    auth_servers: 1,
    flags: &["--max-requests", "40"],
    steps: &[
        Step {
            what: "a client without a token repeats its request at orders-2",
            act: |fleet, scope| fleet.let_loose(scope, 4, None, Duration::from_millis(4)),
        },
        Step {
            what: "it stops; one with a token repeats its request over 24 connections",
            act: |fleet, scope| {
                end(fleet);
                let token = fleet.auth_servers[0].login();
                fleet.let_loose(scope, 24, Some(token), Duration::from_millis(10));
            },
        },
        Step {
            what: "now over 80 connections, twice as many as --max-requests",
            act: |fleet, scope| {
                let token = fleet.auth_servers[0].login();
                fleet.let_loose(scope, 56, Some(token), Duration::from_millis(10));
            },
        },
    ],
};

fn end(fleet: &Fleet) {
    fleet.world.wild.store(false, Ordering::Relaxed);
    // Each reads the flag before its next request.
    thread::sleep(Duration::from_millis(200));
}

const RULE: &str =
    "[[rule]]\nname = 'reports'\npaths = ['/reports/**']\nscope = ['reports:read']\n";

const ROLLOUT: Scene = Scene {
    auth_servers: 1,
    flags: &[],
    steps: &[
        Step {
            what: "orders-3 gets a file with a mistake",
            act: |fleet, _| fleet.configure(&[3], "[[rule]]\npath = '/reports/**'\n"),
        },
        Step {
            what: "all get a rule that requires a scope which no token has",
            act: |fleet, _| fleet.configure(&ALL, RULE),
        },
        Step {
            what: "all get another audience, and no rule",
            act: |fleet, _| fleet.configure(&ALL, "audience = ['order-service']\n"),
        },
        Step {
            what: "the previous file is back",
            act: |fleet, _| fleet.configure(&ALL, ""),
        },
    ],
};
