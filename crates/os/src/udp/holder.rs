//! Which user a UDP port belongs to, as the kernel lists it.

use std::fs;
use std::io;

use crate::thread::uncancellable;

/// The user of all sockets on a UDP port of one IP version in this network namespace. `None`: there
/// is no such socket, or they are of several users.
///
/// Sockets of the kernel's own (rxe) are listed as root's. Users that this user namespace does not
/// map are listed as the overflow user.
///
/// # Errors
/// Those of reading `/proc/net/udp` or `/proc/net/udp6`.
pub fn user_of_port(port: u16, v6: bool) -> io::Result<Option<u32>> {
    let file = if v6 {
        "/proc/net/udp6"
    } else {
        "/proc/net/udp"
    };
    let list = uncancellable(|| fs::read_to_string(file))?;
    Ok(common_user(&list, port))
}

/// The second field of a line is the local address, the eighth the user (`proc(5)`).
fn common_user(list: &str, port: u16) -> Option<u32> {
    let wanted = format!(":{port:04X}");
    let users = list.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let local = fields.nth(1)?;
        local.ends_with(&wanted).then_some(fields.nth(5)?)
    });
    let mut users = users.map(|user| user.parse().ok());
    let first = users.next()??;
    users.all(|other| other == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::UdpSocket;
    use crate::unix::Credentials;

    #[test]
    fn the_user_of_an_own_port_is_ours() {
        for (v6, bound) in [
            (false, UdpSocket::bind_v4(0)),
            (true, UdpSocket::bind_v6(0)),
        ] {
            // Not every machine has IPv6.
            let Ok(socket) = bound else { continue };
            let user = user_of_port(socket.port(), v6).unwrap();
            assert_eq!(user, Some(Credentials::own().uid));
        }
    }

    #[test]
    fn a_port_of_several_users_is_nobodys() {
        let line = |n: u32, address: &str, user: u32| {
            format!(
                "{n:5}: {address} 00000000:0000 07 00000000:00000000 00:00000000 00000000 {user:5}        0 1234 2 0 0\n"
            )
        };
        let head = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let one = head.to_owned() + &line(1, "00000000:12B7", 7) + &line(2, "0100007F:12B7", 7);
        assert_eq!(common_user(&one, 4791), Some(7));
        assert_eq!(
            common_user(&(one + &line(3, "0200007F:12B7", 8)), 4791),
            None
        );
        assert_eq!(
            common_user(&(head.to_owned() + &line(3, "00000000:22B7", 8)), 4791),
            None
        );
        assert_eq!(common_user("", 4791), None);
    }
}
