//! The last hour as stacked columns: SVG without script and without inline style.

use maud::{Markup, html};

use super::MinuteSnapshot;
use crate::telemetry::outcome::Totals;

const COLUMNS: usize = 60;
const COLUMN_WIDTH: usize = 12;
const HEIGHT: f64 = 140.0;
/// Room for the labels below.
const FOOT: usize = 22;

/// The parts of a column from the bottom up, with the class that colours each.
fn parts(requests: &Totals) -> [(&'static str, u64); 6] {
    [
        ("verified", requests.verified),
        ("passed", requests.passed),
        ("answered", requests.responded),
        ("reported", requests.reported),
        ("aborted", requests.aborted),
        ("refused", requests.rejected),
    ]
}

pub(super) fn chart(minutes: &[MinuteSnapshot]) -> Markup {
    let highest = minutes.iter().map(|minute| minute.requests.sum()).max();
    let top = rounded_up(highest.unwrap_or_default());
    let width = COLUMNS * COLUMN_WIDTH;
    let height = HEIGHT as usize + FOOT;
    html! {
        svg.chart viewBox=(format!("0 0 {width} {height}")) role="img" aria-labelledby="chart-title" {
            title id="chart-title" { "Requests per minute in the last hour, by outcome" }
            @for (share, label) in [(0.0, String::new()), (0.5, half(top)), (1.0, top.to_string())] {
                @let y = HEIGHT * (1.0 - share) + 1.0;
                line.grid x1="0" x2=(width) y1=(y) y2=(y) {}
                text.scale x="2" y=(y + 12.0) { (label) }
            }
            @for (index, minute) in (COLUMNS - minutes.len()..).zip(minutes) {
                g { title { (described(minute)) } (column(index, minute, top)) }
            }
            text.scale x="2" y=(height - 5) { "60 min ago" }
            text.scale.end x=(width - 2) y=(height - 5) { "now" }
        }
    }
}

fn column(index: usize, minute: &MinuteSnapshot, top: u64) -> Markup {
    let mut bottom = HEIGHT + 1.0;
    let mut boxes = Vec::new();
    for (class, count) in parts(&minute.requests) {
        if count > 0 {
            // Rare ones, a rejection among thousands, stay visible.
            let height = (HEIGHT * count as f64 / top as f64).max(2.0);
            bottom -= height;
            boxes.push((class, bottom, height));
        }
    }
    html! {
        @for (class, y, height) in boxes {
            rect class=(class) x=(index * COLUMN_WIDTH + 1) width=(COLUMN_WIDTH - 2)
                y=(format!("{y:.1}")) height=(format!("{height:.1}")) {}
        }
    }
}

fn described(minute: &MinuteSnapshot) -> String {
    let mut text = minute.began.clone();
    for (name, count) in parts(&minute.requests) {
        if count > 0 {
            text += &format!(", {count} {name}");
        }
    }
    text
}

/// Returns the top of the scale: 1, 2 or 5 with zeros, and at least 10.
fn rounded_up(highest: u64) -> u64 {
    let mut decade: u64 = 10;
    loop {
        for step in [1, 2, 5] {
            let top = decade.saturating_mul(step);
            if top >= highest {
                return top;
            }
        }
        decade = decade.saturating_mul(10);
    }
}

fn half(top: u64) -> String {
    (top / 2).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_ends_at_a_round_number_above_the_highest() {
        for (highest, top) in [
            (0, 10),
            (10, 10),
            (11, 20),
            (21, 50),
            (51, 100),
            (99, 100),
            (101, 200),
            (12_345, 20_000),
        ] {
            assert_eq!(rounded_up(highest), top, "{highest}");
        }
    }
}
