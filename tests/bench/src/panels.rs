//! Panels of a dashboard as SVG, drawn as Grafana draws its time series: title, axis with unit,
//! lines over a faint area, legend below.

use std::fmt::Write;

use crate::chart::{escaped, text};

/// A line of a panel.
#[derive(Debug, Clone)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Seconds since the begin, and value.
    pub points: Vec<(f64, f64)>,
}

/// A panel.
#[derive(Debug, Clone)]
pub struct Panel {
    /// Title.
    pub title: String,
    /// Grafana's name of the unit.
    pub unit: String,
    /// Upper end of the axis, where it is fixed.
    pub max: Option<f64>,
    /// Lines, in the order of their colours.
    pub lines: Vec<Line>,
}

/// A moment that stands in each panel as a dashed line.
#[derive(Debug, Clone)]
pub struct Mark {
    /// Seconds since the begin.
    pub at: f64,
    /// Event, as a sentence without its time.
    pub what: String,
}

/// Panels over the same time, in two columns.
#[derive(Debug, Clone)]
pub struct Picture {
    /// Heading.
    pub title: String,
    /// Conditions under which it was taken.
    pub subtitle: String,
    /// Seconds from the left to the right end of each panel.
    pub length: f64,
    /// Moments, numbered from 1.
    pub marks: Vec<Mark>,
    /// Panels, row by row.
    pub panels: Vec<Panel>,
}

/// Grafana's classic palette, on white.
const COLOURS: [&str; 10] = [
    "#56a64b", "#f2a900", "#3274d9", "#e0752d", "#e02f44", "#8f3bb8", "#1f9e9e", "#7c5a3c",
    "#5b6b7d", "#c45ea8",
];
const WIDTH: f64 = 900.0;
const MARGIN: f64 = 16.0;
const GAP: f64 = 12.0;
const PANEL_WIDTH: f64 = (WIDTH - 2.0 * MARGIN - GAP) / 2.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 34.0;
const PLOT_WIDTH: f64 = PANEL_WIDTH - LEFT - RIGHT;
const PLOT_HEIGHT: f64 = 112.0;
/// Room for the times below a plot.
const TIMES: f64 = 24.0;
const LEGEND_LINE: f64 = 16.0;
/// Width of a letter of the legend: an estimate, on the safe side.
const LETTER: f64 = 6.4;
/// Longer gaps between two points are left empty. Points are a second apart.
const GAP_SECONDS: f64 = 1.5;

impl Picture {
    /// Returns the picture as an SVG document.
    pub fn to_svg(&self) -> String {
        let rows: Vec<_> = self.panels.chunks(2).collect();
        let head = 58.0 + self.marks.len() as f64 * 18.0;
        let height = rows.iter().map(|row| row_height(row) + GAP).sum::<f64>() + head;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"11\" role=\"img\">\n\
             <title>{title}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#f4f5f5\"/>\n\
             <text x=\"{MARGIN}\" y=\"26\" font-size=\"17\" font-weight=\"600\" fill=\"#1b1f24\">{title}</text>\n\
             <text x=\"{MARGIN}\" y=\"44\" font-size=\"12\" fill=\"#57606a\">{subtitle}</text>\n",
            title = escaped(&self.title),
            subtitle = escaped(&self.subtitle),
        );
        for (number, mark) in self.marks.iter().enumerate() {
            let y = 64.0 + number as f64 * 18.0;
            let what = format!("{} at {}: {}", number + 1, clock(mark.at), mark.what);
            text(&mut svg, MARGIN, y, "font-size=\"13\"", &escaped(&what));
        }
        let mut y = head;
        for row in rows {
            let height = row_height(row);
            for (panel, x) in row.iter().zip([MARGIN, MARGIN + PANEL_WIDTH + GAP]) {
                self.draw(&mut svg, panel, (x, y), height);
            }
            y += height + GAP;
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn draw(&self, svg: &mut String, panel: &Panel, (x, y): (f64, f64), height: f64) {
        let _ = writeln!(
            svg,
            "<g transform=\"translate({x} {y})\">\n<rect width=\"{PANEL_WIDTH}\" height=\"{height}\" rx=\"3\" fill=\"#fff\" stroke=\"#d8d9da\"/>"
        );
        let title = escaped(&panel.title);
        let bold = "font-size=\"13\" font-weight=\"600\"";
        text(svg, 10.0, 20.0, bold, &title);
        let axis = Axis::of(panel);
        axis.draw(svg);
        self.draw_times(svg);
        for (line, colour) in panel.lines.iter().zip(COLOURS.iter().cycle()) {
            self.draw_line(svg, line, &axis, colour);
        }
        if panel.lines.is_empty() {
            let middle = "text-anchor=\"middle\" font-size=\"13\"";
            let (x, y) = (LEFT + PLOT_WIDTH / 2.0, TOP + PLOT_HEIGHT / 2.0);
            text(svg, x, y, middle, "No data");
        }
        draw_legend(svg, panel);
        svg.push_str("</g>\n");
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + seconds / self.length * PLOT_WIDTH
    }

    fn draw_times(&self, svg: &mut String) {
        let bottom = TOP + PLOT_HEIGHT;
        let mut at = 0.0;
        while at <= self.length {
            let middle = "text-anchor=\"middle\"";
            text(svg, self.x(at), bottom + 15.0, middle, &clock(at));
            at += 15.0;
        }
        for (number, mark) in self.marks.iter().enumerate() {
            let x = self.x(mark.at);
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#1b1f24\" stroke-dasharray=\"3 3\"/>"
            );
            text(svg, x + 3.0, TOP + 9.0, "", &(number + 1).to_string());
        }
    }

