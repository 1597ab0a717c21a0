//! Histogram of durations. Unlike the library's own histogram it waits for no lock, so that every request
//! can use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Returns bounds that are given in microseconds.
#[must_use]
#[expect(
    clippy::indexing_slicing,
    reason = "the index is below both lengths, and constants are computed at compile time"
)]
pub const fn micros<const N: usize>(bounds: [u64; N]) -> [Duration; N] {
    let mut durations = [Duration::ZERO; N];
    let mut at = 0;
    while at < N {
        durations[at] = Duration::from_micros(bounds[at]);
        at += 1;
    }
    durations
}

/// Bounds that OpenTelemetry advises for `http.server.request.duration`.
pub const REQUEST_BOUNDS: [Duration; 14] = micros([
    5000, 10_000, 25_000, 50_000, 75_000, 100_000, 250_000, 500_000, 750_000, 1_000_000, 2_500_000,
    5_000_000, 7_500_000, 10_000_000,
]);

/// The number of durations up to each bound. Clones share the counts.
#[derive(Debug, Clone)]
pub struct DurationHistogram(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bounds: &'static [Duration],
    /// A count for each bound, and a last count for longer durations.
    counts: Box<[AtomicU64]>,
    total_nanoseconds: AtomicU64,
}

impl DurationHistogram {
    /// Starts with counts of 0 for `bounds`, which are in ascending order.
    #[must_use]
    pub fn new(bounds: &'static [Duration]) -> Self {
        Self(Arc::new(Shared {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            total_nanoseconds: AtomicU64::new(0),
        }))
    }

    /// Counts one duration.
    pub fn observe(&self, duration: Duration) {
        let Shared {
            bounds,
            counts,
            total_nanoseconds,
        } = &*self.0;
        let bucket = bounds.partition_point(|bound| *bound < duration);
        if let Some(count) = counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        total_nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

impl EncodeMetric for DurationHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let bounds = self.0.bounds.iter().map(Duration::as_secs_f64);
        let counts = self
            .0
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        // The library writes the largest number as +Inf.
        let buckets: Vec<(f64, u64)> = bounds.chain([f64::MAX]).zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let total = Duration::from_nanos(self.0.total_nanoseconds.load(Ordering::Relaxed));
        encoder.encode_histogram::<NoLabelSet>(total.as_secs_f64(), count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn each_duration_is_counted_once_in_its_bucket() {
        const BOUNDS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];
        let histogram = DurationHistogram::new(&BOUNDS);
        let mut registry = Registry::default();
        registry.register("time_seconds", "Time", histogram.clone());
        for microseconds in [0, 1000, 1001, 10_000, 10_001, 60_000_000] {
            histogram.observe(Duration::from_micros(microseconds));
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"time_seconds_bucket{le="0.001"} 2"#,
            r#"time_seconds_bucket{le="0.01"} 4"#,
            r#"time_seconds_bucket{le="+Inf"} 6"#,
            "time_seconds_count 6",
            "time_seconds_sum 60.022002",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
