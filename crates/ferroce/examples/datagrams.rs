//! Datagrams: a client asks the members of a multicast group, and is answered directly.
//!
//! `server ADDRESS:PORT` and `client ADDRESS:PORT`: the address is this host's own and says which
//! device to use; the port says which group. Datagrams may be lost or late, so the client asks
//! again, and looks at what is answered.

mod common;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;
use std::{process, thread};

use common::Outcome;
use ferroce::Provider;
use ferroce::cq::CompletionQueue;
use ferroce::device::{Gid, GidEntry, GidType};
use ferroce::mem::{Access, MemoryRegion, ProtectionDomain};
use ferroce::qp::{Path, QueuePair, QueuePairBuilder};
use ferroce::transport::Ud;
use ferroce::ud::{AddressHandle, Datagram, GRH_BYTES};

/// What sender and receiver must agree on.
const QKEY: u32 = 0x1234_5678;
const PORT: u8 = 1;
/// Tags of work.
const SEND: u64 = 1;
/// Of the first receive; each has the next.
const RECEIVE: u64 = 2;
/// Receives, and bytes of each: the network's header and a text.
const RECEIVES: usize = 2;
const ROOM: usize = GRH_BYTES + 256;
/// How long an answer takes at most, unless it was lost.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often a question is asked.
const TRIES: usize = 100;
const QUESTIONS: [&str; 3] = ["hello", "how are you", "good-bye"];

pub(crate) fn main() -> Outcome {
    let (run, address) = common::arguments()?;
    let SocketAddr::V4(mut address) = address else {
        return Err("this example is for IPv4".into());
    };
    if address.port() == 0 {
        address.set_port(u16::try_from(process::id() % 65_535)? + 1);
    }
    if run == common::Side::Client {
        return client(address);
    }
    let server = Side::new(address)?;
    server.queue_pair.attach(group(address), 0)?;
    println!("listening at port {}", address.port());
    if run == common::Side::Server {
        return server.serve();
    }
    let serving = thread::spawn(move || server.serve());
    client(address)?;
    serving.join().map_err(|_| "the server panicked")?
}

fn client(address: SocketAddrV4) -> Outcome {
    let this = Side::new(address)?;
    let path = Path::new(PORT, &this.gid, group(address))?;
    let to = AddressHandle::new(&this.domain, &path)?;
    for question in QUESTIONS {
        let ask = |_| -> Outcome<_> {
            this.send(Datagram::new(&to, Datagram::MULTICAST, QKEY), question)?;
            this.answer(question)
        };
        let mut answers = (0..TRIES).filter_map(|i| ask(i).transpose());
        let answer = answers.next().ok_or("nobody answers")??;
        println!("client: {question}? {answer}");
    }
    Ok(())
}

/// The multicast address 239.7.x.y of a port.
fn group(address: SocketAddrV4) -> Gid {
    let [high, low] = address.port().to_be_bytes();
    let group = Ipv4Addr::new(239, 7, high, low);
    Gid(group.to_ipv6_mapped().octets())
}

/// A queue pair that can talk to any other one, and room for some datagrams behind the network's
/// headers.
struct Side {
    queue_pair: QueuePair<Ud>,
    completions: CompletionQueue,
    domain: ProtectionDomain,
    room: MemoryRegion,
    gid: GidEntry,
}

impl Side {
    fn new(address: SocketAddrV4) -> Outcome<Self> {
        let ip = Some(*address.ip());
        let ours = |gid: &GidEntry| gid.kind == GidType::RoceV2 && gid.gid.ipv4() == ip;
        for device in Provider::auto().devices()? {
            let context = device.open()?;
            let Some(gid) = context.gids(PORT)?.into_iter().find(ours) else {
                continue;
            };
            let domain = ProtectionDomain::new(&context)?;
            let completions = CompletionQueue::new(&context, 16)?;
            let builder = QueuePairBuilder::<Ud>::new(&domain, &completions);
            let queue_pair = builder.send(8).receive(8).inline(64).build()?;
            let room = MemoryRegion::new(&domain, RECEIVES * ROOM, Access::LocalWrite)?;
            queue_pair.activate(PORT, &gid, QKEY)?;
            let side = Self {
                queue_pair,
                completions,
                domain,
                room,
                gid,
            };
            (0..RECEIVES).try_for_each(|which| side.receive(which))?;
            return Ok(side);
        }
        Err(format!("no device has the address {}", address.ip()).into())
    }

    /// Answers until somebody says good-bye, and has stopped asking: that answer may be lost, too.
    fn serve(&self) -> Outcome {
        let mut limit = Duration::from_secs(3600);
        let mut ended = false;
        while let Some((question, sender, number)) = self.next(limit)? {
            let answer = format!("\"{question}\" came");
            self.send(Datagram::new(&sender, number, QKEY), &answer)?;
            if question == QUESTIONS[2] {
                (ended, limit) = (true, 4 * PATIENCE);
            }
        }
        if !ended {
            return Err("nobody asks".into());
        }
        println!("server: somebody said good-bye");
        Ok(())
    }

    /// The answer to a question, unless it is lost. One to a question before may come late.
    fn answer(&self, question: &str) -> Outcome<Option<String>> {
        while let Some((answer, ..)) = self.next(PATIENCE)? {
            if answer.contains(question) {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    fn receive(&self, which: usize) -> Outcome {
        let room = self.room.slice(which * ROOM..(which + 1) * ROOM)?;
        let tag = RECEIVE + which as u64;
        Ok(self.queue_pair.post_receive(tag, &[room])?)
    }

    fn send(&self, datagram: Datagram, text: &str) -> Outcome {
        Ok(self
            .queue_pair
            .post_inline(SEND, datagram, text.as_bytes())?)
    }

    /// The next datagram: its text, the way to the sender, and the number of the sender's queue
    /// pair.
    fn next(&self, limit: Duration) -> Outcome<Option<(String, AddressHandle, u32)>> {
        while let Some(completion) = self.completions.wait_timeout(limit)? {
            let (done, room) = (completion.result?, &self.room);
            if completion.tag == SEND {
                continue;
            }
            let which = usize::try_from(completion.tag - RECEIVE)?;
            let mut text = vec![0; done.bytes as usize - GRH_BYTES];
            room.read(which * ROOM + GRH_BYTES, &mut text)?;
            // The header's last 20 bytes are that of IPv4, the sender's address 12 bytes behind its
            // beginning.
            let mut from = [0; 4];
            room.read(which * ROOM + 32, &mut from)?;
            let from = Gid(Ipv4Addr::from(from).to_ipv6_mapped().octets());
            let sender = AddressHandle::new(&self.domain, &Path::new(PORT, &self.gid, from)?)?;
            self.receive(which)?;
            let (text, number) = (String::from_utf8(text)?, done.origin.queue_pair);
            return Ok(Some((text, sender, number)));
        }
        Ok(None)
    }
}
