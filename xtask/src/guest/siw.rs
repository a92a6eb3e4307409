//! Where soft-iWARP deviates from the RFCs: the list of `docs/interop-siw.md`, and all kinds of
//! frames, held against tshark.

use super::harness::Run;
use super::pair::{Family, Outcome, Ready, Server, start};
use crate::system::capture;

/// The list, for the document.
pub(super) const LIST: &str = "\
## Where siw deviates from the RFCs

*Seen*: a test of the matrix would fail if siw did otherwise; *hand*: seen once, no test; *source*: read in the driver of Linux 6.1 and
6.12.

| the RFCs and manual pages | siw | Ferroce | known by |
|---|---|---|---|
| The initiator takes FPDUs as soon as it has the reply. | one that comes with the reply, or right behind it, ends the connection (CONNECT_ERROR -22) | holds its first FPDU back for 30 ms, or until the peer has sent one | hand |
| The responder takes FPDUs as soon as it has sent its reply. | one that comes before it has given the socket to the queue pair, right after the reply, is not noticed until more comes | sends at once: it cannot know | source |
| A SEND that TCP has taken completes with success. | LOC_QP_OP_ERR if the peer's FIN or TERMINATE comes before its call of TCP returns | keeps the connection open for 30 ms behind the peer's last FPDU, or until the peer closes it; its TERMINATE waits for nothing | hand: `client-server`, `ib_write_bw -R`, `iwarp-ends wrong-rkey` |
| A program that is rejected gets the private data. | none of it if the FIN comes in the packet of the reply, as a busy receiver merges them | leaves it to the peer to close the connection, for 30 ms | hand: `iwarp-ends rejected` |
| A work request whose local key opens nothing completes with LOC_PROT_ERR, and the connection ends. | LOC_QP_OP_ERR, a TERMINATE, and no end for its own program | LOC_PROT_ERR, the end on both sides | hand: `iwarp-ends bad-lkey` |
| A READ may have several elements, within `max_sge_rd` (1). | takes more, and reads into the first only | refuses none; reads into all | hand: `operations` |
| A listener on the IPv6 wildcard takes IPv4 too. | TCP does, and then the connection is closed: REJECTED -104 | takes both | hand: `client-server` |
| Immediates, atomics (RFC 7306). | posting them is refused, with -EINVAL where the manual page has EINVAL | between two Ferroces; refused towards siw | seen: `operations … plain`, `file-transfer` |
| A receive may have no elements: it is for an immediate. | posting it is refused, with -EINVAL | takes it | seen: `file-transfer` |
| A SEND for which no receive is posted is error 1/2/2 and one that is too long 1/2/5. | 1/2/2 for both | as the RFC | source |
| TERMINATE: layer in the upper half of the first byte. | exchanged with the type of the error | sends it as the RFC has it, understands both | seen: `frames` |
| A memory region is limited by RLIMIT_MEMLOCK, but not for CAP_IPC_LOCK. | for root as well | needs no locked memory | hand |
| `rdma_connect` begins to connect. | waits until TCP is connected, and returns ECONNREFUSED and the like itself | gives events | source |
| Private data of a request: up to 512 bytes, of which programs may give 255. | lengths from 252 on wrap | 255 between Ferroces; sends as asked, so programs keep to 251 towards siw | source |
| Markers. | refused | both ways | source |
| A peer that asks for peer-to-peer mode and closes before its first message. | the kernel panics (NULL pointer) | asks for that mode from nobody | source |

`ib_send_bw -R -e` may hang over iWARP: its client sleeps for a completion while it waits for credits, which come by a WRITE; over iWARP all its
SENDs have completed by then. siw may lose what a socket of librdmacm sent last (`rstream -S 1000000 -T v`, seen once): a SEND completes when TCP
has taken it, and librdmacm closes the connection then. Presumably bytes of the peer came in meanwhile, for which TCP drops what it has not sent,
and resets the connection; nothing was captured. `rping -q` does not work over iWARP, with siw at both ends either: `rdma_establish` is for InfiniBand. Programs that rely on RNR retries
end the connection: iWARP has none. Nor has it retry counts in a request, which `read-write` of `tests/c` looks at. Ferroce's mark in reserved bits of the MPA flags is ignored by siw as responder and
as initiator: every line of the tables shows it.

perftest is run over IPv4 only: that of Debian 12 (4.5) cannot connect over IPv6 by `-R`. `ib_write_bw -R --ipv6 -F -n 20 fd77::2` prints
`Address family for hostname not supported for fd77::2:18515`, as it does without `--ipv6`. `ib_send_bw -R --use-srq -q 2` hangs with siw at
both ends and fails with Ferroce at both; with one queue pair it works. siw refused a C program its
145th completion queue of 32 entries, and left errno as it was, so `examples/tokio_key_value` of the crate with its 200 clients is not run.

