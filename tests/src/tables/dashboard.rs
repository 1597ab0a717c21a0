//! The Grafana dashboard as data: its panels with their queries.

use std::fs;

use serde_json::Value;

use crate::actors::programs::repository;

/// A panel of the dashboard.
#[derive(Debug, Clone)]
pub struct Panel {
    /// Its title. Two panels may share one; the sidecars' panel stands first.
    pub title: String,
    /// Its queries.
    pub targets: Vec<Target>,
}

/// A query of a panel.
#[derive(Debug, Clone)]
pub struct Target {
    /// The query, with Grafana's variables.
    pub query: String,
}

impl Target {
    /// Returns the query with the variables replaced: all jobs and instances, rates over `window`.
    pub fn over(&self, window: &str) -> String {
        let query = self.query.replace("$__rate_interval", window);
        query.replace("$job", ".*").replace("$instance", ".*")
    }
}

/// Returns the panels that have queries, in their order.
///
/// # Panics
/// When the file is not the dashboard.
pub fn panels() -> Vec<Panel> {
    let file = repository().join("deploy/grafana/postern.json");
    let text = fs::read_to_string(file).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    panels.iter().filter_map(panel).collect()
}

fn panel(panel: &Value) -> Option<Panel> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let target = |target: &Value| Target {
        query: text(&target["expr"]),
    };
    Some(Panel {
        title: text(&panel["title"]),
        targets: panel["targets"].as_array()?.iter().map(target).collect(),
    })
}
