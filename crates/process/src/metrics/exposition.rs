//! The text of `/metrics` in Prometheus' own format. The library writes OpenMetrics alone, whose
//! declarations of counters and infos Prometheus' parser of plain text does not take.

use std::fmt::Write as _;

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;

use super::process;

/// The media type of [`exposition`].
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the text of all metrics, with the metrics of the process.
///
/// # Errors
/// When a metric cannot be written.
pub fn exposition(registry: &Registry) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    encode_registry(&mut text, registry)?;
    encode_registry(&mut text, &process::registry())?;
    plain(&text)
}

/// Converts OpenMetrics text: counters and infos are declared under the names of their samples.
fn plain(open_metrics: &str) -> Result<String, std::fmt::Error> {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(declared) = line.strip_prefix("# HELP ") {
            // Keep the help text for the next line: the type decides the name in both declarations.
            help = match declared.split_once(' ') {
                Some((_, help)) => help,
                None => "",
            };
        } else if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').unwrap_or((declared, "untyped"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            writeln!(text, "# HELP {name}{suffix} {help}")?;
            writeln!(text, "# TYPE {name}{suffix} {kind}")?;
        // `# UNIT` and `# EOF` exist in OpenMetrics alone.
        } else if !line.starts_with('#') {
            writeln!(text, "{line}")?;
        }
    }
    Ok(text)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use prometheus_client::encoding::text::encode_eof;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::info::Info;

    use super::*;

    #[test]
    fn plain_text_declares_what_it_holds() {
        let mut registry = Registry::with_prefix("a");
        registry.register("calls", "Calls", Counter::<u64>::default());
        registry.register("open", "Open", Gauge::<i64>::default());
        registry.register("build", "Build", Info::new([("version", "1")]));
        let mut text = String::new();
        encode_registry(&mut text, &registry).unwrap();
        encode_eof(&mut text).unwrap();
        assert_eq!(
            plain(&text).unwrap(),
            "# HELP a_calls_total Calls.\n# TYPE a_calls_total counter\na_calls_total 0\n\
             # HELP a_open Open.\n# TYPE a_open gauge\na_open 0\n\
             # HELP a_build_info Build.\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n"
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_process_has_its_metrics() {
        let text = exposition(&Registry::default()).unwrap();
        assert!(text.contains("\nprocess_resident_memory_bytes "), "{text}");
    }
}
