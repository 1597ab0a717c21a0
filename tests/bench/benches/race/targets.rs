//! Targets of the sidecar, and their results.

use bench::statistics::Summary;

use crate::capabilities::Capability;
use crate::results::{Results, Rounds, Who, Work};
use crate::shapes::TLS_CHUNKED;
use crate::tokens::Bad;

/// A target.
pub(crate) struct Target {
    pub(crate) work: String,
    pub(crate) against: String,
    /// Upper limit.
    pub(crate) limit: f64,
    pub(crate) unit: &'static str,
    /// Result; `None` if not measured in this run.
    pub(crate) reached: Option<Summary>,
}

impl Target {
    pub(crate) fn verdict(&self) -> &'static str {
        match self.reached {
            None => "not measured",
            Some(reached) if reached.median <= self.limit => "met",
            Some(_) => "**missed**",
        }
    }
}

/// Returns all targets, in the order of the table.
pub(crate) fn targets(results: &Results) -> Vec<Target> {
    let mut all = closed_loop(results);
    all.extend(latency(results));
    all.extend(chunked(results));
    all.extend(memory(results));
    all.push(flat(results));
    all.extend(capabilities(results));
    all.extend(rejections(results));
    all
}

fn ratio(
    work: impl Into<String>,
    against: &str,
    limit: f64,
    values: &[f64],
    base: &[f64],
) -> Target {
    Target {
        work: work.into(),
        against: against.to_owned(),
        limit,
        unit: "×",
        reached: Summary::of_ratios(values, base),
    }
}

fn closed_loop(results: &Results) -> Vec<Target> {
    [
        (Work::Plain, Work::Plain, Who::Haproxy, 1.05),
        (Work::Repeated, Work::Repeated, Who::EnvoyJwtCached, 0.36),
        (Work::Repeated, Work::Repeated, Who::HaproxyJwt, 0.42),
        (Work::Repeated, Work::Plain, Who::Haproxy, 1.20),
        (Work::Fresh, Work::Fresh, Who::HaproxyJwt, 0.90),
        (Work::Fresh, Work::Fresh, Who::EnvoyJwt, 0.40),
    ]
    .map(|(work, other_work, other, limit)| {
        ratio(
            format!("{}, CPU per request", work.name()),
            other.name(),
            limit,
            results.cpu_of(work, Who::Sidecar),
            results.cpu_of(other_work, other),
        )
    })
    .into()
}

fn latency(results: &Results) -> [Target; 3] {
    let of = |who| results.open_loop.get(&who).cloned().unwrap_or_default();
    let (ours, haproxy, plain) = (of(Who::Sidecar), of(Who::HaproxyJwt), Who::Haproxy);
    let at_5000 = |which, ours: &Rounds, theirs: &Rounds| {
        let work = format!("{which} at 5 000 requests/s (open loop)");
        ratio(work, Who::HaproxyJwt.name(), 1.0, ours, theirs)
    };
    [
        at_5000("p50", &ours.0, &haproxy.0),
        at_5000("p99", &ours.1, &haproxy.1),
        ratio(
            "p50 with one connection, added to a direct call",
            plain.name(),
            1.3,
            &results.added(Who::Sidecar),
            &results.added(plain),
        ),
    ]
}

fn chunked(results: &Results) -> Option<Target> {
    let mut shapes = results.shapes.iter();
    let (name, of) = shapes.find(|(name, _)| name == TLS_CHUNKED)?;
    let rounds = |who| of.get(&who).map_or(&[][..], Vec::as_slice);
    let haproxy = Who::HaproxyJwt;
    Some(ratio(
        format!("{name}, CPU per request"),
        haproxy.name(),
        0.7,
        rounds(Who::Sidecar),
        rounds(haproxy),
    ))
}

fn memory(results: &Results) -> [Target; 3] {
    let of = results.memory.get(&Who::Sidecar);
    let target = |work: &str, limit, values: Option<&Vec<f64>>| Target {
        work: work.to_owned(),
        against: "–".to_owned(),
        limit,
        unit: " MiB",
        reached: values.and_then(|values| Summary::of(values)),
    };
    [
        target("RSS idle", 14.0, of.map(|(idle, _)| idle)),
        target(
            "RSS with 10 000 cached tokens",
            20.0,
            of.map(|(_, after)| after),
        ),
        target(
            "RSS with 7 000 connections, idle after a request each",
            60.0,
            Some(&results.idle_connections.1),
        ),
    ]
}

fn capabilities(results: &Results) -> [Target; 3] {
    let target = |work: &str, limit, unit, values: &[f64]| Target {
        work: work.to_owned(),
        against: Capability::None.name().to_owned(),
        limit,
        unit,
        reached: Summary::of(values),
    };
    let (tables, _) = results.added_by(Capability::IssuersAndRules);
    let (revoked, revoked_mib) = results.added_by(Capability::Revocations);
    [
        target("16 issuers, 100 rules: CPU added", 1.0, " µs", &tables),
        target("40 000 revoked tokens: CPU added", 0.3, " µs", &revoked),
        target(
            "40 000 revoked tokens: RSS added",
            3.0,
            " MiB",
            &revoked_mib,
        ),
    ]
}

fn flat(results: &Results) -> Target {
    let sizes = &results.pass_list;
    let of = |size: Option<(&usize, &Rounds)>| size.map(|(_, rounds)| rounds.clone());
    let [one, thousand] = [sizes.first_key_value(), sizes.last_key_value()];
    ratio(
        "pass list of 1 000 patterns, CPU per request",
        "a pass list of 1",
        1.05,
        &of(thousand).unwrap_or_default(),
        &of(one).unwrap_or_default(),
    )
}

fn rejections(results: &Results) -> Vec<Target> {
    let fresh = results.cpu_of(Work::Fresh, Who::Sidecar);
    let needs_signature = |kind| matches!(kind, Bad::Forged | Bad::Expired);
    results
        .rejections
        .iter()
        .map(|(kind, rounds)| {
            // No claim, and so no `exp`, is read before the signature is verified: the limit is the
            // same as for an accepted token.
            let limit = if needs_signature(*kind) { 1.0 } else { 0.5 };
            let work = format!("rejection: {}, CPU", kind.description());
            ratio(work, "a fresh good token", limit, rounds, fresh)
        })
        .collect()
}
