//! Where a Unix stream and TCP differ in what a data call returns.
//!
//! | case | TCP, and here | a Unix stream |
//! |---|---|---|
//! | first write after the peer closed | is taken, its bytes are lost | EPIPE and SIGPIPE |
//! | write after a reset | ECONNRESET once | EPIPE and SIGPIPE |
//! | read after the peer closed with `SO_LINGER` of zero | ECONNRESET once | end of file |
//! | write after `SHUT_RD` of the peer | is taken, nobody reads it | EPIPE and SIGPIPE |
//! | `MSG_TRUNC` | discards | does nothing |

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

use crate::attempt::{self, Room};
use crate::table::{self, flag};
use crate::{errno, short, stand_in, sys};

/// Most bytes of a call (`MAX_RW_COUNT`).
const MOST: isize = 0x7fff_f000;

/// Sends on a stand-in by `go`, without a signal, and returns what TCP would return. `signals`:
/// whether a signal is due when TCP raises one. `length` says how much was to be sent. It is asked
/// after the kernel has read what the program passed.
pub(crate) fn sent(
    fd: RawFd,
    signals: bool,
    length: impl FnOnce() -> usize,
    go: impl FnOnce() -> isize,
) -> isize {
    let before = errno::now();
    let result = go();
    short::carried(fd, result);
    if result >= 0 || errno::now() != libc::EPIPE {
        return result;
    }
    let raise = || broken(signals);
    if stand_in::of(fd).is_none() {
        return raise();
    }
    match sending(fd) {
        Sending::Goes => {}
        Sending::Ended => return raise(),
        Sending::Failed(error) => {
            table::add_flags(fd, flag::PEER_GONE);
            return errno::fail(error);
        }
    }
    match sys::option(fd, libc::SOL_SOCKET, libc::SO_ERROR, 0) {
        Ok(error) if error != 0 => {
            table::add_flags(fd, flag::PEER_GONE);
            return errno::fail(error);
        }
        _ => {}
    }
    // Without it the peer ended its receiving side only.
    if sys::events(fd) & libc::POLLHUP != 0 {
        if table::get(fd).flags & flag::PEER_GONE != 0 {
            return raise();
        }
        table::add_flags(fd, flag::PEER_GONE);
    }
    errno::set(before);
    isize::try_from(length()).unwrap_or(MOST).min(MOST)
}

