//! How the records of an outgoing link get to the peer: through a shared ring once the peer has
//! taken it, over the socket until then, or for good where there is no shared memory.
//!
//! The ring is offered with the hello. When the peer has accepted it, a last record on the socket
//! says that all further ones come through the ring; so the order is kept. From then on the socket
//! carries only wake-ups, and its hang-up says that the peer is gone.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use ferroce_os::fd::Fd;
use ferroce_os::ring::{self, Broken, Pushed, Sender, SharedArea};
use ferroce_os::unix::{Record, SeqSocket};
use ferroce_proto::ids::Qpn;

use super::extras;
use super::extras::OfferedPart;
use super::frame::{LOOK, MAX_RECORD, RingAnswer, SWITCH, hello};
use super::packets::{FEW_PACKETS, FEW_PREFIX, PACKETS_PREFIX, PacketsPrefix, packet_prefix};
use crate::base::addressing::Addressing;
use crate::base::sync::lock;
use crate::link::Batch;

/// Bytes of a record that are aimed at: enough to make the work per record cheap, few enough that
/// several fit the link and the receiver can work on one while the next is written.
const RECORD: usize = 64 * 1024;
/// Bytes of a record that is sent without more ado.
const SMALL: usize = 56;
/// Answers that are read at once; the rest waits for the next look.
const ANSWERS: usize = 16;

/// A ring was offered, and the peer has not said anything to that.
const NOT_YET: &str = "the other process has not taken the shared ring yet";
/// The receiver has taken the ring.
const NOT_TAKEN: &str =
    "the other process does not take the shared ring: it cannot, or is another user's";

/// Outcome of sending a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Done,
    Full,
    TooBig,
    Gone,
}

/// How much a link holds that is sent and not received yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Send buffer to ask for.
    pub(super) send_buffer: usize,
    /// Bytes of the ring, or why there is to be none.
    pub(super) ring: Result<u32, &'static str>,
    /// Whether it has short rings.
    pub(super) short_rings: bool,
}

/// Where records go now.
#[derive(Debug)]
enum RecordCarrier {
    /// Onto the socket. The ring is offered, if there is one.
    Socket(Option<Sender>),
    /// Onto the socket until it takes the word that the rest comes through the ring.
    Accepted(Sender),
    /// Into the ring, with the route that its last packets had: the receiver knows it.
    Ring(Sender, Option<Addressing>),
}

/// The way to the peer.
#[derive(Debug)]
pub(super) struct RecordWay {
    socket: SeqSocket,
    carrier: Mutex<RecordCarrier>,
    /// Once records go through the ring.
    area: OnceLock<Arc<SharedArea>>,
    /// Why it has no ring, if that is settled.
    ringless: OnceLock<String>,
    dead: AtomicBool,
    on_ring: AtomicBool,
    /// Bytes of a record to aim at; halved when the kernel finds a record too big.
    record: AtomicUsize,
}

impl RecordWay {
    /// Greets the peer on a fresh connection, and offers it a ring and a board.
    pub(super) fn open(
        socket: SeqSocket,
        own: u16,
        room: Room,
        board: Option<BorrowedFd<'_>>,
    ) -> io::Result<Self> {
        // Four records at least are to fit: a smaller buffer gets smaller records.
        let record = RECORD.min(socket.set_send_buffer(room.send_buffer)? / 4);
        let (offered, ringless) = match greet(&socket, own, room, board)? {
            Ok(offered) => (Some(offered), OnceLock::new()),
            Err(why) => (None, OnceLock::from(why)),
        };
        let longest = offered.as_ref().map_or(record, Sender::longest);
        Ok(Self {
            socket,
            carrier: Mutex::new(RecordCarrier::Socket(offered)),
            area: OnceLock::new(),
            ringless,
            dead: AtomicBool::new(false),
            on_ring: AtomicBool::new(false),
            record: AtomicUsize::new(record.min(longest)),
        })
    }

