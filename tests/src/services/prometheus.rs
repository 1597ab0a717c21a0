//! Debian's Prometheus, for queries against what the programs export; stopped on drop.

use std::net::SocketAddr;

use serde_json::Value;
use tempfile::TempDir;

use crate::actors::client::Request;
use crate::actors::process::{CommandLine, Process};
use crate::wire::message::Message;
use crate::wire::raw_client::exchange;
use crate::{skip, wait};

/// A running Prometheus.
#[derive(Debug)]
pub struct Prometheus {
    address: SocketAddr,
    _process: Process,
    _directory: TempDir,
}

impl Prometheus {
    /// Starts one that scrapes these admin ports every second; `None`, with a SKIP line, where it
    /// is not installed.
    ///
    /// # Panics
    /// When there is no temporary directory, or Prometheus does not start.
    pub fn scraping(targets: &[SocketAddr]) -> Option<Self> {
        let found = std::process::Command::new("prometheus")
            .arg("--version")
            .output();
        if !found.is_ok_and(|output| output.status.success()) {
            skip::skip("the queries in Prometheus", "apt-get install prometheus");
            return None;
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let targets: Vec<_> = targets.iter().map(|it| format!("'{it}'")).collect();
        let config = format!(
            "global: {{scrape_interval: 1s}}\n\
             scrape_configs: [{{job_name: test, static_configs: [{{targets: [{}]}}]}}]\n",
            targets.join(", ")
        );
        let file = directory.path().join("prometheus.yml");
        std::fs::write(&file, config).expect("a writable file");
        let process = CommandLine::new("prometheus")
            .arguments(["--config.file", &file.display().to_string()])
            .arguments([
                "--storage.tsdb.path",
                &directory.path().join("data").display().to_string(),
            ])
            .arguments(["--web.listen-address", "127.0.0.1:0"])
            .start();
        let address = wait::until("the port of Prometheus", || {
            listening_address(&process.stderr())
        });
        let prometheus = Self {
            address,
            _process: process,
            _directory: directory,
        };
        // It listens before its storage is open, and rejects queries until then.
        wait::until("Prometheus to be ready", || {
            prometheus.get("/-/ready").status() == 200
        });
        Some(prometheus)
    }

    /// Returns the result of an instant query, or the error of Prometheus.
    ///
    /// # Errors
    /// The message of Prometheus about a query that it cannot evaluate.
    pub fn query(&self, query: &str) -> Result<Vec<Value>, String> {
        let target = format!("/api/v1/query?query={}", escaped(query));
        let response = self.get(&target).json();
        if response["status"] == "success" {
            Ok(response["data"]["result"]
                .as_array()
                .cloned()
                .unwrap_or_default())
        } else {
            Err(response["error"].to_string())
        }
    }

    fn get(&self, target: &str) -> Message {
        let request = Request::new("GET", target);
        exchange(
            self.address,
            "GET",
            &request.bytes(&self.address.to_string()),
        )
    }
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Returns the address in its log line `msg="Listening on" address=…`.
fn listening_address(log: &str) -> Option<SocketAddr> {
    let (_, rest) = log.split_once("\"Listening on\" address=")?;
    let (address, _) = rest.split_once('\n')?;
    address.trim().parse().ok()
}
