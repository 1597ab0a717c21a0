//! The two text formats of `/metrics`: OpenMetrics for a scraper that accepts it, otherwise
//! Prometheus' own.

use std::fmt::Write as _;
use std::time::SystemTime;

use http::{HeaderMap, header};
use prometheus_client::encoding::text::{encode_eof, encode_registry};

use super::{Exported, process};
use crate::metrics::histogram::Exemplar;

const OPEN_METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the media type and the text of all metrics for a scraper with these request headers.
///
/// # Errors
/// When a metric cannot be written.
pub(crate) fn exposition(
    headers: &HeaderMap,
    exported: &Exported,
) -> Result<(&'static str, String), std::fmt::Error> {
    // Before the counts: no exemplar is in an empty bucket then.
    let traced = exported.traced.iter();
    let traced: Vec<_> = traced
        .map(|(name, histogram)| (name, histogram.exemplars()))
        .collect();
    let mut text = String::new();
    encode_registry(&mut text, &exported.registry)?;
    encode_registry(&mut text, &process::registry())?;
    if prefers_open_metrics(headers) {
        for (name, exemplars) in traced {
            text = with_exemplars(&text, name, &exemplars)?;
        }
        encode_eof(&mut text)?;
        Ok((OPEN_METRICS_TYPE, text))
    } else {
        Ok((PLAIN_TYPE, plain(&text)?))
    }
}

/// Returns true if `Accept` names OpenMetrics, and prefers no other text to it (RFC 9110 §12.5.1).
fn prefers_open_metrics(headers: &HeaderMap) -> bool {
    let fields = headers.get_all(header::ACCEPT).iter();
    let ranges = fields
        .filter_map(|field| field.to_str().ok())
        .flat_map(|field| field.split(','))
        .map(range_and_weight);
    let (mut open_metrics, mut others) = (0.0_f32, 0.0_f32);
    for (range, weight) in ranges {
        if range.eq_ignore_ascii_case("application/openmetrics-text") {
            open_metrics = open_metrics.max(weight);
        } else {
            others = others.max(weight);
        }
    }
    open_metrics > 0.0 && open_metrics >= others
}

/// Returns a media range without its parameters, and its weight.
fn range_and_weight(member: &str) -> (&str, f32) {
    let mut parts = member.split(';').map(str::trim);
    let range = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix("q="));
    let weight = weight.map_or(Ok(1.0), str::parse);
    (range, weight.unwrap_or_default())
}

/// Adds exemplars to the buckets of a histogram: the library writes only those that it keeps itself,
/// behind a lock.
fn with_exemplars(
    text: &str,
    name: &str,
    exemplars: &[Option<Exemplar>],
) -> Result<String, std::fmt::Error> {
    let bucket = format!("{name}_bucket{{");
    let mut exemplars = exemplars.iter();
    let mut longer = String::with_capacity(text.len() + 128 * exemplars.len());
    for line in text.lines() {
        longer.push_str(line);
        if line.starts_with(&bucket)
            && let Some(Some(exemplar)) = exemplars.next()
        {
            let (trace, duration) = (exemplar.trace, exemplar.duration.as_secs_f64());
            let at = exemplar.at.duration_since(SystemTime::UNIX_EPOCH);
            let at = at.unwrap_or_default().as_secs_f64();
            write!(longer, " # {{trace_id=\"{trace}\"}} {duration} {at:.3}")?;
        }
        longer.push('\n');
    }
    Ok(longer)
}

/// Converts OpenMetrics text: counters and infos are declared under the names of their samples.
fn plain(open_metrics: &str) -> Result<String, std::fmt::Error> {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(declared) = line.strip_prefix("# HELP ") {
            help = declared.split_once(' ').map_or("", |(_, help)| help);
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
        } else if !line.starts_with('#') {
            writeln!(text, "{line}")?;
        }
    }
    Ok(text)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;
    use opentelemetry::trace::TraceId;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::info::Info;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::metrics::histogram::{DurationHistogram, micros};

    fn accepting(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(value))])
    }

    #[test]
    fn open_metrics_is_for_those_who_prefer_it() {
        assert!(!prefers_open_metrics(&HeaderMap::new()));
        for (accept, preferred) in [
            ("*/*", false),
            ("text/plain", false),
            ("application/openmetrics-text", true),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                true,
            ),
            (
                "text/plain;version=0.0.4;q=1,application/openmetrics-text;q=0.1",
                false,
            ),
            (
                "Application/OpenMetrics-Text; q=0.5, text/plain; q=0.5",
                true,
            ),
            ("application/openmetrics-text;q=0", false),
            ("application/openmetrics-text;q=much", false),
            ("", false),
        ] {
            assert_eq!(
                prefers_open_metrics(&accepting(accept)),
                preferred,
                "{accept}"
            );
        }
    }

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
    fn each_format_has_its_media_type_and_the_process() {
        let exported = Exported::default();
        let (kind, text) = exposition(&HeaderMap::new(), &exported).unwrap();
        assert!(kind.starts_with("text/plain; version=0.0.4"));
        assert!(!text.contains("# EOF"));
        let headers = accepting("application/openmetrics-text");
        let (kind, text) = exposition(&headers, &exported).unwrap();
        assert!(kind.starts_with("application/openmetrics-text; version=1.0.0"));
        assert!(text.ends_with("# EOF\n"));
        if cfg!(target_os = "linux") {
            assert!(text.contains("\nprocess_resident_memory_bytes "), "{text}");
        }
    }

    #[test]
    fn only_open_metrics_leads_from_a_bucket_to_a_trace() {
        const BOUNDS: [Duration; 2] = micros([1000, 2000]);
        let histogram = DurationHistogram::new(&BOUNDS);
        let mut exported = Exported::default();
        exported
            .registry
            .register("time_seconds", "Time", histogram.clone());
        exported.traced = vec![("time_seconds".to_owned(), histogram.clone())];
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        histogram.observe(Duration::from_micros(500));
        for number in [1_u128, 2] {
            histogram.observe_traced(Duration::from_micros(1500), TraceId::from(number), at);
        }
        histogram.observe_traced(Duration::from_secs(3), TraceId::from(3_u128), at);
        let headers = accepting("application/openmetrics-text");
        let (_, text) = exposition(&headers, &exported).unwrap();
        let zeros = "0".repeat(31);
        for line in [
            "time_seconds_bucket{le=\"0.001\"} 1".to_owned(),
            format!(
                "time_seconds_bucket{{le=\"0.002\"}} 3 \
                 # {{trace_id=\"{zeros}2\"}} 0.0015 1700000000.250"
            ),
            format!(
                "time_seconds_bucket{{le=\"+Inf\"}} 4 \
                 # {{trace_id=\"{zeros}3\"}} 3 1700000000.250"
            ),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let (_, plain) = exposition(&HeaderMap::new(), &exported).unwrap();
        assert!(!plain.contains("trace_id"), "{plain}");
    }
}