    fn draw_line(&self, svg: &mut String, line: &Line, axis: &Axis, colour: &str) {
        for part in parts(&line.points) {
            let point = |&(at, value): &(f64, f64)| (self.x(at), axis.y(value));
            let points: Vec<_> = part.iter().map(point).collect();
            let (Some(first), Some(last)) = (points.first(), points.last()) else {
                continue;
            };
            let path = path(&points);
            let bottom = TOP + PLOT_HEIGHT;
            let (left, right) = (first.0, last.0);
            let _ = writeln!(
                svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" stroke-linejoin=\"round\"/>"
            );
            if last.1.min(first.1) < bottom || path.len() > 30 {
                let _ = writeln!(
                    svg,
                    "<path d=\"{path}L{right:.0} {bottom}H{left:.0}Z\" fill=\"{colour}\" fill-opacity=\".1\"/>"
                );
            }
        }
    }
}

/// Cuts a line where points are missing.
fn parts(points: &[(f64, f64)]) -> impl Iterator<Item = &[(f64, f64)]> {
    points.chunk_by(|before, after| after.0 - before.0 < GAP_SECONDS)
}

/// Returns the commands of a path through these places, without those in the middle of a
/// horizontal part. A lone place becomes a dash.
fn path(points: &[(f64, f64)]) -> String {
    let rounded = |value: f64| (value * 10.0).round() / 10.0;
    let mut path = String::new();
    for (number, &(x, y)) in points.iter().enumerate() {
        let same =
            |other: Option<&(f64, f64)>| other.is_some_and(|other| rounded(other.1) == rounded(y));
        let before = number.checked_sub(1).and_then(|number| points.get(number));
        if !(same(before) && same(points.get(number + 1))) {
            let command = if number == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{} {}", rounded(x), rounded(y));
        }
    }
    if points.len() == 1 {
        path.push_str("h2");
    }
    path
}

/// The vertical axis of a panel.
struct Axis {
    step: f64,
    steps: u32,
    unit: String,
}

impl Axis {
    fn of(panel: &Panel) -> Self {
        let values = panel.lines.iter().flat_map(|line| &line.points);
        let highest = values.map(|point| point.1).fold(0.0, f64::max);
        let (step, steps) = match panel.max {
            _ if panel.unit == "bool_yes_no" => (1.0, 1),
            Some(max) => (max / 4.0, 4),
            None => round_step(highest),
        };
        Self {
            step,
            steps,
            unit: panel.unit.clone(),
        }
    }

    fn y(&self, value: f64) -> f64 {
        let share = value / (self.step * f64::from(self.steps));
        TOP + PLOT_HEIGHT * (1.0 - share.clamp(0.0, 1.0))
    }

    fn draw(&self, svg: &mut String) {
        for number in 0..=self.steps {
            let value = self.step * f64::from(number);
            let y = self.y(value);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}h{PLOT_WIDTH}\" stroke=\"#e4e5e6\"/>"
            );
            let label = label(value, &self.unit);
            text(svg, LEFT - 6.0, y + 4.0, "text-anchor=\"end\"", &label);
        }
    }
}

/// Returns the distance of the lines of a grid that ends above this value, and their number.
fn round_step(highest: f64) -> (f64, u32) {
    if highest <= 0.0 {
        return (1.0, 1);
    }
    let magnitude = 10_f64.powf((highest / 4.0).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * magnitude);
    let step = steps.into_iter().find(|step| step * 4.0 >= highest);
    let step = step.unwrap_or(magnitude * 10.0);
    // Without the multiple that nothing reaches.
    let needed = (1..=4).find(|steps| step * f64::from(*steps) >= highest);
    (step, needed.unwrap_or(4))
}

