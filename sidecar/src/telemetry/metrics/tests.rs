#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use std::time::Duration;

use super::*;
use crate::telemetry::outcome::{Completion, Outcome};

fn exposition(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

#[test]
fn durations_count_in_their_buckets() {
    let (metrics, registry) = Metrics::new(&TokenCacheCounters::default());
    metrics.requests.count(Completion {
        outcome: Outcome::Verified,
        status: Some(200),
        duration: Some(Duration::from_millis(60)),
        was_counted: false,
    });
    let requests = &metrics.requests;
    requests
        .auth_duration_seconds
        .observe(Duration::from_micros(30));
    requests
        .upstream_duration_seconds
        .observe(Duration::from_millis(3));
    let text = exposition(&registry);
    for line in [
        r#"postern_sidecar_request_duration_seconds_bucket{le="0.05"} 0"#,
        r#"postern_sidecar_request_duration_seconds_bucket{le="0.075"} 1"#,
        r#"postern_sidecar_auth_duration_seconds_bucket{le="0.00005"} 1"#,
        r#"postern_sidecar_upstream_duration_seconds_bucket{le="0.005"} 1"#,
        concat!(
            r#"postern_sidecar_build_info{version=""#,
            env!("CARGO_PKG_VERSION"),
            r#""} 1"#
        ),
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn counters_begin_at_zero() {
    let (metrics, registry) = Metrics::new(&TokenCacheCounters::default());
    metrics.expect_key_refreshes(None);
    metrics.expect_rules(["a \"b\" \\ c\nd"]);
    let text = exposition(&registry);
    for line in [
        r#"postern_sidecar_requests_total{outcome="verified",reason="",code="5xx"} 0"#,
        r#"postern_sidecar_requests_total{outcome="rejected",reason="token_expired",code="4xx"} 0"#,
        r#"postern_sidecar_key_refreshes_total{outcome="failed"} 0"#,
        r#"postern_sidecar_rule_rejections_total{rule="a \"b\" \\ c\nd"} 0"#,
        r#"postern_sidecar_key_cache_writes_total{outcome="failed"} 0"#,
        r#"postern_sidecar_config_reloads_total{outcome="rejected"} 0"#,
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn tls_metrics_exist_only_on_a_port_with_tls() {
    let (metrics, mut registry) = Metrics::new(&TokenCacheCounters::default());
    assert!(!exposition(&registry).contains("postern_sidecar_tls_"));
    metrics.tls.register(&mut registry);
    metrics.tls.report(7, None);
    let text = exposition(&registry);
    for line in [
        "postern_sidecar_tls_certificate_not_after_timestamp_seconds 7\n",
        "postern_sidecar_tls_last_reload_successful 1\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}
