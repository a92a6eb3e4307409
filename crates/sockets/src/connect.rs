//! The client's side: offers a stream before the SYN, and when TCP is connected, waits until the
//! server has accepted the connection through this library, or for a time.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crate::address::{End, Family, listener_name, port_name};
use crate::count::{Reason, stays};
use crate::diag::{Diag, LISTEN};
use crate::kept::Kept;
use crate::lock::Held;
use crate::offers::{Offered, Place};
use crate::recent::{self, Listener};
use crate::signals::Blocked;
use crate::sys::{self, Address};
use crate::table::{self, Kind, flag};
use crate::{filter, hide, lock, look, offers, patience, replace, rules, short, signals, token};

/// Priority of a client's stream whose program's socket is of `AF_INET6`. A stream has no other use
/// for it, and each process that gets the stream can ask for it.
const V6: c_int = 6;

/// How often a thread that waits for the server asks whether another one has decided.
const GLANCE: Duration = Duration::from_millis(10);

/// A stream that waits in a listener's queue until the server takes its token.
#[derive(Debug)]
pub(crate) struct Offer {
    place: Place,
    to: End,
    listener: Listener,
    /// Cookie of the program's socket.
    socket: u64,
}

/// A descriptor that is closed unless it is given away.
#[derive(Debug)]
struct Owned(RawFd);

impl Owned {
    fn into_raw(self) -> RawFd {
        let fd = self.0;
        std::mem::forget(self);
        fd
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        sys::close(self.0);
    }
}

/// What is known of a server before the SYN.
#[derive(Debug)]
pub(crate) enum Server {
    /// It is offered a stream.
    Offered(Offer),
    /// No listener of this port takes streams, as the kernel has just said.
    Plain(u16),
    /// The connection stays on TCP.
    Other,
}

/// Offers a stream to the listener that will get a connection to this address, if it is one of this
/// user that takes streams.
pub(crate) fn offer(fd: RawFd, to: &Address) -> Server {
    let Some((to, end)) = to.internet().and_then(|to| Some((to, End::new(to)?))) else {
        return Server::Other;
    };
    let port = end.port;
    let found = if recent::is_plain(port) {
        Err(Reason::PeerIsPlain)
    } else if short::rests(port) {
        Err(Reason::Short)
    } else if !recent::may_be(port) && !has_hint(port) {
        stays(Reason::PeerIsPlain);
        return Server::Plain(port);
    } else if !rules::allows(end) {
        Err(Reason::Rule)
    } else {
        // TCP takes no address of another family than its socket's.
        find(fd, end, Family::of(&to))
    };
    found.map_err(stays).map_or(Server::Other, Server::Offered)
}

fn find(fd: RawFd, to: End, family: Family) -> Result<Offer, Reason> {
    // A child of `vfork` shares the parent's table.
    if !table::is_own() {
        return Err(Reason::Known);
    }
    if !is_tcp(fd) {
        return Err(Reason::Known);
    }
    if replace::asks_for_more(fd) || replace::is_owned(fd) {
        return Err(Reason::Options);
    }
    if !hide::has_room() {
        return Err(Reason::NotHidden);
    }
    let held = lock::hold();
    offers::decide(fd, &held);
    let (listener, stream) = reach(to, &held)?;
    if family == Family::V6 {
        let _ = sys::set_option(stream.0, libc::SOL_SOCKET, libc::SO_PRIORITY, V6);
    }
    let token = Owned(token::make().ok_or(Reason::NoDescriptor)?);
    let socket = sys::cookie(fd).map_err(|_| Reason::NoDiag)?;
    Ok(Offer {
        place: send(stream, token, (fd, socket), &held)?,
        to,
        listener,
        socket,
    })
}

/// Whether a number is a TCP socket's still: one that was made without this library may have it by
/// now. `connect(2)` of another kind returns at once, and no server takes its stream.
fn is_tcp(fd: RawFd) -> bool {
    sys::option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 0).is_ok()
}

