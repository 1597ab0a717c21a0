//! The two text formats of `/metrics`: OpenMetrics for a scraper that accepts it, otherwise
//! Prometheus' own.

use std::fmt::Write as _;

use http::{HeaderMap, header};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;

use super::process;

const OPEN_METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the media type and the text of all metrics for a scraper with these request headers.
///
/// # Errors
/// When a metric cannot be written.
pub(crate) fn exposition(
    headers: &HeaderMap,
    registry: &Registry,
) -> Result<(&'static str, String), std::fmt::Error> {
    let mut text = String::new();
    encode_registry(&mut text, registry)?;
    encode_registry(&mut text, &process::registry())?;
    if prefers_open_metrics(headers) {
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
    use http::HeaderValue;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::info::Info;

    use super::*;

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
        let registry = Registry::default();
        let (kind, text) = exposition(&HeaderMap::new(), &registry).unwrap();
        assert!(kind.starts_with("text/plain; version=0.0.4"));
        assert!(!text.contains("# EOF"));
        let headers = accepting("application/openmetrics-text");
        let (kind, text) = exposition(&headers, &registry).unwrap();
        assert!(kind.starts_with("application/openmetrics-text; version=1.0.0"));
        assert!(text.ends_with("# EOF\n"));
        if cfg!(target_os = "linux") {
            assert!(text.contains("\nprocess_resident_memory_bytes "), "{text}");
        }
    }
}
