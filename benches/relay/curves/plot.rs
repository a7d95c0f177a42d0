//! One picture for each parameter: four small plots side by side, readable on a white page and on a dark one.

use std::error::Error;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Parameter;
use super::point::Point;
use super::rows::Row;

type Brokers = [(String, Vec<Row>)];

const SIZE: (u32, u32) = (920, 260);
const HEADER: u32 = 34;
/// A small plot's title above it, and what is written at its marks on its left.
const TITLE: u32 = 18;
const MARKS: u32 = 48;

const FONT: &str = "Helvetica, Arial, sans-serif";

/// Of middling lightness, because the background is the page's: white here, nearly black there.
const INK: RGBColor = RGBColor(0x75, 0x7d, 0x87);
const COLOURS: [RGBColor; 4] = [
    RGBColor(0x2f, 0x81, 0xe7),
    RGBColor(0xd9, 0x6a, 0x1c),
    RGBColor(0x2d, 0x9c, 0x5a),
    RGBColor(0xa8, 0x5c, 0xd6),
];

/// A small plot.
struct Panel {
    title: &'static str,
    figure: fn(&Point) -> f64,
    /// What it is compared with.
    beside: Option<fn(&Point) -> f64>,
}

const PANELS: [Panel; 4] = [
    Panel { title: "drain, events/s", figure: |it| it.rate, beside: Some(|it| it.bare) },
    Panel { title: "relay CPU, us per event", figure: |it| it.cpu_us, beside: None },
    Panel { title: "peak RSS of a relay, MiB", figure: |it| it.rss_mib, beside: None },
    Panel { title: "one claim alone, ms", figure: |it| it.claim_ms, beside: None },
];

/// Where values stand on an axis, and which of them have a mark.
struct Axis {
    logarithmic: bool,
    /// What stands at its ends, as `Axis::at` says it.
    ends: Range<f64>,
    marks: Vec<f64>,
}

pub fn draw(parameter: &Parameter, brokers: &Brokers) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/plots");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{}.svg", parameter.name));
    picture(&path, parameter, brokers).unwrap();
    path
}

fn picture(path: &Path, parameter: &Parameter, brokers: &Brokers) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    let (header, plots) = area.split_vertically(HEADER);
    legend(&header, parameter, brokers)?;
    for (panel, area) in PANELS.iter().zip(plots.split_evenly((1, PANELS.len()))) {
        plot(&area, panel, parameter, brokers)?;
    }
    area.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What the lines are.
fn legend(area: &Area, parameter: &Parameter, brokers: &Brokers) -> Result<(), Box<dyn Error>> {
    let middle = HEADER as i32 / 2;
    let text = |size: i32| (FONT, size).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    area.draw(&Text::new(parameter.title, (10, middle), text(19)))?;
    let mut x = 265;
    for ((version, _), colour) in brokers.iter().zip(COLOURS) {
        area.draw(&PathElement::new([(x, middle), (x + 26, middle)], colour.stroke_width(2)))?;
        area.draw(&Circle::new((x + 13, middle), 3, colour.filled()))?;
        area.draw(&Text::new(format!("RabbitMQ {version}"), (x + 34, middle), text(16)))?;
        x += 180;
    }
    for dash in 0..3 {
        area.draw(&PathElement::new(
            [(x + 10 * dash, middle), (x + 10 * dash + 5, middle)],
            INK.stroke_width(2),
        ))?;
    }
    area.draw(&Text::new("a bare publisher, same colours", (x + 34, middle), text(16)))?;
    Ok(())
}

fn plot(area: &Area, panel: &Panel, parameter: &Parameter, brokers: &Brokers) -> Result<(), Box<dyn Error>> {
    let (above, below) = area.split_vertically(TITLE);
    let title = (FONT, 15).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    above.draw(&Text::new(panel.title, (MARKS as i32, TITLE as i32 / 2), title))?;
    let line = |rows: &[Row], figure: fn(&Point) -> f64| -> Vec<(f64, f64)> {
        let rows = rows.iter().filter(|row| row.parameter == parameter.name);
        rows.map(|row| (row.value as f64, figure(&row.point))).collect()
    };
    let figures = std::iter::once(panel.figure).chain(panel.beside);
    let all = figures.flat_map(|figure| brokers.iter().flat_map(move |(_, rows)| line(rows, figure)));
    let y = Axis::of_figures(&all.map(|(_, y)| y).collect::<Vec<_>>());
    let x = Axis::of_steps(parameter.values);
    let mut chart = ChartBuilder::on(&below)
        .margin_right(14)
        .margin_top(8)
        .x_label_area_size(44)
        .y_label_area_size(MARKS)
        .build_cartesian_2d(x, y)?;
    let small = || (FONT, 14).into_font().color(&INK);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(INK.mix(0.3))
        .axis_style(INK.mix(0.7))
        .label_style(small())
        .axis_desc_style(small())
        .x_desc(parameter.axis)
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    for ((_, rows), colour) in brokers.iter().zip(COLOURS) {
        if let Some(beside) = panel.beside {
            chart.draw_series(DashedLineSeries::new(line(rows, beside), 5, 5, colour.stroke_width(2)))?;
        }
        let drawn = line(rows, panel.figure);
        chart.draw_series(LineSeries::new(drawn.iter().copied(), colour.stroke_width(2)))?;
        chart.draw_series(drawn.into_iter().map(|at| Circle::new(at, 3, colour.filled())))?;
    }
    Ok(())
}

impl Axis {
    /// Each with a mark of its own. They are given as powers, so they stand at their logarithms.
    fn of_steps(values: &[usize]) -> Self {
        let marks: Vec<f64> = values.iter().map(|value| *value as f64).collect();
        let mut axis = Self { logarithmic: true, ends: 0.0..1.0, marks };
        let (first, last) = (axis.at(axis.marks[0]), axis.at(axis.marks[axis.marks.len() - 1]));
        let margin = (last - first) * 0.08;
        axis.ends = first - margin..last + margin;
        axis
    }

    /// From zero on, unless one figure is many times another.
    fn of_figures(figures: &[f64]) -> Self {
        let most = figures.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let least = figures.iter().copied().filter(|it| *it > 0.0).fold(most, f64::min);
        if most > 15.0 * least {
            let (from, to) = (least.log10().floor() as i32, most.log10().ceil() as i32);
            let marks = (from..=to).map(|power| 10_f64.powi(power)).collect();
            return Self { logarithmic: true, ends: f64::from(from)..f64::from(to), marks };
        }
        // The largest round step of which there are three at least.
        let power = 10_f64.powf((most / 3.0).log10().floor());
        let step =
            [5.0, 2.0].map(|it| it * power).into_iter().find(|step| most / step >= 3.0).unwrap_or(power);
        let steps = (most / step).ceil();
        let marks = (0..=steps as u32).map(|n| f64::from(n) * step).collect();
        Self { logarithmic: false, ends: 0.0..steps * step, marks }
    }

    /// Nothing has no logarithm: a round trip of 0 ms stands where one of 0.1 ms would.
    fn at(&self, value: f64) -> f64 {
        if self.logarithmic { value.max(0.1).log10() } else { value }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (self.at(*value) - self.ends.start) / (self.ends.end - self.ends.start);
        from + (f64::from(to - from) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.marks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.ends.clone()
    }
}

/// `10k`, `1M`, `0.5`.
fn short(value: f64) -> String {
    let (value, unit) = match value {
        it if it >= 999_999.0 => (it / 1e6, "M"),
        it if it >= 9_999.0 => (it / 1e3, "k"),
        it => (it, ""),
    };
    // As many digits as say something.
    let text = format!("{value:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}