/// A stream in the queue of the listener that will get a connection to this address.
fn reach(to: End, held: &Held) -> Result<(Listener, Owned), Reason> {
    if let Some(latest) = recent::listener(to, held) {
        match stream_to(latest.cookie, &[latest.family], held) {
            reached @ (Ok(_) | Err(Reason::NotWorthIt | Reason::NoDescriptor)) => return reached,
            // It does not listen by now, and its name may be another's.
            Err(_) => recent::note(to, latest, false, held),
        }
    }
    let diag = Diag::open(held).ok_or(Reason::NoDiag)?;
    let listener = diag.listener(to).ok_or(Reason::PeerIsPlain)?;
    if listener.state != LISTEN {
        return Err(Reason::PeerIsPlain);
    }
    stream_to(listener.cookie, &[Family::V4, Family::V6], held)
}

/// Sends the cookie of the program's socket, and the token. The offer has a place before the
/// server may take the token.
fn send(
    stream: Owned,
    token: Owned,
    (socket, cookie): (RawFd, u64),
    held: &Held,
) -> Result<Place, Reason> {
    let offered = Offered {
        stream: stream.0,
        token: token.0,
        socket,
        cookie,
    };
    let place = offers::add(offered, held).ok_or(Reason::NoDescriptor)?;
    // They are the place's.
    stream.into_raw();
    token.into_raw();
    let give_up = |reason| {
        place.take(held).into_iter().for_each(Offered::end);
        Err(reason)
    };
    // Another thread may have copied or watched the socket, or called `fork`.
    if table::get(socket).kind != Kind::Fresh {
        return give_up(Reason::Known);
    }
    let bytes = cookie.to_ne_bytes();
    if sys::send_descriptors(offered.stream, bytes, &[offered.token]).is_err() {
        return give_up(Reason::PeerIsPlain);
    }
    Ok(place)
}

/// A stream in the queue of a listener of this user, whose name has one of these families.
fn stream_to(cookie: u64, families: &[Family], held: &Held) -> Result<(Listener, Owned), Reason> {
    if !patience::is_worth_it(cookie, held) {
        return Err(Reason::NotWorthIt);
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
    let stream = sys::socket(libc::AF_UNIX, kind, 0).map_err(|_| Reason::NoDescriptor)?;
    let stream = Owned(stream);
    let connects = |family| sys::connect(stream.0, &listener_name(cookie, family)).is_ok();
    let family = families.iter().copied().find(|family| connects(*family));
    let family = family.ok_or(Reason::PeerIsPlain)?;
    let server = sys::own_user(stream.0).ok_or(Reason::OtherUser)?;
    if server == table::owner() && has_one_thread() {
        return Err(Reason::OwnListener);
    }
    Ok((Listener { cookie, family }, stream))
}

/// Whether a listener of this process waits for this very thread to accept.
fn has_one_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.take(2).count() == 1)
}

/// Whether any listener of this port takes streams: what most connections ask, and nothing else.
fn has_hint(port: u16) -> bool {
    static PROBE: Kept = Kept::new(libc::AF_UNIX, libc::SOCK_DGRAM, 0);
    let probe = PROBE.shared().or_else(|| PROBE.get(&lock::hold()));
    let Some(probe) = probe else {
        return false;
    };
    let there = sys::connect(probe, &port_name(port));
    // A stash takes no other's datagrams (EPERM).
    matches!(there, Ok(()) | Err(libc::EPERM))
}

impl Offer {
    /// `connect(2)` returned: waits for the server, and replaces the connection by the stream or
    /// leaves it on TCP.
    pub(crate) fn settle(self, fd: RawFd, connecting: bool) {
        let signals = signals::block();
        // A child that was made without `fork` has no offers. A signal handler that makes one may
        // return in it to a `connect` that its parent began.
        if !table::is_own() {
            return;
        }
        let named = self.name(&signals);
        let seen = named.is_ok_and(|offered| self.wait(offered, &signals));
        let flags = if connecting { flag::CONNECTING } else { 0 };
        let held = lock::hold_within(&signals);
        let Some(offered) = self.place.take(&held) else {
            let entry = table::get(fd);
            if entry.kind == Kind::StandIn && entry.cookie == self.socket {
                table::add_flags(fd, flags);
            }
            return;
        };
        let was_taken = offered.decide(flags, named.is_ok());
        if was_taken || named.is_ok() {
            patience::note(self.listener.cookie, was_taken, &held);
            recent::note(self.to, self.listener, was_taken, &held);
        }
        if was_taken {
            short::begin(fd, self.to.port, seen);
        } else {
            stays(named.err().unwrap_or(Reason::NotTaken));
        }
    }

