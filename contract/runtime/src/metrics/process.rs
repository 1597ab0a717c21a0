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

    /// The state of the process at one moment.
    struct Sample {
        cpu_seconds: f64,
        start_time_seconds: f64,
        resident_bytes: u64,
        virtual_bytes: u64,
        threads: i64,
        open_fds: Option<u64>,
        max_fds: Option<u64>,
    }

    /// Reads the state. A container may hide the parts about descriptors.
    fn sample() -> ProcResult<Sample> {
        let own = Own::myself()?;
        let stat = own.stat()?;
        let ticks = procfs::ticks_per_second() as f64;
        let boot = procfs::boot_time_secs()? as f64;
        Ok(Sample {
            cpu_seconds: (stat.utime + stat.stime) as f64 / ticks,
            start_time_seconds: boot + stat.starttime as f64 / ticks,
            resident_bytes: stat.rss * procfs::page_size(),
            virtual_bytes: stat.vsize,
            threads: stat.num_threads,
            open_fds: own.fd_count().ok().and_then(|count| count.try_into().ok()),
            max_fds: own
                .limits()
                .ok()
                .map(|limits| match limits.max_open_files.soft_limit {
                    LimitValue::Value(limit) => limit,
                    LimitValue::Unlimited => u64::MAX,
                }),
        })
    }

    impl Collector for Process {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
            let Ok(sample) = sample() else {
                return Ok(());
            };
            let mut put = |name: &str, help: &str, metric: &dyn EncodeMetric| {
                let encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
                metric.encode(encoder)
            };
            put(
                "cpu_seconds",
                "User and system time of the process",
                &ConstCounter::new(sample.cpu_seconds),
            )?;
            put(
                "start_time_seconds",
                "Start of the process, in seconds since 1970",
                &ConstGauge::new(sample.start_time_seconds),
            )?;
            put(
                "resident_memory_bytes",
                "Resident memory",
                &ConstGauge::new(sample.resident_bytes),
            )?;
            put(
                "virtual_memory_bytes",
                "Virtual memory",
                &ConstGauge::new(sample.virtual_bytes),
            )?;
            put("threads", "Threads", &ConstGauge::new(sample.threads))?;
            if let Some(open) = sample.open_fds {
                put("open_fds", "Open file descriptors", &ConstGauge::new(open))?;
            }
            if let Some(max) = sample.max_fds {
                put(
                    "max_fds",
                    "Limit of open file descriptors",
                    &ConstGauge::new(max),
                )?;
            }
            Ok(())
        }
    }
}
