//! Sockets: made, connected, listening, accepted, ended.

use std::ffi::c_int;

use crate::connect::{Server, offer};
use crate::errno::kept;
use crate::next::hooks;
use crate::sys::{self, Address, Storage};
use crate::table::{self, Entry, Kind, flag};
use crate::{errno, listener, recent, rules, stand_in};

/// Standard input, output and error stay as they are: what they are is another program's choice.
const FIRST: c_int = 3;
/// `SOCK_NONBLOCK` and `SOCK_CLOEXEC` stand above the type.
const TYPE: c_int = 0xf;

/// Whether a new socket may become a stream's end.
fn is_tcp(domain: c_int, kind: c_int, protocol: c_int) -> bool {
    matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & TYPE == libc::SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP)
}

fn made(fd: c_int, domain: c_int, kind: c_int, protocol: c_int) {
    table::release(fd);
    if fd >= FIRST && is_tcp(domain, kind, protocol) && rules::is_on() {
        let kind = Kind::Fresh;
        table::set(
            fd,
            Entry {
                kind,
                ..Entry::default()
            },
        );
    }
}

/// The second `connect(2)` on a stand-in: as on TCP, the first after EINPROGRESS succeeds.
fn connect_again(fd: c_int) -> c_int {
    if table::get(fd).flags & flag::CONNECTING != 0 {
        table::remove_flags(fd, flag::CONNECTING);
        return 0;
    }
    errno::fail(libc::EISCONN)
}

/// The address of a `connect(2)` that TCP may take. None if the kernel will refuse it (EINVAL,
/// EFAULT).
fn destination(address: *const libc::sockaddr, length: libc::socklen_t) -> Option<Address> {
    let size = length as usize;
    let fits = (size_of::<libc::sockaddr_in>()..=size_of::<Storage>()).contains(&size);
    if !fits || !kept(|| sys::is_readable(address.cast(), size)) {
        return None;
    }
    // SAFETY: as many bytes can be read, as the kernel has just said.
    Some(unsafe { Address::of(address, length) })
}

fn connect_fresh(
    fd: c_int,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
    next: impl FnOnce() -> c_int,
) -> c_int {
    let to = destination(address, length);
    let server = to.map_or(Server::Other, |to| kept(|| offer(fd, &to)));
    let before = errno::now();
    let result = next();
    let error = if result == 0 { 0 } else { errno::now() };
    // By TCP it began, and it may be established although the call was interrupted.
    let began = [
        0,
        libc::EINPROGRESS,
        libc::EINTR,
        libc::EALREADY,
        libc::EAGAIN,
    ]
    .contains(&error);
    let mut is_made = false;
    kept(|| match server {
        Server::Offered(offer) if began => offer.settle(fd, error != 0),
        Server::Offered(offer) => is_made = offer.withdraw(fd),
        // The socket may be connected again.
        _ if !began => {}
        Server::Plain(port) => {
            recent::note_plain(port);
            table::stays_tcp(fd);
        }
        Server::Other => table::stays_tcp(fd),
    });
    if is_made {
        errno::set(before);
        return 0;
    }
    result
}

/// The sending side of a stand-in is about to end. The hidden TCP socket remembers it for all
/// numbers and processes that have the same open file.
fn sends_end(fd: c_int) {
    // The number may be another file's.
    if stand_in::of(fd).is_none() {
        return;
    }
    table::add_flags(fd, flag::SENT_ALL);
    if let Some(tcp) = table::tcp(fd) {
        let _ = sys::shutdown(tcp, libc::SHUT_WR);
    }
}

fn accepted(listener: c_int, fd: c_int, flags: c_int) -> c_int {
    if fd >= 0 {
        kept(|| {
            table::release(fd);
            if rules::is_on() {
                listener::accepted(listener, fd, flags);
            }
        });
    }
    fd
}

hooks! {
    socket: fn(domain: c_int, kind: c_int, protocol: c_int) -> c_int, |next| {
        // SAFETY: takes no pointers.
        let fd = unsafe { next()(domain, kind, protocol) };
        if fd >= 0 {
            kept(|| made(fd, domain, kind, protocol));
        }
        fd
    }

    connect: fn(fd: c_int, address: *const libc::sockaddr, length: libc::socklen_t) -> c_int, |next| {
        // SAFETY: what the program passed.
        let go = || unsafe { next()(fd, address, length) };
        match table::get(fd).kind {
            Kind::StandIn if kept(|| stand_in::of(fd)).is_some() => connect_again(fd),
            Kind::Fresh => connect_fresh(fd, address, length, go),
            _ => go(),
        }
    }

    listen: fn(fd: c_int, backlog: c_int) -> c_int, |next| {
        let streams = kept(|| rules::is_on().then(|| listener::prepare(fd)).flatten());
        // SAFETY: takes no pointers.
        let result = unsafe { next()(fd, backlog) };
        kept(|| match streams {
            Some(streams) if result == 0 => listener::publish(fd, streams),
            Some(streams) => listener::withdraw(streams),
            None => {}
        });
        result
    }

    accept: fn(fd: c_int, address: *mut libc::sockaddr, length: *mut libc::socklen_t) -> c_int, |next| {
        // SAFETY: what the program passed.
        accepted(fd, unsafe { next()(fd, address, length) }, 0)
    }

    accept4: fn(
        fd: c_int,
        address: *mut libc::sockaddr,
        length: *mut libc::socklen_t,
        flags: c_int
    ) -> c_int, |next| {
        // SAFETY: what the program passed.
        accepted(fd, unsafe { next()(fd, address, length, flags) }, flags)
    }

    shutdown: fn(fd: c_int, how: c_int) -> c_int, |next| {
        // SAFETY: takes no pointers.
        let go = || unsafe { next()(fd, how) };
        match table::get(fd).kind {
            Kind::StandIn if how == libc::SHUT_WR || how == libc::SHUT_RDWR => {
                kept(|| sends_end(fd));
                go()
            }
            Kind::Listener if how != libc::SHUT_WR => {
                let result = go();
                kept(|| table::release(fd));
                result
            }
            _ => go(),
        }
    }
}
