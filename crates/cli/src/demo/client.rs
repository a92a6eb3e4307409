//! The client: connects, does every operation once and verifies it, measures, disconnects.

use std::net::SocketAddr;
use std::time::Duration;

use ferroce::cm::{EventChannel, EventKind, Id};
use ferroce::device::devices;
use ferroce::mem::RemoteRegion;
use ferroce::qp::Operation;

use super::end::{DemoEnd, MEMORY, context, event, introduction, text};
use super::message::{Message, difference, pattern};
use super::tell::{step, tell};
use super::{Outcome, measure};

/// Time to find the device and the way; they are on this host.
const RESOLVE: Duration = Duration::from_secs(2);
/// Bytes of the SEND.
const SEND_LENGTH: usize = 4096;
/// Bytes of the WRITE with immediate.
const IMMEDIATE_LENGTH: usize = 65536;
/// Immediate data of the demo's messages.
const IMMEDIATE: u32 = 0xfe44_0ce1;

fn say(text: &str) {
    tell("client", text);
}

/// The client's whole life.
pub(super) fn run(server: SocketAddr) -> Outcome {
    discover()?;
    let channel = EventChannel::new().map_err(text)?;
    let (end, remote) = connect(&channel, server)?;
    send(&end)?;
    write(&end, remote)?;
    read(&end, remote)?;
    write_with_immediate(&end, remote)?;
    atomics(&end, remote)?;
    measure::run(&end, remote)?;
    leave(&channel, end)
}

fn discover() -> Outcome {
    step(
        "Devices",
        "ibv_get_device_list, ibv_open_device, ibv_query_port, ibv_query_gid",
    );
    for device in devices().map_err(text)? {
        let context = device.open().map_err(text)?;
        let port = context.port(1).map_err(text)?;
        let gids = context.gids(1).map_err(text)?;
        let first = gids
            .first()
            .map(|entry| format!(", GID {} {} ({})", entry.index, entry.gid, entry.kind));
        let name = device.name();
        say(&format!(
            "{name}: {}, {}, MTU {}{}",
            port.state,
            port.link_layer,
            port.active_mtu,
            first.unwrap_or_default()
        ));
    }
    Ok(())
}

fn connect(channel: &EventChannel, server: SocketAddr) -> Outcome<(DemoEnd, RemoteRegion)> {
    step(
        "Address and route",
        "rdma_create_event_channel, rdma_create_id, rdma_resolve_addr, rdma_resolve_route",
    );
    let id = Id::new(channel).map_err(text)?;
    id.resolve_address(server, RESOLVE).map_err(text)?;
    event(channel, EventKind::AddressResolved)?;
    let device = context(&id)?;
    say(&format!("{server} is reached through {}", device.name()));
    id.resolve_route(RESOLVE).map_err(text)?;
    event(channel, EventKind::RouteResolved)?;

    step(
        "Memory and queues",
        "ibv_alloc_pd, ibv_reg_mr, ibv_create_cq, rdma_create_qp, ibv_post_recv",
    );
    let end = DemoEnd::new(id, &device).map_err(text)?;
    let region = end.memory.remote();
    say(&format!(
        "registered {} bytes at {:#x}, key {:#010x}: who knows both may reach them",
        region.length, region.address, region.rkey
    ));
    say(&format!(
        "queue pair {:#08x}: RESET -> INIT; receives are posted before anyone can send",
        end.queue_pair.number()
    ));

    step(
        "Connection",
        "rdma_listen, rdma_connect, rdma_accept; REQ, REP and RTU on the wire",
    );
    end.id.connect(&end.parameters("hello")).map_err(text)?;
    let established = event(channel, EventKind::Established)?;
    let (remote, word) = introduction(&established.parameters.private_data)?;
    say(&format!(
        "ESTABLISHED: INIT -> RTR -> RTS. The server says {word:?}, its memory is at {:#x}",
        remote.address
    ));
    if word != "welcome" || remote.length != MEMORY as u64 {
        return Err("the server's private data is not what it sent".into());
    }
    Ok((end, remote))
}

/// Says something and wants [`Message::Right`] for an answer.
pub(super) fn ask(end: &DemoEnd, message: Message) -> Outcome {
    end.say(message)?;
    right(end)
}

/// Wants [`Message::Right`].
fn right(end: &DemoEnd) -> Outcome {
    match end.hear()? {
        Message::Right => Ok(()),
        Message::Wrong { at } => Err(format!("byte {at} did not arrive as it was sent")),
        other => Err(format!("the server said {other:?}")),
    }
}

fn send(end: &DemoEnd) -> Outcome {
    step(
        "SEND",
        "ibv_post_send(IBV_WR_SEND), ibv_poll_cq: the peer has posted a receive, and says where the bytes go",
    );
    let seed = 1;
    ask(
        end,
        Message::Expect {
            seed,
            length: SEND_LENGTH as u64,
        },
    )?;
    end.memory
        .write(0, &pattern(seed, SEND_LENGTH))
        .map_err(text)?;
    end.perform(Operation::Send, &end.memory, SEND_LENGTH)?;
    say(&format!(
        "sent {SEND_LENGTH} bytes; the completion means that the server's device has acknowledged them"
    ));
    right(end)
}

