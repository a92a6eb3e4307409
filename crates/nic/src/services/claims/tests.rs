use std::cell::{Cell, RefCell};

use super::*;

fn fresh_name() -> String {
    format!("ferroce-test/claims-{:016x}/7", random::u64())
}

/// A judge with a mind of its own: all listeners here are this process.
struct Court {
    verdicts: Cell<Vec<bool>>,
}

impl Court {
    /// Verdicts in the order in which listeners are asked; the last one is repeated.
    fn saying(verdicts: &[bool]) -> Self {
        let verdicts = verdicts.iter().rev().copied().collect();
        Self {
            verdicts: Cell::new(verdicts),
        }
    }

    fn judge(&self) -> bool {
        let mut left = self.verdicts.take();
        let verdict = if left.len() > 1 {
            left.pop()
        } else {
            left.last().copied()
        };
        self.verdicts.set(left);
        verdict.unwrap()
    }
}

fn claim_slot(name: &str, judge: Judge<'_>) -> Option<SeqListener> {
    contend(|| claim::<SeqName>(name, judge)).unwrap()
}

/// Claims an alternate of a name on which a squatter listens.
fn claim_beside_squatter(name: &str) -> SeqListener {
    let court = Court::saying(&[false, false, true]);
    claim_slot(name, &|_, _| court.judge()).unwrap()
}

#[test]
fn a_free_name_is_claimed_and_found() {
    let name = fresh_name();
    assert_eq!(
        io::Error::from(find(&name, &|_, _| true).unwrap_err()).kind(),
        io::ErrorKind::ConnectionRefused
    );
    let _listener = claim_slot(&name, &|_, _| true).unwrap();
    assert_eq!(find(&name, &|_, _| true).unwrap().name, name);
    assert!(claim_slot(&name, &|_, _| true).is_none(), "it is taken");
}

#[test]
fn a_listener_without_a_right_counts_only_where_there_is_no_other() {
    let name = fresh_name();
    let _squatter = SeqListener::bind(&name).unwrap();
    let found = find(&name, &|_, _| false).unwrap();
    assert_eq!(
        (found.name.as_str(), found.is_rightful),
        (name.as_str(), false)
    );
    let _owner = claim_beside_squatter(&name);
    let court = Court::saying(&[false, true]);
    let found = find(&name, &|_, _| court.judge()).unwrap();
    assert!(found.is_rightful && is_alternate(&found.name), "{found:?}");
    // It is remembered, and the list is not read.
    let court = Court::saying(&[false, true]);
    assert_eq!(find(&name, &|_, _| court.judge()).unwrap().name, found.name);
}

#[test]
fn a_name_that_a_squatter_has_only_bound_counts_for_nothing() {
    let name = fresh_name();
    let _squatter = SeqName::bind(&name).unwrap();
    let judge = |_, asked| asked == ToldBy::Holder;
    let _owner = claim_slot(&name, &judge).unwrap();
    let found = find(&name, &judge).unwrap();
    assert!(is_alternate(&found.name));
    assert!(
        claim_slot(&name, &judge).is_none(),
        "an alternate holds the name"
    );
}

#[test]
fn a_process_that_does_not_listen_yet_has_its_name() {
    let name = fresh_name();
    let starting = SeqName::bind(&name).unwrap();
    assert!(claim_slot(&name, &|_, _| true).is_none());
    let _listener = starting.listen().unwrap();
    assert_eq!(find(&name, &|_, _| true).unwrap().name, name);
}

#[test]
fn a_process_that_does_not_accept_connections_keeps_its_name() {
    let name = fresh_name();
    let _stopped = SeqListener::bind(&name).unwrap();
    while SeqSocket::connect(&name).is_ok() {}
    assert!(claim_slot(&name, &|_, _| true).is_none());
}

#[test]
fn an_alternate_whose_owner_does_not_accept_connections_keeps_the_name() {
    let name = fresh_name();
    let _squatter = SeqListener::bind(&name).unwrap();
    let _owner = claim_beside_squatter(&name);
    let court = Court::saying(&[false, true]);
    let alternate = find(&name, &|_, _| court.judge()).unwrap().name;
    while SeqSocket::connect(&alternate).is_ok() {}
    let judge = |_, asked| asked == ToldBy::Kernel;
    let found = find(&name, &judge);
    assert!(
        matches!(&found, Err(NotFound::Full(full)) if *full == alternate),
        "{found:?}"
    );
    assert!(claim_slot(&name, &judge).is_none());
    // A stranger's alternate that is full is nobody's.
    assert_eq!(find(&name, &|_, _| false).unwrap().name, name);
}

/// The owner of an alternate is found while another process tries the name, which is free by
/// now.
#[test]
fn a_process_that_looks_for_an_alternate_does_not_listen() {
    let name = fresh_name();
    let squatter = SeqListener::bind(&name).unwrap();
    let _owner = claim_beside_squatter(&name);
    drop(squatter);
    let found = RefCell::new(None);
    let judge = |_, _| {
        found.replace(Some(find(&name, &|_, _| true).map(|claimed| claimed.name)));
        true
    };
    let claimed = claim_free::<SeqName>(&name, &judge).unwrap();
    assert!(matches!(claimed, ClaimOutcome::GaveWay));
    let found = found.into_inner().expect("the alternate was asked");
    assert!(is_alternate(&found.unwrap()));
}

thread_local! {
    /// How often [`Overtaken`] is overtaken.
    static OVERTAKEN: Cell<usize> = const { Cell::new(0) };
}

/// A process that another one with an alternate overtakes while it binds its own. Either gives
/// way.
struct Overtaken(SeqName, Option<SeqListener>);

impl BoundName for Overtaken {
    type Open = (SeqListener, Option<SeqListener>);

    fn bind(name: &str) -> io::Result<Self> {
        let base = name.rsplit_once('/').filter(|_| is_alternate(name));
        let left = OVERTAKEN.get();
        let base = base.filter(|_| left > 0);
        OVERTAKEN.set(left - usize::from(base.is_some()));
        let other = base.map(|(base, _)| SeqListener::bind(&format!("{base}/{:f<16}", "")));
        Ok(Self(SeqName::bind(name)?, other.transpose()?))
    }

    fn open(self) -> io::Result<Self::Open> {
        Ok((self.0.listen()?, self.1))
    }
}

/// Claims a name on which a squatter listens; each time a process overtakes this one. Returns
/// whether that succeeds, and how often it is overtaken still.
fn claim_overtaken(times: usize) -> (bool, usize) {
    let name = fresh_name();
    let _squatter = SeqListener::bind(&name).unwrap();
    OVERTAKEN.set(times);
    let claimed = contend(|| {
        let court = Court::saying(&[false, OVERTAKEN.get() > 0, false]);
        claim::<Overtaken>(&name, &|_, _| court.judge())
    });
    (claimed.unwrap().is_some(), OVERTAKEN.get())
}

#[test]
fn a_process_that_was_overtaken_gives_way_and_comes_back() {
    assert_eq!(claim_overtaken(1), (true, 0));
    assert_eq!(claim_overtaken(RETURNS), (true, 0));
    assert_eq!(claim_overtaken(RETURNS + 5), (false, 4));
}