    /// Waits until the server takes the token or has had its time, or another thread has decided.
    /// That thread closes the numbers, which may be other files' at once: the wait reads nothing.
    /// Returns whether the server was seen to take it on another processor.
    fn wait(&self, offered: Offered, signals: &Blocked) -> bool {
        let until = Instant::now() + patience::longest();
        if let Some(seen) = self.look(offered) {
            return seen;
        }
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let has_come = token::wait(offered.token, offered.stream, left.min(GLANCE));
            let is_over = has_come || left.is_zero();
            if is_over || self.place.offered(&lock::hold_within(signals)).is_none() {
                return false;
            }
        }
    }

    /// Looks for a little whether the server has taken the token: a server on another processor
    /// takes it in less time than a sleep and a wake-up of this thread take. Returns whether it was
    /// seen on another one; `None`: it has not taken the token.
    fn look(&self, offered: Offered) -> Option<bool> {
        let looks = patience::looks(self.listener.cookie);
        let longest = look::longest().map(|longest| longest.min(patience::longest()));
        let begun = longest.and_then(|longest| looks.begin_yielding(longest));
        let mut begun = begun?;
        let is_over = || token::wait(offered.token, offered.stream, Duration::ZERO);
        // What is there already says nothing about looks.
        if is_over() {
            return Some(false);
        }
        while !filter::is_installed() && begun.goes_on() {
            if is_over() {
                return Some(begun.end_beside_peer());
            }
        }
        None
    }

    /// Gives the stream its name, and returns the offer, unless another thread has decided.
    fn name(&self, signals: &Blocked) -> Result<Offered, Reason> {
        let held = lock::hold_within(signals);
        let offered = self.place.offered(&held).ok_or(Reason::Known)?;
        offered.name().map(|()| offered)
    }

    /// `connect(2)` failed. The program may connect the socket again, so the server must not find a
    /// full token.
    ///
    /// Returns true if the socket is connected: the kernel begins the call again for a signal
    /// without a handler, and another thread had put the stream under the number by then.
    pub(crate) fn withdraw(self, fd: RawFd) -> bool {
        if !table::is_own() {
            return false;
        }
        let held = lock::hold();
        match self.place.take(&held) {
            Some(offered) => {
                offered.end();
                false
            }
            None => {
                let entry = table::get(fd);
                entry.kind == Kind::StandIn && entry.cookie == self.socket
            }
        }
    }
}

