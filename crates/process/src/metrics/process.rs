//! Metrics of the process under Prometheus' usual names, read from /proc at each scrape.

use prometheus_client::registry::Registry;

/// Returns the metrics of this process; empty on other systems than Linux.
pub(crate) fn registry() -> Registry {
    #[cfg(not(target_os = "linux"))]
    return Registry::default();
    #[cfg(target_os = "linux")]
    {
        let mut registry = Registry::with_prefix("process");
        registry.register_collector(Box::new(linux::Process));
        registry
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use procfs::ProcResult;
    use procfs::process::{LimitValue, Process as Own};
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
    use prometheus_client::metrics::counter::ConstCounter;
    use prometheus_client::metrics::gauge::ConstGauge;

    #[derive(Debug)]
    pub(super) struct Process;

    type Sample = (&'static str, &'static str, Box<dyn EncodeMetric>);

    /// Reads the state. A container may hide the parts about descriptors.
    fn samples() -> ProcResult<Vec<Sample>> {
        let own = Own::myself()?;
        let stat = own.stat()?;
        let ticks = procfs::ticks_per_second() as f64;
        let seconds = (stat.utime + stat.stime) as f64 / ticks;
        let start = procfs::boot_time_secs()? as f64 + stat.starttime as f64 / ticks;
        let resident = stat.rss * procfs::page_size();
        let gauge =
            |name, help, value| -> Sample { (name, help, Box::new(ConstGauge::new(value))) };
        let used = "User and system time of the process";
        let mut samples: Vec<Sample> = vec![
            ("cpu_seconds", used, Box::new(ConstCounter::new(seconds))),
            (
                "start_time_seconds",
                "Start of the process, in seconds since 1970",
                Box::new(ConstGauge::new(start)),
            ),
            gauge("resident_memory_bytes", "Resident memory", resident),
            gauge("virtual_memory_bytes", "Virtual memory", stat.vsize),
            (
                "threads",
                "Threads",
                Box::new(ConstGauge::new(stat.num_threads)),
            ),
        ];
        if let Ok(count) = own.fd_count()
            && let Ok(open) = u64::try_from(count)
        {
            samples.push(gauge("open_fds", "Open file descriptors", open));
        }
        if let Ok(limits) = own.limits() {
            let max = match limits.max_open_files.soft_limit {
                LimitValue::Value(limit) => limit,
                LimitValue::Unlimited => u64::MAX,
            };
            samples.push(gauge("max_fds", "Limit of open file descriptors", max));
        }
        Ok(samples)
    }

    impl Collector for Process {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
            for (name, help, metric) in samples().unwrap_or_default() {
                metric.encode(encoder.encode_descriptor(
                    name,
                    help,
                    None,
                    metric.metric_type(),
                )?)?;
            }
            Ok(())
        }
    }
}
