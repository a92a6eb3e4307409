//! Claimed names: abstract names that say which process has a slot or a port, although any user can
//! bind any name.
//!
//! The well-known name is claimed where it is free. A name that another user holds without a right
//! to it does not stand in the way. The rightful process takes an *alternate*: the well-known name
//! with a slash and 64 random bits behind it, which nobody can take before it. Processes that look
//! for the owner ask the kernel for the credentials of each listener (`SO_PEERCRED`), and find
//! alternates in its list of names. To them a name that is bound without a listener is nobody's. A
//! process that claims a name takes its holder for one that has not come to listen yet, if the
//! kernel says that it is of a rightful user (`sock_diag`).
//!
//! A process that looks for an owner reads the list and asks for users in a twentieth of the time
//! each, and of one name's alternates a few thousand are asked. An alternate that was found is
//! remembered and asked first. A process that claims a name reads and asks each time: it needs what
//! is true now, and does so when it starts or listens, not for what a stranger sent.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::io;
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::Duration;

use ferroce_os::thread::uncancellable;
use ferroce_os::unix::{
    Credentials, SeqListener, SeqName, SeqSocket, SocketKind, abstract_names, owner_of, owners,
};
use ferroce_os::{clock, random};

use crate::base::sync::lock;
use crate::base::time_share::TimeShare;

/// Hexadecimal digits of an alternate.
const DIGITS: usize = 16;
/// Alternates of one name that are asked, at most. A user with more can hide others' among
/// them.
const MOST_ASKED: usize = 4096;
/// Alternates that are remembered, at most.
const MOST_KNOWN: usize = 1024;
/// Reading the list to find an owner may take one part in this number of the time, and asking for
/// users another.
const PART: u32 = 20;
/// Such time that is saved up, at most. A list of some thousand names takes a few milliseconds.
const MOST_SAVED: Duration = Duration::from_millis(20);
/// How often a process that has given way comes back, and after how many microseconds. A claim
/// takes a fraction of a millisecond.
const RETURNS: usize = 3;
const SHORTEST_PAUSE: u32 = 1_000;
const LONGEST_PAUSE: u32 = 5_000;

/// A listener, and a connection to it.
#[derive(Debug)]
pub(crate) struct Claimed {
    /// The name that it listens on.
    pub(crate) name: String,
    pub(crate) socket: SeqSocket,
    /// The listener.
    pub(crate) owner: Credentials,
    /// The holder has a right to the name.
    pub(crate) is_rightful: bool,
}

/// Why nobody was found.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotFound {
    /// The listener on this name has not accepted the connections of others. It may be tried later;
    /// whether it has a right to an alternate is to be looked at then.
    #[error("too many connections wait at {0}")]
    Full(String),
    #[error(transparent)]
    Other(#[from] io::Error),
}

impl From<NotFound> for io::Error {
    fn from(error: NotFound) -> Self {
        match error {
            NotFound::Full(_) => Self::new(io::ErrorKind::WouldBlock, error),
            NotFound::Other(error) => error,
        }
    }
}

/// Tells whether the process with these credentials has a right to a name.
pub(crate) type Judge<'a> = &'a dyn Fn(Credentials, ToldBy) -> bool;

/// Source of the credentials of the holder of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToldBy {
    /// The process, by a connection to it.
    Holder,
    /// The kernel, which tells the user alone: the process has bound the name, and does nothing
    /// else, perhaps.
    Kernel,
}

/// The names that the kernel listed last, and what was found by them.
#[derive(Debug)]
struct ListedNames {
    alternates: Vec<String>,
    reading: TimeShare,
    /// For the users of listeners on alternates.
    asking: TimeShare,
    found: HashMap<String, String>,
}

static KNOWN: LazyLock<Mutex<ListedNames>> = LazyLock::new(|| {
    Mutex::new(ListedNames {
        alternates: Vec::new(),
        reading: TimeShare::new(PART, MOST_SAVED),
        asking: TimeShare::new(PART, MOST_SAVED),
        found: HashMap::new(),
    })
});

impl ListedNames {
    /// Reads the list, unless that took too much of the time lately. `forced`: in any case.
    fn refresh(&mut self, forced: bool) {
        let start = clock::monotonic();
        if !self.reading.is_left(start) && !forced {
            return;
        }
        self.alternates = abstract_names("").unwrap_or_default();
        self.alternates.retain(|listed| is_alternate(listed));
        let now = clock::monotonic();
        self.reading.spend(now.since(start), now);
    }
}

