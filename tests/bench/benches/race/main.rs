//! The race: the cost of a request in the sidecar and in alternative proxies, on the same machine,
//! in the same run, in turns. `make bench`.
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a program at a terminal; a measurement that cannot be taken ends with a message"
)]

mod capabilities;
mod contestants;
mod field;
mod measurements;
mod report;
mod results;
mod shapes;
mod targets;
mod tokens;
mod upstream;

use std::process::ExitCode;

use bench::settings::Settings;
use bench::{document, machine};
use postern_transport::net::fd_limit;
use tests::actors::programs::repository;

use crate::field::Field;
use crate::measurements::measure;

/// The sidecar keeps two for each connection it may have: the client's and the service's.
const DESCRIPTORS: usize = 19_500;

fn main() -> ExitCode {
    for program in ["wrk", "nginx"] {
        if machine::find(program).is_none() {
            println!(
                "{program} is missing, and nothing can be measured without it: make bench-peers"
            );
            return ExitCode::FAILURE;
        }
    }
    let settings = Settings::from_environment(5, 3.0);
    if !settings.smoke && fd_limit::for_clients() < DESCRIPTORS {
        println!("7 000 idle connections need {DESCRIPTORS} file descriptors: raise `ulimit -Hn`");
        return ExitCode::FAILURE;
    }
    let begun = std::time::Instant::now();
    println!("load average before: {}", machine::load_average());
    let field = Field::start(&settings);
    let results = measure(&field, &settings);
    let report = report::markdown(&results, &field.versions(), &settings);
    let shapes = report::shapes(&results);
    println!(
        "\n{report}\n{shapes}\nmeasured in {} s",
        begun.elapsed().as_secs()
    );
    if settings.write {
        let docs = repository().join("docs");
        let page = docs.join("performance.md");
        document::write_part(&page, "race", &report);
        document::write_part(&page, "shapes", &shapes);
        let chart = report::chart(&results).to_svg();
        std::fs::write(docs.join("performance.svg"), chart).expect("the chart is written");
        let growth = report::growth_chart(&results).to_svg();
        let file = docs.join("performance/growth.svg");
        std::fs::write(file, growth).expect("the chart is written");
        println!("docs/performance.md and the charts are written");
    }
    ExitCode::SUCCESS
}
