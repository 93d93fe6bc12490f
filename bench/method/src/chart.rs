//! Draws rows as pictures.
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::{Deserialize, Serialize};

use crate::row::Row;

const PANEL: (u32, u32) = (640, 380);
/// The largest fraction of calls in a picture of tails.
const NINES: f64 = 4.0;
const COLOURS: &[RGBColor] = &[
    RGBColor(150, 150, 150),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(230, 159, 0),
    RGBColor(0, 114, 178),
    RGBColor(204, 121, 167),
    RGBColor(90, 60, 150),
    RGBColor(240, 228, 66),
    RGBColor(120, 70, 30),
    RGBColor(0, 200, 200),
    RGBColor(255, 130, 130),
    RGBColor(60, 60, 60),
    RGBColor(150, 200, 80),
];

/// Draws each row's ratio with its interval: a panel for each mode and pinning (where calls overlap,
/// for each size too), a group for each size (for each number of calls outstanding), a bar for each peer on a
/// logarithmic scale, paler if it is void. `to` says what the ratio is to; `conditions` stand below.
pub fn ratios(path: &Path, title: &str, to: &str, rows: &[Row], conditions: &[String]) -> Result<()> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.ratio.is_some()).collect();
    let panels = distinct(rows.iter().map(|row| panel_of(row)));
    let peers = distinct(rows.iter().map(|row| row.peer.clone()));
    let grid = (panels.len().div_ceil(2).max(1), panels.len().clamp(1, 2));
    picture(path, title, conditions, grid, |areas| {
        for (area, panel) in areas.iter().zip(&panels) {
            let rows: Vec<&Row> = rows.iter().copied().filter(|row| panel_of(row) == *panel).collect();
            draw_panel(area, (panel, to), &peers, &rows)?;
        }
        Ok(())
    })
}

/// Draws one line through `points`, from zero.
pub fn line(
    path: &Path,
    title: &str,
    (x, y): (&str, &str),
    points: &[(f64, f64)],
    conditions: &[String],
) -> Result<()> {
    let end = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).fold(1.0, f64::max);
    let (right, top) = (end(|point| point.0), end(|point| point.1) * 1.1);
    picture(path, title, conditions, (1, 1), |areas| {
        let mut chart = ChartBuilder::on(&areas[0])
            .margin(10)
            .margin_right(40)
            .x_label_area_size(40)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..right, 0.0..top)?;
        chart
            .configure_mesh()
            .x_desc(x)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:.0}"))
            .y_desc(y)
            .x_labels(5)
            .light_line_style(WHITE)
            .draw()?;
        chart.draw_series(LineSeries::new(points.iter().copied(), COLOURS[2].stroke_width(2)))?;
        Ok(())
    })
}

/// Curves with common axes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Panel {
    /// The title.
    pub caption: String,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// A line through points.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Curve {
    /// The curve's name.
    pub name: String,
    /// The labels of the axes.
    pub points: Vec<(f64, f64)>,
    /// Whether the curve belongs to the curve before it, and has its colour.
    pub thin: bool,
}

/// Draws a panel for each set of curves, from zero. Leaves out curves without points.
pub fn curves(
    path: &Path,
    title: &str,
    (x, y): (&str, &str),
    panels: &[Panel],
    conditions: &[String],
) -> Result<()> {
    picture(path, title, conditions, (panels.len().div_ceil(2).max(1), 2), |areas| {
        for (area, panel) in areas.iter().zip(panels) {
            draw_curves(area, (x, y), panel)?;
        }
        Ok(())
    })
}

fn draw_curves(area: &Area, (x, y): (&str, &str), panel: &Panel) -> Drawn {
    let points = || panel.curves.iter().flat_map(|curve| &curve.points);
    let end = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.caption, ("sans-serif", 15))
        .margin(10)
        .margin_right(20)
        .x_label_area_size(36)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..end(|point| point.0), 0.0..end(|point| point.1) * 1.1)?;
    chart.configure_mesh().x_desc(x).y_desc(y).light_line_style(WHITE).draw()?;
    let mut colour = 1;
    for Curve { name, points, thin } in panel.curves.iter().filter(|curve| !curve.points.is_empty()) {
        colour += usize::from(!thin);
        let style = COLOURS[colour % COLOURS.len()].stroke_width(if *thin { 1 } else { 3 });
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .label_font(("sans-serif", 10))
        .draw()?;
    Ok(())
}

/// A panel of bars, in groups.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Bars {
    /// The title.
    pub caption: String,
    /// The unit of the bars' heights.
    pub unit: String,
    /// The names of the bars in a group.
    pub bars: Vec<String>,
    /// The groups, each with its name and its bars. A bar is a stack of parts, of which the upper ones are
    /// paler.
    pub groups: Vec<(String, Vec<Vec<f64>>)>,
}

