//! All rows of the matrix.

use super::MTUS;
use super::own;
use super::pair::{Family, Ready, Server};
use super::rows::{Body, Row, Section};
use crate::system::{Check, Iterations, Sizes};

const MANAGED: Section = section("Programs of the connection manager", "cm");
const GROUPS: Section = Section {
    waits: true,
    ..section("Multicast groups", "group")
};
const PING_PONGS: Section = section("Ping-pongs", "pingpong");
const PERFTEST: Section = section("perftest", "perftest");
const BYTES: Section = section("Programs that compare every byte", "bytes");
const LOSS: Section = Section {
    fault: Some("drop=2%,dup=1%,reorder=1%,corrupt=1%,seed=7"),
    waits: true,
    ..section(
        "A bad network: of what we send 2% are lost, 1% come twice, 1% late, 1% damaged",
        "loss",
    )
};
const ENDS: Section = section("Rejections, violations and ends", "ends");
const DEATHS: Section = Section {
    waits: true,
    ..section("Sudden deaths", "deaths")
};

const fn section(title: &'static str, name: &'static str) -> Section {
    Section {
        title,
        name,
        fault: None,
        waits: false,
    }
}

const BOTH: &[Server] = &[Server::Here, Server::There];
const FAMILIES: &[Family] = &[Family::V4, Family::V6];
const V4: &[Family] = &[Family::V4];
/// What needs no look at what was printed: the programs compare by themselves, and both ends tell by their status.
const STATUS: Check = Check::Says("", "");
/// The port of perftest and the ping-pongs.
const TCP: Ready = Ready::Tcp(18515);
/// perftest's common options: few messages, for an emulated processor, and a retry timeout of a second, as one that is busy polling
/// may well leave its network alone for longer than the usual 67 ms.
const FEW: &str = "-F -n 20 -u 18 -x GID";

/// All rows, section by section.
pub(super) fn all() -> Vec<Row> {
    let mut all = Table::default();
    managed(&mut all);
    groups(&mut all);
    ping_pongs(&mut all);
    perftest(&mut all);
    bytes(&mut all);
    loss(&mut all);
    ends(&mut all);
    all.rows
}

#[derive(Default)]
struct Table {
    rows: Vec<Row>,
    /// Index of the first row of those that were added last.
    added: usize,
}

impl Table {
    /// A row for each family.
    fn add(
        &mut self,
        section: &'static Section,
        families: &[Family],
        server: &str,
        client: &str,
        body: Body,
    ) {
        self.added = self.rows.len();
        for &family in families {
            self.rows.push(Row {
                section,
                server: server.to_owned(),
                client: client.to_owned(),
                family,
                servers: BOTH,
                mtus: &MTUS,
                body,
                passed: "passes",
            });
        }
    }

    /// The rows added last have only these servers.
    fn only(&mut self, servers: &'static [Server]) {
        for row in &mut self.rows[self.added..] {
            row.servers = servers;
        }
    }

    /// The rows added last move nothing that is longer than a packet of the smaller MTU.
    fn short(&mut self) {
        for row in &mut self.rows[self.added..] {
            row.mtus = &MTUS[..1];
        }
    }

    /// The rows added last give something else than success, in these words.
    fn gives(&mut self, passed: &'static str) {
        for row in &mut self.rows[self.added..] {
            row.passed = passed;
        }
    }
}

fn managed(all: &mut Table) {
    for options in ["-C 20", "-C 10 -S 65535"] {
        let (server, client) = (
            format!("rping -s -a SERVER -V {options}"),
            format!("rping -c -a SERVER -V {options}"),
        );
        all.add(
            &MANAGED,
            FAMILIES,
            &server,
            &client,
            Body::Both(Ready::Cm(7174), STATUS),
        );
    }
    let body = Body::Both(Ready::Cm(7174), STATUS);
    all.add(
        &MANAGED,
        V4,
        "rping -s -a SERVER -V -C 10 -q",
        "rping -c -a SERVER -V -C 10 -q",
        body,
    );
    all.short();
    let done = "return status 0";
    for (server, client, port, says) in [
        (
            "ucmatose -b SERVER -C 5",
            "ucmatose -s SERVER -C 5",
            7471,
            done,
        ),
        (
            "ucmatose -b SERVER -c 4 -S 9000",
            "ucmatose -s SERVER -c 4 -S 9000",
            7471,
            done,
        ),
        ("udaddy -b SERVER -C 5", "udaddy -s SERVER -C 5", 7174, done),
        (
            "rdma_server -s SERVER",
            "rdma_client -s SERVER",
            7471,
            "end 0",
        ),
    ] {
        let body = Body::Both(Ready::Cm(port), Check::Says(says, says));
        all.add(&MANAGED, FAMILIES, server, client, body);
    }
    let body = Body::Lasting(Ready::Cm(7471), STATUS);
    all.add(
        &MANAGED,
        FAMILIES,
        "cmtime -b SERVER",
        "cmtime -s SERVER -c 10",
        body,
    );
    all.short();
}

