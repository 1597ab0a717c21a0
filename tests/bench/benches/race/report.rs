//! The result as Markdown and as a chart.

use std::fmt::Write;

use bench::chart::{Bar, Chart, Group};
use bench::machine;
use bench::settings::Settings;
use bench::statistics::Summary;

use crate::results::{Growth, Results, Who, Work, cell};
use crate::shapes::CONTESTANTS;
use crate::targets::{Target, targets};

/// Returns the whole report, for the document and the terminal.
pub(crate) fn markdown(results: &Results, versions: &[String], settings: &Settings) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "Measured on {} on {}. Load average at the end: {}. {} rounds of {:?} a turn; token of {} bytes.",
        machine::today(),
        machine::description(),
        machine::load_average(),
        settings.rounds,
        settings.turn,
        results.token_bytes,
    );
    let _ = writeln!(text, "{}.\n", versions.join(" · "));
    if settings.smoke {
        text.push_str("**A smoke run: it works, and the figures mean nothing.**\n\n");
    }
    text.push_str(
        "Each figure is the median of the rounds, the lowest and the highest behind it.\n\n",
    );
    cpu_table(&mut text, results);
    latency_table(&mut text, results);
    memory_table(&mut text, results);
    target_table(&mut text, &targets(results), settings);
    text
}

fn target_table(text: &mut String, targets: &[Target], settings: &Settings) {
    text.push_str("| Sidecar's work | against | target | reached | |\n|---|---|---|---|---|\n");
    for target in targets {
        let Target {
            work,
            against,
            limit,
            unit,
            reached,
        } = target;
        let reached = reached.map_or_else(|| "–".to_owned(), |summary| format!("{summary}{unit}"));
        let verdict = if settings.smoke {
            "–"
        } else {
            target.verdict()
        };
        let _ = writeln!(
            text,
            "| {work} | {against} | ≤ {limit}{unit} | {reached} | {verdict} |"
        );
    }
}

fn cpu_table(text: &mut String, results: &Results) {
    text.push_str(
        "| Closed loop, 32 connections | | CPU µs per request | requests/s |\n|---|---|---|---|\n",
    );
    for ((work, who), cpu) in &results.cpu {
        let rates = results.rate.get(&(*work, *who));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            work.name(),
            who.name(),
            cell(cpu, 1),
            cell(rates.map_or(&[], Vec::as_slice), 0),
        );
    }
    let mut row = |work: &str, who: &str, cpu: &[f64]| {
        let _ = writeln!(text, "| {work} | {who} | {} | |", cell(cpu, 1));
    };
    let ours = Who::Sidecar.name();
    let check = "one RS256 signature check, nothing else";
    row(check, "aws-lc", &results.signature);
    for (kind, cpu) in &results.rejections {
        row(&format!("rejected: {}", kind.description()), ours, cpu);
    }
    for (count, cpu) in &results.pass_list {
        row(&format!("repeated token, pass list of {count}"), ours, cpu);
    }
    for (capability, (cpu, _)) in &results.capabilities {
        row(&format!("repeated token, {}", capability.name()), ours, cpu);
    }
    text.push('\n');
}

/// Returns the table of other requests than small GETs, for a page of its own.
pub(crate) fn shapes(results: &Results) -> String {
    let mut text = String::new();
    text.push_str("| Repeated token, CPU µs per request |");
    for who in CONTESTANTS {
        let _ = write!(text, " {} |", who.name());
    }
    let _ = writeln!(text, "\n|---{}|", "|---".repeat(CONTESTANTS.len()));
    for (shape, of) in &results.shapes {
        let _ = write!(text, "| {shape} |");
        for who in CONTESTANTS {
            let values = of.get(&who).map_or(&[][..], Vec::as_slice);
            let _ = write!(text, " {} |", cell(values, 1));
        }
        text.push('\n');
    }
    text
}

fn latency_table(text: &mut String, results: &Results) {
    text.push_str(
        "| Latency in µs, repeated token | p50, one connection | p50 at 5 000/s | p99 at 5 000/s |\n|---|---|---|---|\n",
    );
    for (who, p50) in &results.p50 {
        let (open_p50, open_p99) = results.open_loop.get(who).cloned().unwrap_or_default();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            who.name(),
            cell(p50, 0),
            cell(&open_p50, 0),
            cell(&open_p99, 0),
        );
    }
    text.push('\n');
}

fn memory_table(text: &mut String, results: &Results) {
    text.push_str("| Resident memory in MiB | idle | after the load |\n|---|---|---|\n");
    for (who, (idle, after)) in &results.memory {
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            who.name(),
            cell(idle, 1),
            cell(after, 1)
        );
    }
    let (unused, used) = &results.idle_connections;
    let _ = writeln!(
        text,
        "| Postern sidecar, 7 000 connections; after a request each | {} | {} |",
        cell(unused, 1),
        cell(used, 1)
    );
    text.push('\n');
}

/// Returns the chart of CPU per request against what may grow.
pub(crate) fn growth_chart(results: &Results) -> Chart {
    let groups = [
        ("connections", &results.connections),
        ("header fields", &results.fields),
        ("patterns in the pass list", &results.pass_list),
    ];
    let group = |(heading, sizes): (&str, &Growth)| Group {
        heading: heading.to_owned(),
        bars: sizes
            .iter()
            .filter_map(|(size, rounds)| {
                Some(Bar {
                    label: size.to_string(),
                    value: Summary::of(rounds)?,
                    ours: true,
                })
            })
            .collect(),
    };
    Chart {
        title: "CPU time per request in µs as numbers grow".to_owned(),
        subtitle: format!(
            "Postern sidecar, repeated token, one worker thread; line: all rounds; {}",
            machine::today()
        ),
        groups: groups.map(group).into(),
    }
}

/// Returns the chart of CPU per request for all contestants.
pub(crate) fn chart(results: &Results) -> Chart {
    let groups = [Work::Plain, Work::Repeated, Work::Fresh].map(|work| {
        let of_work = results.cpu.iter().filter(|((other, _), _)| *other == work);
        let mut bars: Vec<_> = of_work
            .filter_map(|((_, who), rounds)| {
                Some(Bar {
                    label: who.name().replace('`', ""),
                    value: Summary::of(rounds)?,
                    ours: *who == Who::Sidecar,
                })
            })
            .collect();
        bars.sort_by(|a, b| a.value.median.total_cmp(&b.value.median));
        Group {
            heading: work.name().to_owned(),
            bars,
        }
    });
    Chart {
        title: "CPU time per request in µs (less is better)".to_owned(),
        subtitle: format!(
            "RS256, token of {} bytes, 32 keep-alive connections, one worker thread each; line: all rounds; {}",
            results.token_bytes,
            machine::today()
        ),
        groups: groups.into(),
    }
}