/// Draws a panel for each set of bars.
pub fn bars(path: &Path, title: &str, panels: &[Bars], conditions: &[String]) -> Result<()> {
    picture(path, title, conditions, (panels.len().div_ceil(2).max(1), panels.len().clamp(1, 2)), |areas| {
        areas.iter().zip(panels).try_for_each(|(area, panel)| draw_bars(area, panel))
    })
}

fn draw_bars(area: &Area, panel: &Bars) -> Drawn {
    let heights = panel.groups.iter().flat_map(|(_, bars)| bars).map(|parts| parts.iter().sum::<f64>());
    let highest = heights.fold(f64::MIN_POSITIVE, f64::max) * 1.25;
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.caption, ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(28)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..panel.groups.len() as f64, 0.0..highest)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_desc(&panel.unit)
        .light_line_style(WHITE)
        .draw()?;
    let width = 0.84 / panel.bars.len().max(1) as f64;
    for (b, name) in panel.bars.iter().enumerate() {
        let colour = COLOURS[(b + 1) % COLOURS.len()];
        let mut rectangles = Vec::new();
        for (g, (_, bars)) in panel.groups.iter().enumerate() {
            let (left, mut below) = (g as f64 + 0.08 + b as f64 * width, 0.0);
            for (p, part) in bars.get(b).into_iter().flatten().enumerate() {
                let fill = colour.mix(1.0 / (1 + p) as f64).filled();
                rectangles.push(Rectangle::new([(left, below), (left + width * 0.9, below + part)], fill));
                below += part;
            }
        }
        chart
            .draw_series(rectangles)?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled()));
    }
    chart.draw_series(panel.groups.iter().enumerate().map(|(n, (group, _))| {
        let style =
            ("sans-serif", 13).into_font().into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
        Text::new(group.clone(), (n as f64 + 0.5, highest * -0.03), style)
    }))?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .label_font(("sans-serif", 11))
        .draw()?;
    Ok(())
}

