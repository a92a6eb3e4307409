//! What the demo prints.

use std::io::Write;

/// A line from one of the two sides.
pub(super) fn tell(side: &str, text: &str) {
    // The reader may have closed the output: it does not want the rest.
    let _ = writeln!(std::io::stdout().lock(), "   {side}  {text}");
}

/// A heading, with the C functions that the step is about.
pub(super) fn step(title: &str, functions: &str) {
    let _ = writeln!(std::io::stdout().lock(), "\n{title}\n   {functions}");
}

/// A plain line.
pub(super) fn line(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
