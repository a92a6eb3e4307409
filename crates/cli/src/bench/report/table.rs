//! The tables.

use std::io::Write;

use super::bytes;
use super::results::{Compared, Results};
use crate::bench::measured::{Lost, Measured, Spread};
use crate::bench::task::{Kind, Path, Series, Waiting};

/// Prints everything.
pub(super) fn print(results: &Results) {
    let mut out = std::io::stdout().lock();
    // The reader may have closed the output: it does not want the rest.
    let _ = write(results, &mut out);
}

fn write(results: &Results, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(
        out,
        "Medians of {} rounds of {} ms each, by turns{}; all bytes verified.",
        results.count,
        results.time,
        match results.waiting {
            Waiting::Polling => "",
            Waiting::Asleep => ", both sides asleep until something comes",
        }
    )?;
    if let Some(load) = results.load {
        writeln!(out, "{load}")?;
    }
    for path in Path::ALL {
        latency(results, path, out)?;
        stream(results, path, out)?;
    }
    for (series, reason) in results.left_out() {
        writeln!(out, "\n{series}: not measured: {reason}")?;
    }
    Ok(())
}

fn about(path: Path) -> &'static str {
    match path {
        Path::Local => "Same host",
        Path::Wire => "RoCEv2 over UDP",
        Path::Keyed => "RoCEv2 over UDP, authenticated",
    }
}

fn latency(results: &Results, path: Path, out: &mut impl Write) -> std::io::Result<()> {
    let all = results.series(path, Kind::Latency);
    if all.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{}: latency in µs (SEND, WRITE: half a round trip; READ, atomics: until the completion)\n\
         {:<18}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}   {:>6}",
        about(path),
        "",
        "size",
        "min",
        "median",
        "p90",
        "p99",
        "p99.9",
        "ratio"
    )?;
    for_each(results, &all, |series, size, measured, held| {
        let Some(l) = measured.latency else {
            return Ok(());
        };
        write!(out, "{:<18}{:>9}", &*series.short(), bytes(size))?;
        let spread = |number: fn(&Spread) -> f64| l.spread.as_ref().map(number);
        for time in [
            spread(|s| s.min),
            Some(l.median),
            spread(|s| s.p90),
            spread(|s| s.p99),
            spread(|s| s.p999),
        ] {
            write!(out, "{:>10}", known(time, 2))?;
        }
        ratio(held, Kind::Latency, out)?;
        end(&measured, out)
    })
}

fn stream(results: &Results, path: Path, out: &mut impl Write) -> std::io::Result<()> {
    let all = results.series(path, Kind::Stream);
    if all.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{}: a window of operations under way\n{:<18}{:>9}{:>12}{:>14}   {:>6}",
        about(path),
        "",
        "size",
        "GB/s",
        "M/s",
        "ratio"
    )?;
    for_each(results, &all, |series, size, measured, held| {
        write!(
            out,
            "{:<18}{:>9}{:>12}{:>14}",
            &*series.short(),
            bytes(size),
            known(Some(measured.bandwidth / 1e9), 3),
            // Some programs tell the bandwidth only.
            known((measured.rate > 0.0).then_some(measured.rate / 1e6), 3)
        )?;
        ratio(held, Kind::Stream, out)?;
        end(&measured, out)
    })
}

/// A number, or a sign that there is none.
fn known(number: Option<f64>, digits: usize) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.digits$}"))
}

fn for_each(
    results: &Results,
    all: &[Series],
    mut line: impl FnMut(Series, usize, Measured, Option<Compared>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    for &series in all {
        for (size, _) in results.of(series) {
            if let Some(measured) = results.medians(series, size) {
                line(series, size, measured, results.held(series, size))?;
            }
        }
    }
    Ok(())
}

fn ratio(held: Option<Compared>, kind: Kind, out: &mut impl Write) -> std::io::Result<()> {
    let Some(Compared {
        floor,
        value,
        ratio,
    }) = held
    else {
        return Ok(());
    };
    let theirs = match kind {
        Kind::Latency => format!("{value:.2} µs"),
        Kind::Stream => format!("{:.2} GB/s", value / 1e9),
    };
    write!(out, "   {ratio:>5.2}× {} ({theirs})", floor.name())
}

/// The end of a line: what got lost.
fn end(measured: &Measured, out: &mut impl Write) -> std::io::Result<()> {
    match measured.lost {
        Some(Lost { messages, of }) if messages > 0 => {
            writeln!(out, "   lost {messages} of {of}")
        }
        _ => writeln!(out),
    }
}
