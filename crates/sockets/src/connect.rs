//! The client's side: offers a stream before the SYN, and when TCP is connected, waits until the
//! server has accepted the connection through this library, or for a time.

use std::ffi::c_int;
use std::os::fd::RawFd;

use crate::address::{Connection, End, Family, listener_name, port_name};
use crate::count::{Reason, stays};
use crate::diag::{Diag, LISTEN};
use crate::kept::Kept;
use crate::lock::Held;
use crate::offers::Place;
use crate::sys::{self, Address, Whose};
use crate::table::{self, flag};
use crate::{hide, lock, offers, patience, replace, rules, signals, token};

/// Priority of a client's stream whose program's socket is of `AF_INET6`. A stream has no other use
/// for it, and each process that gets the stream can ask for it.
const V6: c_int = 6;

/// A stream that waits in a listener's queue until the server takes its token.
#[derive(Debug)]
pub(crate) struct Offer {
    stream: Owned,
    token: Owned,
    place: Place,
    family: Family,
    /// Cookies of the listener and of the program's socket.
    listener: u64,
    socket: u64,
    /// A child of `fork` has no offers: it may return from a `connect` that its parent began, in a
    /// signal handler.
    process: libc::pid_t,
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

/// Offers a stream to the listener that will get a connection to this address. None if there is no
/// such listener of this user; the connection stays on TCP then.
pub(crate) fn offer(fd: RawFd, to: &Address) -> Option<Offer> {
    let to = End::new(to.internet()?)?;
    if !has_hint(to.port) {
        stays(Reason::PeerIsPlain);
        return None;
    }
    if !rules::allows(to) {
        stays(Reason::Rule);
        return None;
    }
    let found = find(fd, to);
    found.map_err(stays).ok()
}

fn find(fd: RawFd, to: End) -> Result<Offer, Reason> {
    let family = crate::listener::tcp_family(fd).ok_or(Reason::PeerIsPlain)?;
    if !hide::has_room() {
        return Err(Reason::NotHidden);
    }
    let held = lock::hold();
    let diag = Diag::open(&held).ok_or(Reason::NoDiag)?;
    let listener = diag.listener(to).ok_or(Reason::PeerIsPlain)?;
    if listener.state != LISTEN {
        return Err(Reason::PeerIsPlain);
    }
    if !patience::is_worth_it(listener.cookie, &held) {
        return Err(Reason::NotWorthIt);
    }
    let stream = stream_to(listener.cookie)?;
    let token = Owned(token::make().ok_or(Reason::NoDescriptor)?);
    let socket = sys::cookie(fd).map_err(|_| Reason::NoDiag)?;
    sys::send_descriptor(stream.0, socket.to_ne_bytes(), token.0)
        .map_err(|_| Reason::PeerIsPlain)?;
    let place = offers::add(stream.0, token.0, fd, &held).ok_or(Reason::NoDescriptor)?;
    Ok(Offer {
        stream,
        token,
        place,
        family,
        listener: listener.cookie,
        socket,
        process: own_process(),
    })
}

/// A stream in the queue of a listener of this user.
fn stream_to(listener: u64) -> Result<Owned, Reason> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
    let stream = sys::socket(libc::AF_UNIX, kind, 0).map_err(|_| Reason::NoDescriptor)?;
    let stream = Owned(stream);
    let names = [Family::V4, Family::V6].map(|family| listener_name(listener, family));
    let mut connects = names.iter().map(|name| sys::connect(stream.0, name));
    if !connects.any(|connected| connected.is_ok()) {
        return Err(Reason::PeerIsPlain);
    }
    let server = sys::own_user(stream.0).ok_or(Reason::OtherUser)?;
    if server == own_process() && has_one_thread() {
        return Err(Reason::OwnListener);
    }
    Ok(stream)
}

fn own_process() -> libc::pid_t {
    // SAFETY: takes no pointers.
    unsafe { libc::getpid() }
}

/// Whether a listener of this process waits for this very thread to accept.
fn has_one_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.take(2).count() == 1)
}

/// Whether any listener of this port takes streams: what most connections ask, and nothing else.
fn has_hint(port: u16) -> bool {
    static PROBE: Kept = Kept::new(libc::AF_UNIX, libc::SOCK_DGRAM, 0);
    let held = lock::hold();
    let Some(probe) = PROBE.get(&held) else {
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
        let _signals = signals::block();
        if self.is_lost() {
            table::spoil(fd);
            return self.forget();
        }
        let ready = self.name(fd);
        let waits = ready.is_ok();
        if waits {
            token::wait(self.token.0, self.stream.0, patience::longest());
        }
        let was_taken = !token::take(self.token.0);
        let held = lock::hold();
        if was_taken || waits {
            patience::note(self.listener, was_taken, &held);
        }
        // Another thread may have closed the number meanwhile, and opened something else.
        let is_same = sys::cookie(fd) == Ok(self.socket);
        if was_taken && is_same {
            let flags = if connecting { flag::CONNECTING } else { 0 };
            self.place.remove(&held);
            // If another thread took the last room meanwhile, TCP's options are lost.
            let hidden = replace::hide_tcp(fd);
            replace::replace(fd, self.stream.into_raw(), hidden, flags);
            return;
        }
        if is_same {
            table::spoil(fd);
        }
        stays(ready.err().unwrap_or(Reason::NotTaken));
        self.remove(&held);
    }

    /// `connect(2)` failed.
    pub(crate) fn withdraw(self) {
        if self.is_lost() {
            return self.forget();
        }
        let held = lock::hold();
        self.remove(&held);
    }

    /// Whether its descriptors are not this process's any more.
    fn is_lost(&self) -> bool {
        self.process != own_process() || !self.place.stands()
    }

    fn forget(self) {
        self.stream.into_raw();
        self.token.into_raw();
    }

    fn remove(self, held: &Held) {
        // Copies of the stream, as a child of `vfork` has them, do not keep it.
        let _ = sys::shutdown(self.stream.0, libc::SHUT_RDWR);
        self.place.remove(held);
    }

    /// Gives the stream its connection's name, by which other programs know it.
    fn name(&self, fd: RawFd) -> Result<(), Reason> {
        let end = |whose| {
            let name = sys::name(fd, whose).ok()?;
            End::new(name.internet()?)
        };
        // It has no peer while it is not established: the listener's queue is full.
        let server = end(Whose::Peer).ok_or(Reason::NotEstablished)?;
        let client = end(Whose::Own).ok_or(Reason::NotEstablished)?;
        let connection = Connection { client, server };
        if !connection.is_within_host() {
            return Err(Reason::OtherHost);
        }
        if self.family == Family::V6 {
            let _ = sys::set_option(self.stream.0, libc::SOL_SOCKET, libc::SO_PRIORITY, V6);
        }
        sys::bind(self.stream.0, &connection.name(self.socket)).map_err(|_| Reason::NoDescriptor)
    }
}

/// Family of the program's socket, of a client's stream.
pub(crate) fn family(stream: RawFd) -> Family {
    match sys::option(stream, libc::SOL_SOCKET, libc::SO_PRIORITY, 0) {
        Ok(V6) => Family::V6,
        _ => Family::V4,
    }
}
