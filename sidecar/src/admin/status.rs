//! The sidecar's part of the status page, and `GET /suggest`: the pass-list lines of report-only mode
//! alone.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::routing::get;
use postern_contract::rejection::Help;
use postern_process::clock::unix_now;
use postern_token::times::moment;
use postern_transport::admin::health::Health;
use postern_transport::admin::page::{OwnPart, SETTINGS, Section, StatusPage};
use prometheus_client::registry::Registry;

use super::suggest::pass_list;
use crate::config::live::CurrentRules;
use crate::telemetry::metrics::PREFIX;
use crate::telemetry::reported_paths::ReportedPaths;

/// The sources of the page that only the sidecar has.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    pub(crate) rules: Arc<CurrentRules>,
    pub(crate) reported: Arc<ReportedPaths>,
}

impl Status {
    /// Returns the routes.
    pub(crate) fn routes(
        self,
        started: Instant,
        health: &Health,
        metrics: &Arc<Registry>,
    ) -> Router {
        let page = StatusPage {
            started,
            health: health.clone(),
            metrics: Arc::clone(metrics),
            prefix: PREFIX,
            outcome: "outcome",
            rejections: "requests_total",
            further: None,
            help: Help::texts,
        };
        let status = self.clone();
        let suggest = async move || status.suggestion();
        page.routes(move || self.own_part())
            .route("/suggest", get(suggest))
    }

    fn suggestion(&self) -> String {
        let rules = self.rules.load();
        pass_list(
            &self.reported.counts(),
            rules.auth_policy.interceptor.context(),
        )
    }

    fn own_part(&self) -> OwnPart {
        let rules = self.rules.load();
        let policy = &rules.auth_policy;
        OwnPart {
            title: format!(
                "Postern sidecar {} {}",
                env!("CARGO_PKG_VERSION"),
                policy.interceptor.context()
            ),
            notice: policy.report_only_until(unix_now()).map(|until| {
                format!(
                    "Not enforcing until {}: requests without a valid token reach the service",
                    moment(until)
                )
            }),
            sections: vec![
                Section::text(
                    "Requests without a token, as pass-list lines",
                    &self.suggestion(),
                ),
                Section::text(SETTINGS, &rules.settings),
            ],
        }
    }
}
