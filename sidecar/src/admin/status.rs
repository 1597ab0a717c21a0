//! `GET /` on the admin port: readiness, the pass-list lines of report-only mode, and the
//! configuration in force, as text. `GET /suggest` is the lines alone.
//!
//! It has no facts of its own, and the admin port serves it to loopback peers only.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use postern_process::clock::unix_now;
use postern_token::times::moment;
use postern_transport::admin::health::Health;

use super::suggest::pass_list;
use crate::config::live::CurrentRules;
use crate::telemetry::reported_paths::ReportedPaths;

/// The sources of the page.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    pub(crate) health: Health,
    pub(crate) rules: Arc<CurrentRules>,
    pub(crate) reported: Arc<ReportedPaths>,
}

impl Status {
    /// Returns the routes.
    pub(crate) fn routes(self) -> Router {
        let status = async |State(this): State<Self>| this.text();
        let suggest = async |State(this): State<Self>| this.suggestion();
        Router::new()
            .route("/", get(status))
            .route("/suggest", get(suggest))
            .with_state(self)
    }

    fn suggestion(&self) -> String {
        let rules = self.rules.load();
        pass_list(
            &self.reported.counts(),
            rules.auth_policy.interceptor.context(),
        )
    }

    fn text(&self) -> String {
        let rules = self.rules.load();
        let policy = &rules.auth_policy;
        let (version, context) = (env!("CARGO_PKG_VERSION"), policy.interceptor.context());
        let mut text = format!("# Postern sidecar {version} {context}\n");
        if let Some(until) = policy.report_only_until(unix_now()) {
            let until = moment(until);
            text += &format!(
                "# Not enforcing until {until}: requests without a valid token reach the service\n"
            );
        }
        let state = if self.health.is_ready() {
            "Ready"
        } else {
            "Not ready"
        };
        text += &format!("# {state}\n");
        for condition in self.health.conditions() {
            let mark = if condition.ok { "" } else { "not " };
            let said = [condition.reason, condition.note].into_iter().flatten();
            let said: String = said.map(|said| format!(": {said}")).collect();
            let _ = writeln!(text, "#   {mark}{}{said}", condition.name);
        }
        let suggestion = self.suggestion();
        if !suggestion.is_empty() {
            text += &format!("\n# Requests without a token, as pass-list lines\n{suggestion}");
        }
        text + "\n# Configuration in force\n" + &rules.settings
    }
}
