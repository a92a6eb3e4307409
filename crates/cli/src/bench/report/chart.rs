//! The curves: size to the right, both axes logarithmic, ours thick and the others thin.

use std::path::Path as File;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::bytes;
use super::results::{Results, number};
use crate::bench::task::{Kind, Path, Series};
use crate::connection::Outcome;

/// Pixels.
const SIZE: (u32, u32) = (960, 600);
/// A room for the legend beside the curves.
const LEGEND: i32 = 180;

/// A curve: what it shows, and its points.
type Curve = (Series, Vec<(f64, f64)>);

/// Draws a file for each path and kind that has curves; their names.
pub(super) fn draw(results: &Results, folder: &File) -> Outcome<Vec<String>> {
    let mut drawn = Vec::new();
    for path in Path::ALL {
        for kind in [Kind::Latency, Kind::Stream] {
            let curves = curves(results, path, kind);
            if curves.is_empty() {
                continue;
            }
            let name = format!("{}-{}.svg", kind.name(), path.name());
            let file = folder.join(&name);
            let area = SVGBackend::new(&file, SIZE).into_drawing_area();
            one(&area, &curves, path, kind).map_err(|e| format!("{}: {e}", file.display()))?;
            drawn.push(name);
        }
    }
    Ok(drawn)
}

fn curves(results: &Results, path: Path, kind: Kind) -> Vec<Curve> {
    let scale = if kind == Kind::Stream { 1e-9 } else { 1.0 };
    results
        .series(path, kind)
        .into_iter()
        .map(|series| {
            let points = results.of(series).filter_map(|(size, _)| {
                let medians = results.medians(series, size)?;
                Some((size as f64, number(&medians, kind)? * scale))
            });
            (series, points.collect())
        })
        .filter(|(_, points): &Curve| !points.is_empty())
        .collect()
}

fn one(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    curves: &[Curve],
    path: Path,
    kind: Kind,
) -> Result<(), Box<dyn std::error::Error>> {
    let points = || curves.iter().flat_map(|(_, points)| points);
    let (x, y) = (range(points().map(|p| p.0)), range(points().map(|p| p.1)));
    let title = match (path, kind) {
        (Path::Local, Kind::Latency) => "Same host: latency",
        (Path::Local, Kind::Stream) => "Same host: bandwidth",
        (Path::Wire, Kind::Latency) => "RoCEv2 over UDP: latency",
        (Path::Wire, Kind::Stream) => "RoCEv2 over UDP: bandwidth",
        (Path::Keyed, Kind::Latency) => "RoCEv2 over UDP, authenticated: latency",
        (Path::Keyed, Kind::Stream) => "RoCEv2 over UDP, authenticated: bandwidth",
    };
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 22))
        .margin(12)
        .margin_right(LEGEND)
        .x_label_area_size(42)
        .y_label_area_size(70)
        .build_cartesian_2d(
            // Labels at powers of 4: sizes are powers of 2.
            (x.0 / 1.5..x.1 * 1.5).log_scale().base(4.0),
            (y.0 / 1.5..y.1 * 1.5).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("bytes per operation")
        .y_desc(if kind == Kind::Latency {
            "µs, median"
        } else {
            "GB/s"
        })
        .x_label_formatter(&|x| label(*x))
        .y_label_formatter(&|y| format!("{y}"))
        .light_line_style(BLACK.mix(0.06))
        .draw()?;
    for (index, (series, points)) in curves.iter().enumerate() {
        let width = if matches!(series, Series::Verbs(..)) {
            3
        } else {
            1
        };
        let style = Palette99::pick(index).stroke_width(width);
        chart.draw_series(LineSeries::new(points.iter().copied(), style).point_size(width + 1))?;
        // The name stands beside the curves, at its own height.
        let y = 60 + 22 * i32::try_from(index)?;
        let x = i32::try_from(SIZE.0)? - LEGEND + 10;
        area.draw(&PathElement::new(vec![(x, y + 6), (x + 24, y + 6)], style))?;
        area.draw(&Text::new(series.short(), (x + 30, y), ("sans-serif", 14)))?;
    }
    area.present()?;
    Ok(())
}

/// The smallest and the largest.
fn range(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    numbers.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), number| {
        (low.min(number), high.max(number))
    })
}

fn label(size: f64) -> String {
    // Sizes are at most 64 MiB; the axis adds a margin.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bounded"
    )]
    let size = size.round().clamp(0.0, 1e12) as usize;
    bytes(size)
}