## Speed within one guest

`cargo xtask guest speed` measures siw and Ferroce by turns, each with itself over the guest's loopback (Ferroce with `FERROCE_PATH=wire`,
so by TCP), with perftest and `-R`, and beside them one stream of iperf3, or qperf's `tcp_lat`, half of there and back. Numbers are
medians of three rounds; the ratio is that of each round. There is no aim, as both processors are emulated: `/dev/kvm` was there, but it is
KVM by page tables (`kvm-pvm`), under which Debian's kernel printed nothing in five minutes. 2026-11-28, Linux 6.1, other programs on both
processors of the host (load average 4 to 10):

| work | siw | Ferroce | TCP | Ferroce by siw | least and greatest |
|---|---|---|---|---|---|
| WRITE 64 KiB | 150.1 MB/s | 107.7 | 333.0 | 0.74 | 0.58 to 0.86 |
| WRITE 1 MiB | 154.0 MB/s | 97.2 | 426.8 | 0.64 | 0.55 to 0.68 |
| READ 64 KiB | 57.0 MB/s | 102.4 | 295.8 | 1.46 | 1.25 to 2.23 |
| READ 1 MiB | 84.7 MB/s | 115.0 | 385.5 | 1.08 | 1.00 to 1.62 |
| SEND 64 KiB | 217.6 MB/s | 121.0 | 528.3 | 0.58 | 0.48 to 1.76 |
| SEND 1 MiB | 531.8 MB/s | 298.4 | 841.8 | 0.64 | 0.51 to 0.70 |
| WRITE 8 B | 31.6 µs | 259.0 | 132.4 | 7.21 | 6.42 to 11.88 |
| READ 8 B, there and back | 78.3 µs | 3391.4 | 1762.1 | 46.63 | 8.94 to 63.11 |
| SEND 8 B | 33.6 µs | 648.0 | 1774.6 | 8.14 | 0.56 to 20.68 |

What the differences come from was not measured.
";

/// Every kind of frame, of both ends: tshark can read them all.
pub(super) fn frames(run: &Run) -> Outcome {
    let file = run.file("frames.pcapng");
    let words = capture::words("br0", &file, "tcp portrange 9161-9163");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let seen = capture::during(run.bare(&words)?, &file, || traffic(run))?;
    let ours = format!("ipv6.src == {}", Family::V6.ours());
    let theirs = format!("ipv6.src == {}", Family::V6.theirs());
    for (what, filter) in [
        ("request", "iwarp_mpa.req"),
        ("reply", "iwarp_mpa.rep"),
        ("WRITE", "iwarp_rdma.opcode == 0"),
        ("READ request", "iwarp_rdma.opcode == 1"),
        ("READ response", "iwarp_rdma.opcode == 2"),
        ("SEND", "iwarp_rdma.opcode == 3"),
        ("TERMINATE", "iwarp_rdma.opcode == 7"),
    ] {
        for side in [&ours, &theirs] {
            seen.has(what, &format!("{side} && {filter}"))?;
        }
    }
    // As the RFC has it, a missing receive is 1/2/2; siw exchanges the halves of the first byte.
    seen.has(
        "siw's order",
        &format!("{theirs} && iwarp_rdma.term_layer == 2"),
    )?;
    match seen.count("tcp && _ws.malformed")? {
        0 => Ok(()),
        n => Err(format!("tshark calls {n} frames malformed")),
    }
}

/// Transfers, and an end by TERMINATE, in both roles.
fn traffic(run: &Run) -> Outcome {
    let ports = ["9161", "9162", "9163"];
    for server in [Server::Here, Server::There] {
        let at = Family::V6.of(server);
        for (program, port, before, behind) in [
            ("operations", ports[0], &[][..], &["65537", "plain"][..]),
            ("iwarp-ends", ports[1], &["no-receive"], &[]),
        ] {
            let [here, there] = run.guest.program(program);
            let serve = |path| [&[path, "server"], before, &[port], behind].concat();
            let call = |path| [&[path, "client"], before, &[at, port], behind].concat();
            let number = port.parse().map_err(|e| format!("{port}: {e}"))?;
            let (mut here, mut there) = match server {
                Server::Here => start(run, server, &serve(&here), &call(&there), Ready::Cm(number)),
                _ => start(run, server, &call(&here), &serve(&there), Ready::Cm(number)),
            }?;
            here.succeed()?;
            there.succeed()?;
        }
    }
    Ok(())
}
