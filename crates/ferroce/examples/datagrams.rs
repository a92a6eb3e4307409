//! Datagrams: a client asks whoever is in a multicast group, and is answered directly.
//!
//! `server ADDRESS:PORT` and `client ADDRESS:PORT`: the address is this host's own and says which device to use; the port says which
//! group. Datagrams may be lost, so the client asks again.

mod common;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;
use std::{process, thread};

use common::Outcome;
use ferroce::{
    Access, AddressHandle, CompletionQueue, Datagram, GRH_BYTES, Gid, GidEntry, GidType,
    MemoryRegion, Path, ProtectionDomain, Provider, QueuePair, QueuePairBuilder, Ud,
};

/// What sender and receiver must agree on.
const QKEY: u32 = 0x1234_5678;
const PORT: u8 = 1;
/// Tags of work.
const SEND: u64 = 1;
const RECEIVE: u64 = 2;
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
            this.next(Duration::from_millis(500))
        };
        let mut answers = (0..20).filter_map(|i| ask(i).transpose());
        let (answer, ..) = answers.next().ok_or("nobody answers")??;
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

/// A queue pair that can talk to any other one, and room for one datagram behind the network's header.
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
            let room = MemoryRegion::new(&domain, GRH_BYTES + 256, Access::LocalWrite)?;
            queue_pair.activate(PORT, &gid, QKEY)?;
            queue_pair.post_receive(RECEIVE, &[room.slice(0..room.len())?])?;
            return Ok(Self {
                queue_pair,
                completions,
                domain,
                room,
                gid,
            });
        }
        Err(format!("no device has the address {}", address.ip()).into())
    }

    /// Answers until somebody says good-bye.
    fn serve(&self) -> Outcome {
        loop {
            let next = self.next(Duration::from_secs(3600))?;
            let (question, sender, number) = next.ok_or("nobody asks")?;
            let answer = format!("\"{question}\" came");
            self.send(Datagram::new(&sender, number, QKEY), &answer)?;
            if question == QUESTIONS[2] {
                println!("server: somebody said good-bye");
                // Not before it is on its way.
                while self.completions.wait()?.tag != SEND {}
                return Ok(());
            }
        }
    }

    fn send(&self, datagram: Datagram, text: &str) -> Outcome {
        Ok(self
            .queue_pair
            .post_inline(SEND, datagram, text.as_bytes())?)
    }

    /// The next datagram: its text, the way to the sender, and the number of the sender's queue pair.
    fn next(&self, limit: Duration) -> Outcome<Option<(String, AddressHandle, u32)>> {
        while let Some(completion) = self.completions.wait_timeout(limit)? {
            let (done, room) = (completion.result?, &self.room);
            if completion.tag == SEND {
                continue;
            }
            let mut text = vec![0; done.bytes as usize - GRH_BYTES];
            room.read(GRH_BYTES, &mut text)?;
            // The header's last 20 bytes are that of IPv4, the sender's address 12 bytes behind its beginning.
            let mut from = [0; 4];
            room.read(32, &mut from)?;
            let from = Gid(Ipv4Addr::from(from).to_ipv6_mapped().octets());
            let sender = AddressHandle::new(&self.domain, &Path::new(PORT, &self.gid, from)?)?;
            self.queue_pair
                .post_receive(RECEIVE, &[room.slice(0..room.len())?])?;
            let (text, number) = (String::from_utf8(text)?, done.origin.queue_pair);
            return Ok(Some((text, sender, number)));
        }
        Ok(None)
    }
}