    pub(super) fn socket(&self) -> &SeqSocket {
        &self.socket
    }

    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    pub(super) fn mark_dead(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// Whether a full link tells of room by an answer, not by being writable.
    pub(super) fn is_on_ring(&self) -> bool {
        self.on_ring.load(Ordering::Acquire)
    }

    /// Why records go over the socket, if they do.
    pub(super) fn why_no_ring(&self) -> Option<&str> {
        if self.is_on_ring() {
            return None;
        }
        Some(self.ringless.get().map_or(NOT_YET, String::as_str))
    }

    /// The memory of the ring, once records go through it.
    pub(super) fn area(&self) -> Option<&Arc<SharedArea>> {
        self.area.get()
    }

    /// Puts a record into the ring, if records go through it and it has room. Returns whether it is
    /// there.
    pub(super) fn push_at_once(&self, record: &[u8]) -> bool {
        self.push_on(lock(&self.carrier), record)
    }

    /// Puts a record into the ring, whose lock the caller has.
    #[inline]
    fn push_on(&self, mut carrier: MutexGuard<'_, RecordCarrier>, record: &[u8]) -> bool {
        let RecordCarrier::Ring(sender, _) = &mut *carrier else {
            return false;
        };
        // What is wrong with the ring the next one finds, that goes the general way.
        if sender.push(&[record]) != Ok(Pushed::Done) {
            return false;
        }
        let wakes = sender.wakes();
        drop(carrier);
        if wakes {
            self.wake();
        }
        true
    }

    /// Bytes of a record to aim at.
    pub(super) fn record(&self) -> usize {
        self.record.load(Ordering::Relaxed)
    }

    /// Sends one record, all of it or nothing.
    pub(super) fn put(&self, record: &[u8]) -> Put {
        match self.carrier() {
            Ok(carrier) => self.put_on(carrier, [record], None),
            Err(put) => put,
        }
    }

    /// Sends a record of packets of one queue pair, which are given by their indices, all of them
    /// or none.
    #[inline]
    pub(super) fn put_packets(&self, from: Qpn, batch: &Batch, which: Range<usize>) -> Put {
        // What the receiver knows must not change before the record is in its place.
        let carrier = match self.carrier() {
            Ok(carrier) => carrier,
            Err(put) => return put,
        };
        let bytes = &batch.bytes[batch.start(which.start)..batch.start(which.end)];
        let route = &batch.addressing;
        let is_known = matches!(&*carrier, RecordCarrier::Ring(_, Some(known)) if known == route);
        if is_known && which.len() == 1 {
            return self.put_on(carrier, [&packet_prefix(from), bytes], None);
        }
        let lengths = which.map(|i| batch.start(i + 1) - batch.start(i));
        let news = (!is_known).then_some(route);
        if lengths.len() <= FEW_PACKETS {
            let prefix = PacketsPrefix::<FEW_PREFIX>::new(from, news, lengths);
            return self.put_on(carrier, [prefix.as_bytes(), bytes], news);
        }
        let prefix = PacketsPrefix::<PACKETS_PREFIX>::new(from, news, lengths);
        self.put_on(carrier, [prefix.as_bytes(), bytes], news)
    }

    /// Sends a packet that fits a small record into the ring, if it goes on the known route and
    /// there is room. Returns whether it is sent.
    pub(super) fn put_at_once(&self, from: Qpn, route: &Addressing, packet: &[u8]) -> bool {
        let carrier = lock(&self.carrier);
        if !matches!(&*carrier, RecordCarrier::Ring(_, Some(known)) if known == route) {
            return false;
        }
        let head = packet_prefix(from);
        let mut room = [0; SMALL];
        let Some(record) = room.get_mut(..head.len() + packet.len()) else {
            return false;
        };
        record[..head.len()].copy_from_slice(&head);
        record[head.len()..].copy_from_slice(packet);
        self.push_on(carrier, record)
    }

    /// What carries records now; an error says that nothing does.
    #[inline]
    fn carrier(&self) -> Result<MutexGuard<'_, RecordCarrier>, Put> {
        if self.is_dead() {
            return Err(Put::Gone);
        }
        let mut carrier = lock(&self.carrier);
        if let RecordCarrier::Accepted(_) = *carrier {
            match self.send(&[&[SWITCH]]) {
                Put::Done => self.switch(&mut carrier),
                other => return Err(other),
            }
        }
        Ok(carrier)
    }

    /// Sends one record. With it the receiver learns of a route, if it is one of packets.
    #[inline]
    fn put_on<const N: usize>(
        &self,
        mut carrier: MutexGuard<'_, RecordCarrier>,
        parts: [&[u8]; N],
        route: Option<&Addressing>,
    ) -> Put {
        debug_assert!(parts.iter().map(|p| p.len()).sum::<usize>() <= MAX_RECORD);
        match &mut *carrier {
            RecordCarrier::Ring(sender, known) => match push(sender, &parts) {
                Ok((put, wakes)) => {
                    if let (Put::Done, Some(route)) = (put, route) {
                        *known = Some(*route);
                    }
                    drop(carrier);
                    if wakes {
                        self.wake();
                    }
                    put
                }
                Err(broken) => self.cut(&broken),
            },
            RecordCarrier::Socket(_) | RecordCarrier::Accepted(_) => self.send(&parts),
        }
    }

    /// Makes records smaller, after the kernel has found one too big.
    pub(super) fn shrink(&self) {
        let smaller = self.record() / 2;
        self.record.store(smaller, Ordering::Relaxed);
        tracing::debug!(target: "ferroce::local", bytes = smaller, "smaller records");
    }

    /// Reads what the peer has answered: the descriptor is readable.
    pub(super) fn take_answers(&self) {
        let mut room = [0; 2];
        for _ in 0..ANSWERS {
            match self.socket.recv(&mut room) {
                Ok(Record::Whole(1)) => match RingAnswer::from_byte(room[0]) {
                    Some(RingAnswer::Accepted) => self.on_accepted(),
                    Some(RingAnswer::Refused) => self.on_refused(),
                    Some(RingAnswer::Room) => {}
                    None => {
                        self.cut(&"an answer of unknown kind");
                        return;
                    }
                },
                Ok(Record::Nothing | Record::Closed) | Err(_) => return,
                Ok(Record::Whole(_) | Record::Truncated) => {
                    self.cut(&"an answer that is too long");
                    return;
                }
            }
        }
    }