/// Returns a value of the axis with its unit, as Grafana writes it.
fn label(value: f64, unit: &str) -> String {
    // Steps have two digits at most; the rest of a product of floats is noise.
    let value = (value * 1e9).round() / 1e9;
    match unit {
        "reqps" if value >= 1000.0 => format!("{}K req/s", value / 1000.0),
        "reqps" => format!("{value} req/s"),
        "ops" => format!("{value} ops/s"),
        "percentunit" => format!("{:.0}%", value * 100.0),
        "bool_yes_no" => if value > 0.0 { "Yes" } else { "No" }.to_owned(),
        "s" if value == 0.0 => "0 s".to_owned(),
        "s" if value < 0.001 => format!("{} µs", (value * 1e8).round() / 100.0),
        "s" if value < 1.0 => format!("{} ms", (value * 1e5).round() / 100.0),
        "s" => format!("{value} s"),
        _ => format!("{value}"),
    }
}

fn clock(seconds: f64) -> String {
    format!("{:.0}:{:02.0}", (seconds / 60.0).floor(), seconds % 60.0)
}

/// Returns the lines of a legend: names that stand side by side.
fn legend(panel: &Panel) -> Vec<Vec<(usize, &str)>> {
    let mut lines: Vec<Vec<(usize, &str)>> = vec![Vec::new()];
    let mut room = PANEL_WIDTH;
    for (number, line) in panel.lines.iter().enumerate() {
        let width = entry_width(&line.name);
        if width > room {
            lines.push(Vec::new());
            room = PANEL_WIDTH;
        }
        room -= width;
        if let Some(last) = lines.last_mut() {
            last.push((number, &line.name));
        }
    }
    lines
}

fn entry_width(name: &str) -> f64 {
    name.chars().count() as f64 * LETTER + 32.0
}

fn row_height(row: &[Panel]) -> f64 {
    let lines = row.iter().map(|panel| legend(panel).len()).max();
    TOP + PLOT_HEIGHT + TIMES + lines.unwrap_or(0) as f64 * LEGEND_LINE + 4.0
}

fn draw_legend(svg: &mut String, panel: &Panel) {
    let mut y = TOP + PLOT_HEIGHT + TIMES + 10.0;
    for line in legend(panel) {
        let mut x = 10.0;
        for (number, name) in line {
            let colour = COLOURS.iter().cycle().nth(number).unwrap_or(&"#000");
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.0} {:.0}h14\" stroke=\"{colour}\" stroke-width=\"3\"/>",
                y - 4.0
            );
            text(svg, x + 18.0, y, "", &escaped(name));
            x += entry_width(name);
        }
        y += LEGEND_LINE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_ends_above_the_highest_value() {
        let grids = [0.0, 0.03, 3.0, 9.0, 180.0, 210.0].map(round_step);
        let expected = [
            (1.0, 1),
            (0.01, 3),
            (1.0, 3),
            (2.5, 4),
            (50.0, 4),
            (100.0, 3),
        ];
        assert_eq!(grids, expected);
    }

    #[test]
    fn values_have_their_units() {
        let values = [
            (0.25, "s"),
            (0.0005, "s"),
            (2.5, "s"),
            (0.5, "percentunit"),
            (2500.0, "reqps"),
            (0.1 * 3.0, "short"),
        ];
        let label = values.map(|(value, unit)| label(value, unit));
        assert_eq!(
            label,
            ["250 ms", "500 µs", "2.5 s", "50%", "2.5K req/s", "0.3"]
        );
    }

    #[test]
    fn a_line_ends_where_points_are_missing() {
        let points = [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (5.0, 1.0)];
        assert_eq!(parts(&points).count(), 2);
        assert_eq!(path(&points[..3]), "M0 1L2 1");
        assert_eq!(path(&points[3..]), "M5 1h2");
    }

    #[test]
    fn a_picture_names_what_happened_and_what_is_missing() {
        let panel = |title: &str, lines| Panel {
            title: title.to_owned(),
            unit: "reqps".to_owned(),
            max: None,
            lines,
        };
        let line = Line {
            name: "2xx".to_owned(),
            points: vec![(0.0, 1.0), (1.0, 2.0)],
        };
        let picture = Picture {
            title: "a < b".to_owned(),
            subtitle: String::new(),
            length: 60.0,
            marks: vec![Mark {
                at: 20.0,
                what: "slow & slower".to_owned(),
            }],
            panels: vec![panel("Full", vec![line]), panel("Empty", Vec::new())],
        };
        let svg = picture.to_svg();
        for part in [
            "a &lt; b",
            "1 at 0:20: slow &amp; slower",
            ">2xx<",
            "No data",
            ">2 req/s<",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }
}