/// Family of the program's socket, of a client's stream.
pub(crate) fn family(stream: RawFd) -> Family {
    match sys::option(stream, libc::SOL_SOCKET, libc::SO_PRIORITY, 0) {
        Ok(V6) => Family::V6,
        _ => Family::V4,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixStream;
    use std::os::unix::thread::JoinHandleExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::table::Entry;

    const ROUNDS: usize = 2_000;
    /// A number that no file has.
    const SOCKET: RawFd = 60_010;

    /// In odd rounds a thread forgets the socket. The last round is 2 * `ROUNDS`.
    static ROUND: AtomicUsize = AtomicUsize::new(0);
    /// The round that this thread has seen.
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    /// The round in which it was interrupted.
    static INTERRUPTED: AtomicUsize = AtomicUsize::new(0);

    fn wait_until(is: impl Fn() -> bool) {
        while !is() {
            std::thread::yield_now();
        }
    }

    /// Keeps a thread where it is for the rest of a round.
    extern "C" fn interrupt(_signal: c_int) {
        let now = ROUND.load(Ordering::SeqCst);
        INTERRUPTED.store(now, Ordering::SeqCst);
        wait_until(|| ROUND.load(Ordering::SeqCst) != now);
    }

    fn forget_on() {
        loop {
            let now = ROUND.load(Ordering::SeqCst);
            SEEN.store(now, Ordering::SeqCst);
            match now {
                _ if now % 2 == 1 => table::stays_tcp(SOCKET),
                _ if now == 2 * ROUNDS => return,
                _ => std::thread::yield_now(),
            }
        }
    }

    fn offer(socket: RawFd) -> Result<Place, Reason> {
        let (stream, _peer) = UnixStream::pair().expect("a pair");
        let token = token::make().expect("an eventfd");
        let both = [stream.into_raw_fd(), token].map(Owned);
        let [stream, token] = both;
        send(stream, token, (socket, 7), &lock::hold())
    }

    /// A socket's offer when `connect(2)` has failed, and what another thread has done meanwhile.
    /// Returns whether the connection was made.
    fn is_made(socket: RawFd, meanwhile: impl FnOnce(&Place)) -> bool {
        let fresh = Entry {
            kind: Kind::Fresh,
            ..Entry::default()
        };
        table::set(socket, fresh);
        let place = offer(socket).expect("a place");
        meanwhile(&place);
        let offer = Offer {
            place,
            to: End {
                ip: std::net::Ipv6Addr::LOCALHOST,
                port: 1,
            },
            listener: Listener {
                cookie: 1,
                family: Family::V6,
            },
            socket: 7,
        };
        let is_made = offer.withdraw(socket);
        table::release(socket);
        is_made
    }

    #[test]
    fn a_connect_that_failed_was_made_if_a_stream_has_its_number_by_now() {
        /// A number that no file has.
        const NUMBER: RawFd = 60_011;
        assert!(!is_made(NUMBER, |_| ()), "nothing happened meanwhile");
        for (kind, cookie, expected) in [
            (Kind::StandIn, 7, true),
            (Kind::StandIn, 8, false),
            (Kind::Other, 7, false),
        ] {
            let decides = |place: &Place| {
                let offered = place.take(&lock::hold());
                offered.into_iter().for_each(Offered::end);
                let entry = Entry {
                    kind,
                    cookie,
                    ..Entry::default()
                };
                table::set(NUMBER, entry);
            };
            assert_eq!(is_made(NUMBER, decides), expected, "{kind:?} {cookie}");
        }
    }

    /// Offers the socket while another thread is somewhere in the middle of forgetting it. Returns
    /// whether the offer goes on although the other thread, which may copy the socket, is done.
    fn is_left(index: usize, interrupt: impl Fn()) -> bool {
        let round = 2 * index + 1;
        let is = |word: &'static AtomicUsize, value| move || word.load(Ordering::SeqCst) == value;
        ROUND.store(round, Ordering::SeqCst);
        wait_until(is(&SEEN, round));
        interrupt();
        wait_until(is(&INTERRUPTED, round));
        let entry = Entry {
            kind: Kind::Fresh,
            ..Entry::default()
        };
        table::set(SOCKET, entry);
        let place = offer(SOCKET);
        ROUND.store(round + 1, Ordering::SeqCst);
        wait_until(is(&SEEN, round + 1));
        let left = place.ok().and_then(|place| place.take(&lock::hold()));
        left.into_iter().for_each(Offered::end);
        left.is_some() && table::get(SOCKET).kind == Kind::Other
    }

    #[test]
    fn a_socket_that_another_thread_forgets_has_no_offer() {
        assert!(table::is_own());
        table::forget_fresh(SOCKET);
        assert_eq!(
            offer(SOCKET).err(),
            Some(Reason::Known),
            "it has been forgotten"
        );
        let signal = libc::SIGRTMIN() + 3;
        // SAFETY: a handler that waits for the test's own thread.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = interrupt as *const () as usize;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
        let thread = std::thread::spawn(forget_on);
        let number = thread.as_pthread_t();
        // SAFETY: a thread that has not been joined.
        let interrupt = || unsafe { assert_eq!(libc::pthread_kill(number, signal), 0) };
        let left = (0..ROUNDS)
            .filter(|index| is_left(*index, interrupt))
            .count();
        thread.join().expect("a thread");
        table::forget_fresh(SOCKET);
        assert_eq!(left, 0);
    }
}
