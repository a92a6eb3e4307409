//! The server: listens, accepts, and does what the client asks. It sleeps while its memory is read
//! and written.

use std::net::IpAddr;

use ferroce::cm::{EventChannel, EventKind, Id};
use ferroce::cq::{Done, WorkKind};
use ferroce::mem::MemoryRegion;
use ferroce::qp::Operation;

use super::Outcome;
use super::end::{DemoEnd, MEMORY, context, done, event, introduction, text};
use super::message::{LENGTH, Message, difference, pattern};
use super::tell::line;

/// Serves one client.
pub(super) fn run(address: IpAddr, announce: impl FnOnce(u16)) -> Outcome {
    let channel = EventChannel::new().map_err(text)?;
    let listener = Id::new(&channel).map_err(text)?;
    listener.bind((address, 0)).map_err(text)?;
    listener.listen(1).map_err(text)?;
    announce(listener.port());
    let end = accept(&channel)?;
    serve(&end)?;
    event(&channel, EventKind::Disconnected)?;
    line("DISCONNECTED: the client has left. Queue pair, regions and identifier are destroyed.");
    Ok(())
}

fn accept(channel: &EventChannel) -> Outcome<DemoEnd> {
    let request = event(channel, EventKind::ConnectRequest)?;
    let (_, word) = introduction(&request.parameters.private_data)?;
    line(&format!(
        "CONNECT_REQUEST with {} bytes of private data: {word:?}",
        request.parameters.private_data.len()
    ));
    let (_, id) = request
        .request
        .ok_or("a connect request without an identifier")?;
    let device = context(&id)?;
    let end = DemoEnd::new(id, &device).map_err(text)?;
    line(&format!(
        "queue pair {:#08x} on {}: INIT, receives posted",
        end.queue_pair.number(),
        device.name()
    ));
    end.id.accept(&end.parameters("welcome")).map_err(text)?;
    line("rdma_accept: INIT -> RTR (ready to receive) -> RTS (ready to send)");
    event(channel, EventKind::Established)?;
    Ok(end)
}

/// What the server is in the middle of.
enum Mode {
    /// Waiting for messages; bulk data only uses up receives.
    Messages,
    /// The next SEND carries these bytes: seed and length.
    Expecting(u64, u64),
    /// Bulk data is sent back.
    Echoing,
}

/// What comes in is either a message or bulk data.
fn serve(end: &DemoEnd) -> Outcome {
    let mut mode = Mode::Messages;
    loop {
        // While the time of a round trip is measured, nobody should have to wake up.
        let completion = if matches!(mode, Mode::Echoing) {
            end.received.spin()
        } else {
            end.received.wait()
        };
        let arrived = done(completion.map_err(text)?)?;
        if is_message(&arrived) {
            let message = end.message()?;
            end.post_receive().map_err(text)?;
            if message == Message::Bye {
                return end.say(Message::Right);
            }
            mode = obey(end, message)?;
        } else {
            bulk(end, &arrived, &mut mode)?;
        }
    }
}

fn obey(end: &DemoEnd, message: Message) -> Outcome<Mode> {
    let (answer, mode) = match message {
        Message::Expect { seed, length } => (Message::Right, Mode::Expecting(seed, length)),
        Message::Verify { seed, length } => (
            verify(&end.memory, "the client's WRITE", seed, length)?,
            Mode::Messages,
        ),
        Message::Fill { seed, length } => {
            end.memory
                .write(0, &pattern(seed, size(length)?))
                .map_err(text)?;
            (Message::Right, Mode::Messages)
        }
        Message::Echo => (Message::Right, Mode::Echoing),
        Message::Messages => (Message::Right, Mode::Messages),
        other => return Err(format!("the client said {other:?}")),
    };
    end.say(answer).map(|()| mode)
}

fn bulk(end: &DemoEnd, arrived: &Done, mode: &mut Mode) -> Outcome {
    if let Mode::Expecting(seed, length) = *mode {
        *mode = Mode::Messages;
        let answer = verify(&end.inbox, "the client's SEND", seed, length)?;
        end.post_receive().map_err(text)?;
        return end.say(answer);
    }
    end.post_receive().map_err(text)?;
    if matches!(mode, Mode::Echoing) {
        end.post(Operation::Send, &end.scratch, 8).map_err(text)?;
        return done(end.sent.spin().map_err(text)?).map(drop);
    }
    if let Some(immediate) = told(arrived) {
        line(&format!(
            "a receive completed: a WRITE of {} bytes with the immediate {immediate:#x}",
            arrived.bytes
        ));
    }
    Ok(())
}

fn is_message(arrived: &Done) -> bool {
    arrived.what == WorkKind::Receive && arrived.bytes as usize == LENGTH
}

/// The immediate of a WRITE that is meant to be told about: measurements use 0.
fn told(arrived: &Done) -> Option<u32> {
    arrived
        .immediate
        .filter(|&immediate| immediate != 0 && arrived.what == WorkKind::ReceiveWriteImmediate)
}

fn verify(region: &MemoryRegion, what: &str, seed: u64, length: u64) -> Outcome<Message> {
    let due = pattern(seed, size(length)?);
    let mut is = vec![0; due.len()];
    region.read(0, &mut is).map_err(text)?;
    match difference(&is, &due) {
        None => {
            line(&format!("all {length} bytes of {what} are right"));
            Ok(Message::Right)
        }
        Some(at) => Ok(Message::Wrong { at: at as u64 }),
    }
}

/// A length that the client named.
fn size(length: u64) -> Outcome<usize> {
    usize::try_from(length)
        .ok()
        .filter(|&length| length <= MEMORY)
        .ok_or_else(|| "the client named too long a piece".into())
}
