//! Where the kernel's driver deviates from the specification: the list of `docs/interop-rxe.md`,
//! and a look at the wire that it still does so.

use super::harness::Run;
use super::pair::{Family, Outcome, Ready, Server, start};
use crate::system::capture;

/// The list, for the document.
pub(super) const LIST: &str = "\
## Where rxe deviates from the specification

Ferroce follows the specification and takes what rxe sends. *Seen*: a test of the matrix would fail if rxe did otherwise; *source*: read
in the driver of Linux 6.1 and 6.12.

| the specification | rxe | Ferroce | known by |
|---|---|---|---|
| A SEND that is longer than the receive is answered by NAK \"invalid request\"; the receive completes with LOC_LEN_ERR. | NAK \"remote operational error\"; the receive completes with LOC_QP_OP_ERR | answers as specified; as the sender reports what it was told, REM_OP_ERR | seen: `failures too-long-rxe` |
| `rdma_join_multicast` takes the groups of both families. | the kernel's RDMA CM joins no IPv6 group | joins by MLD | seen: `mckey` |
| `retry_cnt` 7 is seven retries; only `rnr_retry` 7 is for ever. | 7 is for ever for both | seven retries | source |
| Packets of a SEND but the last carry exactly the path MTU; others are an invalid request. | 6.1 does not look at the sizes of SEND packets, 6.12 does | checks them; sends them so | source |
| A datagram longer than the port's MTU is refused. | reports success and sends nothing | LOC_LEN_ERR | source |
| A requester that waits for a receiver that is not ready runs no ACK timer. | its ACK timer (537 ms) runs on and may have been started long before: with `retry_count` 0 such a wait may end the connection | asks peers that try without limit to wait for 10 ms, where the kernel has 655 | source |
| A NAK may come in the middle of a READ's response. | 6.1 takes it for a fatal error, 6.12 takes it | sends it there | source |
| A queue pair in RTR raises COMM_EST at its first packet; QP_REQ_ERR and QP_ACCESS_ERR tell a responder of violations. | raises none | raises them | source |
| An error of a UD or UC send queue moves it to SQE; receiving goes on. | moves to ERR | SQE | source |
| A work request of a datagram whose `Q_Key` has the highest bit set uses the queue pair's own. | uses the work request's | the queue pair's own | source |
| A queue that says that it holds N work requests holds N. | takes some more | N | seen: `rust-interface` |
| `IBV_WC_WITH_IMM` and `IBV_WC_WITH_INV` belong to receives. | sets the first for senders too, and the second for nobody | for receives | seen: `rust-interface` |
| Arming a completion queue that holds a completion raises an event at once, as adapters do. | the next completion only | at once | source |
| Members of a multicast group on the sender's host hear it. | what is sent goes out only | they hear it | seen: `rust-interface` |
| ATOMIC WRITE is refused by a device that has none when it is posted. | 6.1 completes it with LOC_QP_OP_ERR | has it | seen: `rust-interface` |
| `retry_cnt` is 0 to 7, `min_rnr_timer` 0 to 31, and responder resources are at most as many as the device has. | takes more | refuses them | seen: `rust-interface` |
| A failed invalidate of a SEND with invalidate is answered by a NAK. | acknowledges it | NAK | source |

Worth knowing beside these: rxe sends the UDP checksum 0 over IPv6 too, which a receiving socket has to allow (RFC 6935; Ferroce's
does), gives no credits in its acknowledgements (31, as Ferroce) and sends MigReq 0; the test `deviations` looks at all three. It sends
each IPv4 packet with an Identification that the ICRC covers and a socket does not see (docs/design/wire.md tells what Ferroce does about
it). It drops what it does not like without a word or a counter, and answers each packet that asks for an acknowledgement with one of
its own. It has neither XRC nor, in 6.1, FLUSH and ATOMIC WRITE.
";

/// What the list says of rxe's packets, by the packets of an rping over IPv6.
pub(super) fn still_there(run: &Run) -> Outcome {
    let file = run.file("packets.pcapng");
    let words = capture::words("br0", &file, capture::ROCE);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let seen = capture::during(run.bare(&words)?, &file, || rping(run))?;
    let theirs = format!("ipv6.src == {}", Family::V6.theirs());
    let acknowledge = format!("{theirs} && infiniband.bth.opcode == 17");
    seen.has("acknowledgement", &acknowledge)?;
    for (what, filter) in [
        ("UDP checksum", format!("{theirs} && udp.checksum != 0")),
        ("MigReq", format!("{theirs} && infiniband.bth.m == 1")),
        (
            "credits",
            format!("{acknowledge} && infiniband.aeth.syndrome < 31"),
        ),
    ] {
        let count = seen.count(&filter)?;
        if count > 0 {
            return Err(format!(
                "{count} packets of rxe with {what}: the list is out of date"
            ));
        }
    }
    Ok(())
}

fn rping(run: &Run) -> Outcome {
    let at = Family::V6.ours();
    let words = |role: &'static str| ["rping", role, "-a", at, "-p", "7177", "-V", "-C", "5"];
    let ready = Ready::Cm(7177);
    let (mut here, mut there) = start(run, Server::Here, &words("-s"), &words("-c"), ready)?;
    there.succeed()?;
    here.succeed()
}
