//! Samples of `/metrics`.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::actors::auth_server::admin_get;

/// Returns the whole value of one series, named with its labels as it is written.
pub fn value(admin: SocketAddr, series: &str) -> Option<u64> {
    let metrics = admin_get(admin, "/metrics").text();
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let value = value?.parse::<f64>().ok()?;
    Some(value as u64)
}

/// Returns the sum of the samples of `name` with all of these labels; 0 without any.
pub fn sum(admin: SocketAddr, name: &str, labels: &[(&str, &str)]) -> u64 {
    let metrics = admin_get(admin, "/metrics").text();
    let labels: Vec<_> = labels
        .iter()
        .map(|(label, value)| format!("{label}=\"{value}\""))
        .collect();
    let has = |line: &str, label: &String| {
        let (_, labels) = line.split_once('{').unwrap_or_default();
        labels.split([',', '}']).any(|found| found == label)
    };
    let samples = metrics.lines().filter(|line| {
        let rest = line.strip_prefix(name).unwrap_or_default();
        rest.starts_with(['{', ' ']) && labels.iter().all(|label| has(line, label))
    });
    let values = samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum::<f64>() as u64
}

/// Returns the values that this label has in the samples of `name`.
pub fn values_of(admin: SocketAddr, name: &str, label: &str) -> BTreeSet<String> {
    let metrics = admin_get(admin, "/metrics").text();
    let samples = metrics.lines().filter_map(|line| line.strip_prefix(name));
    let value = |labels: &str| {
        let (_, value) = labels.split_once(&format!("{label}=\""))?;
        Some(value.split_once('"')?.0.to_owned())
    };
    samples.filter_map(value).collect()
}

/// Returns the number of rejections with this reason of a sidecar.
pub fn rejections(admin: SocketAddr, reason: &str) -> u64 {
    let labels = [("outcome", "rejected"), ("reason", reason)];
    sum(admin, "postern_sidecar_requests_total", &labels)
}
