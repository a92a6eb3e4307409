//! Ping-pongs, perftest, and programs that compare what they move.

use super::super::pair::{Family, Ready, Server};
use super::super::rows::{Body, Section};
use super::{FAMILIES, STATUS, Table, V4, measured, section};
use crate::system::Check;

const PING_PONGS: Section = section("Ping-pongs", "pingpong");
const PERFTEST: Section = section("perftest", "perftest");
const BYTES: Section = section("Programs that compare every byte", "bytes");

/// The port of perftest and the ping-pongs.
const TCP: Ready = Ready::Tcp(18515);
/// perftest's common options: few messages, for an emulated processor, and a retry timeout of a
/// second, as one that is busy polling may well leave its network alone for longer than the usual
/// 67 ms.
const FEW: &str = "-F -n 20 -u 18 -x GID";

pub(super) fn ping_pongs(all: &mut Table) {
    for (words, families, bytes, rounds) in [
        ("ibv_rc_pingpong -n 100", FAMILIES, 4096, 100),
        ("ibv_rc_pingpong -n 10 -s 300000 -m MTU", V4, 300_000, 10),
        ("ibv_uc_pingpong -n 20", FAMILIES, 4096, 20),
        (
            "ibv_uc_pingpong -n 20 -s 20000 -m MTU",
            FAMILIES,
            20_000,
            20,
        ),
        ("ibv_ud_pingpong -n 20 -s 1024", FAMILIES, 1024, 20),
        ("ibv_srq_pingpong -n 50 -q 4", FAMILIES, 4096, 50),
    ] {
        let server = format!("{words} -c -e -g GID");
        // The program's own TCP connection stays with IPv4.
        let client = format!("{server} SERVER4");
        // Each of the four queue pairs counts; data goes both ways.
        let check = Check::PingPong {
            bytes: 2 * bytes * rounds,
            rounds,
        };
        all.add(
            &PING_PONGS,
            families,
            &server,
            &client,
            Body::Both(TCP, check),
        );
    }
}

pub(super) fn perftest(all: &mut Table) {
    let mb = "MB/sec";
    let usec = "usec";
    let rows: [(&str, &[Family], u64, u64, &str); 17] = [
        ("ib_send_bw", FAMILIES, 65536, 20, mb),
        ("ib_write_bw", FAMILIES, 65536, 20, mb),
        ("ib_read_bw", FAMILIES, 65536, 20, mb),
        ("ib_atomic_bw", FAMILIES, 8, 20, mb),
        ("ib_atomic_bw -A CMP_AND_SWAP", V4, 8, 20, mb),
        ("ib_write_bw -b -q 2", V4, 65536, 40, mb),
        ("ib_send_bw --use-srq -q 2", V4, 65536, 40, mb),
        ("ib_send_bw -e", V4, 65536, 20, mb),
        ("ib_write_bw -s 64 -I 64 -l 4", V4, 64, 20, mb),
        ("ib_send_bw -c UC -s 2048", V4, 2048, 20, mb),
        ("ib_send_lat", V4, 2, 20, usec),
        ("ib_write_lat", V4, 2, 20, usec),
        ("ib_read_lat", V4, 2, 20, usec),
        ("ib_atomic_lat", V4, 8, 20, usec),
        ("ib_send_lat -c UD", FAMILIES, 2, 20, usec),
        ("ib_send_lat -c UC", V4, 2, 20, usec),
        ("ib_write_lat -c UC", V4, 2, 20, usec),
    ];
    for (words, families, size, iterations, unit) in rows {
        let server = format!("{words} {FEW}");
        let client = format!("{server} SERVER4");
        let check = measured(size, iterations, unit);
        all.add(
            &PERFTEST,
            families,
            &server,
            &client,
            Body::Both(TCP, check),
        );
        if unit == usec {
            all.short();
        }
    }
    for (words, size, unit) in [("ib_write_bw -R", 65536, mb), ("ib_send_lat -R", 2, usec)] {
        let server = format!("{words} -F -n 20");
        let client = format!("{server} SERVER");
        let body = Body::Both(Ready::Cm(18515), measured(size, 20, unit));
        all.add(&PERFTEST, V4, &server, &client, body);
        // The client calls twice and does not wait until the server listens again, which takes the
        // guest too long.
        all.only(&[Server::Here]);
    }
}

pub(super) fn bytes(all: &mut Table) {
    let rows: [(&str, &str, &[Family]); 6] = [
        (
            "operations server 9131",
            "operations client SERVER 9131",
            FAMILIES,
        ),
        (
            "client-server server -n 1 -p 9132",
            "client-server client SERVER 9132",
            FAMILIES,
        ),
        (
            "read-write server -n 1 -p 9133",
            "read-write client SERVER 9133",
            V4,
        ),
        (
            "read-write server -r -n 1 -p 9134",
            "read-write client -r SERVER 9134",
            V4,
        ),
        (
            "epoll server -n 1 -p 9135",
            "epoll client SERVER 9135 50",
            V4,
        ),
        (
            "file-transfer server -n 1 -p 9136",
            "file-transfer client SERVER 9136 300001 65536",
            V4,
        ),
    ];
    for (server, client, families) in rows {
        let port = server.rsplit(' ').next().and_then(|word| word.parse().ok());
        let body = Body::Both(Ready::Cm(port.unwrap_or_default()), STATUS);
        let (server, client) = (format!("TEST/{server}"), format!("TEST/{client}"));
        all.add(&BYTES, families, &server, &client, body);
    }
}
