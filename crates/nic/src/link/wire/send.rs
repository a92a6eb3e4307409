//! Sending: packets of one queue pair to one place in as few system calls as possible.
//!
//! Neighbouring packets of one length are a *run*: the kernel gets them as one piece and cuts it
//! into datagrams (`UDP_SEGMENT`), as late as it can, on this host's own interfaces never. A
//! segment's Identification is its index in the run, which its ICRC has to know.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::atomic::Ordering;

use ferroce_os::udp::{MAX_RUN, MAX_SEGMENTS, UdpDatagram, UdpSocket};
use ferroce_proto::ids::Gid;
use ferroce_proto::wire::icrc::{self, Addresses, Encapsulation, Icrc, Ident};

use super::WireLink;
use crate::base::addressing::Addressing;
use crate::link::fault::NetworkFrame;
use crate::link::{Batch, Sent};

/// Runs per system call.
const RUNS: usize = 16;

/// A socket that sends, and the port that it sends to: the shared one, which both ends have.
#[derive(Clone, Copy)]
struct SocketOut<'a> {
    socket: &'a UdpSocket,
    port: u16,
}

/// The socket is full; this many packets went before.
struct Full(usize);

impl WireLink {
    /// Sends a batch (whose trailer has room for it), each packet with its ICRC.
    ///
    /// What the kernel refuses for another reason than a full socket counts as lost on the way (too
    /// long for the interface, no route, an address that went away). The transport finds out as it
    /// does for any loss.
    ///
    /// It leaves from a private port if one is given, and from the shared port else.
    pub(crate) fn send(&self, private_port: Option<u8>, batch: &mut Batch) -> Sent {
        if self.left.load(Ordering::Relaxed) {
            batch.clear();
            return Sent::All;
        }
        let addressing = batch.addressing;
        let (Some(way), Some(addresses)) = (
            self.way_to(addressing.dst, private_port),
            Addresses::from_gids(addressing.src, addressing.dst),
        ) else {
            self.refused(batch.ends.len(), libc::EAFNOSUPPORT, &addressing);
            batch.clear();
            return Sent::All;
        };
        let encap = Encapsulation {
            addresses,
            src_port: way.socket.port(),
        };
        if let Some(bad) = &self.bad_network {
            if !bad.only_loses() {
                bad.admit(&encap, private_port, batch);
                bad.flush(&mut |frame| self.send_frame(frame));
                return Sent::All;
            }
            bad.thin_out(batch);
        }
        let mut sent = 0;
        while sent < batch.ends.len() {
            match self.send_runs(way, &encap, batch, sent) {
                Ok(more) => sent += more,
                Err(Full(more)) => {
                    batch.discard(sent + more);
                    return Sent::Blocked;
                }
            }
        }
        batch.clear();
        Sent::All
    }

