//! Horizontal bars as SVG: one bar for each contestant, its spread as a thin line. Legible on light
//! and on dark pages.

use std::fmt::Write;

use crate::statistics::Summary;

/// A bar.
#[derive(Debug, Clone)]
pub struct Bar {
    /// Text left of the bar.
    pub label: String,
    /// Length of the bar, and spread of the rounds.
    pub value: Summary,
    /// Marks the product's own bars, which have its colour.
    pub ours: bool,
}

/// A group of bars under a heading.
#[derive(Debug, Clone)]
pub struct Group {
    /// Text above the group.
    pub heading: String,
    /// Bars from top to bottom.
    pub bars: Vec<Bar>,
}

/// A chart.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Quantity and unit.
    pub title: String,
    /// Conditions of the measurement.
    pub subtitle: String,
    /// Groups from top to bottom.
    pub groups: Vec<Group>,
}

const WIDTH: f64 = 860.0;
const LABELS: f64 = 300.0;
const VALUES: f64 = 70.0;
const LINE: f64 = 24.0;
const TOP: f64 = 66.0;

impl Chart {
    /// Returns the chart as an SVG document.
    pub fn to_svg(&self) -> String {
        let lines: usize = self.groups.iter().map(|group| group.bars.len() + 1).sum();
        #[expect(clippy::cast_precision_loss, reason = "a few dozen lines")]
        let height = TOP + lines as f64 * LINE + LINE;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"13\" role=\"img\">\n\
             <title>{title}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"16\" y=\"28\" font-size=\"17\" font-weight=\"600\" fill=\"#1b1f24\">{title}</text>\n\
             <text x=\"16\" y=\"48\" fill=\"#57606a\">{subtitle}</text>\n",
            title = escaped(&self.title),
            subtitle = escaped(&self.subtitle),
        );
        let mut y = TOP;
        for group in &self.groups {
            let heading = escaped(&group.heading);
            text(&mut svg, 16.0, y + 17.0, "font-weight=\"600\"", &heading);
            y += LINE;
            for bar in &group.bars {
                self.draw(&mut svg, y, bar);
                y += LINE;
            }
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn draw(&self, svg: &mut String, y: f64, bar: &Bar) {
        let scale = (WIDTH - LABELS - VALUES) / self.longest();
        let Summary {
            median,
            lowest,
            highest,
        } = bar.value;
        let fill = if bar.ours { "#0a7a4b" } else { "#8c959f" };
        let (middle, length) = (y + LINE / 2.0, median * scale);
        let (from, to) = (LABELS + lowest * scale, LABELS + highest * scale);
        let at = "text-anchor=\"end\"";
        text(svg, LABELS - 10.0, middle + 4.5, at, &escaped(&bar.label));
        let _ = write!(
            svg,
            "<rect x=\"{LABELS}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"{:.1}\" fill=\"{fill}\"/>\n\
             <path d=\"M{from:.1} {middle:.1}H{to:.1}\" stroke=\"#1b1f24\"/>\n",
            y + 3.0,
            LINE - 6.0,
        );
        let value = format!("{median:.1}");
        text(svg, to.max(LABELS + length) + 8.0, middle + 4.5, "", &value);
    }

    fn longest(&self) -> f64 {
        let bars = self.groups.iter().flat_map(|group| &group.bars);
        bars.map(|bar| bar.value.highest).fold(1.0, f64::max)
    }
}

pub(crate) fn text(svg: &mut String, x: f64, y: f64, attributes: &str, text: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"#1b1f24\" {attributes}>{text}</text>"
    );
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
