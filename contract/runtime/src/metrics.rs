//! Metrics of both programs: the format of `/metrics`, the metrics of the
//! process, and former names.

pub(crate) mod exposition;
pub(crate) mod process;

use prometheus_client::registry::{Metric, Registry};

use crate::histogram::DurationHistogram;

/// The content of `/metrics`, beside the process.
#[derive(Debug, Default)]
pub struct Exported {
    /// The registered metrics.
    pub registry: Registry,
    /// Registered histograms with exemplars, under their full names.
    pub traced: Vec<(String, DurationHistogram)>,
}

/// Registers `metric` under its name, and for one release under its `former` one.
pub fn register_renamed(
    registry: &mut Registry,
    name: &str,
    former: &str,
    help: &str,
    metric: impl Metric + Clone,
) {
    registry.register(name, help, metric.clone());
    registry.register(former, format!("Former name of {name}"), metric);
}
