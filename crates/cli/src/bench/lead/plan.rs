//! Which measurements are made, and in which order.

use crate::bench::task::{Floor, Path, Series, Transport, Verb, Waiting};

/// All series of some paths, each path's floors before what is held against them.
pub(super) fn series(
    paths: &[Path],
    transports: &[Transport],
    waiting: Waiting,
    same_host: bool,
) -> Vec<Series> {
    let mut all = Vec::new();
    for &path in paths {
        let floors = Floor::ALL.into_iter();
        let floors = floors.filter(|floor| floor.path() == path && floor.waits(waiting));
        all.extend(floors.map(Series::Floor));
        for &kind in waiting.kinds() {
            for transport in [Transport::Rc, Transport::Uc, Transport::Ud] {
                let wanted = transports.contains(&transport);
                let verbs = Verb::ALL.into_iter();
                let has = |verb| transport.has(verb) && waiting.has(verb);
                let verbs = verbs.filter(|&verb| wanted && has(verb));
                all.extend(verbs.map(|verb| Series::Verbs(path, transport, verb, kind)));
            }
        }
    }
    if !same_host {
        all.retain(|series| !matches!(series, Series::Floor(floor) if floor.path() == Path::Local));
    }
    all
}

/// Whether the words that a user gave choose a series: all of one of them must be in its name.
pub(super) fn chosen(series: Series, only: &[String]) -> bool {
    let name = series.to_string().to_lowercase();
    only.is_empty()
        || only.iter().any(|wish| {
            wish.to_lowercase()
                .split_whitespace()
                .all(|word| name.contains(word))
        })
}

/// One round: small sizes first, and of one size everything side by side. `datagram`: bytes of the
/// longest datagram.
pub(super) fn round(series: &[Series], sizes: &[usize], datagram: usize) -> Vec<(Series, usize)> {
    let fits = |series: &Series, size| {
        let is_datagram = series.transport() == Some(Transport::Ud);
        size <= datagram || !is_datagram
    };
    sizes
        .iter()
        .flat_map(|&size| series.iter().map(move |&series| (series, size)))
        .filter(|(series, size)| series.takes(*size) && fits(series, *size))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{chosen, round, series};
    use crate::bench::task::{Floor, Path, Series, Transport, Waiting};

    const BOTH: [Path; 2] = [Path::Local, Path::Wire];

    #[test]
    fn a_round_has_everything_once() {
        let all = series(&BOTH, &[Transport::Rc], Waiting::Polling, true);
        assert_eq!(all.len(), 10 + 2 * 12);
        let steps = round(&all, &[8, 64], 64);
        let mut unique = steps.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), steps.len());
        // The cache line and the four atomics have one size.
        assert_eq!(steps.len(), 2 * 34 - 9);
    }

    #[test]
    fn each_transport_has_its_operations_and_sizes() {
        let transports = [Transport::Uc, Transport::Ud];
        let all = series(&[Path::Wire], &transports, Waiting::Polling, false);
        assert_eq!(all.len(), 4 + 2 * (3 + 1));
        let ud: Vec<_> = round(&all, &[8, 1024, 2048], 1024)
            .into_iter()
            .filter(|(series, _)| series.transport() == Some(Transport::Ud))
            .collect();
        assert_eq!(ud.len(), 2 * 2);
    }

    #[test]
    fn a_sleeping_series_has_one_message_under_way() {
        let all = series(&BOTH, &[Transport::Rc], Waiting::Asleep, true);
        assert_eq!(all.len(), 5 + 2 * 5, "{all:?}");
        let is_stream = |series: &Series| series.to_string().ends_with("stream");
        assert!(!all.iter().any(is_stream));
    }

    #[test]
    fn words_choose() {
        let all = series(&BOTH, &[Transport::Rc], Waiting::Polling, true);
        let count = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|&o| o.to_owned()).collect();
            all.iter().filter(|&&s| chosen(s, &only)).count()
        };
        assert_eq!(count(&[]), 34);
        assert_eq!(count(&["local send"]), 2);
        assert_eq!(count(&["wire WRITE latency", "memcpy"]), 3);
        assert_eq!(count(&["nothing"]), 0);
        assert!(chosen(
            Series::Floor(Floor::VmWrite),
            &["process_vm_writev".into()]
        ));
    }
}