    fn on_accepted(&self) {
        let mut carrier = lock(&self.carrier);
        *carrier = match std::mem::replace(&mut *carrier, RecordCarrier::Socket(None)) {
            RecordCarrier::Socket(Some(sender)) => RecordCarrier::Accepted(sender),
            other => other,
        };
    }

    fn on_refused(&self) {
        let mut carrier = lock(&self.carrier);
        if let RecordCarrier::Socket(offered) = &mut *carrier {
            *offered = None;
            let _ = self.ringless.set(NOT_TAKEN.to_owned());
            tracing::debug!(target: "ferroce::local", "the peer does not take the shared ring: records go over the socket");
        }
    }

    fn switch(&self, carrier: &mut RecordCarrier) {
        *carrier = match std::mem::replace(carrier, RecordCarrier::Socket(None)) {
            RecordCarrier::Accepted(sender) => {
                // The socket's limits do not count any more.
                let record = RECORD.min(sender.longest());
                self.record.store(record, Ordering::Relaxed);
                let _ = self.area.set(Arc::clone(sender.area()));
                self.on_ring.store(true, Ordering::Release);
                tracing::debug!(target: "ferroce::local", "records go through the shared ring from here");
                RecordCarrier::Ring(sender, None)
            }
            other => other,
        };
    }

    fn send(&self, parts: &[&[u8]]) -> Put {
        let mut slices = [IoSlice::new(&[]); 2];
        let used = slices
            .iter_mut()
            .zip(parts)
            .map(|(s, p)| *s = IoSlice::new(p));
        let used = used.count();
        let Err(error) = self.socket.send(&slices[..used]) else {
            return Put::Done;
        };
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Put::Full,
            Some(libc::EMSGSIZE | libc::ENOBUFS | libc::ENOMEM) => Put::TooBig,
            _ => {
                tracing::debug!(target: "ferroce::local", %error, "link is down");
                self.mark_dead();
                Put::Gone
            }
        }
    }

    /// Wakes a peer that sleeps. If the socket is full it has not read an earlier wake-up yet.
    pub(super) fn wake(&self) {
        self.send(&[&[LOOK]]);
    }

    /// The peer breaks the rules. The hang-up of the socket will say that nothing goes to it any
    /// more.
    fn cut(&self, why: &dyn std::fmt::Display) -> Put {
        tracing::warn!(target: "ferroce::local", %why, "link is cut");
        self.mark_dead();
        self.socket.shutdown();
        Put::Gone
    }
}

/// Puts a record into the ring. Returns also whether the peer must be woken.
#[inline]
fn push(sender: &mut Sender, parts: &[&[u8]]) -> Result<(Put, bool), Broken> {
    while sender.push(parts)? == Pushed::Full {
        let len = parts.iter().map(|p| p.len()).sum();
        if !sender.wait(len)? {
            return Ok((Put::Full, false));
        }
    }
    Ok((Put::Done, sender.wakes()))
}

/// Says hello, and offers a ring, if this process can make one, and a board, if there is one.
fn greet(
    socket: &SeqSocket,
    own: u16,
    room: Room,
    board: Option<BorrowedFd<'_>>,
) -> io::Result<Result<Sender, String>> {
    let (sender, file, has_short_rings) = match ring(room) {
        Ok((sender, file, has)) => (Ok(sender), Some(file), has),
        Err(why) => (Err(why), None, false),
    };
    let value = room.ring.unwrap_or(0).to_le_bytes();
    let file: Option<BorrowedFd<'_>> = file.as_ref().map(AsFd::as_fd);
    let ring = file.as_ref().map(|file| OfferedPart {
        tag: extras::RING,
        value: &value,
        descriptors: std::slice::from_ref(file),
    });
    let board = board.as_ref().map(|board| OfferedPart {
        tag: extras::BOARD,
        value: &[],
        descriptors: std::slice::from_ref(board),
    });
    let short_rings = has_short_rings.then_some(OfferedPart {
        tag: extras::SHORT_RINGS,
        value: &[],
        descriptors: &[],
    });
    let offers: Vec<_> = ring.into_iter().chain(board).chain(short_rings).collect();
    let descriptors: Vec<_> = offers.iter().flat_map(|o| o.descriptors).copied().collect();
    let hello = hello(own, &extras::encode(&offers));
    socket.send_with(&[IoSlice::new(&hello)], &descriptors)?;
    Ok(sender)
}

/// A ring for a new link, and whether it has short rings; or why there is none. Limits of files and
/// address space may have room for the ring alone.
pub(super) fn ring(room: Room) -> Result<(Sender, Fd, bool), String> {
    let bytes = room.ring?;
    let create = |has| ring::create(bytes, has).map(|(sender, file)| (sender, file, has));
    let made = create(room.short_rings).or_else(|why| {
        tracing::debug!(target: "ferroce::local", %why, "a link without short rings");
        create(false)
    });
    made.map_err(|why| {
        tracing::debug!(target: "ferroce::local", %why, "a link without shared ring");
        why.to_string()
    })
}