fn write(end: &DemoEnd, remote: RemoteRegion) -> Outcome {
    step(
        "RDMA WRITE",
        "ibv_post_send(IBV_WR_RDMA_WRITE): the client says where, the server's program does not notice",
    );
    let seed = 2;
    end.memory.write(0, &pattern(seed, MEMORY)).map_err(text)?;
    end.perform(Operation::Write(remote.at(0)), &end.memory, MEMORY)?;
    say(&format!(
        "wrote {MEMORY} bytes to {:#x}; now the server is asked to look",
        remote.address
    ));
    ask(
        end,
        Message::Verify {
            seed,
            length: MEMORY as u64,
        },
    )
}

fn read(end: &DemoEnd, remote: RemoteRegion) -> Outcome {
    step(
        "RDMA READ",
        "ibv_post_send(IBV_WR_RDMA_READ): the other way, again without the server's program",
    );
    let seed = 3;
    ask(
        end,
        Message::Fill {
            seed,
            length: MEMORY as u64,
        },
    )?;
    end.perform(Operation::Read(remote.at(0)), &end.memory, MEMORY)?;
    let mut is = vec![0; MEMORY];
    end.memory.read(0, &mut is).map_err(text)?;
    if let Some(at) = difference(&is, &pattern(seed, MEMORY)) {
        return Err(format!("byte {at} was not read as it is"));
    }
    say(&format!("all {MEMORY} bytes that were read are right"));
    Ok(())
}

fn write_with_immediate(end: &DemoEnd, remote: RemoteRegion) -> Outcome {
    step(
        "RDMA WRITE with immediate",
        "ibv_post_send(IBV_WR_RDMA_WRITE_WITH_IMM): a WRITE that completes a receive of the server, with 32 bits for it",
    );
    let seed = 4;
    end.memory
        .write(0, &pattern(seed, IMMEDIATE_LENGTH))
        .map_err(text)?;
    end.perform(
        Operation::WriteImmediate(remote.at(0), IMMEDIATE),
        &end.memory,
        IMMEDIATE_LENGTH,
    )?;
    say(&format!(
        "wrote {IMMEDIATE_LENGTH} bytes with the immediate {IMMEDIATE:#x}"
    ));
    ask(
        end,
        Message::Verify {
            seed,
            length: IMMEDIATE_LENGTH as u64,
        },
    )
}

/// Does an atomic and checks the old value that comes back.
fn atomic(end: &DemoEnd, what: &str, operation: Operation, due: u64) -> Outcome {
    end.perform(operation, &end.scratch, 8)?;
    let old = end.scratch.load(0).map_err(text)?;
    say(&format!("{what}: the value was {old}"));
    if old == due {
        Ok(())
    } else {
        Err(format!("the old value is {old}, not {due}"))
    }
}

fn atomics(end: &DemoEnd, remote: RemoteRegion) -> Outcome {
    step(
        "Atomics: compare-and-swap, fetch-and-add",
        "ibv_post_send(IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD) on 8 bytes of the server",
    );
    let target = remote.at(64);
    end.scratch.store(0, 40).map_err(text)?;
    end.perform(Operation::Write(target), &end.scratch, 8)?;
    let swap = |compare, swap| Operation::CompareSwap {
        target,
        compare,
        swap,
    };
    atomic(end, "compare with 40, swap with 50", swap(40, 50), 40)?;
    atomic(
        end,
        "compare with 40, swap with 60 (no match: nothing changes)",
        swap(40, 60),
        50,
    )?;
    atomic(
        end,
        "fetch and add 7",
        Operation::FetchAdd { target, add: 7 },
        50,
    )?;
    end.perform(Operation::Read(target), &end.scratch, 8)?;
    match end.scratch.load(0).map_err(text)? {
        57 => Ok(()),
        other => Err(format!("after the atomics the value is {other}, not 57")),
    }
}

fn leave(channel: &EventChannel, end: DemoEnd) -> Outcome {
    step(
        "Leaving",
        "rdma_disconnect (DREQ, DREP), rdma_destroy_qp, ibv_dereg_mr, ibv_destroy_cq, ibv_dealloc_pd, rdma_destroy_id",
    );
    ask(&end, Message::Bye)?;
    end.id.disconnect().map_err(text)?;
    event(channel, EventKind::Disconnected)?;
    let flushed = end.received.wait().map_err(text)?.result;
    match flushed {
        Err(e) if e.status == ferroce::cq::WorkStatus::FLUSHED => {
            say(&format!(
                "DISCONNECTED: RTS -> ERR; the receives that were left come back as {e}"
            ));
        }
        other => return Err(format!("a receive after the disconnect ended as {other:?}")),
    }
    drop(end);
    say("everything is destroyed: from here on no peer can reach the memory");
    Ok(())
}