/// The listener that counts for a name: a rightful one on the name itself, a rightful alternate, or
/// else any listener on the name.
///
/// # Errors
/// [`NotFound::Full`]: it has not accepted the connections of others. ECONNREFUSED: there is none.
pub(crate) fn find(name: &str, judge: Judge<'_>) -> Result<Claimed, NotFound> {
    let on_name = ask(name, judge);
    if on_name.as_ref().is_ok_and(|claimed| claimed.is_rightful) {
        return Ok(on_name?);
    }
    let known = lock(&KNOWN).found.get(name).cloned();
    let known = known.and_then(|known| first_alternate(name, vec![known], false, judge));
    match known.or_else(|| first_alternate(name, alternates(name, false), false, judge)) {
        Some(Alternate::Found(alternate)) => {
            remember(name, &alternate.name);
            Ok(alternate)
        }
        Some(Alternate::Full(alternate)) => Err(NotFound::Full(alternate)),
        None => match on_name {
            Err(e) if is_full(&e) => Err(NotFound::Full(name.to_owned())),
            on_name => Ok(on_name?),
        },
    }
}

/// A name that is bound. It counts for others once it is open.
pub(crate) trait BoundName: Sized {
    type Open;

    /// Binds a name.
    ///
    /// # Errors
    /// EADDRINUSE: it is taken.
    fn bind(name: &str) -> io::Result<Self>;

    /// Lets processes that look for the name find it.
    ///
    /// # Errors
    /// None is expected.
    fn open(self) -> io::Result<Self::Open>;
}

impl BoundName for SeqName {
    type Open = SeqListener;

    fn bind(name: &str) -> io::Result<Self> {
        Self::bind(name)
    }

    fn open(self) -> io::Result<SeqListener> {
        self.listen()
    }
}

/// What an attempt to claim a name came to.
#[derive(Debug)]
pub(crate) enum ClaimOutcome<T> {
    Claimed(T),
    /// A rightful process holds the name.
    Taken,
    /// A rightful process holds an alternate, or has overtaken this one. It may be giving way, too.
    GaveWay,
}

/// Makes attempts, until one claims something, or none gives way. Of processes that have all given
/// way to each other, the one that comes back first claims the name.
///
/// # Errors
/// Those of an attempt.
pub(crate) fn contend<T>(
    mut attempt: impl FnMut() -> io::Result<ClaimOutcome<T>>,
) -> io::Result<Option<T>> {
    for _ in 0..RETURNS {
        match attempt()? {
            ClaimOutcome::Claimed(claimed) => return Ok(Some(claimed)),
            ClaimOutcome::Taken => return Ok(None),
            ClaimOutcome::GaveWay => {
                let pause = random::u32() % (LONGEST_PAUSE - SHORTEST_PAUSE);
                let pause = Duration::from_micros((SHORTEST_PAUSE + pause).into());
                uncancellable(|| thread::sleep(pause));
            }
        }
    }
    match attempt()? {
        ClaimOutcome::Claimed(claimed) => Ok(Some(claimed)),
        ClaimOutcome::Taken | ClaimOutcome::GaveWay => Ok(None),
    }
}

/// Claims a name for this process, which has a right to it, or an alternate.
///
/// # Errors
/// Those of binding it, but EADDRINUSE.
pub(crate) fn claim<B: BoundName>(
    name: &str,
    judge: Judge<'_>,
) -> io::Result<ClaimOutcome<B::Open>> {
    // The holder may end between the two calls.
    for _ in 0..2 {
        if let Some(bound) = bind_free::<B>(name)? {
            return settle(name, name, bound, judge);
        }
        match holder(name, judge) {
            NameHolder::Rightful => return Ok(ClaimOutcome::Taken),
            NameHolder::Nobody => {}
            NameHolder::Squatter => break,
        }
    }
    if !is_alone(name, judge) {
        return Ok(ClaimOutcome::Taken);
    }
    let alternate = format!("{name}/{:016x}", random::u64());
    let bound = B::bind(&alternate)?;
    tracing::warn!(target: "ferroce::local", name, alternate, "the name is held without a right to it");
    settle(name, &alternate, bound, judge)
}

/// Claims a name whose holder nobody is.
///
/// # Errors
/// Those of binding it, but EADDRINUSE.
pub(crate) fn claim_free<B: BoundName>(
    name: &str,
    judge: Judge<'_>,
) -> io::Result<ClaimOutcome<B::Open>> {
    match bind_free::<B>(name)? {
        Some(bound) => settle(name, name, bound, judge),
        None => Ok(ClaimOutcome::Taken),
    }
}

/// Binds a name; `None`: it is taken.
fn bind_free<B: BoundName>(name: &str) -> io::Result<Option<B>> {
    match B::bind(name) {
        Ok(bound) => Ok(Some(bound)),
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(e) => Err(e),
    }
}

