//! The worked incidents of `docs/incidents.md`, run for real: an auth server, three sidecars before
//! a service, users, and a Prometheus that scrapes every second. Draws the panels that each incident
//! names, with the dashboard's own queries. `make incidents`; `WRITE=1` keeps the pictures.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a program at a terminal; an incident that cannot be run ends with a message"
)]

mod fleet;
mod scenes;
mod service;
mod users;

use std::path::Path;
use std::process::ExitCode;

use bench::machine;
use bench::panels::{Line, Panel, Picture};
use bench::settings::Settings;
use serde_json::Value;
use tests::dashboard::{self, Incident};
use tests::programs::repository;
use tests::prometheus::Prometheus;

use crate::fleet::Fleet;
use crate::scenes::{SCENES, Scene};

/// `$__rate_interval`: at a scrape each second, the shortest that is steady.
const RATE_WINDOW: &str = "5s";
/// Of a picture, as the documents allow it.
const MAX_BYTES: usize = 60_000;

fn main() -> ExitCode {
    let settings = Settings::from_environment(1, 15.0);
    let mut complete = true;
    for (scene, incident) in SCENES.iter().zip(&dashboard::incidents()) {
        println!("{}", incident.heading);
        let Some(picture) = run(scene, incident, &settings) else {
            return ExitCode::FAILURE;
        };
        let path = Path::new(&incident.picture);
        let file = if settings.write {
            repository().join(path)
        } else {
            std::env::temp_dir().join(path.file_name().expect("a picture"))
        };
        complete &= keep(&picture, &file);
    }
    if complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs an incident and returns its picture; `None` where there is no Prometheus.
fn run(scene: &Scene, incident: &Incident, settings: &Settings) -> Option<Picture> {
    let fleet = Fleet::start(scene)?;
    let took = fleet.play(scene, settings.turn);
    let panels = incident.panels.iter().map(|title| {
        let panel = panel(title);
        filled(panel, &fleet.prometheus, took.from, took.to)
    });
    Some(Picture {
        title: incident.heading.clone(),
        subtitle: format!(
            "Sidecars: orders-1 to orders-3. Scraped every second, rates over {RATE_WINDOW}; \
             programs of the quick build; {}",
            machine::today()
        ),
        length: took.to - took.from,
        panels: panels.collect(),
        marks: took.marks,
    })
}

/// Writes a picture; returns false if it is too large.
fn keep(picture: &Picture, file: &Path) -> bool {
    let svg = picture.to_svg();
    println!("  {}: {} bytes", file.display(), svg.len());
    std::fs::write(file, &svg).expect("a writable file");
    svg.len() <= MAX_BYTES
}

fn panel(title: &str) -> dashboard::Panel {
    let panels = dashboard::panels();
    let mut named = panels.into_iter().filter(|panel| panel.title == title);
    named
        .next()
        .unwrap_or_else(|| panic!("the dashboard has no panel {title}"))
}

/// Evaluates the queries of a panel as Grafana does.
fn filled(panel: dashboard::Panel, prometheus: &Prometheus, from: f64, to: f64) -> Panel {
    let mut lines = Vec::new();
    for target in &panel.targets {
        let series = prometheus.query_range(&target.over(RATE_WINDOW), from, to);
        let series = series.unwrap_or_else(|error| panic!("{}: {error}", target.query));
        lines.extend(series.iter().map(|series| Line {
            name: target.name(&series["metric"]),
            points: points(&series["values"], from),
        }));
    }
    println!("  {}: {} lines", panel.title, lines.len());
    Panel {
        title: panel.title,
        unit: panel.unit,
        max: panel.max,
        lines,
    }
}

/// Returns times and values; skips `NaN`, the result of a division by zero.
fn points(values: &Value, from: f64) -> Vec<(f64, f64)> {
    let pair = |pair: &Value| {
        let value: f64 = pair[1].as_str()?.parse().ok()?;
        Some((pair[0].as_f64()? - from, value)).filter(|_| value.is_finite())
    };
    let values = values.as_array().map(Vec::as_slice).unwrap_or_default();
    values.iter().filter_map(pair).collect()
}