    /// The way to a destination.
    fn way_to(&self, dst: Gid, private_port: Option<u8>) -> Option<SocketOut<'_>> {
        let shared = self.port_of(dst)?;
        let socket = self
            .sender(dst, private_port)
            .unwrap_or_else(|| shared.out());
        let port = shared.port();
        Some(SocketOut { socket, port })
    }

    /// Sends up to [`RUNS`] runs of a batch from the packet `first` on. Returns how many packets
    /// went or were lost.
    fn send_runs(
        &self,
        way: SocketOut<'_>,
        encap: &Encapsulation,
        batch: &mut Batch,
        first: usize,
    ) -> Result<usize, Full> {
        let most = if self.cuts.load(Ordering::Relaxed) {
            MAX_SEGMENTS
        } else {
            1
        };
        let mut runs = [const { 0..0 }; RUNS];
        let (mut ready, mut next) = (0, first);
        while ready < RUNS && next < batch.ends.len() {
            let run = run_from(batch, next, most);
            add_icrcs(encap, batch, run.clone());
            next = run.end;
            runs[ready] = run;
            ready += 1;
        }
        let mut datagrams = [datagram(way.port, &batch.addressing, &[]); RUNS];
        for (slot, run) in datagrams.iter_mut().zip(&runs[..ready]) {
            let bytes = batch.start(run.start)..batch.start(run.end);
            if run.len() > 1 {
                let segment = batch.start(run.start + 1) - bytes.start;
                slot.segment = u16::try_from(segment).expect("invariant: a run fits a datagram");
            }
            slot.payload = &batch.bytes[bytes];
        }
        let mut done = 0;
        while done < ready {
            match way.socket.send_many(&datagrams[done..ready]) {
                Ok(went) => done += went,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    return Err(Full(runs[done].start - first));
                }
                Err(_) if runs[done].len() > 1 => {
                    let run = runs[done].clone();
                    return self
                        .send_singly(way, encap, batch, run.clone())
                        .map(|()| run.end - first)
                        .map_err(|Full(went)| Full(run.start + went - first));
                }
                Err(e) => {
                    self.refused(1, e.raw_os_error().unwrap_or(0), &batch.addressing);
                    done += 1;
                }
            }
        }
        Ok(next - first)
    }

    /// Sends the packets of a run that the kernel did not want to cut, one by one. If it takes them
    /// so, it is not asked again.
    fn send_singly(
        &self,
        way: SocketOut<'_>,
        encap: &Encapsulation,
        batch: &mut Batch,
        run: Range<usize>,
    ) -> Result<(), Full> {
        for index in run.clone() {
            add_icrcs(encap, batch, index..index + 1);
            let bytes = &batch.bytes[batch.start(index)..batch.start(index + 1)];
            match way
                .socket
                .send_many(&[datagram(way.port, &batch.addressing, bytes)])
            {
                Ok(_) => {
                    if self.cuts.swap(false, Ordering::Relaxed) {
                        tracing::debug!(target: "ferroce::wire", "the kernel does not cut runs to {}", batch.addressing.dst.ip());
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Err(Full(index - run.start)),
                Err(e) => self.refused(1, e.raw_os_error().unwrap_or(0), &batch.addressing),
            }
        }
        Ok(())
    }

    /// The kernel refused `count` datagrams. The first time for a reason is worth a warning.
    fn refused(&self, count: usize, errno: i32, to: &Addressing) {
        let why = std::io::Error::from_raw_os_error(errno);
        let (from, to) = (to.src.ip(), to.dst.ip());
        if self.last_refusal.swap(errno, Ordering::Relaxed) == errno {
            tracing::debug!(target: "ferroce::wire", "{count} datagrams from {from} to {to} were not sent: {why}");
        } else {
            tracing::warn!(target: "ferroce::wire", "{count} datagrams from {from} to {to} were not sent: {why}");
        }
    }

    /// Sends a frame that came through the bad network. Returns false if the socket is full.
    pub(super) fn send_frame(&self, frame: &NetworkFrame) -> bool {
        let to = &frame.addressing;
        let Some(way) = self.way_to(to.dst, frame.private_port) else {
            return true;
        };
        match way
            .socket
            .send_many(&[datagram(way.port, to, &frame.bytes)])
        {
            Ok(_) => true,
            Err(e) if e.kind() == ErrorKind::WouldBlock => false,
            Err(e) => {
                self.refused(1, e.raw_os_error().unwrap_or(0), to);
                true
            }
        }
    }
}

/// The packets from `first` on that make a run: all of one length but the last, which may be
/// shorter.
fn run_from(batch: &Batch, first: usize, most: usize) -> Range<usize> {
    let begin = batch.start(first);
    let segment = batch.start(first + 1) - begin;
    let mut end = first + 1;
    while end < batch.ends.len() && end - first < most {
        let len = batch.start(end + 1) - batch.start(end);
        if len > segment || batch.start(end + 1) - begin > MAX_RUN {
            break;
        }
        end += 1;
        if len < segment {
            break;
        }
    }
    first..end
}

/// Fills in the ICRCs of a run.
fn add_icrcs(encap: &Encapsulation, batch: &mut Batch, run: Range<usize>) {
    let mut icrc = Icrc::new(encap);
    for (index, ident) in run.zip((0..).map(Ident::of_segment)) {
        let (start, end) = (batch.start(index), batch.start(index + 1));
        let (packet, trailer) = batch.bytes[start..end].split_at_mut(end - start - icrc::LEN);
        trailer.copy_from_slice(&icrc.compute(ident, packet));
    }
}

/// A datagram to a port.
pub(super) fn datagram<'a>(port: u16, to: &Addressing, payload: &'a [u8]) -> UdpDatagram<'a> {
    UdpDatagram {
        dst: to.dst.ip(),
        port,
        src: to.src.ip(),
        ifindex: to.ifindex,
        ttl: to.hop_limit,
        tos: to.traffic_class,
        flow_label: to.flow_label,
        payload,
        segment: 0,
    }
}