/// Opens what this process has bound, `mine`, to claim a name.
fn settle<B: BoundName>(
    name: &str,
    mine: &str,
    bound: B,
    judge: Judge<'_>,
) -> io::Result<ClaimOutcome<B::Open>> {
    // A process that looks for the name asks on the name first. The owner of an alternate would
    // lose it to this process for as long as this one listens.
    if mine == name && !is_alone(name, judge) {
        return Ok(ClaimOutcome::GaveWay);
    }
    let open = bound.open()?;
    // Of two processes that claim at once, the later one to come here sees the other's name and
    // gives way: the other may have looked before. Both may see each other, and give way.
    let mut others = alternates(name, true);
    others.retain(|other| *other != mine);
    let is_mine = first_alternate(name, others, true, judge).is_none();
    let is_free = mine == name || holder(name, judge) != NameHolder::Rightful;
    Ok(match is_mine && is_free {
        true => ClaimOutcome::Claimed(open),
        false => ClaimOutcome::GaveWay,
    })
}

/// Whether no rightful process has an alternate of a name.
fn is_alone(name: &str, judge: Judge<'_>) -> bool {
    first_alternate(name, alternates(name, true), true, judge).is_none()
}

/// The holder of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameHolder {
    Nobody,
    /// A process with a right to the name, which may be about to listen.
    Rightful,
    Squatter,
}

/// The holder of a name that was taken a moment ago. One that cannot be asked is a process that has
/// not come to listen yet, that has no place for one more connection, or that squats on the name.
/// The kernel tells its user.
fn holder(name: &str, judge: Judge<'_>) -> NameHolder {
    let owner = match ask(name, judge) {
        Ok(claimed) => Some(claimed.is_rightful),
        Err(_) => match owner_of(name, SocketKind::Connections) {
            Ok(owner) => owner.map(|owner| judge(owner, ToldBy::Kernel)),
            // A sandbox may forbid the question.
            Err(_) => Some(false),
        },
    };
    match owner {
        None => NameHolder::Nobody,
        Some(true) => NameHolder::Rightful,
        Some(false) => NameHolder::Squatter,
    }
}

/// The listener on a name.
fn ask(name: &str, judge: Judge<'_>) -> io::Result<Claimed> {
    let socket = SeqSocket::connect(name)?;
    let owner = socket.peer()?;
    Ok(Claimed {
        name: name.to_owned(),
        socket,
        owner,
        is_rightful: judge(owner, ToldBy::Holder),
    })
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// A rightful owner of an alternate.
enum Alternate {
    Found(Claimed),
    /// It has not accepted the connections of others, which may be a stranger's. It would lose the
    /// name to a squatter if it counted as nobody.
    Full(String),
}

/// The first of these alternates of a name that has a rightful owner. `now`: the kernel is asked
/// for the users of listeners in any case.
fn first_alternate(
    name: &str,
    alternates: Vec<String>,
    now: bool,
    judge: Judge<'_>,
) -> Option<Alternate> {
    let users = LazyCell::new(|| users_of_alternates(name, now));
    let mut full = None;
    for alternate in alternates {
        match ask(&alternate, judge) {
            Ok(claimed) if claimed.is_rightful => return Some(Alternate::Found(claimed)),
            Err(e) if is_full(&e) && full.is_none() => {
                let is_rightful = users.as_ref().is_none_or(|users| {
                    let user = users.get(&alternate);
                    user.is_some_and(|user| judge(*user, ToldBy::Kernel))
                });
                full = is_rightful.then_some(alternate);
            }
            _ => {}
        }
    }
    full.map(Alternate::Full)
}

/// The users of the listeners on alternates of a name; none, where a sandbox forbids the question.
/// `None`: the share of time for questions is used up, and the kernel is not to be asked `now` all
/// the same.
fn users_of_alternates(name: &str, now: bool) -> Option<HashMap<String, Credentials>> {
    let begun = clock::monotonic();
    if !lock(&KNOWN).asking.is_left(begun) && !now {
        return None;
    }
    let users = owners(&format!("{name}/"), SocketKind::Listener).unwrap_or_default();
    let end = clock::monotonic();
    lock(&KNOWN).asking.spend(end.since(begun), end);
    Some(users)
}

fn remember(name: &str, alternate: &str) {
    let mut known = lock(&KNOWN);
    if known.found.len() >= MOST_KNOWN {
        known.found.clear();
    }
    known.found.insert(name.to_owned(), alternate.to_owned());
}

/// The alternates of a name, in order; `now`: those that there are now.
fn alternates(name: &str, now: bool) -> Vec<String> {
    let mut known = lock(&KNOWN);
    known.refresh(now);
    let of_name = |listed: &&String| {
        listed
            .strip_prefix(name)
            .is_some_and(|rest| rest.len() == DIGITS + 1)
    };
    known
        .alternates
        .iter()
        .filter(of_name)
        .take(MOST_ASKED)
        .cloned()
        .collect()
}

/// Whether a name ends as an alternate does.
fn is_alternate(name: &str) -> bool {
    let digits = name.rsplit_once('/').map_or("", |(_, digits)| digits);
    digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests;
