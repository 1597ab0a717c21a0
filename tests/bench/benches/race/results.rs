//! Results: numbers by contestant and round.

use std::collections::BTreeMap;

use bench::statistics::Summary;

use crate::capabilities::Capability;
use crate::tokens::Bad;

/// A contestant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Sidecar,
    Haproxy,
    HaproxyJwt,
    Nginx,
    Envoy,
    EnvoyJwt,
    EnvoyJwtCached,
    /// The service itself, without a proxy.
    Direct,
}

impl Who {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sidecar => "Postern sidecar",
            Self::Haproxy => "HAProxy, no auth",
            Self::HaproxyJwt => "HAProxy `jwt_verify`",
            Self::Nginx => "nginx, no auth",
            Self::Envoy => "Envoy, no auth",
            Self::EnvoyJwt => "Envoy `jwt_authn`",
            Self::EnvoyJwtCached => "Envoy `jwt_authn` with cache",
            Self::Direct => "the service itself",
        }
    }
}

/// Work of a contestant for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// Forward it, its token unread.
    Plain,
    /// Verify a token that it has just seen.
    Repeated,
    /// Verify a token that it has never seen.
    Fresh,
}

impl Work {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "token not verified",
            Self::Repeated => "repeated token",
            Self::Fresh => "fresh token each time",
        }
    }
}

/// One value for each round, in the order of the rounds.
pub(crate) type Rounds = Vec<f64>;

/// CPU µs for a request, by size.
pub(crate) type Growth = BTreeMap<usize, Rounds>;

/// The results of all measurements.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// CPU µs for a request, closed loop, 32 connections.
    pub(crate) cpu: BTreeMap<(Work, Who), Rounds>,
    /// CPU µs to check one RS256 signature with aws-lc, nothing else.
    pub(crate) signature: Rounds,
    /// Requests a second in the same loop.
    pub(crate) rate: BTreeMap<(Work, Who), Rounds>,
    /// p50 in µs with one connection, repeated token.
    pub(crate) p50: BTreeMap<Who, Rounds>,
    /// p50 and p99 in µs at a fixed rate.
    pub(crate) open_loop: BTreeMap<Who, (Rounds, Rounds)>,
    /// MiB after the start, and after 10 000 different tokens.
    pub(crate) memory: BTreeMap<Who, (Rounds, Rounds)>,
    /// MiB with 7 000 connections that have sent nothing, and after a request of each.
    pub(crate) idle_connections: (Rounds, Rounds),
    /// By number of connections, and of header fields; the sidecar's part of those shapes.
    pub(crate) connections: Growth,
    pub(crate) fields: Growth,
    /// By number of patterns in the pass list.
    pub(crate) pass_list: Growth,
    /// CPU µs for a request, and MiB after it, with each configuration.
    pub(crate) capabilities: BTreeMap<Capability, (Rounds, Rounds)>,
    /// CPU µs for a request of each shape, in the order of the shapes.
    pub(crate) shapes: Vec<(String, BTreeMap<Who, Rounds>)>,
    /// CPU µs for a rejection, by kind of token.
    pub(crate) rejections: Vec<(Bad, Rounds)>,
    /// Size of a good token in bytes.
    pub(crate) token_bytes: usize,
}

impl Results {
    pub(crate) fn cpu_of(&self, work: Work, who: Who) -> &[f64] {
        self.cpu.get(&(work, who)).map_or(&[], Vec::as_slice)
    }

    /// Returns the CPU µs and the MiB that a configuration adds to the defaults, round by round.
    pub(crate) fn added_by(&self, capability: Capability) -> (Rounds, Rounds) {
        let of = |which| self.capabilities.get(&which).cloned().unwrap_or_default();
        let ((cpu, mib), (base_cpu, base_mib)) = (of(capability), of(Capability::None));
        let less = |values: &Rounds, base: &Rounds| {
            let rounds = values.iter().zip(base);
            rounds.map(|(value, base)| value - base).collect()
        };
        (less(&cpu, &base_cpu), less(&mib, &base_mib))
    }

    /// Returns the time that a contestant adds to a direct call, round by round.
    pub(crate) fn added(&self, who: Who) -> Rounds {
        let of = |who| self.p50.get(&who).map_or(&[][..], Vec::as_slice);
        let rounds = of(who).iter().zip(of(Who::Direct));
        rounds.map(|(through, direct)| through - direct).collect()
    }
}

/// Formats a cell of a table.
pub(crate) fn cell(values: &[f64], digits: usize) -> String {
    Summary::of(values).map_or_else(|| "–".to_owned(), |summary| format!("{summary:.digits$}"))
}