/// Draws distributions of latencies: for each curve, the fraction of calls that took no longer. Both axes are
/// logarithmic; the axis of fractions shows the remainder to 1, so that the tail is visible. Every second
/// curve is the one before it under other conditions: it has the same colour, and is thin.
pub fn tails(
    path: &Path,
    title: &str,
    curves: &[(String, Vec<(f64, f64)>)],
    conditions: &[String],
) -> Result<()> {
    let longest = curves.iter().filter_map(|(_, steps)| steps.last()).map(|step| step.0).fold(10.0, f64::max);
    picture(path, title, conditions, (1, 1), |areas| {
        let mut chart = ChartBuilder::on(&areas[0])
            .margin(10)
            .margin_right(40)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d((1.0..longest * 1.2).log_scale(), 0.0..NINES)?;
        chart
            .configure_mesh()
            .x_desc("µs from when the call was to begin")
            .y_desc("calls that took no longer")
            .y_labels(NINES as usize + 1)
            .y_label_formatter(&|nines| format!("{} %", 100.0 - 100.0 * 10f64.powf(-nines)))
            .light_line_style(WHITE)
            .draw()?;
        for (n, (name, steps)) in curves.iter().enumerate() {
            let colour = COLOURS[(n / 2 + 2) % COLOURS.len()];
            let style = colour.stroke_width(if n % 2 == 0 { 3 } else { 1 });
            let points =
                steps.iter().map(|&(us, longer)| (us, -longer.max(1e-9).log10())).filter(|p| p.1 <= NINES);
            chart
                .draw_series(LineSeries::new(points, style))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .label_font(("sans-serif", 10))
            .draw()?;
        Ok(())
    })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Returns a grid (rows, columns) of areas for `draw` to fill, with the title above it and `conditions`
/// below.
fn picture(
    path: &Path,
    title: &str,
    conditions: &[String],
    grid: (usize, usize),
    draw: impl FnOnce(&[Area]) -> Drawn,
) -> Result<()> {
    let svg = drawn(title, conditions, grid, draw)?;
    std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns curves as SVG.
pub fn curves_as_svg(axes: (&str, &str), panel: &Panel) -> Result<String> {
    drawn("", &[], (1, 1), |areas| draw_curves(&areas[0], axes, panel))
}

/// Returns bars as SVG.
pub fn bars_as_svg(panel: &Bars) -> Result<String> {
    drawn("", &[], (1, 1), |areas| draw_bars(&areas[0], panel))
}

/// Returns such a grid as SVG.
fn drawn(
    title: &str,
    conditions: &[String],
    grid: (usize, usize),
    draw: impl FnOnce(&[Area]) -> Drawn,
) -> Result<String> {
    let (width, body) = (PANEL.0 * grid.1 as u32, PANEL.1 * grid.0 as u32);
    let conditions: Vec<String> =
        conditions.iter().flat_map(|line| wrapped(line, width as usize / 6)).collect();
    let head = if title.is_empty() { 0 } else { 40 };
    let foot = if conditions.is_empty() { 0 } else { 16 * conditions.len() as u32 + 16 };
    let size = (width, head + body + foot);
    let mut svg = String::new();
    let fill = |svg| -> Drawn {
        let root = SVGBackend::with_string(svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let root = if title.is_empty() { root } else { root.titled(title, ("sans-serif", 20))? };
        let (body, foot) = root.split_vertically(body);
        draw(&body.split_evenly(grid))?;
        for (n, line) in conditions.iter().enumerate() {
            let style = ("sans-serif", 12).into_font().color(&BLACK.mix(0.7));
            foot.draw(&Text::new(line.clone(), (12, 6 + 16 * n as i32), style))?;
        }
        Ok(root.present()?)
    };
    fill(&mut svg).map_err(|why| anyhow!("cannot draw: {why}"))?;
    Ok(svg)
}

/// Breaks a line into lines of at most about `most` characters.
fn wrapped(line: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        match lines.last_mut() {
            Some(last) if last.len() + word.len() < most => {
                last.push_str(if last.is_empty() { "" } else { " " });
                last.push_str(word);
            }
            _ => lines.push(format!("   {word}")),
        }
    }
    lines
}

fn draw_panel(area: &Area, (caption, to): (&str, &str), peers: &[String], rows: &[&Row]) -> Drawn {
    let groups = distinct(rows.iter().map(|row| group_of(row)));
    let highest = rows.iter().filter_map(|row| row.ratio_high).fold(1.0, f64::max) * 1.5;
    let lowest = rows.iter().filter_map(|row| row.ratio_low).fold(1.0, f64::min) / 1.5;
    // The legend takes the space after the groups.
    let right = groups.len() as f64 * 1.3;
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(28)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..right, (lowest..highest).log_scale())?;
    chart.configure_mesh().disable_x_mesh().disable_x_axis().y_desc(to).light_line_style(WHITE).draw()?;
    let width = 0.84 / peers.len().max(1) as f64;
    for (p, peer) in peers.iter().enumerate() {
        let colour = COLOURS[p % COLOURS.len()];
        let mine = || rows.iter().filter(|row| row.peer == *peer);
        let left = |row: &Row| {
            let group = groups.iter().position(|group| *group == group_of(row)).unwrap_or(0);
            group as f64 + 0.08 + p as f64 * width
        };
        let bars = mine().map(|row| {
            let x = left(row);
            let fill = if row.void == Some(true) { colour.mix(0.35) } else { colour.mix(1.0) };
            Rectangle::new([(x, lowest), (x + width * 0.9, row.ratio.unwrap_or(lowest))], fill.filled())
        });
        chart
            .draw_series(bars)?
            .label(peer)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled()));
        chart.draw_series(mine().filter_map(|row| {
            let (x, ratio) = (left(row) + width * 0.45, row.ratio?);
            Some(ErrorBar::new_vertical(x, row.ratio_low?, ratio, row.ratio_high?, BLACK.stroke_width(1), 4))
        }))?;
    }
    chart.draw_series(LineSeries::new([(0.0, 1.0), (groups.len() as f64, 1.0)], BLACK.stroke_width(1)))?;
    // The labels are drawn here, between the ticks and a little below the axis.
    let below = lowest * (highest / lowest).powf(-0.03);
    chart.draw_series(groups.iter().enumerate().map(|(n, group)| {
        let style =
            ("sans-serif", 13).into_font().into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
        Text::new(group.clone(), (n as f64 + 0.5, below), style)
    }))?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .label_font(("sans-serif", 11))
        .draw()?;
    Ok(())
}

fn panel_of(row: &Row) -> String {
    let (mode, pin) = (row.mode.map_or("", |mode| mode.name()), row.pin.as_deref().unwrap_or("none"));
    match row.bench.as_str() {
        "latency" => format!("{mode}, pin {pin}"),
        _ => format!("{}, {mode}, pin {pin}", size(row)),
    }
}

fn group_of(row: &Row) -> String {
    match (row.threads, row.outstanding) {
        (Some(threads), _) => format!("{threads} threads"),
        (None, Some(outstanding)) if row.bench != "latency" => format!("{outstanding} outstanding"),
        _ => size(row),
    }
}

fn size(row: &Row) -> String {
    match row.bytes {
        None | Some(0) => "null".into(),
        Some(bytes) if bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        Some(bytes) => format!("{bytes} B"),
    }
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    values.for_each(|value| {
        if !seen.contains(&value) {
            seen.push(value);
        }
    });
    seen
}
