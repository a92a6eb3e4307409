//! What processes say at their end of their devices (`FERROCE_SUMMARY=1`).

use super::Way;

/// Wants the most of the bytes that a program's processes have moved to have gone a way.
pub(super) fn check(output: &str, way: Way) -> Result<(), String> {
    let (mut all, mut wire, mut unknown) = (0.0, 0.0, 0.0);
    // Lines of several processes, and what they print by themselves, may stand in one line.
    for line in output.split("ferroce summary:").skip(1) {
        let line = line.lines().next().unwrap_or_default();
        let bytes = value(line, "bytes=").unwrap_or(0.0);
        all += bytes;
        let part = |name| bytes * value(line, name).unwrap_or(0.0) / 100.0;
        wire += part("wire=");
        // Queue pairs of datagrams have no path of their own.
        unknown += part("other=");
    }
    if all == 0.0 {
        return Err("nothing went over a device: it fell back to something else".into());
    }
    let fits = match way {
        Way::Local => wire < all / 2.0,
        Way::Wire => wire + unknown > all / 2.0,
    };
    if fits {
        return Ok(());
    }
    Err(format!(
        "{:.0} % of the bytes went over the wire",
        wire / all * 100.0
    ))
}

fn value(line: &str, name: &str) -> Option<f64> {
    let word = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix(name))?;
    word.trim_end_matches('%').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str =
        "x\nferroce summary: pid=1 device=a packets=9 bytes=1000 direct=99.0% ring=1.0%\n";
    const WIRE: &str = "ferroce summary: pid=1 device=a packets=9 bytes=900 wire=99.9%\n\
                        ferroce summary: pid=1 device=b packets=0 bytes=0\n";

    #[test]
    fn bytes_must_go_their_way() {
        assert_eq!(check(LOCAL, Way::Local), Ok(()));
        assert_eq!(check(WIRE, Way::Wire), Ok(()));
        assert!(check(LOCAL, Way::Wire).is_err());
        assert!(check(WIRE, Way::Local).is_err());
    }

    #[test]
    fn datagrams_may_go_any_way() {
        let output = "ferroce summary: pid=1 device=a packets=9 bytes=1000 other=100.0%\n";
        assert_eq!(check(output, Way::Local), Ok(()));
        assert_eq!(check(output, Way::Wire), Ok(()));
    }

    #[test]
    fn a_program_without_a_device_fails() {
        for output in ["", "ferroce summary: pid=1 device=b packets=0 bytes=0\n"] {
            assert!(check(output, Way::Local).unwrap_err().contains("fell back"));
        }
    }
}