/// Fails as TCP does where nothing can be sent.
fn broken(signals: bool) -> isize {
    if signals {
        // SAFETY: takes no pointers.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    errno::fail(libc::EPIPE)
}

/// What the hidden TCP socket says of a stand-in's sending side.
enum Sending {
    /// The program may send.
    Goes,
    /// `shutdown(2)` ended it, through any number and in any process that has the open file.
    Ended,
    /// The peer reset the connection, and the program has not been told.
    Failed(c_int),
}

fn sending(fd: RawFd) -> Sending {
    /// `TCP_FIN_WAIT1`, `TCP_FIN_WAIT2`, `TCP_TIME_WAIT`, `TCP_LAST_ACK` and `TCP_CLOSING`, then
    /// `TCP_CLOSE`, as `tcpi_state` has them.
    const ENDED: [u8; 5] = [4, 5, 6, 9, 11];
    const CLOSE: u8 = 7;
    // The state is the first byte of `tcp_info`.
    let state = table::tcp(fd).and_then(|tcp| {
        let state = sys::option(tcp, libc::IPPROTO_TCP, libc::TCP_INFO, 0_u8);
        Some((tcp, state.ok()?))
    });
    match state {
        Some((_, state)) if ENDED.contains(&state) => Sending::Ended,
        // Both sides have ended, or the peer has reset.
        Some((tcp, CLOSE)) => match sys::option(tcp, libc::SOL_SOCKET, libc::SO_ERROR, 0) {
            Ok(error) if error != 0 && error != libc::EPIPE => Sending::Failed(error),
            _ => Sending::Ended,
        },
        None if table::get(fd).flags & flag::SENT_ALL != 0 => Sending::Ended,
        _ => Sending::Goes,
    }
}

/// What a receive on a stand-in returned at the end of the stream: the same, or a reset.
pub(crate) fn ended(fd: RawFd) -> isize {
    if !errno::kept(|| table::tcp(fd).is_some_and(|tcp| was_reset(fd, tcp))) {
        return 0;
    }
    table::add_flags(fd, flag::PEER_GONE);
    errno::fail(libc::ECONNRESET)
}

/// Whether the peer of a stand-in with this TCP socket reset the connection, and the program has
/// not been told. The number may be another file's by now.
fn was_reset(fd: RawFd, tcp: RawFd) -> bool {
    // The error is asked for last: that takes it away from a later write.
    let error = || sys::option(tcp, libc::SOL_SOCKET, libc::SO_ERROR, 0);
    !had_end(tcp) && stand_in::of(fd).is_some() && error() == Ok(libc::ECONNRESET)
}

/// Whether a TCP socket whose connection carries nothing has received its peer's FIN. A reset after
/// that is no error for reads. It comes where the system has no room for the peer in TIME_WAIT
/// (`net.ipv4.tcp_max_tw_buckets`).
fn had_end(tcp: RawFd) -> bool {
    /// Of `tcpi_bytes_received`, which counts a FIN as a byte.
    const AT: usize = 128;
    const INFO: usize = AT + size_of::<u64>();
    let info = sys::option(tcp, libc::IPPROTO_TCP, libc::TCP_INFO, [0_u8; INFO]);
    info.is_ok_and(|info| info[AT..].iter().any(|byte| *byte != 0))
}

/// Receives and discards, as `MSG_TRUNC` does with TCP. Of `to` the kernel gets the address.
///
/// # Safety
/// As for [`attempt::receive`].
pub(crate) unsafe fn discard(fd: RawFd, to: Room, flags: c_int) -> isize {
    const MOST_AT_ONCE: usize = 4096;
    let mut scratch = [0_u8; MOST_AT_ONCE];
    let (before, mut done) = (errno::now(), 0);
    loop {
        let room = Room {
            bytes: scratch.as_mut_ptr().cast(),
            length: (to.length - done).min(MOST_AT_ONCE),
            ..to
        };
        // SAFETY: room of this function, and what the caller says.
        match unsafe { attempt::sleep_for_bytes(fd, room, flags & !libc::MSG_TRUNC) } {
            Err(error) if done == 0 => return errno::fail(error),
            Err(_) => {
                errno::set(before);
                break;
            }
            Ok(length) => {
                let length = usize::try_from(length).unwrap_or(0);
                done += length;
                let goes_on = flags & libc::MSG_WAITALL != 0 && length == room.length;
                if !goes_on || done == to.length {
                    break;
                }
            }
        }
    }
    isize::try_from(done).unwrap_or(MOST)
}

/// Descriptors in a message's control data.
///
/// # Safety
/// The message's header and its control data can be read. What the control data say of their own
/// lengths may be wrong.
pub(crate) unsafe fn each_descriptor(message: *const libc::msghdr, mut see: impl FnMut(RawFd)) {
    // SAFETY: the macros and `bytes` stay within the control data, of which the caller says that
    // they can be read.
    unsafe {
        let length: usize = (*message).msg_controllen as _;
        let end = (*message).msg_control.addr() + length;
        let mut at = libc::CMSG_FIRSTHDR(message);
        while !at.is_null() {
            if (*at).cmsg_level == libc::SOL_SOCKET && (*at).cmsg_type == libc::SCM_RIGHTS {
                let header = libc::CMSG_LEN(0) as usize;
                let room = end.saturating_sub(at.addr());
                let bytes = ((*at).cmsg_len as usize).min(room).saturating_sub(header);
                let data: *const c_void = libc::CMSG_DATA(at).cast();
                for index in 0..bytes / size_of::<RawFd>() {
                    see(data.cast::<RawFd>().add(index).read_unaligned());
                }
            }
            at = libc::CMSG_NXTHDR(message, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::address::{Connection, End, Name};
    use crate::table::{Entry, Kind};

    /// Sends for as long as there is room.
    fn fill(mut client: &TcpStream) {
        client.set_nonblocking(true).expect("a flag");
        while client.write(&[0; 65536]).is_ok() {}
    }

    /// Ends a connection in one of three ways: by a FIN; by a reset; by both, where the reset finds
    /// a client that has ended as well, and is ECONNRESET.
    fn end(mut client: &TcpStream, server: TcpStream, has_end: bool, resets: bool) {
        let until = Instant::now() + Duration::from_secs(60);
        let wait_for = |events: libc::c_short| {
            while sys::events(client.as_raw_fd()) & events == 0 {
                assert!(Instant::now() < until, "the end comes");
            }
        };
        match (has_end, resets) {
            // The client's end waits behind bytes for which the server has no room.
            (true, true) => fill(client),
            // A byte that the server has not read makes its end a reset.
            (false, true) => {
                client.write_all(&[0]).expect("a write");
                server.peek(&mut [0]).expect("a byte");
            }
            _ => {}
        }
        if has_end {
            server.shutdown(Shutdown::Write).expect("an end");
            wait_for(libc::POLLIN);
            client.shutdown(Shutdown::Write).expect("an end");
        }
        drop(server);
        wait_for(if resets { libc::POLLERR } else { libc::POLLIN });
    }

    /// Name of the client's end of the stream of a connection with these ends.
    fn client_name(ends: [SocketAddr; 2], cookie: u64) -> Name {
        let [client, server] = ends.map(|end| End::new(end).expect("an end"));
        Connection { client, server }.name(cookie)
    }

    #[test]
    fn a_stream_ends_as_its_connection_did_before_the_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let at = listener.local_addr().expect("an address");
        let held = crate::lock::hold();
        assert!(table::is_own());
        for (has_end, resets, result) in [(true, false, 0), (true, true, 0), (false, true, -1)] {
            let client = TcpStream::connect(at).expect("a connection");
            let connection = [client.local_addr().expect("an address"), at];
            let (server, _) = listener.accept().expect("a connection");
            end(&client, server, has_end, resets);
            let (stream, _peer) = UnixStream::pair().expect("a pair");
            let (stream, tcp) = (stream.into_raw_fd(), client.into_raw_fd());
            let cookie = sys::cookie(tcp).expect("a cookie");
            sys::bind(stream, &client_name(connection, cookie)).expect("a name");
            let entry = Entry {
                kind: Kind::StandIn,
                hidden: [Some(tcp), None],
                cookie,
                ..Entry::default()
            };
            table::set(stream, entry);
            errno::set(0);
            assert_eq!(ended(stream), result, "{has_end} {resets}");
            let error = if result == 0 { 0 } else { libc::ECONNRESET };
            assert_eq!(errno::now(), error);
            let told = table::take(stream).flags & flag::PEER_GONE != 0;
            assert_eq!(told, result != 0);
            [stream, tcp].into_iter().for_each(sys::close);
        }
        drop(held);
    }

    #[test]
    fn a_connection_that_ended_differs_from_one_that_was_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let at = listener.local_addr().expect("an address");
        for resets in [false, true] {
            let client = TcpStream::connect(at).expect("a connection");
            let (server, _) = listener.accept().expect("a connection");
            let fd = client.as_raw_fd();
            assert!(!had_end(fd));
            let linger = libc::linger {
                l_onoff: resets.into(),
                l_linger: 0,
            };
            let option = libc::SO_LINGER;
            sys::set_option(server.as_raw_fd(), libc::SOL_SOCKET, option, linger)
                .expect("an option");
            drop(server);
            let until = Instant::now() + Duration::from_secs(60);
            while sys::events(fd) & libc::POLLIN == 0 {
                assert!(Instant::now() < until, "the end comes");
            }
            assert_eq!(had_end(fd), !resets);
        }
    }
}