fn groups(all: &mut Table) {
    let receive = "mckey -m 239.77.1.2 -b SERVER -C 5";
    let send = "mckey -m 239.77.1.2 -b CLIENT -C 5 -s";
    // The last bytes of the group's Ethernet address.
    let body = Body::Both(Ready::Joined("4d0102"), STATUS);
    all.add(&GROUPS, V4, receive, send, body);
    let [receive, send] = ["", " -s"].map(|role| format!("mckey -m ff15::77:1 -b CLIENT{role}"));
    all.add(
        &GROUPS,
        &[Family::V6],
        &receive,
        &send,
        Body::Own(own::no_group),
    );
    all.short();
    all.only(&[Server::Here]);
    all.gives("the kernel's RDMA CM joins no IPv6 group (ENOTSUPP)");
}

fn ping_pongs(all: &mut Table) {
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

fn perftest(all: &mut Table) {
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
        // The client calls twice and does not wait until the server listens again, which takes the guest too long.
        all.only(&[Server::Here]);
    }
}

fn measured(size: u64, iterations: u64, unit: &'static str) -> Check {
    Check::Measured {
        sizes: Sizes::Same(size, 1),
        iterations: Iterations::Exactly(iterations),
        unit,
    }
}

fn bytes(all: &mut Table) {
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

/// Ports of their own: these run beside others.
fn loss(all: &mut Table) {
    for (server, client, port) in [
        (
            "rping -s -a SERVER -p 7175 -V -C 20",
            "rping -c -a SERVER -p 7175 -V -C 20",
            7175,
        ),
        (
            "rping -s -a SERVER -p 7175 -V -C 20 -S 20000",
            "rping -c -a SERVER -p 7175 -V -C 20 -S 20000",
            7175,
        ),
        (
            "TEST/operations server 9141 12288",
            "TEST/operations client SERVER 9141 12288",
            9141,
        ),
    ] {
        all.add(
            &LOSS,
            V4,
            server,
            client,
            Body::Both(Ready::Cm(port), STATUS),
        );
    }
    for (words, check) in [
        (
            "ibv_rc_pingpong -p 18525 -n 50 -s 20000 -m MTU -c -e -g GID",
            Check::PingPong {
                bytes: 2 * 50 * 20_000,
                rounds: 50,
            },
        ),
        (
            "ib_send_bw -p 18525 -F -n 50 -u 16 -x GID",
            measured(65536, 50, "MB/sec"),
        ),
        (
            "ib_write_bw -p 18525 -F -n 50 -u 16 -x GID",
            measured(65536, 50, "MB/sec"),
        ),
        (
            "ib_read_bw -p 18525 -F -n 50 -u 16 -x GID",
            measured(65536, 50, "MB/sec"),
        ),
        (
            "ib_atomic_bw -p 18525 -F -n 200 -u 16 -x GID",
            measured(8, 200, "MB/sec"),
        ),
    ] {
        let client = format!("{words} SERVER4");
        all.add(
            &LOSS,
            V4,
            words,
            &client,
            Body::Both(Ready::Tcp(18525), check),
        );
    }
}

fn ends(all: &mut Table) {
    for case in [
        "rejected",
        "reply-refused",
        "server-parts",
        "exits",
        "wrong-rkey",
        "deregistered",
        "no-receive",
        "too-long",
        "too-long-rxe",
    ] {
        let server = format!("TEST/failures server {case} 9151");
        let client = format!("TEST/failures client {case} SERVER 9151");
        let families = if case == "rejected" { FAMILIES } else { V4 };
        all.add(
            &ENDS,
            families,
            &server,
            &client,
            Body::Both(Ready::Cm(9151), STATUS),
        );
        all.short();
        match case {
            "too-long" => all.only(&[Server::Here]),
            "too-long-rxe" => all.only(&[Server::There]),
            _ => {}
        }
    }
    let endless = "-a SERVER -p 7176 -C 1000000 -v -S 100";
    let (server, client) = (format!("rping -s {endless}"), format!("rping -c {endless}"));
    all.add(&DEATHS, V4, &server, &client, Body::Own(own::killed_there));
    all.short();
    let server = "ib_write_bw -p 18526 -F -D 5 -x GID";
    let client = format!("{server} SERVER4");
    all.add(&DEATHS, V4, server, &client, Body::Own(own::killed_here));
    all.only(&[Server::Here]);
}
